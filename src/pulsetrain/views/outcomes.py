"""How runs ended, in words."""

from pulsetrain.runs.folder import Run

GOOD = frozenset({"running", "finished", "detached"})
"""Statuses of a run in which nothing has gone wrong."""
OUTCOME = {
    "running": "running",
    "finished": "finished",
    "failed": "failed",
    "interrupted": "interrupted",
    "detached": "detached",
    "died": "died (it or pulsetrain was killed)",
}


def outcome(run: Run) -> str:
    """`finished`, or `failed (exit code 1)`."""
    code = f" (exit code {run.exit_code})" if run.exit_code else ""
    return OUTCOME.get(run.status, run.status) + code
