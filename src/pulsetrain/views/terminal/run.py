"""One run: how far it is, what it used, and its training beside its machine on one time axis."""

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest

from pulsetrain.live import State
from pulsetrain.runs.folder import Run
from pulsetrain.views.terminal import braille
from pulsetrain.views.terminal.charts import Chart, bar, grid, wanted_height
from pulsetrain.views.terminal.gpus import gpu_charts, gpu_rows
from pulsetrain.views.terminal.lines import Line, Span, beside, between, fitted, text, width
from pulsetrain.views.terminal.look import Machine, Points, Scene
from pulsetrain.views.terminal.panes import Pane, heading
from pulsetrain.views.text import duration, energy, grams, milliseconds, money, number, percent

PARTS = {
    "data_wait_seconds": "data wait",
    "forward_seconds": "forward",
    "backward_seconds": "backward",
    "optimizer_seconds": "optimizer",
    "other_seconds": "other",
}
PART_STYLES = ("warn", "accent", "accent", "accent", "dim")
BESIDE_FROM = 76
"""On a screen this wide, the training stands beside the machine; else above it."""


class Told:
    """What a run says of itself at the moment that is shown."""

    def __init__(self, scene: Scene) -> None:
        self.machines = scene.machines
        trainings = [(m, state) for m in scene.machines for state in scene.live(m).table("training")]
        trainings.sort(key=lambda found: int(found[1].subject.labels.get("rank") or 0))
        self.machine: Machine | None = trainings[0][0] if trainings else None
        self.training: State | None = trainings[0][1] if trainings else None
        """The first rank; and where it runs."""
        self.accounts = [state for machine in scene.machines for state in scene.live(machine).table("account")]
        self.elapsed = max((scene.live(machine).elapsed for machine in scene.machines), default=0.0)

    def number(self, field: str) -> float | None:
        """Of the training."""
        return self.training.number(field) if self.training else None

    def sum(self, field: str) -> dict[str, float]:
        """What the hosts have used, by device or currency."""
        found: dict[str, float] = {}
        for account in self.accounts:
            value = account.values.get(field)
            for name, amount in (value if isinstance(value, dict) else {"": account.number(field)}).items():
                if amount is not None:
                    found[name] = found.get(name, 0.0) + amount
        return found

    @property
    def progress(self) -> float | None:
        step, total = self.number("step"), self.number("total_steps")
        return min(1.0, step / total) if step is not None and total else None

    @property
    def remaining(self) -> float | None:
        """Seconds to go: as the account has it, and before its first entry by the pace of now."""
        if self.progress is None or self.training is None:
            return None
        told = [left for account in self.accounts if (left := account.number("remaining_seconds")) is not None]
        pace = self.training.rates.get("step")
        if told or not pace:
            return max(told, default=None)
        return ((self.number("total_steps") or 0.0) - (self.number("step") or 0.0)) / pace


def run_pane(scene: Scene, number: int, told: Told) -> Pane:
    """A few lines that say how the run is doing."""
    run = next((machine.run for machine in scene.machines if machine.run), None)
    lines = [*_progress(scene, told, run), *_usage(told), *_step(scene, told)]

    def draw(width: int, height: int) -> list[Line]:
        title = [*heading(number, "Run", scene.look.pane == number), *_name(run, told)]
        right = text(run.id if run else "", "dim")
        return [between(title, right, width), *(_fitting(parts, width) for parts in lines)][:height]

    return Pane("Run", draw, least=min(2, 1 + len(lines)), wanted=1 + len(lines))


def _fitting(parts: Sequence[Line], most: int) -> Line:
    """As many of the parts as there is room for, side by side."""
    line: Line = [Span(" ")]
    for part in parts:
        if width(line) + 1 + width(part) > most:
            break
        line += [Span(" " if len(line) == 1 else "   "), *part]
    return line


def _name(run: Run | None, told: Told) -> Line:
    if run is None:
        return text("  no run on this machine; tab shows all", "dim")
    code = f" (exit code {run.exit_code})" if run.exit_code else ""
    style = {"running": "accent", "failed": "bad", "died": "bad", "interrupted": "warn"}.get(run.status, "")
    lasted = (run.end - run.start).total_seconds() if run.end else told.elapsed
    return [Span(f"  {run.name}", "title"), Span(f"  {run.status}{code}", style), Span(f"  {duration(lasted)}")]


def _progress(scene: Scene, told: Told, run: Run | None) -> Iterator[list[Line]]:
    step, total, epoch = told.number("step"), told.number("total_steps"), told.number("epoch")
    if step is None:
        return
    parts: list[Line] = [
        [Span("step ", "dim"), Span(f"{step:,.0f}", "title"), Span(f" of {total:,.0f}" if total else "", "dim")]
    ]
    if told.progress is not None:
        parts.append([*bar(told.progress, 20, "accent", scene.braille), Span(f" {percent(told.progress)}")])
    if told.remaining is not None and run is not None and run.status == "running" and scene.moment:
        ends = datetime.fromtimestamp(scene.moment + told.remaining, UTC).astimezone()
        parts.append([Span(duration(told.remaining), "title"), Span(f" to go, until {ends:%H:%M}", "dim")])
    if epoch is not None:
        parts.append([Span("epoch ", "dim"), Span(f"{epoch:.2f}")])
    phase = told.training.values.get("phase") if told.training else None
    if isinstance(phase, str):
        parts.append(text(phase, "accent"))
    yield parts


def _usage(told: Told) -> Iterator[list[Line]]:
    """Energy, carbon, money: so far, and in the end if it goes on like this."""
    share = told.progress
    ahead = 1 / share if share and share < 1 else None
    parts: list[Line] = []
    ends: list[str] = []
    if joules := sum(told.sum("energy_joules").values()):
        parts.append([Span("energy ", "dim"), Span(energy(joules), "title")])
        ends += [energy(joules * ahead)] if ahead else []
    if mass := sum(told.sum("carbon_grams").values()):
        parts.append([Span("carbon ", "dim"), Span(grams(mass), "title")])
        ends += [grams(mass * ahead)] if ahead else []
    for currency, amount in told.sum("cost").items():
        parts.append([Span("cost ", "dim"), Span(money(amount, currency), "title")])
    ends += [money(amount, currency) for currency, amount in told.sum("cost_projected").items() if ahead]
    if ends:
        parts.append([Span("in the end about ", "dim"), Span(", ".join(ends))])
    idle, seconds = sum(told.sum("gpu_idle_seconds").values()), sum(told.sum("gpu_seconds").values())
    if seconds:
        parts.append([Span("GPUs idle ", "dim"), Span(percent(idle / seconds))])
    if parts:
        yield parts


def _step(scene: Scene, told: Told) -> Iterator[list[Line]]:
    """Where the time of a step goes, over the time that is shown."""
    if told.machine is None or told.training is None:
        return
    means = [_mean(_curve(scene, told.machine, told.training, field)(60)) for field in PARTS]
    whole = sum(mean for mean in means if mean is not None)
    if not whole:
        return
    pieces = braille.stacked(means, 20, ascii=not scene.braille)
    drawn = [Span(piece, style) for piece, style in zip(pieces, PART_STYLES, strict=True)]
    parts: list[Line] = [[Span("step ", "dim"), Span(milliseconds(whole), "title")], drawn]
    for piece, name, style, mean in zip(pieces, PARTS.values(), PART_STYLES, means, strict=True):
        if mean:
            parts.append([Span(f"{piece[:1] or ' '} ", style), Span(f"{name} ", "dim"), Span(percent(mean / whole))])
    yield parts


def _mean(points: Points) -> float | None:
    known = [point for point in points if point is not None]
    return sum(known) / len(known) if known else None


def charts_pane(scene: Scene, number: int, told: Told) -> Pane:
    """The training on the left, the machine on the right, or one above the other."""
    training = training_charts(scene, told)
    machine = [*gpu_charts(scene, gpu_rows(scene)), *_host_charts(scene)]

    def draw(width: int, height: int) -> list[Line]:
        title = heading(number, "Charts", scene.look.pane == number)
        room = height - 1
        if not training or not machine or width < BESIDE_FROM:
            both = [chart for pair in zip_longest(training, machine) for chart in pair if chart]
            return [title, *grid(both, width, room, scene.seconds, scene.braille)]
        size = (width - 2) // 2
        blocks = [grid(charts, size, room, scene.seconds, scene.braille) for charts in (training, machine)]
        high = max(map(len, blocks))
        blocks = [[*block[:-1], *[[]] * (high - len(block)), *block[-1:]] for block in blocks]  # one axis at the bottom
        return [title, *beside([[fitted(line, size) for line in block] for block in blocks], [size, size])]

    most = max(len(training), len(machine))
    return Pane("Charts", draw, least=5, wanted=1 + wanted_height(most, 60), most=math.inf)


def _curve(scene: Scene, machine: Machine, state: State, field: str) -> Callable[[int], Points]:
    return lambda points: scene.series(machine, state.subject.table, state.subject.key, field, points)


def training_charts(scene: Scene, told: Told) -> list[Chart]:
    """What the training reports of its first rank; what it does not report has no chart."""
    machine, state = told.machine, told.training
    if machine is None or state is None:
        return []
    known = set(machine.history.fields("training", state.subject.key))

    def chart(name: str, field: str, words: Callable[[float], str], low: float | None = None) -> Chart | None:
        if field not in known:
            return None
        value = state.number(field)
        return Chart(
            name, _curve(scene, machine, state, field), "" if value is None else words(value), low, label=words
        )

    step_seconds = _mean(_curve(scene, machine, state, "step_seconds")(60))
    found = [
        chart("loss", "loss", _short),
        chart("tokens/s", "throughput_tokens_per_sec", _short, 0.0)
        or chart("samples/s", "throughput_samples_per_sec", _short, 0.0),
        chart("step time", "step_seconds", milliseconds, 0.0),
        chart("learning rate", "learning_rate", _short, 0.0),
        chart("gradient norm", "gradient_norm", _short, 0.0),
    ]
    return [one._replace(value=milliseconds(step_seconds)) if one.name == "step time" else one for one in found if one]


def _host_charts(scene: Scene) -> list[Chart]:
    """The CPUs of the first machine."""
    machine = scene.machines[0]
    host = scene.live(machine).host
    if host.number("cpu_ratio") is None:
        return []
    return [
        Chart(
            "CPU", _curve(scene, machine, host, "cpu_ratio"), percent(host.number("cpu_ratio")), high=1.0, label=percent
        )
    ]


def _short(value: float) -> str:
    return number(value) if abs(value) >= 10_000 else f"{value:.4g}"
