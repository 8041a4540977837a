"""One run: how far it is, what it used, and its training beside its machine on one time axis."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest

from pulsetrain.catalog import METRICS
from pulsetrain.catalog.time_classes import TIME_CLASSES
from pulsetrain.insight.metric_names import in_order_of_interest
from pulsetrain.insight.parts import STEP_PARTS, parts_seen
from pulsetrain.live import SubjectState
from pulsetrain.runs.folder import Run
from pulsetrain.views.live.history import Points
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.views.live.progress import RunProgress
from pulsetrain.views.terminal import braille
from pulsetrain.views.terminal.charts import TextChart, bar, grid, wanted_height
from pulsetrain.views.terminal.events import SEVERITIES
from pulsetrain.views.terminal.gpus import gpu_charts, gpu_rows
from pulsetrain.views.terminal.lines import Line, Span, beside, between, fitted, text, width
from pulsetrain.views.terminal.panes import Pane, heading
from pulsetrain.views.terminal.state import Scene
from pulsetrain.views.text import duration, energy, grams, money, number, percent, rate, short_duration

PART_STYLES = {"data_wait": "warn", "other": "dim"}
"""Of the parts of a step; the rest of them have the accent."""
DECLARED = {metric.field for metric in METRICS if metric.table == "training"}
MOST_OWN_CHARTS = 3
"""Of what the program logs under names of its own."""
CLASS_STYLES = {
    **dict.fromkeys(("data_wait", "communication", "copy"), "warn"),
    **dict.fromkeys(("stall", "restart", "lost_work"), "bad"),
    "unknown": "dim",
}
"""Of the classes of time; the rest of them have the accent."""
LEAST_NAMED = 0.01
"""Of all time: a smaller share is not shown."""
BESIDE_FROM = 76
"""On a screen this wide, the training is beside the machine; else above it."""


def run_pane(scene: Scene, number: int, progress: RunProgress) -> Pane:
    """A few lines that say how the run is doing."""
    run = next((machine.run for machine in scene.machines if machine.run), None)
    lines = [*_progress(scene, progress, run), *_verdict(progress), *_usage(progress)]
    lines += [*_step(scene, progress), *_time(scene, progress)]

    def draw(width: int, height: int) -> list[Line]:
        title = [*heading(number, "Run", scene.state.pane == number), *_name(run, progress)]
        right = text(run.id if run else "", "dim")
        return [between(title, right, width), *(_fitting(parts, width) for parts in lines)][:height]

    return Pane("Run", draw, least=min(2, 1 + len(lines)), wanted=1 + len(lines))


def _fitting(parts: Sequence[Line], most: int) -> Line:
    """As many of the parts as there is room for, side by side. One that is alone is cut."""
    line: Line = [Span(" ")]
    if len(parts) == 1 and width(parts[0]) + 2 > most:
        return fitted([*line, Span(" "), *parts[0]], most)
    for part in parts:
        if width(line) + 1 + width(part) > most:
            break
        line += [Span(" " if len(line) == 1 else "   "), *part]
    return line


def _name(run: Run | None, progress: RunProgress) -> Line:
    if run is None:
        return text("  no run on this machine; tab shows all", "dim")
    code = f" (exit code {run.exit_code})" if run.exit_code else ""
    style = {"running": "accent", "failed": "bad", "died": "bad", "interrupted": "warn"}.get(run.status, "")
    lasted = progress.elapsed_seconds if run.seconds is None else run.seconds
    return [Span(f"  {run.name}", "title"), Span(f"  {run.status}{code}", style), Span(f"  {duration(lasted)}")]


def _progress(scene: Scene, progress: RunProgress, run: Run | None) -> Iterator[list[Line]]:
    step, total, epoch = progress.number("step"), progress.number("total_steps"), progress.number("epoch")
    if step is None:
        return
    parts: list[Line] = [
        [Span("step ", "dim"), Span(f"{step:,.0f}", "title"), Span(f" of {total:,.0f}" if total else "", "dim")]
    ]
    if progress.ratio is not None:
        parts.append([*bar(progress.ratio, 20, "accent", scene.braille), Span(f" {percent(progress.ratio)}")])
    if progress.remaining_seconds is not None and run is not None and run.status == "running" and scene.moment:
        ends = datetime.fromtimestamp(scene.moment + progress.remaining_seconds, UTC).astimezone()
        parts.append([Span(duration(progress.remaining_seconds), "title"), Span(f" to go, until {ends:%H:%M}", "dim")])
    if epoch is not None:
        parts.append([Span("epoch ", "dim"), Span(f"{epoch:.2f}")])
    phase = progress.training.values.get("phase") if progress.training else None
    if isinstance(phase, str):
        parts.append(text(phase, "accent"))
    yield parts


def _verdict(progress: RunProgress) -> Iterator[list[Line]]:
    """What holds it back."""
    verdict = progress.verdict
    if verdict is None:
        return
    words, style = verdict.headline, ""
    if main := verdict.main:
        words, style = f"{main.rule}: {words}", SEVERITIES[main.severity]
    yield [[Span("verdict ", "dim"), Span(words, style)]]


def _usage(progress: RunProgress) -> Iterator[list[Line]]:
    """Energy, carbon, money: so far, and at the end of the planned steps."""
    parts: list[Line] = []
    if joules := progress.total("energy_joules"):
        parts.append([Span("energy ", "dim"), Span(energy(joules), "title")])
    if mass := progress.total("carbon_grams"):
        parts.append([Span("carbon ", "dim"), Span(grams(mass), "title")])
    for currency, amount in progress.used("cost").items():
        parts.append([Span("cost ", "dim"), Span(money(amount, currency), "title")])
    ends = [
        *map(energy, progress.projected("energy_projected_joules").values()),
        *map(grams, progress.projected("carbon_projected_grams").values()),
        *(money(amount, currency) for currency, amount in progress.projected("cost_projected").items()),
    ]
    if ends:
        parts.append([Span("projected ", "dim"), Span(", ".join(ends))])
    idle, seconds = progress.total("gpu_idle_seconds"), progress.total("gpu_seconds")
    if idle is not None and seconds:
        parts.append([Span("GPUs idle ", "dim"), Span(percent(idle / seconds))])
    if parts:
        yield parts


def _step(scene: Scene, progress: RunProgress) -> Iterator[list[Line]]:
    """How fast the training is, and where the time of a step goes."""
    seconds, means = _step_times(scene, progress)
    if not seconds:
        return
    parts: list[Line] = [[Span("step ", "dim"), Span(short_duration(seconds), "title")]]
    totals = progress.steps.totals if progress.steps else None
    if totals and totals.samples_per_second:
        parts.append([Span(rate(totals.samples_per_second), "title"), Span(" samples/s", "dim")])
    if totals and totals.tokens_per_second:
        parts.append([Span(rate(totals.tokens_per_second), "title"), Span(" tokens/s", "dim")])
    yield parts
    if any(means):
        yield list(_drawn_parts(scene, seconds, means))


def _step_times(scene: Scene, progress: RunProgress) -> tuple[float | None, list[float | None]]:
    """Mean seconds of a step, and of each of its parts: of steady steps, else over the time that is shown."""
    if steps := progress.steps:
        return steps.mean_seconds, [steps.parts[part] for part in STEP_PARTS]
    if progress.machine is None or progress.training is None:
        return None, []
    machine, training = progress.machine, progress.training

    def mean(part: str) -> float | None:
        return _mean(_curve(scene, machine, training, f"{part}_seconds")(60))

    return mean("step"), list(parts_seen({part: mean(part) for part in STEP_PARTS}).values())


def _drawn_parts(scene: Scene, seconds: float, means: Sequence[float | None]) -> Iterator[Line]:
    """A bar of the parts, then each with its share."""
    seen = {part: mean for part, mean in zip(STEP_PARTS, means, strict=True) if mean}
    names = {part: part.replace("_", " ") for part in seen}
    yield from _drawn_shares(
        scene, {names[part]: (mean / seconds, PART_STYLES.get(part)) for part, mean in seen.items()}
    )


def _drawn_shares(scene: Scene, shares: Mapping[str, tuple[float, str | None]]) -> Iterator[Line]:
    """A bar of shares, each with a style, then each with its name and the character that it has in the bar."""
    pieces = braille.stacked([share for share, _ in shares.values()], 20, ascii=not scene.braille)
    styles = [style or "accent" for _, style in shares.values()]
    yield [Span(piece, style) for piece, style in zip(pieces, styles, strict=True)]
    for (name, (share, _)), piece, style in zip(shares.items(), pieces, styles, strict=True):
        yield [Span(f"{piece[:1] or ' '} ", style), Span(f"{name} ", "dim"), Span(percent(share))]


def _time(scene: Scene, progress: RunProgress) -> Iterator[list[Line]]:
    """What all time so far went into."""
    ledger = progress.ledger
    if ledger is None:
        return
    named = {
        TIME_CLASSES[name]: (part.share, CLASS_STYLES.get(name))
        for name, part in ledger.classes.items()
        if part.share >= LEAST_NAMED
    }
    parts: list[Line] = [[Span("time ", "dim")]]
    if ledger.goodput is not None:
        parts = [[Span("goodput ", "dim"), Span(percent(ledger.goodput), "title")]]
    yield [*parts, *_drawn_shares(scene, named)]


def _mean(points: Points) -> float | None:
    known = [point for point in points if point is not None]
    return sum(known) / len(known) if known else None


def charts_pane(scene: Scene, number: int, progress: RunProgress) -> Pane:
    """The training on the left, the machine on the right, or one above the other."""
    training = training_charts(scene, progress)
    machine = [*gpu_charts(scene, gpu_rows(scene)), *_host_charts(scene)]

    def draw(width: int, height: int) -> list[Line]:
        title = heading(number, "Charts", scene.state.pane == number)
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


def _curve(scene: Scene, machine: WatchedMachine, state: SubjectState, field: str) -> Callable[[int], Points]:
    return lambda points: scene.series(machine, state.subject.table, state.subject.key, field, points)


def training_charts(scene: Scene, progress: RunProgress) -> list[TextChart]:
    """What the training reports of its first rank; what it does not report has no chart."""
    machine, state = progress.machine, progress.training
    if machine is None or state is None:
        return []
    known = set(machine.history.fields("training", state.subject.key))

    def chart(name: str, field: str, words: Callable[[float], str], low: float | None = None) -> TextChart | None:
        if field not in known:
            return None
        curve = _curve(scene, machine, state, field)
        value = state.number(field)
        if value is None:  # logged now and then, such as a validation loss: the last one that is drawn
            value = next((point for point in reversed(curve(60)) if point is not None), None)
        return TextChart(name, curve, "" if value is None else words(value), low, label=words)

    step_time = short_duration(_mean(_curve(scene, machine, state, "step_seconds")(60)))
    found = [
        chart("loss", "loss", _short),
        chart("tokens/s", "throughput_tokens_per_sec", _short, 0.0)
        or chart("samples/s", "throughput_samples_per_sec", _short, 0.0),
        chart("step time", "step_seconds", short_duration, 0.0),
        chart("learning rate", "learning_rate", _short, 0.0),
        chart("gradient norm", "gradient_norm", _short, 0.0),
    ]
    own = in_order_of_interest(sorted(known - DECLARED))[:MOST_OWN_CHARTS]
    found[1:1] = [chart(name, name, _short) for name in own]  # beside the loss: what is drawn first has most room
    return [one._replace(value=step_time) if one.name == "step time" else one for one in found if one]


def _host_charts(scene: Scene) -> list[TextChart]:
    """The CPUs of the first machine."""
    machine = scene.machines[0]
    host = scene.live(machine).host
    if host.number("cpu_ratio") is None:
        return []
    return [
        TextChart(
            "CPU", _curve(scene, machine, host, "cpu_ratio"), percent(host.number("cpu_ratio")), high=1.0, label=percent
        )
    ]


def _short(value: float) -> str:
    return number(value) if abs(value) >= 10_000 else f"{value:.4g}"
