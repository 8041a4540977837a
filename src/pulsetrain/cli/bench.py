"""`pulsetrain bench`: run a command or a container as a benchmark, and gate what comes out."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from pulsetrain.cli import options
from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.sources import Options

INTERVAL_SECONDS = 5.0
WORDS = "pulsetrain.bench.words"
_FILE = click.Path(dir_okay=False, path_type=Path)


class BenchGroup(click.Group):
    """What names no command of its own is what to run: `bench IMAGE` is `bench run IMAGE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.default_map = dict.fromkeys(self.commands, ctx.default_map)
        return super().parse_args(ctx, self.with_command(args))

    def with_command(self, args: list[str]) -> list[str]:
        known = (*self.commands, "-h", "--help")
        return args if not args or args[0] in known else ["run", *args]


class BenchRun(click.Command):
    """Keeps what follows `--` apart: with an image before it they are its arguments, else they are the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, words = self.split(args)
        ctx.meta[WORDS] = tuple(words)
        try:
            return super().parse_args(ctx, own)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            hint = "Put -- before a command, or before the arguments of an image."
            raise click.UsageError(f"{error.message}. {hint}", ctx) from None

    @staticmethod
    def split(args: list[str]) -> tuple[list[str], list[str]]:
        """What comes before `--`, and after it."""
        place = args.index("--") if "--" in args else len(args)
        return args[:place], args[place + 1 :]


def _dashed(name: str) -> str:
    """The older tool writes `--carbon_region`."""
    return name.replace("_", "-")


def _environment(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not name:
            raise click.BadParameter("must have the form NAME=VALUE or NAME")
        found[name] = text if equals else os.environ.get(name, "")
    return found


@click.group(cls=BenchGroup, short_help="Run a command or a container as a benchmark; gate its results.")
def bench() -> None:
    """Run a command or a container as a benchmark, watched, with energy and carbon.

    `bench -- CMD`, `bench IMAGE` and `bench SUITE.toml` are short for `bench run`; `pulsetrain bench run --help` lists
    the options.
    """


def _watching(function: Callable[..., Any]) -> Callable[..., Any]:
    return options.watching(function, options.interval_of(INTERVAL_SECONDS))


@bench.command(cls=BenchRun, context_settings={"token_normalize_func": _dashed}, short_help="Run benchmarks.")
@click.argument("image", required=False, metavar="[IMAGE | SUITE.toml] [-- CMD...]")
@click.option("--benchmark-image", metavar="IMAGE", help="Same as IMAGE; '' lists local images.")
@click.option("--repeat", type=click.IntRange(1, 10_000), metavar="N", help="Measured runs. [default: 1]")
@click.option("--warm-up", type=click.IntRange(0, 1000), metavar="N", help="Unmeasured runs before them. [default: 0]")
@click.option("--timeout", type=click.FloatRange(0.1), metavar="SECONDS", help="Stop a run that takes longer.")
@click.option(
    "--env", multiple=True, callback=_environment, metavar="NAME=VALUE", help="Set an environment variable. Repeatable."
)
@click.option(
    "--mount", "mounts", multiple=True, metavar="HOST:PATH[:ro]", help="Mount a folder into the container. Repeatable."
)
@click.option("--shm-size", default="", metavar="SIZE", help="Shared memory of the container, such as 1g.")
@click.option("--cpus", type=click.FloatRange(0.01), metavar="N", help="CPU limit of the container, in cores.")
@click.option("--memory", default="", metavar="SIZE", help="Memory limit of the container, such as 8g.")
@click.option("--network", default="", metavar="NAME", help="Network of the container: host, none, ...")
@click.option("--no-gpus", is_flag=True, help="Pass no GPUs to the container.")
@click.option(
    "--results-path", default="/results", show_default=True, help="Folder in the container whose files are kept."
)
@click.option(
    "--score",
    default="",
    metavar="REGEX",
    help="Read the score from the output: the group of the last match.",
)
@click.option(
    "--score-better",
    type=click.Choice(["higher", "lower"]),
    default="higher",
    show_default=True,
    help="Whether higher or lower scores are better.",
)
@click.option(
    "--results",
    "results_folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results"),
    show_default=True,
    metavar="DIR",
    help="Folder for results.",
)
@click.option("--no-live-monitor", is_flag=True, help="Do not show the live view.")
@click.option("--monitor-benchmark-logs", is_flag=True, help="Show the full output instead of the last lines.")
@click.option("--no-plot", is_flag=True, help="Do not draw metrics_plot.png.")
@click.option("--live-plot", "--plot-live", "live_plot", is_flag=True, help="Also draw metrics_plot.png while it runs.")
@click.option("--export-to-victoria", is_flag=True, help="Send readings to VictoriaMetrics; see docs/bench.md.")
@click.option("--no-instrument", is_flag=True, help="Do not instrument the training loop.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write the result as JUnit XML.")
@_watching
@options.json_output
@options.quiet
@options.logs
def run(**given: Any) -> int:
    """Run a command, a container or a suite of both as a benchmark. Each run is recorded; the results are kept in DIR.

    \b
        pulsetrain bench --repeat 5 --warm-up 1 -- python train.py
        pulsetrain bench mnist_tf_keras -- --epochs 3
        pulsetrain bench suite.toml

    Exit codes: 0 when all runs finished, 1 when one failed or timed out, 130 when interrupted.
    """
    from pulsetrain.cli.bench_run import BenchOptions, list_images, run_benchmarks

    image, words = given.pop("image"), click.get_current_context().meta[WORDS]
    named = given.pop("benchmark_image")
    if "" in (image, named):
        list_images()
        return 0
    if image and named:
        raise UsageError("give the image once: IMAGE or --benchmark-image.")
    return run_benchmarks(BenchOptions(what=image or named or "", words=words, **given))


@bench.command(short_help="Compare results with a baseline, for CI.")
@click.argument("baseline")
@click.argument("current", default="results")
@click.option(
    "--margin",
    type=click.FloatRange(0.0, 100.0),
    default=3.0,
    show_default=True,
    metavar="PERCENT",
    help="Tolerate results up to this much worse.",
)
@click.option(
    "--figure", "figures", multiple=True, metavar="KEY", help="Gate on this figure only: seconds, joules, ..."
)
@click.option("--junit", type=_FILE, metavar="FILE", help="Write the result as JUnit XML.")
@options.json_output
def gate(
    baseline: str, current: str, margin: float, figures: tuple[str, ...], junit: Path | None, as_json: bool
) -> int:
    """Compare the results in CURRENT with those in BASELINE: results folders, or DIR:NAME for one benchmark in them.

    A result is worse if time, score, energy or memory got worse by more than the noise and by more than the margin.
    Exit codes: 0 when nothing is worse, 1 when something is worse or a run failed, 3 when there are too few runs to
    tell.
    """
    from pulsetrain.bench import gate as gating
    from pulsetrain.bench.junit import gate_xml
    from pulsetrain.bench.results import FIGURES
    from pulsetrain.views.bench.text import gate_lines
    from pulsetrain.views.text import Style

    known = [figure.key for figure in FIGURES]
    if unknown := [key for key in figures if key not in known]:
        raise UsageError(f"unknown figure {unknown[0]!r}.", hint=f"Choose from {', '.join(known)}.")
    found = gating.gate(gating.chosen(baseline), gating.chosen(current), margin=margin / 100, only=figures)
    if junit:
        write_file(junit, gate_xml(found))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        click.echo("\n".join(gate_lines(found, Style(sys.stdout))))
    return gating.exit_code(found)


@bench.command(short_help="Measure what pulsetrain itself costs.")
@click.option("--seconds", type=click.FloatRange(1.0), default=120.0, show_default=True, help="How long to measure.")
@options.interval_of(INTERVAL_SECONDS)
@options.machine
@options.directory
@options.json_output
def dummy(seconds: float, interval: float, machine: Options, directory: str | None, as_json: bool) -> int:
    """Measure what pulsetrain itself costs on an idle machine, in CPU time, memory and GPU power.

    It alternates between watching and not watching, for half of the time each.
    """
    from pulsetrain.bench.own_cost import measure_own_cost
    from pulsetrain.cli.stopping import stop_on_signals
    from pulsetrain.views.bench.text import own_cost_lines
    from pulsetrain.watching.options import WatchOptions

    watching = WatchOptions(sources=machine, interval_seconds=interval, name="dummy", directory=directory)
    cost = measure_own_cost(watching, seconds, stop_on_signals())
    click.echo(msgspec.json.format(msgspec.json.encode(cost), indent=2) if as_json else "\n".join(own_cost_lines(cost)))
    return 0


def write_file(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise PulsetrainError(f"{path} cannot be written: {error.strerror}.") from None
