"""Ranks that let the others wait: in which steps, since when, and why.

What a rank does on its own before it meets the others (waiting for data, the forward pass) is compared step by step
with the median of its peers. That needs no clock: each rank times itself.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import msgspec
import numpy as np

from pulsetrain.insight.robust import LEAST_SHIFT, Floats, change_points
from pulsetrain.runs.database import Database

MOST_OF_IT = 0.7
"""A part of the step is the cause when it makes up this share of the difference."""
LEAST_BEHIND_SECONDS = 0.001
"""Ranks that lag by less are not worth a word."""
LONG_STEP = 3.0
"""A step is held up when it takes this many times the median step,"""
LONG_SECONDS = 0.5
"""and this much longer."""
MOST_HELD_UP, MOST_STRETCHES = 5, 8
SLOWER_CLOCK = 0.95
"""GPUs below this share of the clock of the other hosts' run slow."""
CROWDED_CORES = 0.1
"""Of the cores of a host: programs that take this much more than on other hosts are a cause."""

_STEPS = """(
    SELECT coalesce(rank, 0)::INTEGER AS rank, host, step, elapsed_seconds, step_seconds, data_wait_seconds,
        samples, coalesce(data_wait_seconds, 0) + forward_seconds AS own
    FROM training WHERE step_seconds > 0 AND forward_seconds IS NOT NULL AND step IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY rank, step ORDER BY elapsed_seconds DESC) = 1
)"""
"""Of a step that was done again after a restart, the last one counts."""


class StepSkew(msgspec.Struct, kw_only=True):
    """How far the slowest rank of each step came after the median of the others."""

    steps: int
    """That were compared: all ranks took part."""
    mean_seconds: float
    p95_seconds: float
    max_seconds: float
    max_step: int
    max_rank: int
    share: float
    """Of the time of these steps: what the others waited for."""


class LateStretch(msgspec.Struct, kw_only=True):
    """A stretch of steps in which one rank let the others wait."""

    rank: int
    host: str
    since_step: int
    since_seconds: float
    until_step: int
    until_seconds: float
    behind_seconds: float
    """In a step, the median."""
    share: float
    """Of the median step."""
    cause: str


class HeldUpStep(msgspec.Struct, kw_only=True):
    """One long step, and who held it up."""

    step: int
    elapsed_seconds: float
    seconds: float
    rank: int | None
    """None where the ranks do not show it."""
    host: str
    cause: str


class Stragglers(msgspec.Struct, kw_only=True):
    """What the ranks of a run show when they are compared step by step."""

    skew: StepSkew
    late_share: dict[int, float]
    """By rank: the share of the steps in which it came last, and by more than the limit."""
    stretches: list[LateStretch] = []
    """The costliest first."""
    held_up: list[HeldUpStep] = []
    """The longest first."""


def read_stragglers(database: Database, limit: float) -> Stragglers | None:
    """None for a run of one rank, or whose loops do not show their parts. `limit` is a share of the step."""
    ranks = [row["rank"] for row in database.rows(f"SELECT DISTINCT rank FROM {_STEPS} ORDER BY rank")]
    if len(ranks) < 2:
        return None
    steps = database.arrays(
        f"""
        SELECT step, max(own) - list_median(list_sort(list(own))[:-2]) AS behind, arg_max(rank, own) AS rank,
            max(step_seconds) AS seconds
        FROM {_STEPS} GROUP BY step HAVING count(*) = ? ORDER BY step""",
        [len(ranks)],
    )
    if not len(steps["step"]):
        return None
    usual = float(np.median(steps["seconds"]))
    late = steps["behind"] > max(limit * usual, LEAST_BEHIND_SECONDS)
    place = int(np.argmax(steps["behind"]))
    skew = StepSkew(
        steps=len(steps["step"]),
        mean_seconds=float(steps["behind"].mean()),
        p95_seconds=float(np.quantile(steps["behind"], 0.95)),
        max_seconds=float(steps["behind"][place]),
        max_step=int(steps["step"][place]),
        max_rank=int(steps["rank"][place]),
        share=float(steps["behind"].sum() / steps["seconds"].sum()),
    )
    shares = {rank: float((late & (steps["rank"] == rank)).mean()) for rank in ranks}
    stretches = [
        found for rank in ranks if shares[rank] > limit / 2 for found in _stretches(database, rank, len(ranks), limit)
    ]
    stretches.sort(key=lambda found: -found.behind_seconds * (found.until_step - found.since_step + 1))
    return Stragglers(
        skew=skew,
        late_share=shares,
        stretches=stretches[:MOST_STRETCHES],
        held_up=list(_held_up(database, steps, usual)),
    )


def _stretches(database: Database, rank: int, ranks: int, limit: float) -> Iterator[LateStretch]:
    """When one rank was behind: its steps are cut where its distance to the others changes."""
    lines = database.arrays(
        f"""
        SELECT step, any_value(own) FILTER (rank = ?) AS own, median(own) FILTER (rank <> ?) AS others,
            any_value(elapsed_seconds) FILTER (rank = ?) AS at, any_value(host) FILTER (rank = ?) AS host,
            any_value(step_seconds) FILTER (rank = ?) AS seconds
        FROM {_STEPS} GROUP BY step HAVING count(*) = ? ORDER BY step""",
        [*(rank,) * 5, ranks],
    )
    behind = lines["own"] - lines["others"]
    ratio = lines["own"] / np.maximum(lines["others"], 1e-6)
    edges = [0, *change_points(ratio), len(behind)]
    least = max(limit * float(np.median(lines["seconds"])), LEAST_BEHIND_SECONDS)
    parts = [(first, last) for first, last in pairwise(edges) if _is_behind(lines, first, last, least)]
    for first, last in _joined(parts):
        seconds = float(np.median(behind[first:last]))
        since, until = float(lines["at"][first] - lines["seconds"][first]), float(lines["at"][last - 1])
        host = str(lines["host"][first])
        yield LateStretch(
            rank=rank,
            host=host,
            since_step=int(lines["step"][first]),
            since_seconds=since,
            until_step=int(lines["step"][last - 1]),
            until_seconds=until,
            behind_seconds=seconds,
            share=seconds / float(np.median(lines["seconds"][first:last])),
            cause=_cause(database, rank, host, since, until, seconds),
        )


def _is_behind(lines: Mapping[str, Floats], first: int, last: int, least: float) -> bool:
    """By the median, and in the quicker quarter of the steps: a rank that lost the CPU now and then is not."""
    own, others = lines["own"][first:last], lines["others"][first:last]
    lasting = float(np.quantile(own, 0.25) - np.quantile(others, 0.25))
    return min(float(np.median(own - others)), lasting) > least


def _joined(parts: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Neighbors put together."""
    open_part: tuple[int, int] | None = None
    for first, last in parts:
        if open_part and open_part[1] == first:
            open_part = open_part[0], last
            continue
        if open_part:
            yield open_part
        open_part = first, last
    if open_part:
        yield open_part


def _held_up(database: Database, steps: Mapping[str, Floats], usual: float) -> Iterator[HeldUpStep]:
    """The longest steps: one rank worked long, or the lines of one host stop meanwhile."""
    long = np.flatnonzero(steps["seconds"] > max(LONG_STEP * usual, usual + LONG_SECONDS))
    if len(long) > len(steps["seconds"]) // 4:  # many long steps are a slow run
        return
    for place in sorted(long, key=lambda place: -steps["seconds"][place])[:MOST_HELD_UP]:
        number, extra = int(steps["step"][place]), float(steps["seconds"][place]) - usual
        (at,) = database.rows(
            f"SELECT max(elapsed_seconds) AS at, min(elapsed_seconds - step_seconds) AS began FROM {_STEPS} "
            "WHERE step = ?",
            [number],
        )
        rank, host, cause = None, "", "in the gradient exchange"
        if silent := _silent_host(database, at["began"], at["at"], extra):
            host, cause = silent, f"nothing was heard from {silent} meanwhile"
        if steps["behind"][place] > extra / 2:
            rank = int(steps["rank"][place])
            (own,) = database.rows(
                f"SELECT host, data_wait_seconds AS waited, own FROM {_STEPS} WHERE step = ? AND rank = ?",
                [number, rank],
            )
            by_data = (own["waited"] or 0.0) > MOST_OF_IT * own["own"]
            if own["host"] != silent:
                host, cause = own["host"], "it waits for data" if by_data else "before its backward pass"
        yield HeldUpStep(
            step=number,
            elapsed_seconds=float(at["at"]),
            seconds=float(steps["seconds"][place]),
            rank=rank,
            host=host,
            cause=cause,
        )


def _silent_host(database: Database, began: float, ended: float, extra: float) -> str:
    """The host whose lines stop for most of this time, while others go on."""
    rows = database.rows(
        """
        SELECT host, max(gap) AS gap FROM (
            SELECT host, elapsed_seconds AS heard,
                elapsed_seconds - lag(elapsed_seconds) OVER (PARTITION BY host ORDER BY elapsed_seconds) AS gap
            FROM (SELECT DISTINCT host, elapsed_seconds FROM host)
        ) WHERE heard BETWEEN ? AND ? + 5 GROUP BY host ORDER BY gap DESC""",
        [began, ended],
    )
    silent = [row["host"] for row in rows if row["gap"] > MOST_OF_IT * extra]
    return str(silent[0]) if len(silent) == 1 and len(rows) > 1 else ""


def _cause(database: Database, rank: int, host: str, since: float, until: float, behind: float) -> str:
    """What differs between a rank, or its host, and the others in a stretch of time."""
    (row,) = database.rows(
        f"""
        SELECT median(data_wait_seconds) FILTER (rank = ?) - median(data_wait_seconds) FILTER (rank <> ?) AS waits,
            avg(samples) FILTER (rank = ?) / avg(samples) FILTER (rank <> ?) AS more
        FROM {_STEPS} WHERE elapsed_seconds BETWEEN ? AND ?""",
        [*(rank,) * 4, since, until],
    )
    if (row["waits"] or 0.0) > MOST_OF_IT * behind:
        return "it waits for data"
    if (row["more"] or 0.0) > 1 + LEAST_SHIFT:
        return f"its batches have {row['more']:.2g} times as many samples"
    return _cause_on_host(database, host, since, until) or f"its forward pass takes longer, on {host}"


def _cause_on_host(database: Database, host: str, since: float, until: float) -> str:
    """What the machine shows, where there are others to compare it with."""
    window = [*(host,) * 2, since, until]
    (gpu,) = database.rows(
        """
        SELECT avg(clock_sm_hertz) FILTER (host = ?) AS own, avg(clock_sm_hertz) FILTER (host <> ?) AS others
        FROM boards.gpu WHERE elapsed_seconds BETWEEN ? AND ?""",
        window,
    )
    if gpu["own"] and gpu["others"] and gpu["own"] < SLOWER_CLOCK * gpu["others"]:
        return (
            f"the GPUs of {host} run at {gpu['own'] / 1e6:,.0f} MHz, those of other hosts at {gpu['others'] / 1e6:,.0f}"
        )
    (cpu,) = database.rows(
        """
        SELECT avg(cpu_ratio - job_cpu_cores / cpu_cores) FILTER (host = ?) AS own,
            avg(cpu_ratio - job_cpu_cores / cpu_cores) FILTER (host <> ?) AS others
        FROM host WHERE elapsed_seconds BETWEEN ? AND ?""",
        window,
    )
    if cpu["own"] is not None and cpu["others"] is not None and cpu["own"] - cpu["others"] > CROWDED_CORES:
        return f"other programs keep {100 * cpu['own']:.0f} % of the CPUs of {host} busy"
    return ""
