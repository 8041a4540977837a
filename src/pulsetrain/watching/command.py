"""A command and the session around it: started, watched, and recorded to its end."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from pulsetrain.runs.folder import Launch
from pulsetrain.sources.job import Job
from pulsetrain.watching import child, instrument
from pulsetrain.watching.guard import within
from pulsetrain.watching.launchers import recognize
from pulsetrain.watching.options import WatchOptions
from pulsetrain.watching.recording import RunClaim, claim_run
from pulsetrain.watching.session import Session

LAST_WORDS_SECONDS = 2.0
"""How long an interrupted pulsetrain may take to leave things in order."""


class WatchedCommand:
    """A command to run and to watch, in a `with` statement: within it, signals are the command's.

    Before the command has started, and after it has ended, a signal ends this process: the run is left in order.

    The ranks of one job on one host share a run: the first of them watches the host, the others have no `session` and
    only record their training loop.
    """

    def __init__(
        self,
        command: Sequence[str],
        options: WatchOptions,
        *,
        job_id: str | None = None,
        instrumented: bool = True,
    ) -> None:
        """Opens all that is needed, so that whatever is wrong is said before the command starts.

        Make it before any thread.
        `job_id` is the same for all processes that shall share a run; by default, what the launcher says.
        """
        child.check(command)
        self.session: Session | None = None
        self._claim: RunClaim | None = None
        self._ended: child.CommandExit | None = None
        self._child = child.Child(command, self._interrupted)
        self._instrumented = instrumented
        self._job = Job()
        try:
            self._open(command, options, launch_of(command, job_id))
        except BaseException:
            self._child.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._child.release()

    def _open(self, command: Sequence[str], options: WatchOptions, launch: Launch | None) -> None:
        session = Session(options, [self._job])
        self._claim = claim_run(options, command, launch)
        self._watcher = self._claim.watcher
        if self._watcher:
            session.close()
        else:
            session.open(self._claim)
            self.session = session

    def run(self) -> child.CommandExit:
        """Run the command to its end, and record how it ended."""
        if self._watcher:
            return self._follow(self._watcher.started)
        session = self.session
        assert session and session.recording
        session.start()
        recording = session.recording
        environment = instrument.environment(
            recording.folder,
            recording.start,
            recording.started,
            self._instrumented,
            private=session.options.private,
        )
        try:
            ended = self._run_child(environment, self._started)
        except child.CannotStart as error:
            session.stop()
            session.finish("failed", error.exit_code)
            raise
        session.watch_process(None)
        self._job.end(self._child.collect)
        session.stop()
        session.finish(ended.status, ended.exit_code)
        return ended

    def _started(self, pid: int) -> None:
        self._job.watch(pid)
        if self.session:
            self.session.watch_process(pid)

    def _interrupted(self, number: int) -> None:
        """A signal, while the command does not run: leave things in order, as far as they allow it, and end."""
        ended, recording = self._ended, self.session.recording if self.session else None
        if ended is None:
            if self._claim:
                within(LAST_WORDS_SECONDS, self._claim.give_up)
            os._exit(128 + number)
        if number in child.STOPPING_NUMBERS:
            if recording:
                within(LAST_WORDS_SECONDS, lambda: recording.note_end(ended.status, ended.exit_code))
            os._exit(ended.exit_code)

    def _follow(self, started: float) -> child.CommandExit:
        """Run one of several ranks of a host, which another process watches."""
        assert self._claim
        folder, about = self._claim.folder, self._claim.folder.load()
        environment = instrument.environment(folder, about.start, started, self._instrumented, private=about.private)
        return self._run_child(environment, lambda pid: None)

    def _run_child(self, environment: Mapping[str, str], started: Callable[[int], None]) -> child.CommandExit:
        self._ended = self._child.run(environment, started)
        return self._ended


def launch_of(command: Sequence[str], job_id: str | None) -> Launch | None:
    """What is known of the job; the user's own id of it counts."""
    launch = recognize(os.environ, command)
    if job_id:
        launch = launch or Launch()
        launch.job_id = job_id
    return launch
