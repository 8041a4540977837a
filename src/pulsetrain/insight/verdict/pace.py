"""How even the pace of a run was: stalls, slow-downs, outlying steps, ranks that lag behind."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.insight.robust import LEAST_SEGMENT, LEAST_SHIFT, TURN_SECONDS, Floats, change_points, outlying
from pulsetrain.insight.step_series import StepSeries
from pulsetrain.insight.stragglers import LEAST_BEHIND_SECONDS, LateStretch
from pulsetrain.insight.verdict.case import Case, Judged, mean_between, seen

Places = npt.NDArray[np.intp]

OUTLIER_RATIO = 2.0
"""A step is outlying when it takes this many times as long as usual."""
MOST_OF_IT = 0.7
"""A part of the step is the cause when it makes up this share of the difference."""
CROWDED_BEHIND_SECONDS = 0.01
"""On a crowded machine a rank may lag by less because it lost the CPU."""
LEAST_EXTRA = 0.5
"""A part is the cause of a slow-down when the rest of the step grew by less than this share of the part's growth."""


def stalled(case: Case) -> Iterator[Judged]:
    series, limits = case.series, case.limits
    if series is None or not series.plain.any():
        return
    usual = float(np.median(series.seconds[series.plain]))
    least = max(limits.stalled_steps * usual, limits.pause_seconds, limits.stall_ratio * case.training_seconds)
    yield from _silent_end(case, series, least)
    long = np.flatnonzero(series.plain & (series.seconds > least))
    if not len(long) or len(long) > LEAST_SEGMENT:  # many long steps are a slow run, not a stall
        return
    place = int(long[np.argmax(series.seconds[long])])
    silent = float(series.seconds[long].sum() - len(long) * usual)
    part = _largest_part(series, place)
    many = f", {len(long)} times in all" if len(long) > 1 else ""
    yield Judged(
        tuple(
            seen(
                "silent_seconds" if step == place else "silent_step_seconds",
                series.seconds[step],
                "seconds",
                threshold=least,
                start=series.begins[step],
                end=series.ends[step],
            )
            for step in sorted(long, key=lambda step: step != place)
        ),
        seconds=silent,
        severity="warning",
        words={"where": f"before step {series.numbers[place]:.0f}{f', in {part}' if part else ''}{many}"},
        saved_share=silent / case.seconds if case.seconds else None,
    )


def _silent_end(case: Case, series: StepSeries, least: float) -> Iterator[Judged]:
    """A run that was stopped while it did nothing any more. One that ends by itself has its tail."""
    run = case.run
    silent = case.seconds - float(series.ends[-1])
    ended_well = run.status == "finished"
    if not ended_well and silent > max(least, case.limits.stalled_seconds):
        yield Judged(
            (seen("silent_seconds", silent, "seconds", threshold=least, start=float(series.ends[-1])),),
            seconds=silent,
            words={"where": "until the end of the run"},
        )


def slowed_down(case: Case) -> Iterator[Judged]:
    series = case.series
    if series is None:
        return
    places = np.flatnonzero(series.plain)
    pace = _comparable(series, places)
    found = []
    for point in change_points(pace):
        before, after = float(np.median(pace[:point])), float(np.median(pace[point:]))
        later = [float(np.median(part)) for part in np.array_split(pace[point:], 3) if len(part)]
        if after > before * (1 + LEAST_SHIFT) and min(later) > before * (1 + LEAST_SHIFT):
            found.append(((after - before) * (len(pace) - point), point, before, after))
    if not found:
        return
    _, point, before, after = max(found)
    first = int(places[point])
    others = _others_more(case, series, first)
    part = _grown_part(series, places[:point], places[point:])
    grave = before / after < case.limits.slowed_ratio and not _explained(case, series, places[:point], part, others)
    slow, usual = (float(np.median(series.seconds[part])) for part in (places[point:], places[:point]))
    lost = max(0.0, slow - usual) * (len(places) - point)
    yield Judged(
        (
            seen("slower_seconds", slow, "seconds", start=series.begins[first], end=series.ends[-1]),
            seen("usual_seconds", usual, "seconds", end=series.begins[first]),
            seen("pace_ratio", before / after, "ratio", threshold=case.limits.slowed_ratio),
            *((seen("others_cores", others, "cores", start=series.begins[first]),) if others else ()),
        ),
        seconds=lost,
        severity="warning" if grave else "info",
        confidence=case.step_confidence,
        words={
            "step": float(series.numbers[first]),
            "part": ": other programs took the CPUs" if others else f", longer in {STEP_PARTS[part]}" if part else "",
        },
        saved_share=lost / case.seconds if case.seconds else None,
    )


def _explained(case: Case, series: StepSeries, before: Places, part: str, others: float | None) -> bool:
    """Whether something else is to blame: other programs, which slow all of a step, or data that was late before."""
    if part == "data_wait":
        waited = float(np.nansum(series.parts[part][before]) / series.seconds[before].sum())
        return waited > case.limits.data_wait_ratio
    return not part and (others is not None or case.crowded)


def step_outliers(case: Case) -> Iterator[Judged]:
    series, limits = case.series, case.limits
    if series is None:
        return
    places = np.flatnonzero(series.plain)
    if len(places) < 2 * LEAST_SEGMENT:
        return
    seconds = series.seconds[places]
    outliers = outlying(seconds, limits.outlier_deviations, OUTLIER_RATIO)
    count = int(outliers.sum())
    if count <= limits.outlier_count:
        return
    longer = seconds[outliers] - np.median(seconds)
    lost = float(longer.sum())
    heavy = lost > limits.outlier_cost_ratio * case.training_seconds
    disturbed = case.crowded or float(np.median(longer)) < TURN_SECONDS
    yield Judged(
        (
            seen("outliers", count, "steps", threshold=limits.outlier_count),
            seen("outlier_cost_share", lost / case.training_seconds, "ratio", threshold=limits.outlier_cost_ratio),
        ),
        seconds=lost,
        severity="warning" if heavy and not disturbed else "info",
        confidence="medium",
        words={"steps": float(len(places)), "outlier_ratio": OUTLIER_RATIO},
        saved_share=lost / case.seconds if case.seconds else None,
    )


def straggler(case: Case) -> Iterator[Judged]:
    ranks, limit = case.facts.devices.ranks, case.limits.straggler_ratio
    if len(ranks) < 2:
        return
    slow = max(ranks, key=lambda rank: rank.before_exchange)
    peers = [rank for rank in ranks if rank is not slow]
    usual = float(np.median([rank.before_exchange for rank in peers]))
    behind = slow.before_exchange - usual
    # A rank that other programs hold up now and then is as fast as its peers in its quicker steps.
    lasting = min(behind, slow.quick_before_exchange - float(np.median([rank.quick_before_exchange for rank in peers])))
    least = CROWDED_BEHIND_SECONDS if case.crowded else LEAST_BEHIND_SECONDS
    stretches = case.facts.stragglers.stretches if case.facts.stragglers else []
    late = [stretch for stretch in stretches if stretch.behind_seconds >= least]
    if slow.step > 0 and lasting / slow.step > limit and lasting >= least:
        stretch = next((stretch for stretch in late if stretch.rank == slow.rank), None)
        yield _held_up(case, slow.rank, slow.host, behind, behind / slow.step, stretch)
    elif late:  # for a part of the run
        yield _held_up(case, late[0].rank, late[0].host, late[0].behind_seconds, late[0].share, late[0])


def _held_up(case: Case, rank: int, host: str, behind: float, share: float, stretch: LateStretch | None) -> Judged:
    """That one rank let the others wait, all the time or in a stretch of it."""
    series = case.series
    began = stretch is not None and series is not None and stretch.since_step > series.numbers[series.warm_up]
    seconds = share * case.training_seconds
    if stretch is not None:
        seconds = min(seconds, share * (stretch.until_seconds - stretch.since_seconds))
    since = stretch.since_seconds if stretch and began else None
    return Judged(
        (
            seen(
                "behind_share", share, "ratio", threshold=case.limits.straggler_ratio, start=since, rank=rank, host=host
            ),
            seen("behind_seconds", behind, "seconds", start=since, rank=rank, host=host),
        ),
        seconds=seconds,
        confidence=case.step_confidence,
        words={
            "rank": f"{rank} on {host}" if len(case.run.hosts) > 1 else str(rank),
            "since": f" since step {stretch.since_step}" if stretch and began else "",
            "cause": stretch.cause if stretch else f"its forward pass takes longer, on {host}",
        },
        saved_share=seconds / case.seconds if case.seconds else None,
    )


def load_imbalance(case: Case) -> Iterator[Judged]:
    limit = case.limits.imbalance_ratio
    busy = [gpu.busy_percent / 100 for gpu in case.gpus if gpu.busy_percent is not None]
    if len(busy) > 1 and max(busy) - min(busy) > limit:
        yield Judged(
            (seen("least", min(busy), "ratio"), seen("most", max(busy), "ratio", threshold=min(busy) + limit)),
            words={"what": "busy, depending on the GPU"},
            confidence="medium",
        )
        return
    for name in ("tokens", "samples"):
        amounts = [getattr(rank, name) for rank in case.facts.devices.ranks]
        if len(amounts) < 2 or None in amounts or not min(amounts):
            continue
        mean = sum(amounts) / len(amounts)
        least, most = min(amounts) / mean, max(amounts) / mean
        if most - least > limit:
            yield Judged(
                (seen("least", least, "ratio"), seen("most", most, "ratio", threshold=least + limit)),
                words={"what": f"of the mean number of {name} per rank"},
            )
        return


def _comparable(series: StepSeries, places: Places) -> Floats:
    """The time of steps; of a sample, where batches differ."""
    samples = series.samples[places]
    known = len(samples) > 0 and not np.isnan(samples).any() and bool((samples > 0).all())
    seconds = series.seconds[places]
    return np.asarray(seconds / samples) if known and np.ptp(samples) > 0 else seconds


def _others_more(case: Case, series: StepSeries, first: int) -> float | None:
    """The cores that other programs took from some step on, where that is more than before."""
    times, cores = case.facts.devices.others_cores
    middle = float(series.begins[first])
    before = mean_between(times, cores, float(series.begins[series.warm_up]), middle)
    after = mean_between(times, cores, middle, float(series.ends[-1]))
    least = case.limits.other_programs_ratio * (case.facts.machine.cpu_cores or 1.0)
    return after if before is not None and after is not None and after - before > least else None


def _largest_part(series: StepSeries, place: int) -> str:
    known = {part: float(values[place]) for part, values in series.parts.items() if not np.isnan(values[place])}
    part = max(known, key=lambda part: known[part], default="")
    return STEP_PARTS[part] if part and known[part] > MOST_OF_IT * series.seconds[place] and part != "other" else ""


def _grown_part(series: StepSeries, before: Places, after: Places) -> str:
    grown = {
        part: float(np.nanmedian(values[after]) - np.nanmedian(values[before]))
        for part, values in series.parts.items()
        if not np.isnan(values[before]).all() and not np.isnan(values[after]).all()
    }
    part = max(grown, key=lambda part: grown[part], default="")
    whole = float(np.median(series.seconds[after]) - np.median(series.seconds[before]))
    if not part or part == "other" or whole <= 0 or grown[part] <= MOST_OF_IT * whole:
        return ""
    share = float(np.nanmedian(series.parts[part][before]) / np.median(series.seconds[before]))
    # Where all of a step takes longer, its largest part grows most and is not the cause.
    evenly = share > 0 and (whole - grown[part]) / max(1e-9, 1 - share) > LEAST_EXTRA * grown[part] / share
    return "" if evenly else part
