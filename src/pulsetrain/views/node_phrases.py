"""Hosts and ranks of a run in words and tables."""

from collections.abc import Callable, Sequence

from pulsetrain.insight.host_clocks import HostClockFigures
from pulsetrain.insight.nodes import NodeFigures, RankFigures, RunNodes
from pulsetrain.views.text import Style, bytes_text, duration, energy, number, percent, short_duration

Row = tuple[str, ...]

MOST_RANKS = 16
NODE_HEAD = ("node", "host", "ranks", "GPUs", "GPU util", "CPU", "memory", "energy", "clock", "last heard", "status")
NODE_ALIGN = "llrrrrrrlrl"
NODE_SPARE = (6, 5, 0)
RANK_HEAD = (
    "rank",
    "host",
    "starts",
    "steps",
    "step",
    "fastest",
    "slowest",
    "own work",
    "data wait",
    "late",
    "samples",
)
RANK_ALIGN = "rlrrrrrrrrr"
RANK_SPARE = (10, 5, 8)
_BASIS = {"steps": "by steps", "folder": "by file timestamps", "synchronized": "by NTP", "unknown": "error unknown"}


def node_rows(found: RunNodes, style: Style) -> list[Row]:
    """A row for each host, and what they are together."""
    rows = [_node_row(node, style) for node in found.nodes]
    return [*rows, *_spread_rows(found)] if len(found.nodes) > 1 else rows


def _node_row(node: NodeFigures, style: Style) -> Row:
    vanished = node.status == "vanished"
    ended = f"{node.status} ({node.exit_code})" if node.exit_code else node.status
    again = f", attempt {node.attempts}" if node.attempts > 1 else ""
    return (
        "" if node.node_rank is None else str(node.node_rank),
        node.host,
        ranks_text(node.ranks),
        str(node.gpus) if node.gpus else "",
        _percent(node.gpu_busy_percent),
        _percent(node.cpu_percent),
        bytes_text(node.memory_peak_bytes) if node.memory_peak_bytes is not None else "",
        energy(node.joules) if node.joules is not None else "",
        clock_text(node.clock),
        duration(node.last_heard),
        style(ended + again, "red") if vanished else ended + again,
    )


def _spread_rows(found: RunNodes) -> list[Row]:
    totals = found.node_totals
    words: dict[str, Callable[[float], str]] = {
        "gpus": lambda value: f"{value:g}",
        "gpu_busy_percent": _percent,
        "cpu_percent": _percent,
        "memory_peak_bytes": bytes_text,
        "joules": energy,
    }
    rows: list[Row] = []
    for kind in ("mean", "min", "max", "sum"):
        cells = {
            name: word(value)
            for name, word in words.items()
            if name in totals and (value := getattr(totals[name], kind)) is not None
        }
        rows.append(("", kind, "", *(cells.get(name, "") for name in words), "", "", ""))
    return rows


def rank_rows(found: RunNodes) -> list[Row]:
    """A row for each rank; of many, for those that are worth a look. Then what they are together."""
    shown = list(found.ranks)
    if len(shown) > MOST_RANKS:
        worst = sorted(shown, key=lambda rank: (-(rank.late_share or 0.0), -rank.step_seconds.max, rank.rank))
        shown = sorted(worst[:MOST_RANKS], key=lambda rank: rank.rank)
    rows = [_rank_row(rank) for rank in shown]
    return [*rows, *_rank_spread_rows(found)] if len(found.ranks) > 1 else rows


def _rank_row(rank: RankFigures) -> Row:
    return (
        str(rank.rank),
        rank.host,
        str(rank.attempts) if rank.attempts > 1 else "",
        number(rank.steps),
        short_duration(rank.step_seconds.mean),
        short_duration(rank.step_seconds.min),
        short_duration(rank.step_seconds.max),
        "" if rank.own_seconds is None else short_duration(rank.own_seconds),
        "" if rank.data_wait_share is None else percent(rank.data_wait_share),
        "" if rank.late_share is None else percent(rank.late_share),
        "" if rank.samples is None else number(int(rank.samples)),
    )


def _rank_spread_rows(found: RunNodes) -> list[Row]:
    totals = found.rank_totals

    def cell(name: str, kind: str) -> float | None:
        return getattr(totals[name], kind) if name in totals else None

    rows: list[Row] = []
    for kind in ("mean", "min", "max", "sum"):
        steps, step, own, waited, samples = (
            cell(name, kind) for name in ("steps", "step_seconds", "own_seconds", "data_wait_share", "samples")
        )
        rows.append(
            (
                "",
                kind,
                "",
                "" if steps is None else number(round(steps)),
                "" if step is None else short_duration(step),
                "",
                "",
                "" if own is None else short_duration(own),
                "" if waited is None else percent(waited),
                "",
                "" if samples is None else number(round(samples)),
            )
        )
    return rows


def node_remarks(found: RunNodes) -> list[str]:
    """Which hosts are missing, and how sure the common time is."""
    remarks = [_gone(node) for node in found.vanished] if len(found.nodes) > 1 else []
    reference = next((node.host for node in found.nodes if node.clock and node.clock.basis == "reference"), "")
    if reference:
        errors = [node.clock.error_seconds for node in found.nodes if node.clock and node.clock.host != reference]
        known = [error for error in errors if error is not None]
        sure = f"to within {short_duration(max(known))}" if len(known) == len(errors) else "with an unknown error"
        remarks.append(f"Times are on the clock of {reference}; the other hosts are aligned with it {sure}.")
    return remarks


def _gone(node: NodeFigures) -> str:
    ranks = f"{'rank' if len(node.ranks) == 1 else 'ranks'} {ranks_text(node.ranks)}" if node.ranks else ""
    gpus = f"{node.gpus} GPU{'s' if node.gpus > 1 else ''}" if node.gpus else ""
    lost = " and ".join(filter(None, (ranks, gpus))) or "all of it"
    until = f" for the last {duration(node.lost_seconds)} of the run" if node.lost_seconds else ""
    return f"{node.host} was last heard from at {duration(node.last_heard)}: {lost} missing{until}."


def skew_text(found: RunNodes) -> str:
    """How far ranks come apart in a step."""
    if found.stragglers is None:
        return ""
    skew = found.stragglers.skew
    return (
        f"{short_duration(skew.mean_seconds)} on average, {short_duration(skew.p95_seconds)} at the 95th percentile, "
        f"at most {short_duration(skew.max_seconds)} (step {skew.max_step}, rank {skew.max_rank}); "
        f"{percent(skew.share)} of the steps' time"
    )


def late_texts(found: RunNodes) -> list[str]:
    """Who was late, since when, and why."""
    if found.stragglers is None:
        return []
    return [
        f"rank {late.rank} on {late.host}, {short_duration(late.behind_seconds)} a step ({percent(late.share)} of it), "
        f"from step {late.since_step} ({duration(late.since_seconds)}) to {late.until_step} "
        f"({duration(late.until_seconds)}): {late.cause}"
        for late in found.stragglers.stretches
    ]


def held_up_texts(found: RunNodes) -> list[str]:
    """Single steps that took long, and whose fault that was."""
    if found.stragglers is None:
        return []
    return [
        f"step {step.step} took {short_duration(step.seconds)} (until {duration(step.elapsed_seconds)})"
        f"{_by(step.rank, step.host)}: {step.cause}"
        for step in found.stragglers.held_up
    ]


def _by(rank: int | None, host: str) -> str:
    who = [f"rank {rank}" if rank is not None else "", f"on {host}" if host else ""]
    return f", {' '.join(filter(None, who))}" if any(who) else ""


def clock_text(clock: HostClockFigures | None) -> str:
    """How far the clock of a host is off, and how sure that is."""
    if clock is None:
        return ""
    if clock.basis == "reference":
        return "reference"
    if clock.error_seconds is None:
        return _BASIS[clock.basis]
    sign = "+" if clock.ahead_seconds >= 0 else "-"
    ahead, error = short_duration(abs(clock.ahead_seconds)), short_duration(clock.error_seconds)
    return f"{sign}{ahead} ± {error}, {_BASIS[clock.basis]}"


def ranks_text(ranks: Sequence[int]) -> str:
    """`0-7`, `0, 2, 5`."""
    if not ranks:
        return ""
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}-{ranks[-1]}"
    shown = ", ".join(map(str, ranks[:8]))
    return shown + (", ..." if len(ranks) > 8 else "")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} %"
