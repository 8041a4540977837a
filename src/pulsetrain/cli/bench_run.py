"""What `pulsetrain bench run` does: puts benchmarks, the live screen and the files of results together."""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pulsetrain.bench import suite
from pulsetrain.bench.command import CommandWorkload
from pulsetrain.bench.declaration import Benchmark, checked
from pulsetrain.bench.output import OutputEcho, OutputLog
from pulsetrain.bench.repeat import Handling, Repeated, RepeatInProgress, StopRequest
from pulsetrain.bench.results import BenchmarkResult, Results
from pulsetrain.bench.series import Series
from pulsetrain.bench.workload import Workload
from pulsetrain.cli.bench import write_file
from pulsetrain.cli.messages import to_terminal
from pulsetrain.errors import UsageError
from pulsetrain.runs.folder import CountingOptions, RunFolder
from pulsetrain.snapshot import Snapshot
from pulsetrain.views.text import Style
from pulsetrain.watching.options import WatchOptions
from pulsetrain.watching.recording import name_of

if TYPE_CHECKING:
    from pulsetrain.bench.container import Containers
    from pulsetrain.outputs.push.target import PushTarget

CARBON_REGION = "South England"
"""As the older tool has it, when nothing else is said."""
VICTORIA_VARIABLE = "PULSETRAIN_VICTORIA_URL"
INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What the user said."""

    what: str
    """An image, a suite file, or nothing: then `words` are a command."""
    words: tuple[str, ...]
    repeat: int | None
    warm_up: int | None
    timeout: float | None
    env: dict[str, str]
    mounts: tuple[str, ...]
    shm_size: str
    cpus: float | None
    memory: str
    network: str
    no_gpus: bool
    results_path: str
    score: str
    score_better: str
    results_folder: Path
    no_live_monitor: bool
    monitor_benchmark_logs: bool
    no_plot: bool
    live_plot: bool
    export_to_victoria: bool
    no_instrument: bool
    junit: Path | None
    watching: WatchOptions
    as_json: bool
    quiet: bool


def run_benchmarks(options: BenchOptions) -> int:
    """Run all that the user asked for; the exit code."""
    benchmarks, order = _benchmarks(options)
    watching = _watching(options)
    series = Series(benchmarks, options.results_folder, order)
    stop = StopRequest()
    with ExitStack() as stack:
        live = _LiveViews(options, series, stack)

        def interrupt(*_: object) -> None:
            stop.add()
            if live.looking_for_image:  # which may take long, and leaves nothing to put in order
                raise KeyboardInterrupt

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, interrupt)
        results = series.run(live.handling(watching, stop), live.ended)
    return _finish(options, series, results, stop)


class _LiveViews:
    """What is shown and drawn while benchmarks run."""

    def __init__(self, options: BenchOptions, series: Series, stack: ExitStack) -> None:
        from pulsetrain.views.bench.live import BenchScreen
        from pulsetrain.views.bench.live_plot import LivePlot

        self._options = options
        self._series = series
        self.looking_for_image = False
        self._stack = stack
        self._containers: Containers | None = None
        self._present: RepeatInProgress | None = None
        self._echo: OutputEcho | None = None
        self._screen: BenchScreen | None = None
        shown = Style(sys.stderr).terminal and not (options.no_live_monitor or options.quiet)
        if options.monitor_benchmark_logs:
            self._echo = OutputEcho(sys.stderr)
            stack.callback(self._echo.close)
        elif shown:
            self._screen = BenchScreen(sys.stderr, series)
            stack.callback(self._screen.close)
        if options.live_plot and not options.no_plot:
            stack.callback(LivePlot(options.results_folder, self._run_folder).close)

    def handling(self, watching: WatchOptions, stop: StopRequest) -> Handling:
        return Handling(
            watching=watching,
            stop=stop,
            open=self._open,
            began=self._began,
            consumer=self._take if self._screen else None,
            echo=self._echo,
        )

    def ended(self, benchmark: Benchmark, repeated: Repeated) -> None:
        self._present = None
        if not self._screen and not self._options.quiet and self._series.total > 1:
            one = repeated.result
            took = (one.end - one.start).total_seconds()
            to_terminal([f"{benchmark.name} {one.folder}: {one.status} after {took:.2f} s"])

    def _open(self, benchmark: Benchmark, output: OutputLog) -> Workload:
        if benchmark.image:
            self.looking_for_image = True
            try:
                return self._engine().open(benchmark, output)
            finally:
                self.looking_for_image = False
        return CommandWorkload(benchmark, output, instrumented=not self._options.no_instrument)

    def _engine(self) -> "Containers":
        """Connected to when a container is first wanted."""
        if self._containers is None:
            from pulsetrain.bench.container import Containers

            self._containers = Containers(
                gpus=self._options.watching.sources.gpus,
                with_gpus=not self._options.no_gpus,
                instrumented=not self._options.no_instrument,
                told=lambda line: None if self._options.quiet else to_terminal([line]),
            )
            self._stack.callback(self._containers.close)
        return self._containers

    def _began(self, progress: RepeatInProgress) -> None:
        self._present = progress
        if self._screen:
            self._screen.began(progress)

    def _take(self, snapshot: Snapshot) -> None:
        assert self._screen
        self._screen(snapshot)

    def _run_folder(self) -> RunFolder | None:
        present = self._present
        return present.session.recording.folder if present and present.session.recording else None


def list_images() -> None:
    """For `--benchmark-image ''`."""
    from pulsetrain.bench import engine
    from pulsetrain.views.text import bytes_text, in_one_unit, table

    with closing(engine.connect()) as client:
        images = engine.image_rows(client)
    sizes = in_one_unit([size for _, _, size in images], bytes_text)
    rows = [(tag, identity, size) for (tag, identity, _), size in zip(images, sizes, strict=True)]
    click.echo("\n".join(table(("image", "id", "size"), rows, Style(sys.stdout), "llr")))


def _benchmarks(options: BenchOptions) -> tuple[Sequence[Benchmark], suite.Order]:
    if options.what.endswith(".toml"):
        if options.words:
            raise UsageError("a suite file defines its own commands.")
        found, order = suite.read_suite(Path(options.what))
        said = {"repeat": options.repeat, "warm_up": options.warm_up, "timeout": options.timeout}
        given = {name: value for name, value in said.items() if value is not None}
        return [checked(msgspec.structs.replace(each, **given)) for each in found], order
    if not options.what and not options.words:
        raise UsageError(
            "nothing to run.",
            hint="pulsetrain bench IMAGE, pulsetrain bench -- CMD..., or pulsetrain bench SUITE.toml",
        )
    benchmark = Benchmark(
        name=options.watching.name or options.what or name_of(options.words),
        image=options.what,
        command=options.words,
        env=options.env,
        mounts=options.mounts,
        shm_size=options.shm_size,
        cpus=options.cpus,
        memory=options.memory,
        network=options.network,
        results_path=options.results_path,
        timeout=options.timeout,
        score=options.score,
        score_better="lower" if options.score_better == "lower" else "higher",
        repeat=options.repeat or 1,
        warm_up=options.warm_up or 0,
    )
    return [checked(benchmark)], "interleaved"


def _watching(options: BenchOptions) -> WatchOptions:
    watching = options.watching
    account = watching.account.over(CountingOptions(carbon_region=CARBON_REGION))
    outputs = watching.outputs
    if options.export_to_victoria:
        outputs = replace(outputs, push=[*outputs.push, *_victoria()])
    return replace(watching, name=None, account=account, outputs=outputs)


def _victoria() -> "list[PushTarget]":
    """Where --export-to-victoria sends: the first section [push.NAME] of that kind, else what the environment says."""
    from pulsetrain import settings
    from pulsetrain.outputs.push.target import parse_targets

    sections = settings.in_force().config.push
    named = next((name for name, section in sections.items() if section.url.startswith("victoriametrics:")), None)
    url = os.environ.get(VICTORIA_VARIABLE)
    if not named and not url:
        raise UsageError(
            "--export-to-victoria has no server to send to.",
            hint=f"Set {VICTORIA_VARIABLE}=http://host:8428, with PULSETRAIN_PUSH_USER and PULSETRAIN_PUSH_PASSWORD; "
            "or add a section [push.victoria] with url = 'victoriametrics:http://host:8428' to your settings.",
        )
    return parse_targets([named or f"victoriametrics:{url}"], sections)


def _finish(options: BenchOptions, series: Series, results: Results, stop: StopRequest) -> int:
    from pulsetrain.bench.junit import results_xml
    from pulsetrain.views.bench.files import write_result_files

    for benchmark in series.benchmarks:
        write_result_files(series.result_of(benchmark), series.folder_of(benchmark), plot=not options.no_plot)
    if options.junit:
        write_file(options.junit, results_xml(results))
    if options.as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(results), indent=2))
    elif not options.quiet:
        click.echo("\n".join(_result_lines(series, results)))
    if stop.wanted:
        return INTERRUPTED
    return 0 if all(result.complete for result in results.benchmarks) else 1


def _result_lines(series: Series, results: Results) -> list[str]:
    """The older tool's tables of one benchmark, or one table over several; then where everything is."""
    from pulsetrain.views.bench.text import result_lines, suite_lines

    style = Style(sys.stdout)
    if len(results.benchmarks) > 1:
        return [*suite_lines(results, style), "", f"results  {series.folder}"]
    (result,) = results.benchmarks
    return [*_older_tables(result, series.folder), *result_lines(result, style), "", f"results  {series.folder}"]


def _older_tables(result: BenchmarkResult, folder: Path) -> list[str]:
    file = folder / "formatted_metrics.txt"
    return [*file.read_text().splitlines(), ""] if result.typical and file.exists() else []
