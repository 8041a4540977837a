"""A run in one line, from its digest: for a place with room for no more."""

from pulsetrain.insight.digest import RunDigest
from pulsetrain.runs.folder import Run
from pulsetrain.views.text import duration, energy, grams, money, percent


def digest_line(run: Run, digest: RunDigest) -> str:
    """`pulsetrain ID: finished after 2 h; 16 GPUs at 91 % utilization; 5.1 kWh; goodput 83 %; Straggler: ...`."""
    gpus = sum(use.gpus for use in digest.hosts.values())
    at = f" at {digest.utilization_percent:.0f} % utilization" if digest.utilization_percent is not None else ""
    parts = [
        f"{run.status} after {duration(run.seconds)}" if run.seconds is not None else run.status,
        f"{len(digest.hosts)} hosts" if len(digest.hosts) > 1 else "",
        f"{gpus} GPU{'s' if gpus > 1 else ''}{at}" if gpus else "",
        f"{digest.steps} steps" if digest.steps else "",
        energy(digest.joules) if digest.joules is not None else "",
        f"{grams(digest.grams)} CO2e" if digest.grams is not None else "",
        money(digest.cost, digest.currency) if digest.cost is not None else "",
        f"goodput {percent(digest.goodput)}" if digest.goodput is not None else "",
        f"{digest.finding}: {digest.verdict}" if digest.finding else digest.verdict,
    ]
    return f"pulsetrain {run.id}: {'; '.join(filter(None, parts))}"
