"""Back-filling: all of a recorded run to one server, and what came of it."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.outputs.backfill import check
from pulsetrain.outputs.backfill.columns import HostSeries
from pulsetrain.outputs.backfill.held import HeldSamples
from pulsetrain.outputs.backfill.send import Progress, SentTally, send
from pulsetrain.outputs.families import run_info_of
from pulsetrain.outputs.push import KINDS
from pulsetrain.outputs.push.http import Client, Refused
from pulsetrain.outputs.push.target import PushTarget
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Run
from pulsetrain.runs.tables import LINE_TABLES

_TOO_OLD = ("out of bounds", "out of order", "too old", "too far behind")
_HINTS = {
    "small_timestamp": "They are older than it keeps: start it with a longer -retentionPeriod.",
    "big_timestamp": "They are in its future: is the clock of one of the machines wrong?",
}


class BackfillOutcome(NamedTuple):
    """What was sent, and whether the server has it."""

    samples: int
    series: int
    unfit: int
    """Values that this kind of server cannot hold, and that were not sent."""
    unchecked: str | None
    """Why the server could not be asked for what it has."""


def backfill(
    database: Database, run: Run, target: PushTarget, progress: Progress, tables: Collection[str] = ()
) -> BackfillOutcome:
    """Send a recorded run, and ask for it. What is missing then is an error that says why."""
    if not KINDS[target.kind].takes_history:
        raise UsageError(
            f"a {target.kind} server does not store samples with timestamps.",
            hint="Use victoriametrics:URL or remote-write:URL.",
        )
    client = Client(target)
    try:
        ignored = check.ignored(target, client)
        with database.damage_told():
            asked = check.query_url(target)
            held = HeldSamples(client, asked) if asked else None
            sent = send(_hosts(database, run, tables), target, client, progress, held, ended=run.status != "running")
        if not sent.groups:
            raise UsageError(f"{run.id} has nothing to send.")
        if sent.refusal:
            raise _refused(sent, sent.refusal)
        progress(1.0, sent.samples)
        found = check.find(sent, target, client)
        if found.unchecked is None and found.samples < sent.groups.total():
            raise _missing(sent, found.samples, target, check.ignored(target, client) - ignored)
    finally:
        client.close()
    return BackfillOutcome(sent.samples, len(sent.series), sent.unfit, found.unchecked)


def _hosts(database: Database, run: Run, tables: Collection[str]) -> Sequence[HostSeries]:
    """As the watching processes pushed it, while the run was `running`."""
    run_info = run_info_of(msgspec.structs.replace(run, status="running"))
    return [
        HostSeries(
            database, name, {"host": name, "run": run.id}, run_info, run.hosts[name].pulsetrain, tables or LINE_TABLES
        )
        for name in sorted(run.hosts)
    ]


def _refused(sent: SentTally, refusal: Refused) -> PulsetrainError:
    hint = None
    if any(sign in refusal.message for sign in _TOO_OLD):
        hint = (
            "Prometheus accepts samples older than an hour, or than the newest in their series, only when "
            "prometheus.yml has storage: {tsdb: {out_of_order_time_window: 30d}}, at least as long as the run is old."
        )
    parts = [f"{sent.samples:,} were taken" if sent.samples else "", f"{sent.there:,} were there" if sent.there else ""]
    taken = f"Of the others, {' and '.join(filter(None, parts))}." if any(parts) else None
    return PulsetrainError(
        f"{sent.refused:,} of {sent.groups.total():,} samples were refused: {refusal.message}", still=taken, hint=hint
    )


def _missing(sent: SentTally, found: int, target: PushTarget, ignored: dict[str, int]) -> PulsetrainError:
    wanted = sent.groups.total()
    message = f"{wanted - found:,} of {wanted:,} samples were sent to {target.host} but are not there"
    if ignored:
        reasons = ", ".join(f"{rows:,} for {reason}" for reason, rows in ignored.items())
        hint = next((_HINTS[reason] for reason in ignored if reason in _HINTS), None)
        return PulsetrainError(f"{message}: it dropped rows ({reasons}).", hint=hint)
    return PulsetrainError(f"{message}.", hint="Does it keep samples as old as the run? Check its retention and log.")
