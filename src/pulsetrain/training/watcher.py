"""The watching process that `init` starts beside this one, and that ends with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

from pulsetrain.training import ending

START_SECONDS = 60.0
"""How long to wait for it to start, which takes about a second."""
STOP_SECONDS = 2.0
"""How long to wait for it to end."""
SUMMARY_SECONDS = 20.0
"""How long to wait for the summary of the run, which takes about a second, and longer for a long run."""


class WatcherFailed(Exception):
    """The watching process did not start, and why."""


class Watcher:
    """A process that watches this one. This one says how it ends; if it says nothing, it was killed."""

    def __init__(self, options: list[str], summary: str, config: dict[str, Any]) -> None:
        """Starts it, with options of `pulsetrain attach`; raises WatcherFailed.

        `summary` is what `stop` returns: text, html or none. `config` may hold secrets, which it masks; they are not on
        its command line, where other users could see them.
        """
        if sys.version_info < (3, 11):
            raise WatcherFailed("needs Python 3.11; here, use `pulsetrain run`")
        self._pid = os.getpid()
        # -P: the working folder may be anybody's, and its modules are none of ours.
        command = [sys.executable, "-P", "-m", "pulsetrain", "attach", str(self._pid)]
        command += ["--quiet", "--json", "--for-init", summary, *options]
        try:
            # A session of its own: Jupyter signals and kills a kernel with all of its group.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise WatcherFailed("could not be started: %s" % error) from None
        self._wants_summary = summary != "none"
        try:
            self._write(json.dumps(config).encode() + b"\n")
            self.about: dict[str, Any] = json.loads(self._next_line(START_SECONDS))
            """The run that it records."""
        except ValueError:
            self._close_pipes()
            raise WatcherFailed(self._how_it_failed()) from None
        ending.before_end(self._say_end)

    def stop(self, exit_code: int = 0) -> str:
        """End the run and return its summary; empty when there is none.

        A process that does not answer is left to itself: it ends when it can.
        """
        if not self._is_ours():
            return ""
        self._say(ending.status(exit_code))
        self._process.terminate()
        summary = ""
        if self._wants_summary:
            with suppress(ValueError):
                summary = json.loads(self._next_line(SUMMARY_SECONDS))
        self._close_pipes()
        self._exit_code()
        return summary

    def _is_ours(self) -> bool:
        """A forked child must not stop its parent's."""
        return self._pid == os.getpid()

    def _next_line(self, seconds: float) -> bytes:
        """What it says of its run; empty when it ends, or says nothing for too long."""
        output = self._process.stdout
        assert output is not None
        if os.name == "posix":
            import select

            if not select.select([output], [], [], seconds)[0]:
                return b""
        return output.readline()

    def _close_pipes(self) -> None:
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with suppress(OSError):  # of what could not be written
                pipe.close()

    def _how_it_failed(self) -> str:
        code = self._exit_code()
        if code is not None:
            return "exited with code %s" % code
        self._process.terminate()
        return "did not start in time"

    def _exit_code(self) -> int | None:
        """None when it takes long to end. It is not killed then, so that it can write."""
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.returncode = 0  # or Python warns of a process that nobody waits for
            return None

    def _say_end(self) -> None:
        if self._is_ours():
            self._say(ending.outcome())
            self._close_pipes()

    def _say(self, outcome: str) -> None:
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            self._write(outcome.encode() + b"\n")

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it may be gone
            self._process.stdin.write(line)
            self._process.stdin.flush()
