"""Hosts of a run that fell silent before its end."""

from collections.abc import Iterator

from pulsetrain.insight.verdict.case import Case, Judged, seen

MOST_NAMED = 3


def node_vanished(case: Case) -> Iterator[Judged]:
    gone = case.nodes.vanished if case.nodes and len(case.nodes.nodes) > 1 else []
    if not gone:
        return
    first = min(gone, key=lambda node: node.last_heard)
    names = ", ".join(node.host for node in gone[:MOST_NAMED])
    more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
    ranks = sum(len(node.ranks) for node in gone)
    gpus = sum(node.gpus for node in gone)
    lost = [f"{count} {what}" for count, what in ((ranks, "ranks"), (gpus, "GPUs")) if count]
    yield Judged(
        tuple(
            seen("lost_seconds", node.lost_seconds or 0.0, "seconds", start=node.last_heard, host=node.host)
            for node in sorted(gone, key=lambda node: node is not first)
        ),
        seconds=first.lost_seconds,
        words={
            "hosts": f"{names}{more}",
            "after": first.last_heard,
            "lost": f", with {' and '.join(lost)}" if lost else "",
        },
    )
