"""Write the pages of docs/ that are made from the code, and the pictures that are made from real output."""

import html
import os
import platform
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pulsetrain import catalog
from pulsetrain.alerts.prometheus import render_alertmanager, render_rules
from pulsetrain.alerts.promql import promql
from pulsetrain.cli.main import cli
from pulsetrain.demo import train
from pulsetrain.deploy.kubernetes.kustomize import kustomize_files
from pulsetrain.rules.declared import RECORD_RULES, RULES
from pulsetrain.rules.recording import RECORDING_RULES
from pulsetrain.rules.text import number_text, pieces
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.settings import Config

if TYPE_CHECKING:
    from rich.style import Style

DOCS = Path(__file__).parent
HELP_COLUMNS = 96
LEAST_COST = "A warning when it costs at least {least_cost_ratio} of the run's time, and {least_cost_seconds} s."
TERMINAL_COLUMNS = 116

METRICS_HEAD = """\
# Metrics

<!-- Written by docs/generate.py from src/pulsetrain/catalog: edit that. -->

Every metric that pulsetrain records. What a device or a system does not have is left out of its lines, or is `null`;
it is never 0. A *counter* only rises, except for resets; a *gauge* goes up and down; *words* is a list of strings.
Where there is an entry under *by*, the field holds an object with one value for each of these. The Prometheus name
is the one on [`/metrics`](prometheus.md) and in [pushed](push.md) and back-filled series.
[The run folder](run-folder.md) shows the lines and says how often each kind comes."""

COMMANDS_HEAD = """\
# Commands

<!-- Written by docs/generate.py from the commands themselves: edit those. -->

The help of every command, and where else its options can be set. [The guide](guide.md) explains them."""


def metrics_page() -> Iterator[str]:
    yield METRICS_HEAD
    for table in catalog.SAMPLE_TABLES:
        yield ""
        yield f"## {table.title}"
        yield ""
        yield f"`{table.files}.jsonl`: {table.lines}."
        if labels := ", ".join(f"`{label.name}`" for label in table.labels):
            yield f"Each begins with {labels}, as far as they are known."
        yield ""
        head = ["field", "Prometheus name", "kind", "unit", "by", "what it is"]
        metrics = catalog.metrics_of(table.name)
        rows = [[f"`{m.field}`", f"`{m.name}`", m.kind, m.unit, m.by or "", m.help] for m in metrics]
        yield from _table(head, rows)


def commands_page() -> Iterator[str]:
    yield COMMANDS_HEAD
    root = click.Context(cli, info_name="pulsetrain", terminal_width=HELP_COLUMNS, **cli.context_settings)
    contexts = list(_contexts(root))
    for ctx in contexts:
        yield ""
        yield f"{'#' * max(2, len(ctx.command_path.split()))} {ctx.command_path}"
        yield ""
        yield "```text"
        yield ctx.get_help()
        yield "```"
    yield ""
    yield "## Options that can be set elsewhere"
    yield ""
    yield "The command line comes first, then the variable, then the file, then the default."
    yield ""
    yield from _table(["option", "variable", "in `pulsetrain.toml`", "commands"], _settable(contexts))


def _contexts(ctx: click.Context) -> Iterator[click.Context]:
    """A command and those below it."""
    yield ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            assert command is not None
            yield from _contexts(click.Context(command, ctx, name, **command.context_settings))


def _settable(contexts: list[click.Context]) -> list[list[str]]:
    settings = {field.name for field in msgspec.structs.fields(Config)}
    rows: dict[str, list[str]] = {}
    for ctx in contexts:
        for option in ctx.command.params:
            long = max(option.opts, key=len)
            plain = long.removeprefix("--").replace("-", "_")
            setting = next((name for name in (plain, f"{plain}s") if name in settings), "")
            if setting or option.envvar:
                variable, key = f"`{option.envvar}`" if option.envvar else "", f"`{setting}`" if setting else ""
                row = rows.setdefault(long, [f"`{long}`", variable, key, ""])
                row[3] += f"{', ' if row[3] else ''}{ctx.info_name}"
    return list(rows.values())


TOPICS = {
    "machine": "GPUs and machines",
    "waste": "Waste",
    "training": "The training loop",
    "budget": "Budgets",
    "watching": "The watching itself",
}
"""Title of each topic of alerts."""


def page_with_tables(name: str) -> Iterator[str]:
    """The page as it is, with its tables written again."""
    tables = {"alerts": _alerts, "thresholds": _thresholds, "recordings": _recordings, "findings": _findings}
    lines = iter((DOCS / name).read_text(encoding="utf-8").splitlines())
    for line in lines:
        yield line
        if table := re.match(r"<!-- (\w+): written by", line):
            yield ""
            yield from tables[table[1]]()
            yield ""
            yield next(line for line in lines if line == "<!-- end -->")


def _alerts() -> Iterator[str]:
    for number, (topic, title) in enumerate(TOPICS.items()):
        if number:
            yield ""
        yield f"### {title}"
        yield ""
        rows = [
            [r.name, r.severity, _code(promql(r.when)), r.hold, f"{r.margin:.0%}" if r.margin else "", r.advice]
            for r in RULES
            if r.topic == topic
        ]
        yield from _table(["alert", "severity", "fires when", "for", "margin", "what to do"], rows)


def _findings() -> Iterator[str]:
    """What each finding means, how it is computed, what to do."""
    for number, rule in enumerate(RECORD_RULES.values()):
        assert rule.on_record is not None
        if number:
            yield ""
        live = ", also an alert" if rule.name in {live.name for live in RULES} else ""
        yield f"### {rule.name}"
        yield ""
        yield f"At most `{rule.on_record.severity or rule.severity}`{live}. {_with_names(rule.description)}"
        yield ""
        yield f"- How it is computed: {_with_names(rule.on_record.computed)}"
        yield f"- What to do: {rule.advice}"
        if rule.on_record.holds_back:
            yield f"- {_with_names(LEAST_COST)}"
        if rule.on_record.explains:
            yield f"- It explains: {', '.join(rule.on_record.explains)}."


def _with_names(text: str) -> str:
    """A text with the names and defaults of its thresholds."""
    return "".join(piece.words + _named(piece.name) for piece in pieces(text))


def _named(name: str | None) -> str:
    if name is None:
        return ""
    default = getattr(Thresholds(), name, None)
    return f"`{name}`" if default is None else f"`{name}` ({number_text(default)})"


def _thresholds() -> Iterator[str]:
    described = msgspec.json.schema(Thresholds)["$defs"]["Thresholds"]["properties"]
    rows = [[f"`{name}`", _default(about["default"]), about["description"]] for name, about in described.items()]
    yield from _table(["threshold", "default", "what it is"], rows)


def _default(value: float | str | None) -> str:
    return f"{value:g}" if isinstance(value, float) else value or ""


def _recordings() -> Iterator[str]:
    rows = [[f"`{r.name}`", r.help, _code(promql(r.expression))] for r in RECORDING_RULES]
    yield from _table(["series", "what it is", "query"], rows)


def _code(expression: str) -> str:
    """PromQL within a table."""
    return f"`{' '.join(expression.split())}`".replace("|", r"\|")


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"


RULES_FOLDER = "../src/pulsetrain/deploy/stack/prometheus"
PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "metrics.md": metrics_page,
    "commands.md": commands_page,
    "alerts.md": lambda: page_with_tables("alerts.md"),
    "verdict.md": lambda: page_with_tables("verdict.md"),
    f"{RULES_FOLDER}/rules.yml": lambda: iter(render_rules().splitlines()),
    f"{RULES_FOLDER}/alertmanager.yml": lambda: iter(render_alertmanager().splitlines()),
    **{f"../src/pulsetrain/deploy/{path}": partial(iter, text.splitlines()) for path, text in kustomize_files()},
}


def picture_of_run(folder: Path) -> str:
    shutil.copy(train.__file__, folder / "train.py")
    command = "pulsetrain run --simulate 2xL4 -- python train.py --seconds 7"
    return _prompt(command) + _output(command, folder)


def picture_of_watch(folder: Path) -> str:
    command = "pulsetrain watch --simulate 4xH100"
    output = _output(command, folder, seconds=22)
    last = re.split(r"\x1b\[\d+A", output)[-1]  # each drawing begins by going up to the top of the one before
    return _prompt(command) + re.sub(r"\x1b\[[KJ]", "", last).rstrip()


def picture_of_top(folder: Path) -> str:
    _record(folder)
    command = "pulsetrain top last --once"
    return _prompt(command) + _output(command, folder)


def _record(folder: Path) -> None:
    """A run of half a minute."""
    shutil.copy(train.__file__, folder / "train.py")
    _output("pulsetrain run --simulate 2xL4 --name spirals -- python train.py --seconds 30", folder)


PICTURES = {"run.svg": picture_of_run, "watch.svg": picture_of_watch, "top.svg": picture_of_top}


def write_picture_of_report(path: Path) -> None:
    """The top of an HTML report, by a headless Chromium; the picture stays as it is where there is none."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        click.echo(f"{path.name} is kept: chromium is not installed", err=True)
        return
    from PIL import Image

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _record(folder)
        page = folder / _output("pulsetrain report last --html", folder).splitlines()[-1]
        own = f", {platform.system()} {platform.release()}"  # of the machine that makes the picture
        page.write_text(page.read_text(encoding="utf-8").replace(own, ""), encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1180,1200"]
        options.append("--blink-settings=preferredColorScheme=1")  # light
        shot = folder / "report.png"
        subprocess.run([browser, *options, f"--screenshot={shot}", page.as_uri()], check=True, capture_output=True)
        Image.open(shot).convert("RGB").quantize(64).save(path, optimize=True)


def _prompt(command: str) -> str:
    return f"\x1b[2m$\x1b[0m \x1b[1m{command}\x1b[0m\n"


def _output(command: str, folder: Path, seconds: float | None = None) -> str:
    """What a command shows on a terminal, stopped with Ctrl-C's signal after so long."""
    ours, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (40, TERMINAL_COLUMNS))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TERM": "xterm-256color", "PULSETRAIN_DIR": "runs"}
    for variable in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(variable, None)
    process = subprocess.Popen(
        command.split(), cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    if seconds is not None:
        threading.Timer(seconds, process.send_signal, [signal.SIGINT]).start()
    output = b""
    try:
        while chunk := os.read(ours, 65536):
            output += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"{command}: exit code {process.returncode}\n{output.decode()}")
    return output.decode().replace("\r", "").rstrip()


CELL_WIDTH, LINE_HEIGHT, MARGIN = 12, 27, 26
"""In the units of the drawing, with letters of 20."""
STYLE = """\
text { font: 20px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  color: #d6dde6; fill: currentColor; }
.bar { stroke: currentColor; stroke-width: 0.6; }
.bold { color: #ffffff; font-weight: bold; }
.dim { color: #8b949e; }
.red { color: #ff7b72; }
.green { color: #56d364; }
.yellow { color: #e3b341; }
.cyan { color: #56d4dd; }"""
COLORS = {1: "red", 2: "green", 3: "yellow", 6: "cyan"}
"""By the numbers that terminals give them."""


def _svg(output: str) -> str:
    """A terminal's text and colors as a drawing. It names no font from the web: readers have their own."""
    from rich.console import Console
    from rich.text import Text

    lines = Console(width=TERMINAL_COLUMNS).render_lines(Text.from_ansi(output), pad=False)
    drawn = []
    for row, line in enumerate(lines):
        column = 0
        for text, style, _ in line:
            if text.strip():
                place = f'x="{MARGIN + column * CELL_WIDTH}" y="{MARGIN + 20 + row * LINE_HEIGHT}"'
                # Stretched to its cells, a column stays in line and a bar has no gaps, whatever the font.
                size = f'textLength="{len(text) * CELL_WIDTH}" lengthAdjust="spacingAndGlyphs"'
                look = f' class="{classes}"' if (classes := _classes(text, style)) else ""
                drawn.append(f"<text {place} {size}{look}>{html.escape(text).replace(' ', '&#160;')}</text>")
            column += len(text)
    columns = max(sum(len(text) for text, _, _ in line) for line in lines)
    width, height = 2 * MARGIN + columns * CELL_WIDTH, 2 * MARGIN + len(lines) * LINE_HEIGHT
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
    frame = f'<rect width="{width}" height="{height}" rx="12" fill="#0d1117"/>'
    return "\n".join([head, f"<style>\n{STYLE}\n</style>", frame, *drawn, "</svg>", ""])


def _classes(text: str, style: "Style | None") -> str:
    names = ["bar"] if text[0] in "█▉▊▋▌▍▎▏" else []  # with an outline, or there are hairlines between its blocks
    if style:
        names += [name for name in ("bold", "dim") if getattr(style, name)]
        if style.color and style.color.number is not None:
            names.append(COLORS[style.color.number])
    return " ".join(names)


def write_pictures() -> None:
    (DOCS / "images").mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            (DOCS / "images" / name).write_text(_svg(make(Path(folder))), encoding="utf-8")
            click.echo(f"docs/images/{name} ({time.monotonic() - started:.0f} s)")
    write_picture_of_report(DOCS / "images/report.png")


@click.command(help=__doc__)
@click.option("--check", is_flag=True, help="Write nothing; end with 1 when a page is stale.")
@click.option("--pictures", is_flag=True, help="The pictures too, which takes two minutes.")
def generate(check: bool, pictures: bool) -> None:
    stale = []
    for name, page in PAGES.items():
        path = DOCS / name
        text = "\n".join(page()) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                click.echo(path.resolve().relative_to(DOCS.parent))
    if check and stale:
        raise click.ClickException(f"stale: {', '.join(stale)}. Regenerate them: python docs/generate.py")
    if pictures and not check:
        write_pictures()


if __name__ == "__main__":
    generate()
