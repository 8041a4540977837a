"""What commands that watch say, on standard error: standard output belongs to the command or to data."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pulsetrain import settings
from pulsetrain.cli import logs
from pulsetrain.errors import PulsetrainError, Unavailable
from pulsetrain.runs.folder import host_name
from pulsetrain.sources.opening import StillOpening

if TYPE_CHECKING:
    from pulsetrain.insight.report import Report
    from pulsetrain.watching.recording import RunRecording
    from pulsetrain.watching.session import Session

log = logging.getLogger(__name__)


def to_terminal(lines: Sequence[str]) -> None:
    """Print lines of our own. Nobody may be there to read them: the command's exit code matters more."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print("\n".join(lines), file=sys.stderr, flush=True)  # noqa: T201 - the one place that prints


def introduce(session: "Session", *, quiet: bool) -> None:
    """Say where what is served can be found; from here on log lines carry the run's id."""
    if session.recording:
        logs.configure(run_id=session.recording.run.id)
    if session.notices and not quiet:
        to_terminal(session.notices)


def end_lines(recording: "RunRecording") -> list[str]:
    """The short report at the end of a run. It reads the run's files; if that fails, the run itself went well."""
    from pulsetrain.views.summary import summary_lines
    from pulsetrain.views.text import PLAIN, Style

    found = _report(recording, lambda report: summary_lines(report, Style(sys.stderr) if sys.stderr else PLAIN))
    return [found] if isinstance(found, str) else found


def joined_lines(recording: "RunRecording") -> list[str]:
    """The end of one of several hosts of a run: the host that began the run shows the report of all."""
    return [
        f"{host_name()} was recorded in {recording.folder}; for all hosts: pulsetrain report {recording.folder.name}"
    ]


def comment_job(recording: "RunRecording") -> None:
    """Send the run in one line to the comment of its Slurm job. A failure is a warning."""
    from pulsetrain.insight.digest import whole_digest
    from pulsetrain.views.digest_line import digest_line
    from pulsetrain.watching.slurm import set_comment

    digest = None if recording.hangs else whole_digest(recording.folder, recording.run)
    if digest is None:
        log.warning("could not set the comment of the Slurm job: the run has no report.")
        return
    try:
        set_comment(os.environ, digest_line(recording.run, digest))
    except PulsetrainError as error:
        log.warning("could not set the comment of the Slurm job: %s", error.message)


def summary_page(recording: "RunRecording") -> str:
    """The same as HTML, for the output of a notebook's cell."""
    from html import escape

    from pulsetrain.views.summary_html import summary_html

    found = _report(recording, lambda report: [summary_html(report)])
    return f"<p>{escape(found)}</p>" if isinstance(found, str) else found[0]


def summary_json(recording: "RunRecording") -> str:
    """The report of the run as one line of JSON."""
    import msgspec

    found = _report(recording, lambda report: [msgspec.json.encode(report).decode()])
    return msgspec.json.encode({"error": found}).decode() if isinstance(found, str) else found[0]


def _report(recording: "RunRecording", render: "Callable[[Report], list[str]]") -> list[str] | str:
    """The report of a run that has ended, rendered, or why there is none."""
    from pulsetrain.insight.digest import keep_digest
    from pulsetrain.insight.report import make_report

    if recording.hangs:
        return f"no report: {recording.folder.path} does not respond"
    if recording.end_is_lost:
        ended = f"{recording.run.name} ended with exit code {recording.run.exit_code}"
        return f"{ended}; no report: the end of the run is missing in {recording.folder.path}"
    try:
        report = make_report(recording.folder, thresholds=settings.in_force().config.thresholds)
        keep_digest(recording.folder, report)
        return render(report)
    except Exception as error:  # the command's exit code matters more than our report
        log.debug("the report failed", exc_info=error)
        return f"recorded in {recording.folder.path}, but its report failed: {error}"


def warn_of_broken(unavailable: Mapping[str, Unavailable]) -> None:
    """Report what the machine has and we cannot use, not what it simply lacks."""
    for error in unavailable.values():
        if error.broken:
            log.warning("%s", error)


def why_no_gpu(unavailable: Mapping[str, Unavailable]) -> str:
    """The lines of a table without GPUs."""
    broken = [str(error) for error in unavailable.values() if error.broken or isinstance(error, StillOpening)]
    return "\n".join(broken) or "none found (see pulsetrain doctor)"
