"""What a run emitted: each interval's energy times the carbon intensity of its own time."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Literal

import msgspec

from pulsetrain.intensity.run_intensity import NEAR, RunIntensity
from pulsetrain.intensity.slots import Accounting, FixedIntensity, Quality, Slot, gaps, overlapping
from pulsetrain.units import JOULES_PER_KWH

WORTH_WAITING = 0.05
"""The share that a later start must save to be proposed."""

JoulesBetween = Callable[[datetime, datetime], float]
"""The energy of a run between two moments of the clock, in UTC. Neighboring stretches add up to the whole."""


class Carbon(msgspec.Struct, kw_only=True):
    """The emissions of a run's energy."""

    grams: float
    error_grams: float | None = None
    """From the error of the energy alone: intensity itself has none that is known."""
    grams_per_kwh: float
    """The mean over the run, weighted by energy."""
    region: str
    """As a person would say it: `South England`, `Germany`, `Google Cloud europe-west4`."""
    provider: str
    """Where the figures come from, and their year or license where they want to be named."""
    accounting: Accounting
    """Kinds of intensity that must not be compared with each other."""
    quality: Quality | Literal["mixed"]
    slots: list["CarbonSlot"] = []
    notes: list[str] = []
    """Why a fallback was used, and how old it is."""
    greener: "GreenerStart | None" = None


class CarbonSlot(msgspec.Struct, kw_only=True):
    """Energy and emissions of one stretch of time with one intensity."""

    start: datetime
    end: datetime
    grams_per_kwh: float
    quality: Quality
    joules: float
    grams: float


class GreenerStart(msgspec.Struct, kw_only=True):
    """The best moment in the coming 48 hours for a run of this energy and length."""

    start: datetime
    grams: float
    grams_now: float
    """If it were started now."""


def emissions(
    intensities: RunIntensity,
    joules_between: JoulesBetween,
    start: datetime,
    end: datetime,
    *,
    error_joules: float | None = None,
    now: datetime | None = None,
) -> tuple[Carbon | None, str]:
    """The emissions of a run, or None and the reason. It reads nothing but the intensities.

    Values of different kinds are never added up: a yearly average is used for the whole run or not at all.
    """
    if end <= start:
        return None, "the run has no duration."
    near = overlapping(intensities.slots, start - NEAR, end + NEAR)
    provider, fixed = intensities.provider, intensities.provider.fixed
    if near:
        timeline, notes = fill(near, start, end)
        region, source, accounting = provider.region, provider.source, provider.accounting
    elif fixed:
        timeline, notes = [_throughout(fixed, start, end)], _stand_in(intensities, fixed)
        region, source, accounting = fixed.region, fixed.source, fixed.accounting
    else:
        return None, intensities.problem or f"{provider.source} has not answered yet."
    if intensities.problem:
        notes.insert(0, f"The last request failed: {intensities.problem}")
    slots = [_emitted(slot, joules_between(slot.start, slot.end)) for slot in timeline]
    mean = _mean(slots)
    carbon = Carbon(
        grams=sum(slot.grams for slot in slots),
        error_grams=error_joules / JOULES_PER_KWH * mean if error_joules is not None else None,
        grams_per_kwh=mean,
        region=region,
        provider=source,
        accounting=accounting,
        quality=_quality(slots),
        slots=slots,
        notes=[*notes, *_shares(slots)],
        greener=greener_start(
            sum(slot.joules for slot in slots), end - start, intensities.slots, now or datetime.now(UTC)
        ),
    )
    return carbon, ""


def intensity_at(intensities: RunIntensity, moment: datetime) -> float | None:
    """Grams for each kWh at a moment: of its slot, else of the latest near before it, else what holds for all times."""
    before = [slot for slot in intensities.slots if slot.start <= moment and slot.end > moment - NEAR]
    if before:
        return max(before, key=lambda slot: slot.start).grams_per_kwh
    return intensities.provider.fixed.grams_per_kwh if intensities.provider.fixed else None


def fill(slots: Sequence[Slot], start: datetime, end: datetime) -> tuple[list[Slot], list[str]]:
    """Slots that cover a stretch of time without a hole, and a note for each hole that its neighbors had to fill."""
    covered: list[Slot] = []
    for slot in overlapping(slots, start, end):
        begin, stop = max(slot.start, covered[-1].end if covered else start), min(slot.end, end)
        if begin < stop:
            covered.append(msgspec.structs.replace(slot, start=begin, end=stop))
    notes = []
    for begin, stop in list(gaps(covered, start, end)):
        covered += _neighbors(slots, begin, stop)
        notes.append(f"No value for {_span(begin, stop)}: {_whose(slots, begin, stop)}.")
    return sorted(covered, key=lambda slot: slot.start), notes


def _neighbors(slots: Sequence[Slot], begin: datetime, stop: datetime) -> list[Slot]:
    """The last value up to the middle of a hole, and the next one from there."""
    last, following = _around(slots, begin, stop)
    if last and following:
        middle = begin + (stop - begin) / 2
        parts = [(last, begin, middle), (following, middle, stop)]
    else:
        parts = [(slot, begin, stop) for slot in (last, following) if slot]
    return [msgspec.structs.replace(slot, start=first, end=until, quality="last known") for slot, first, until in parts]


def _around(slots: Sequence[Slot], begin: datetime, stop: datetime) -> tuple[Slot | None, Slot | None]:
    return (
        max((slot for slot in slots if slot.end <= begin), key=lambda slot: slot.end, default=None),
        min((slot for slot in slots if slot.start >= stop), key=lambda slot: slot.start, default=None),
    )


def _whose(slots: Sequence[Slot], begin: datetime, stop: datetime) -> str:
    last, following = _around(slots, begin, stop)
    if last and following:
        return "filled in from the values before and after"
    if last:
        return f"filled in with the last known value, from {_ago(begin - last.end)} before"
    assert following
    return f"filled in with the first known value, from {_ago(following.start - stop)} after"


def _ago(distance: timedelta) -> str:
    hours, minutes = divmod(round(distance.total_seconds() / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _span(begin: datetime, stop: datetime) -> str:
    until = f"{stop:%H:%M}" if begin.date() == stop.date() else f"{stop:%Y-%m-%d %H:%M}"
    return f"{begin:%Y-%m-%d %H:%M} to {until} UTC"


def _throughout(fixed: FixedIntensity, start: datetime, end: datetime) -> Slot:
    return Slot(start=start, end=end, grams_per_kwh=fixed.grams_per_kwh, quality=fixed.quality, fetched=end)


def _stand_in(intensities: RunIntensity, fixed: FixedIntensity) -> list[str]:
    """That a yearly average is not what was asked for; nothing, if it was."""
    about = intensities.provider
    if about.source == fixed.source:
        return []
    kind = f" ({fixed.accounting}, not {about.accounting})" if fixed.accounting != about.accounting else ""
    return [
        f"No value from {about.source} yet: using the yearly average of {fixed.region} instead{kind}. "
        "`pulsetrain report --refresh-carbon` tries again."
    ]


def _emitted(slot: Slot, joules: float) -> CarbonSlot:
    return CarbonSlot(
        start=slot.start,
        end=slot.end,
        grams_per_kwh=slot.grams_per_kwh,
        quality=slot.quality,
        joules=joules,
        grams=joules / JOULES_PER_KWH * slot.grams_per_kwh,
    )


def _mean(slots: Sequence[CarbonSlot]) -> float:
    """By energy; by time, where none was used."""
    weights = [slot.joules for slot in slots]
    if sum(weights) <= 0:
        weights = [(slot.end - slot.start).total_seconds() for slot in slots]
    return sum(slot.grams_per_kwh * weight for slot, weight in zip(slots, weights, strict=True)) / sum(weights)


def _quality(slots: Sequence[CarbonSlot]) -> Quality | Literal["mixed"]:
    return slots[0].quality if len({slot.quality for slot in slots}) == 1 else "mixed"


def _shares(slots: Sequence[CarbonSlot]) -> list[str]:
    """How much of the energy has which quality, where there are several."""
    by_quality: dict[str, float] = {}
    for slot in slots:
        by_quality[slot.quality] = by_quality.get(slot.quality, 0.0) + slot.joules
    total = sum(by_quality.values())
    if len(by_quality) == 1 or total <= 0:
        return []
    shares = ", ".join(f"{quality} {100 * joules / total:.0f} %" for quality, joules in by_quality.items())
    return [f"Of the energy, by kind of value: {shares}."]


def greener_start(joules: float, length: timedelta, slots: Sequence[Slot], now: datetime) -> GreenerStart | None:
    """The best start for a run of this energy and length, drawn evenly, as far as the future is foreseen.

    None if too little is foreseen, or if waiting saves next to nothing.
    """
    ahead = _foreseen(slots, now)
    if joules <= 0 or not ahead or ahead[-1].end < now + length:
        return None
    edges = [now, *(slot.end for slot in ahead)]
    parts = [slot.grams_per_kwh * (slot.end - slot.start).total_seconds() for slot in ahead]
    sums = [0.0, *accumulate(parts)]

    def until(moment: datetime) -> float:
        """The intensity added up over the seconds from now."""
        index = min(bisect_right(edges, moment) - 1, len(ahead) - 1)
        return sums[index] + ahead[index].grams_per_kwh * (moment - edges[index]).total_seconds()

    def grams(start: datetime) -> float:
        mean = (until(start + length) - until(start)) / length.total_seconds()
        return joules / JOULES_PER_KWH * mean

    # Between these moments the emissions rise or fall in a straight line.
    moments = {*edges, *(edge - length for edge in edges)}
    best = min((moment for moment in sorted(moments) if now <= moment <= edges[-1] - length), key=grams)
    grams_now = grams(now)
    if grams(best) >= grams_now * (1 - WORTH_WAITING):
        return None
    return GreenerStart(start=best, grams=grams(best), grams_now=grams_now)


def _foreseen(slots: Sequence[Slot], now: datetime) -> list[Slot]:
    """The slots from now on, up to the first hole."""
    ahead: list[Slot] = []
    for slot in overlapping(slots, now, datetime.max.replace(tzinfo=UTC)):
        begin = ahead[-1].end if ahead else now
        if slot.start > begin:
            break
        if slot.end > begin:
            ahead.append(msgspec.structs.replace(slot, start=begin))
    return ahead
