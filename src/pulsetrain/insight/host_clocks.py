"""The hosts of a run on one time: how far their clocks lie apart, and how sure that is.

Elapsed seconds of a host count from when it was first watched, and its wall clock may be wrong. Ranks that exchange
gradients tell more: no rank leaves the exchange of a step before every other rank has come to it. Each step bounds the
distance of two hosts from both sides, and the narrowest bounds of all steps give it, with its error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from pulsetrain.insight.energy.curve import EPOCH, HostClock
from pulsetrain.insight.robust import Floats
from pulsetrain.runs.database import Database, HostShift
from pulsetrain.runs.folder import Host, Run

LEAST_STEPS = 10
"""With fewer steps in common, independent programs could look as if they waited for each other."""
WINDOW_SECONDS = 600.0
MOST_WINDOWS = 50
"""Of a long run: the monotonic clocks of two hosts run apart, so that no single distance holds for all of it."""
AHEAD_STEPS = 2.0
"""So many steps a program may be ahead of its GPU: then its steps end before the exchange does."""
ROUNDING_SECONDS = 1e-4
STAMP_SECONDS = 2e-3
"""Time stamps of lines have three decimals, on both hosts."""

ClockBasis = Literal["reference", "steps", "folder", "synchronized", "unknown"]


class HostClockFigures(msgspec.Struct, kw_only=True):
    """The clock of one host of a run, against that of the run's reference host."""

    host: str
    basis: ClockBasis
    """`steps`: exchanges of gradients; `folder`: stamps of the file server; `synchronized`: both kernels call their
    clocks synchronized; `unknown`: the clocks are taken as they are."""
    ahead_seconds: float = 0.0
    """How far its clock is ahead."""
    error_seconds: float | None = None
    """How far that may be off; None where nobody can say."""
    shift_seconds: float = 0.0
    """What is added to its elapsed seconds."""
    drift_ratio: float = 0.0
    """How much of its elapsed time is added beside that."""


@dataclass(frozen=True)
class Distance:
    """What to add to the elapsed seconds of a host, to get those of another."""

    shift: float
    rate: float
    error: float


def align_hosts(database: Database, run: Run) -> list[HostClockFigures]:
    """Put all hosts of the one run in this database on the time of the first rank's host, from now on."""
    if len(run.hosts) < 2:
        return []
    clocks = read_clocks(database)
    if len(clocks) < 2:
        return []
    main = main_host(database, clocks)
    found = [_figures(database, run, clocks, main, host) for host in sorted(clocks)]
    database.shift_hosts(
        {
            clock.host: HostShift(clock.shift_seconds, clock.drift_ratio, -clock.ahead_seconds)
            for clock in found
            if clock.host != main
        }
    )
    return found


def read_clocks(database: Database) -> dict[str, HostClock]:
    """How elapsed time and wall clock belong together, for each host."""
    names = database.rows("SELECT host FROM host UNION SELECT host FROM gpu ORDER BY host")
    return {row["host"]: _clock(database, row["host"]) for row in names}


def _clock(database: Database, name: str) -> HostClock:
    for table in ("host", "gpu"):
        times = database.arrays(
            f"SELECT elapsed_seconds AS elapsed, epoch(timestamp) AS wall FROM {table} "
            "WHERE host = ? AND elapsed_seconds IS NOT NULL ORDER BY elapsed_seconds",
            [name],
        )
        if len(times["elapsed"]):
            return HostClock.of(times["elapsed"], times["wall"])
    return EPOCH


def main_host(database: Database, clocks: Mapping[str, HostClock]) -> str:
    """The reference host, whose elapsed time the run's figures use: that of the first rank, else the first."""
    rows = database.rows("SELECT host FROM first_rank.training WHERE step_seconds IS NOT NULL ORDER BY host LIMIT 1")
    return rows[0]["host"] if rows else next(iter(clocks), "")


def _figures(database: Database, run: Run, clocks: Mapping[str, HostClock], main: str, host: str) -> HostClockFigures:
    if host == main:
        return HostClockFigures(host=host, basis="reference", error_seconds=0.0)
    apart = float(clocks[host].offsets[0] - clocks[main].offsets[0])
    """Of their elapsed seconds, if both clocks were right."""
    by_steps = distance_by_steps(_exchanges(database, main), _exchanges(database, host))
    if by_steps:
        return HostClockFigures(
            host=host,
            basis="steps",
            ahead_seconds=apart - by_steps.shift,
            error_seconds=by_steps.error + STAMP_SECONDS,
            shift_seconds=by_steps.shift,
            drift_ratio=by_steps.rate,
        )
    ahead, error, basis = _ahead_by_records(run.hosts.get(main, Host()), run.hosts.get(host, Host()))
    return HostClockFigures(
        host=host, basis=basis, ahead_seconds=ahead, error_seconds=error, shift_seconds=apart - ahead
    )


def _ahead_by_records(main: Host, host: Host) -> tuple[float, float | None, ClockBasis]:
    """What the hosts themselves noted: how far they are ahead of the stamps in the folder, or that they are right."""
    stamps = [(each.ahead_of_folder_seconds, each.ahead_error_seconds) for each in (main, host)]
    if any(ahead is not None and error is not None and abs(ahead) > error for ahead, error in stamps):
        # Somebody else stamps the files. Where nobody is off, each host may stamp its own: that says nothing.
        (first, first_error), (second, second_error) = stamps
        if first is not None and second is not None:
            return second - first, (first_error or 0.0) + (second_error or 0.0), "folder"
    if main.clock_error_seconds is not None and host.clock_error_seconds is not None:
        return 0.0, main.clock_error_seconds + host.clock_error_seconds, "synchronized"
    return 0.0, None, "unknown"


@dataclass(frozen=True)
class Exchanges:
    """When the ranks of one host came to the exchange of each step, and when they had left it."""

    steps: Floats
    entered: Floats
    """At the latest, in elapsed seconds; not after the last rank came."""
    left: Floats
    """At the earliest; not before the first rank had left."""
    slack: float
    """How much earlier a step may seem to end, where a GPU works behind the program."""


def _exchanges(database: Database, host: str) -> Exchanges:
    lines = database.arrays(
        """
        SELECT step, max(begins + CASE WHEN coalesce(accumulation, 1) <= 1 THEN own ELSE 0 END) AS entered,
            min(ends - coalesce(optimizer_seconds, 0)) AS out, max(took) AS took, max(on_device::INTEGER) AS on_device
        FROM (
            SELECT step, elapsed_seconds AS ends, elapsed_seconds - step_seconds AS begins, step_seconds AS took,
                coalesce(data_wait_seconds, 0) + coalesce(forward_seconds, 0) AS own, accumulation, optimizer_seconds,
                coalesce(memory_allocated_mb > 0, false) AS on_device
            FROM training WHERE host = ? AND step_seconds > 0 AND step IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY rank, step ORDER BY elapsed_seconds DESC) = 1
        ) GROUP BY step ORDER BY step""",
        [host],
    )
    on_device = bool(len(lines["step"]) and lines["on_device"].max() > 0)
    slack = AHEAD_STEPS * float(np.median(lines["took"])) if on_device else 0.0
    return Exchanges(lines["step"], lines["entered"], lines["out"], slack)


def distance_by_steps(main: Exchanges, other: Exchanges) -> Distance | None:
    """How far two hosts are apart, by the steps that both took part in; None where these do not tell."""
    _, here, there = np.intersect1d(main.steps, other.steps, return_indices=True)
    if len(here) < LEAST_STEPS:
        return None
    at = other.left[there]
    lowest, highest = main.entered[here] - other.left[there], main.left[here] - other.entered[there]
    count = int(np.clip((at.max() - at.min()) // WINDOW_SECONDS, 1, MOST_WINDOWS))
    windows = [part for part in np.array_split(np.argsort(at), count) if len(part)]
    lows, highs = (
        np.array([f(values[part]) for part in windows]) for f, values in ((np.max, lowest), (np.min, highest))
    )
    if (lows > highs + ROUNDING_SECONDS).any():
        return None  # they do not wait for each other
    middles = (lows + highs) / 2
    times = np.array([at[part].mean() for part in windows])
    rate, shift = np.polyfit(times, middles, 1) if len(windows) > 2 else (0.0, float(middles.mean()))
    error = float(np.max(np.abs(highs - lows) / 2 + np.abs(shift + rate * times - middles)))
    return Distance(float(shift), float(rate), error + max(main.slack, other.slack))
