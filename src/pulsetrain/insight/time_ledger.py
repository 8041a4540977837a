"""The time ledger of a run: what every rank's time was spent on, and what that used and cost.

Every instant of every rank's life, from the start of its process to its end, and the gaps between its attempts belong
to one of TIME_CLASSES (`rank_timeline`). So the classes add up to the time of the ranks, and `unknown` is one of them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from pulsetrain.catalog.time_classes import COMPUTE_CLASSES, PART_CLASSES, STARTUP_PARTS, TIME_CLASSES
from pulsetrain.insight.energy.curve import EPOCH, EnergyCurve, total
from pulsetrain.insight.energy.figures import Origin, worst_origin
from pulsetrain.insight.rank_timeline import ProcessLife, RankLines, RankTimeline, rank_timelines
from pulsetrain.insight.steps import ROUNDING_SECONDS, Floats, phases_of
from pulsetrain.runs.codec import END_NOTE, HEAD_NOTE
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Run

__all__ = ["TIME_CLASSES", "RankTime", "Rates", "TimeLedger", "TimeShare", "read_timelines", "time_ledger"]


class TimeShare(msgspec.Struct, kw_only=True):
    """The time of one class, and what was used and paid in it."""

    seconds: float
    share: float
    """Of the time that it is a part of."""
    joules: float | None = None
    grams: float | None = None
    money: float | None = None
    """In the currency of the run's cost."""
    obtained: Origin = "measured"


class RankTime(msgspec.Struct, kw_only=True):
    """One attempt of one rank, in elapsed seconds of its host. The gap before a later attempt is part of it."""

    host: str
    rank: int
    attempt: int
    """From 1."""
    began: float
    ended: float
    classes: dict[str, TimeShare]
    """Those of TIME_CLASSES that have any time, in that order."""


class TimeLedger(msgspec.Struct, kw_only=True):
    """Where the time of a run went, over all its ranks and attempts."""

    seconds: float
    """The time of all ranks, from the start of each to its end, with the gaps between attempts."""
    classes: dict[str, TimeShare]
    """Those of TIME_CLASSES that have any time, in that order. They add up to `seconds`."""
    ranks: list[RankTime]
    goodput: float | None
    """Compute of the steps that were kept, as a share of all time; None without steps."""
    startup: dict[str, float] = {}
    """Seconds of each of STARTUP_PARTS, which add up to the class; empty where a rank does not tell them."""

    def share(self, name: str) -> float:
        """Of a class; 0 where it has no time."""
        return self.classes[name].share if name in self.classes else 0.0


@dataclass(frozen=True)
class Rates:
    """What a run used and cost, from which each class gets its part."""

    energy: EnergyCurve = field(default_factory=lambda: total((), EPOCH))
    """Of all charged devices, over the elapsed time of the first rank's host."""
    shifts: Mapping[str, float] = field(default_factory=dict)
    """What to add to the elapsed seconds of each host to get those of the curve."""
    pue: float = 1.0
    grams_per_joule: float | None = None
    money_per_joule: float | None = None
    money_per_second: float | None = None


def time_ledger(timelines: Sequence[RankTimeline], rates: Rates) -> TimeLedger | None:
    """The ledger of a run with these timelines; None without any."""
    if not timelines:
        return None
    shared = _SharedRates(timelines, rates)
    ranks = [_rank_time(timeline, shared) for timeline in timelines]
    seconds = sum(float(rank.ended - rank.began) for rank in ranks)
    classes = {
        name: _summed([rank.classes[name] for rank in ranks if name in rank.classes], seconds)
        for name in TIME_CLASSES
        if any(name in rank.classes for rank in ranks)
    }
    trained = any(name in classes for name in (*COMPUTE_CLASSES, "lost_work"))
    computed = sum(classes[name].seconds for name in COMPUTE_CLASSES if name in classes)
    goodput = computed / seconds if trained and seconds > 0 else None
    return TimeLedger(
        seconds=seconds, classes=classes, ranks=ranks, goodput=goodput, startup=_startup(timelines, classes)
    )


def _startup(timelines: Sequence[RankTimeline], classes: Mapping[str, TimeShare]) -> dict[str, float]:
    parts = [timeline.startup for timeline in timelines if timeline.startup]
    found = {name: sum(part[name] for part in parts) for name in STARTUP_PARTS}
    whole = classes["startup"].seconds if "startup" in classes else 0.0
    return found if parts and sum(found.values()) > whole - ROUNDING_SECONDS else {}


def _rank_time(timeline: RankTimeline, shared: "_SharedRates") -> RankTime:
    totals = timeline.totals()
    joules, money = shared.joules(timeline), shared.money(timeline)
    whole = timeline.ended - timeline.began
    grams = shared.rates.grams_per_joule
    classes = {
        name: TimeShare(
            seconds=seconds,
            share=seconds / whole if whole > 0 else 0.0,
            joules=joules[name] if joules else None,
            grams=joules[name] * grams if joules and grams is not None else None,
            money=money[name] if money else None,
            obtained=timeline.obtained.get(name, "measured"),
        )
        for name, seconds in totals.items()
    }
    return RankTime(
        host=timeline.host,
        rank=timeline.rank,
        attempt=timeline.attempt,
        began=timeline.began,
        ended=timeline.ended,
        classes=classes,
    )


def _summed(parts: Sequence[TimeShare], whole: float) -> TimeShare:
    def sum_of(name: str) -> float | None:
        values = [getattr(part, name) for part in parts]
        return None if None in values else sum(values)

    seconds = sum(part.seconds for part in parts)
    return TimeShare(
        seconds=seconds,
        share=seconds / whole if whole > 0 else 0.0,
        joules=sum_of("joules"),
        grams=sum_of("grams"),
        money=sum_of("money"),
        obtained=worst_origin(*(part.obtained for part in parts)),
    )


class _SharedRates:
    """What the ranks share: at each moment, those that there are have equal parts of it."""

    def __init__(self, timelines: Sequence[RankTimeline], rates: Rates) -> None:
        self.rates = rates
        spans = [(self._at(timeline, timeline.began), self._at(timeline, timeline.ended)) for timeline in timelines]
        own = np.array([edge for span in spans for edge in span])
        self._times = np.unique(np.concatenate((own, rates.energy.times)))
        begins, ends = np.sort([begin for begin, _ in spans]), np.sort([end for _, end in spans])
        middle = (self._times[1:] + self._times[:-1]) / 2
        here = np.searchsorted(begins, middle) - np.searchsorted(ends, middle)
        self._ranks = np.maximum(1, here)

    def joules(self, timeline: RankTimeline) -> dict[str, float] | None:
        if len(self.rates.energy.times) < 2:
            return None
        return self._of(timeline, self.rates.pue * self.rates.energy.joules_at(self._times))

    def money(self, timeline: RankTimeline) -> dict[str, float] | None:
        if self.rates.money_per_second is not None:
            return self._of(timeline, self.rates.money_per_second * self._times)
        joules = self.joules(timeline) if self.rates.money_per_joule is not None else None
        return {name: value * (self.rates.money_per_joule or 0.0) for name, value in joules.items()} if joules else None

    def _of(self, timeline: RankTimeline, used: Floats) -> dict[str, float]:
        each = np.concatenate(([0.0], np.cumsum(np.diff(used) / self._ranks)))
        at_edges = np.interp(self._at(timeline, timeline.edges), self._times, each)
        return timeline.totals(np.diff(at_edges))

    def _at(self, timeline: RankTimeline, elapsed: Any) -> Any:
        return elapsed + self.rates.shifts.get(timeline.host, 0.0)


# Reading


def read_timelines(database: Database, run: Run, seconds: float) -> list[RankTimeline]:
    """The time of every rank of the one run in this database, which took so many seconds or has by now."""
    lives = _Lives(database, run, seconds)
    found: list[RankTimeline] = []
    for row in database.rows(
        "SELECT host, coalesce(rank, 0)::INTEGER AS rank FROM training "
        "WHERE step_seconds > 0 OR phase_seconds > 0 GROUP BY ALL ORDER BY rank, host"
    ):
        host, rank = row["host"], row["rank"]
        lines = _rank_lines(database, host, rank)
        found += rank_timelines(host, rank, lives.of(host, rank, lines), lines)
    return found


def _rank_lines(database: Database, host: str, rank: int) -> RankLines:
    own = f"(FROM training WHERE coalesce(rank, 0) = {rank:d} AND host = ?)"
    parts = ", ".join(f"{part}_seconds" for part in (*PART_CLASSES, "other"))
    steps = database.arrays(
        f"SELECT elapsed_seconds, step, step_seconds, {parts} FROM {own} "
        "WHERE step_seconds > 0 ORDER BY elapsed_seconds",
        [host],
    )
    (device,) = database.rows(f"SELECT bool_or(memory_allocated_mb > 0) AS used FROM {own}", [host])
    return RankLines(steps, phases_of(database, own, [host]), bool(device["used"]))


class _Lives:
    """The processes of each rank, from the notes that they leave at their start and end."""

    def __init__(self, database: Database, run: Run, seconds: float) -> None:
        self._seconds = seconds
        self._running = run.status == "running"
        self._watchers = {name: host.pid for name, host in run.hosts.items()}
        self._processes: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
        for row in database.rows(
            "SELECT host, coalesce(rank, 0)::INTEGER AS rank, elapsed_seconds AS at, event, other FROM lines.training "
            "WHERE event IN (?, ?) ORDER BY elapsed_seconds",
            [HEAD_NOTE, END_NOTE],
        ):
            about = _about(row["other"])
            if row["host"] in database.shifts and "began_seconds" in about:
                about["began_seconds"] = database.shifts[row["host"]].on_run_time(_began(about))
            processes = self._processes.setdefault((row["host"], row["rank"]), {})
            process = processes.setdefault(about.get("pid") or 0, {"at": row["at"], **about})
            if row["event"] == END_NOTE:
                process.update(ended=row["at"], outcome=about.get("outcome"))

    def of(self, host: str, rank: int, lines: RankLines) -> list[ProcessLife]:
        """In order of time; they do not overlap. A process that reported nothing is left out."""
        ends = np.concatenate((lines.steps["elapsed_seconds"], [phase.end for phase in lines.phases]))
        begins = lines.steps["elapsed_seconds"] - lines.steps["step_seconds"]
        first = min([*begins, *(phase.begin for phase in lines.phases)])
        processes = sorted(self._processes.get((host, rank), {0: {}}).values(), key=_began)
        lives: list[ProcessLife] = []
        before: dict[str, Any] = {}
        for place, process in enumerate(processes):
            began = _began(process) if lives else min(_began(process), first)
            until = _began(processes[place + 1]) if place + 1 < len(processes) else np.inf
            own = ends[(ends > began) & (ends <= until)]
            if not len(own):
                continue
            if until == np.inf:
                ended = process.get("ended") or max(self._seconds, own.max())
                if self._is_command(host, process):
                    ended = max(ended, self._seconds)
            else:
                ended = min(max(process.get("ended") or 0.0, own.max()), until)
            continues = bool(lives) and _continues(before, process)
            lives.append(
                ProcessLife(
                    began=float(began),
                    ended=float(ended),
                    attempt=len(lives) + 1,
                    continues=continues,
                    start_known=process.get("began_seconds") is not None,
                    end_known=process.get("ended") is not None,
                    trains_on=self._running and until == np.inf and process.get("ended") is None,
                    interpreter_seconds=_number(process.get("interpreter_seconds")),
                    imports_seconds=_number(process.get("imports_seconds")),
                )
            )
            before = process
        return lives

    def _is_command(self, host: str, process: Mapping[str, Any]) -> bool:
        """Whether it is the command itself: then it ends with the run, some time after the last thing it can write."""
        watcher = self._watchers.get(host)
        return bool(watcher) and len(self._watchers) == 1 and process.get("parent_pid") == watcher


def _began(process: Mapping[str, Any]) -> float:
    """Of a version that did not say it: with the run."""
    return max(0.0, _number(process.get("began_seconds")) or 0.0)  # a kernel may be older than the run


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _continues(before: Mapping[str, Any], process: Mapping[str, Any]) -> bool:
    """Whether a process does again what the one before it did not finish.

    A launcher that counts knows best: after `sys.exit(3)` a process believes that it finished.
    """
    restarts, earlier = process.get("restarts"), before.get("restarts")
    if isinstance(restarts, int) and isinstance(earlier, int) and restarts > earlier:
        return True
    if before.get("outcome") == "finished":
        return False
    return bool(process.get("command")) and process.get("command") == before.get("command")


def _about(other: Any) -> dict[str, Any]:
    try:
        found = json.loads(other) if isinstance(other, str) else other
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
