"""`python -m pulsetrain.cli.sending`: sends a run to a tracker while it is recorded; started by the watching process.

The first line of its standard input says which run, and where to. The end of that input says that the run has ended, or
that the watching process has.
"""

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pulsetrain.errors import PulsetrainError
from pulsetrain.outputs.trackers import TrackerTarget, parse_tracker
from pulsetrain.outputs.trackers.sending import TrackerSending, send_patiently
from pulsetrain.runs.folder import RunFolder
from pulsetrain.watching.tracker_process import NOT_SENT, PREFIX

if TYPE_CHECKING:
    from pulsetrain.insight.report import Study
    from pulsetrain.runs.database import Database

EVERY_SECONDS = 5.0
FINAL_SECONDS = 20.0
"""After the end of a run, a tracker that does not answer is tried for so long."""


class SendingJob(msgspec.Struct):
    """What is to be sent."""

    folder: str
    to: str


def render(study: "Study", database: "Database", place: Path) -> Sequence[Path]:
    """The report of a run, as files for a tracker."""
    from pulsetrain.views.report.files import write_files

    return write_files(study, database, place)


def send_live(job: SendingJob, ended: threading.Event) -> str:
    """Send a run until it has ended. Why not all of it was sent, in words."""
    sending = TrackerSending(RunFolder(Path(job.folder)), parse_tracker(job.to), render)

    def wait(seconds: float) -> None:
        """Until the end; after it, a moment."""
        if ended.is_set():
            time.sleep(min(seconds, 1.0))
        else:
            ended.wait(seconds)

    try:
        return send_patiently(
            sending,
            wait,
            every_seconds=EVERY_SECONDS,
            final_seconds=FINAL_SECONDS,
            ended=ended.is_set,
            tell=_tell,
        )
    finally:
        sending.close()


def send_recorded(folder: RunFolder, target: TrackerTarget) -> int:
    """Send a recorded run; how many rows are there now. Raises PulsetrainError."""
    if folder.load().status == "running":
        raise PulsetrainError(
            f"{folder.name} is still being recorded.",
            hint=f"To send a run while it is in progress, use run --to {target.kind}:...",
        )
    sending = TrackerSending(folder, target, render)
    try:
        trouble = send_patiently(
            sending, time.sleep, every_seconds=0.0, final_seconds=FINAL_SECONDS, ended=lambda: True
        )
        if trouble:
            raise PulsetrainError(
                f"not all of {folder.name} was sent to {target.kind}: {trouble.rstrip('.')}.",
                still=f"{sending.rows:,} rows were sent, and will not be sent again.",
                hint="Check that the tracker can be reached, then send the run again.",
            )
        return sending.rows
    finally:
        sending.close()


def _tell(words: str) -> None:
    print(PREFIX, words, file=sys.stderr, flush=True)  # noqa: T201 - the watching process reads it


def main() -> int:
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=SendingJob)
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        trouble = send_live(job, ended)
    except PulsetrainError as error:
        trouble = error.message
    if trouble:
        _tell(trouble)
    return NOT_SENT if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
