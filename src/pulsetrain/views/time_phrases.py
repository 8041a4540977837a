"""The time ledger in words: a bar, a sentence, a table."""

from collections.abc import Sequence

from pulsetrain.catalog.time_classes import COMPUTE_CLASSES, STARTUP_PARTS, TIME_CLASSES
from pulsetrain.insight.report import Report
from pulsetrain.insight.time_ledger import RankTime, TimeLedger
from pulsetrain.units import SECONDS_PER_MINUTE
from pulsetrain.views.terminal.braille import stacked
from pulsetrain.views.text import Style, duration, energy, grams, in_one_unit, money, percent, short_duration

BAR_WIDTH = 40
LEAST_NAMED = 0.01
"""Of the time: a smaller share has no word in a sentence."""
CLASS_COLORS = {
    **dict.fromkeys(COMPUTE_CLASSES, "green"),
    "data_wait": "yellow",
    "communication": "yellow",
    "copy": "yellow",
    "stall": "red",
    "restart": "red",
    "lost_work": "red",
    "unknown": "dim",
}
"""The others are cyan."""


def time_bar(ledger: TimeLedger, style: Style, width: int = BAR_WIDTH) -> str:
    """All classes as one bar."""
    pieces = stacked([part.seconds for part in ledger.classes.values()], width, ascii=not style.blocks)
    return "".join(
        style(piece, CLASS_COLORS.get(name, "cyan")) for name, piece in zip(ledger.classes, pieces, strict=True)
    )


def time_words(ledger: TimeLedger, style: Style) -> str:
    """What the time went into, each with the character that it has in the bar: `█ start-up 31 %, ▓ forward 12 %`."""
    pieces = stacked([part.seconds for part in ledger.classes.values()], BAR_WIDTH, ascii=not style.blocks)
    found = []
    for (name, part), piece in zip(ledger.classes.items(), pieces, strict=True):
        if part.share >= LEAST_NAMED:
            sign = style(piece[:1], CLASS_COLORS.get(name, "cyan")) + " " if piece else ""
            found.append(f"{sign}{TIME_CLASSES[name]} {percent(part.share)}")
    return ", ".join(found)


def goodput(ledger: TimeLedger) -> str:
    """How much of the time was training that counted."""
    if ledger.goodput is None:
        return ""
    return f"{percent(ledger.goodput)} of {duration(ledger.seconds)} was spent computing steps that were kept"


def startup(ledger: TimeLedger) -> str:
    """What the start-up was spent on: `interpreter 40 ms, imports 3.2 s, set-up 1.1 s`."""
    return ", ".join(f"{STARTUP_PARTS[name]} {short_duration(seconds)}" for name, seconds in ledger.startup.items())


TIME_HEAD = ("class", "time", "of time", "energy", "CO2e", "cost", "obtained")
TIME_ALIGN = "lrrrrrl"
TIME_SPARE = (4, 6, 5)


def time_rows(report: Report, ledger: TimeLedger) -> list[tuple[str, ...]]:
    """A row for each class that has any time."""
    currency = report.cost.currency if report.cost else ""
    parts = list(ledger.classes.values())
    columns = (
        [TIME_CLASSES[name] for name in ledger.classes],
        _times([part.seconds for part in parts]),
        [percent(part.share) for part in parts],
        in_one_unit([part.joules for part in parts], energy),
        in_one_unit([part.grams for part in parts], grams),
        [money(part.money, currency) if part.money is not None else "" for part in parts],
        [part.obtained for part in parts],
    )
    return list(zip(*columns, strict=True))


def _times(seconds: Sequence[float]) -> list[str]:
    """Short times in one unit; with a minute among them, all as minutes and seconds."""
    if max(seconds, default=0.0) < SECONDS_PER_MINUTE:
        return in_one_unit(seconds, short_duration)
    return [duration(each) for each in seconds]


def attempts(ranks: Sequence[RankTime]) -> list[str]:
    """What is worth saying of ranks that were started again."""
    again = [rank for rank in ranks if rank.attempt > 1 and "restart" in rank.classes]
    if not again:
        return []
    names = sorted({rank.rank for rank in again})
    shown = ", ".join(map(str, names[:8])) + (", ..." if len(names) > 8 else "")
    most = max(rank.attempt for rank in again)
    return [
        f"Rank {shown} was started {most} times." if len(names) == 1 else f"Ranks {shown} were started {most} times."
    ]
