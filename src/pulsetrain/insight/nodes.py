"""A run of many hosts and ranks: each of them, all together, who was late, and who is missing."""

import time
from collections.abc import Iterable, Sequence

import msgspec

from pulsetrain.insight.energy.figures import RunEnergy
from pulsetrain.insight.host_clocks import HostClockFigures
from pulsetrain.insight.stragglers import Stragglers
from pulsetrain.runs import liveness
from pulsetrain.runs.codec import HEAD_NOTE
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Host, Run, RunFolder

SILENT_SECONDS, SILENT_TICKS = 30.0, 10.0
"""A host that nobody can ask is missing when its lines end this many seconds, and ticks, before those of others."""


class Spread(msgspec.Struct, kw_only=True):
    """One figure over all nodes or ranks."""

    mean: float
    min: float
    max: float
    sum: float | None = None
    """None where a sum means nothing."""


class NodeFigures(msgspec.Struct, kw_only=True):
    """One host of a run. Times are elapsed seconds of the run. None where not known."""

    host: str
    node_rank: int | None = None
    status: str
    """As that of a run, for the command of this host; `vanished` where it fell silent."""
    exit_code: int | None = None
    attempts: int = 1
    began: float
    last_heard: float
    lost_seconds: float | None = None
    """Of a host that vanished: from then to the end of the run."""
    gpus: int = 0
    ranks: list[int] = []
    gpu_busy_percent: float | None = None
    """Mean over its GPUs and time."""
    cpu_percent: float | None = None
    memory_peak_bytes: float | None = None
    joules: float | None = None
    """Of its charged devices, without PUE."""
    clock: HostClockFigures | None = None


class RankFigures(msgspec.Struct, kw_only=True):
    """One rank of a run, over all its attempts."""

    rank: int
    host: str
    """The last one that it ran on."""
    attempts: int
    steps: int
    """Different ones: a step that was done again counts once."""
    last_step: int | None = None
    last_heard: float
    step_seconds: Spread
    own_seconds: float | None = None
    """Median of a step, before the rank meets the others; None where the loop does not show its parts."""
    data_wait_share: float | None = None
    samples: float | None = None
    late_share: float | None = None
    """Of the steps: those in which it came last, by more than the limit."""


class RunNodes(msgspec.Struct, kw_only=True):
    """All hosts and ranks of a run."""

    nodes: list[NodeFigures]
    ranks: list[RankFigures]
    node_totals: dict[str, Spread]
    """By the name of a figure of NodeFigures."""
    rank_totals: dict[str, Spread]
    stragglers: Stragglers | None = None

    @property
    def vanished(self) -> list[NodeFigures]:
        return [node for node in self.nodes if node.status == "vanished"]


def read_nodes(
    database: Database,
    folder: RunFolder,
    run: Run,
    energy: RunEnergy,
    clocks: Sequence[HostClockFigures],
    stragglers: Stragglers | None,
    seconds: float,
) -> RunNodes | None:
    """None for a run of one host and one rank: the rest of the report says it all. The hosts are on one time."""
    ranks = _ranks(database, stragglers)
    if len(run.hosts) < 2 and len(ranks) < 2:
        return None
    nodes = _nodes(database, folder, run, energy, clocks, ranks, seconds)
    return RunNodes(
        nodes=nodes,
        ranks=ranks,
        node_totals=_totals(
            nodes, gpus=True, gpu_busy_percent=False, cpu_percent=False, memory_peak_bytes=True, joules=True
        ),
        rank_totals=_totals(ranks, steps=True, own_seconds=False, data_wait_share=False, samples=True)
        | _step_total(ranks),
        stragglers=stragglers,
    )


def _nodes(
    database: Database,
    folder: RunFolder,
    run: Run,
    energy: RunEnergy,
    clocks: Sequence[HostClockFigures],
    ranks: Sequence[RankFigures],
    seconds: float,
) -> list[NodeFigures]:
    heard = {
        row["host"]: row
        for row in database.rows(
            "SELECT host, min(elapsed_seconds) AS began, max(elapsed_seconds) AS last FROM ("
            "SELECT host, elapsed_seconds FROM host UNION ALL SELECT host, elapsed_seconds FROM gpu "
            "UNION ALL SELECT host, elapsed_seconds FROM training) GROUP BY host"
        )
    }
    machine = {
        row["host"]: row
        for row in database.rows(
            "SELECT host, 100 * avg(cpu_ratio) AS cpu, max(memory_used_bytes) AS memory FROM host GROUP BY host"
        )
    }
    busy = {
        row["host"]: row["busy"]
        for row in database.rows("SELECT host, avg(utilization_percent) AS busy FROM boards.gpu GROUP BY host")
    }
    by_host = {clock.host: clock for clock in clocks}
    end = max([seconds, *(row["last"] or 0.0 for row in heard.values())])
    found = []
    for name, host in sorted(run.hosts.items(), key=lambda item: (_node_rank(item[1]), item[0])):
        last = float((heard.get(name) or {}).get("last") or 0.0)
        status = _status(folder, run, name, host, end - last)
        joules = [
            device.total.joules for device in energy.devices if device.host == name and device.charged and device.total
        ]
        own = machine.get(name) or {}
        found.append(
            NodeFigures(
                host=name,
                node_rank=host.launch.node_rank if host.launch else None,
                status=status,
                exit_code=host.attempts[-1].exit_code if host.attempts else None,
                attempts=max(1, len(host.attempts)),
                began=float((heard.get(name) or {}).get("began") or 0.0),
                last_heard=last,
                lost_seconds=max(0.0, end - last) if status == "vanished" else None,
                gpus=len(host.gpus),
                ranks=[rank.rank for rank in ranks if rank.host == name],
                gpu_busy_percent=busy.get(name),
                cpu_percent=own.get("cpu"),
                memory_peak_bytes=own.get("memory"),
                joules=sum(joules) if joules else None,
                clock=by_host.get(name),
            )
        )
    return found


def _node_rank(host: Host) -> float:
    rank = host.launch.node_rank if host.launch else None
    return float("inf") if rank is None else rank


def _status(folder: RunFolder, run: Run, name: str, host: Host, silent: float) -> str:
    """How the command of a host ended, or whether the host is still heard of."""
    attempt = host.attempts[-1] if host.attempts else None
    if attempt and attempt.ended is not None:
        return attempt.status
    held = liveness.is_held(folder.host_folder(name))
    if held:
        return "running"
    if held is False and attempt and host.boot_id == liveness.boot_id():
        return "vanished"
    if silent > max(SILENT_SECONDS, SILENT_TICKS * run.interval_seconds):
        return "vanished"
    if attempt and (run.status not in ("running", "died") or _others_ended(run, name)):  # and it has not said so
        moved = max((file.stat().st_mtime for file in folder.host_folder(name).iterdir()), default=0.0)
        return "vanished" if time.time() - moved > SILENT_SECONDS else "running"
    return run.status


def _others_ended(run: Run, name: str) -> bool:
    """The run itself does not tell, when the host that made it is the one that vanished."""
    others = [host.attempts for other, host in run.hosts.items() if other != name]
    return bool(others) and all(attempts and attempts[-1].ended is not None for attempts in others)


def _ranks(database: Database, stragglers: Stragglers | None) -> list[RankFigures]:
    rows = database.rows("""
        SELECT coalesce(rank, 0)::INTEGER AS rank, arg_max(host, elapsed_seconds) AS host,
            count(DISTINCT step) AS steps, max(step)::BIGINT AS last_step, max(elapsed_seconds) AS last_heard,
            avg(step_seconds) AS mean, min(step_seconds) AS least, max(step_seconds) AS most,
            sum(step_seconds) AS whole, median(coalesce(data_wait_seconds, 0) + forward_seconds) AS own,
            sum(data_wait_seconds) / sum(step_seconds) AS waited, sum(samples) AS samples
        FROM training WHERE step_seconds > 0 GROUP BY coalesce(rank, 0) ORDER BY rank""")
    attempts = {
        row["rank"]: row["attempts"]
        for row in database.rows(
            "SELECT coalesce(rank, 0)::INTEGER AS rank, "
            "count(DISTINCT (host, json_extract(other, '$.pid'))) AS attempts "
            "FROM lines.training WHERE event = ? GROUP BY coalesce(rank, 0)",
            [HEAD_NOTE],
        )
    }
    return [
        RankFigures(
            rank=row["rank"],
            host=row["host"],
            attempts=attempts.get(row["rank"]) or 1,
            steps=row["steps"],
            last_step=row["last_step"],
            last_heard=row["last_heard"],
            step_seconds=Spread(mean=row["mean"], min=row["least"], max=row["most"], sum=row["whole"]),
            own_seconds=row["own"],
            data_wait_share=row["waited"],
            samples=row["samples"],
            late_share=stragglers.late_share.get(row["rank"]) if stragglers else None,
        )
        for row in rows
    ]


def _totals(parts: Sequence[msgspec.Struct], **figures: bool) -> dict[str, Spread]:
    """Each figure over all parts that know it; True for those that can be added up."""
    found = {}
    for name, adds_up in figures.items():
        values = [value for part in parts if (value := getattr(part, name)) is not None]
        if values:
            found[name] = _spread(values, adds_up)
    return found


def _step_total(ranks: Sequence[RankFigures]) -> dict[str, Spread]:
    means = [rank.step_seconds.mean for rank in ranks]
    return {"step_seconds": _spread(means, False)} if means else {}


def _spread(values: Iterable[float], adds_up: bool) -> Spread:
    known = list(values)
    total = sum(known)
    return Spread(mean=total / len(known), min=min(known), max=max(known), sum=total if adds_up else None)
