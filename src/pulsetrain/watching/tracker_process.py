"""A process beside the watching one that sends the run to a tracker.

Libraries of trackers are large, start threads and processes of their own, and may hang: nothing of that reaches the
watching process, and one that died is started again. What it sends is in the run folder, and so is what it has sent.
"""

import contextlib
import subprocess
import sys
import threading
import time

import msgspec

from pulsetrain.outputs.trackers import TrackerTarget
from pulsetrain.runs.folder import RunFolder
from pulsetrain.supervise import Part, Supervisor, Worker
from pulsetrain.training.masking import masked_message

MODULE = "pulsetrain.cli.sending"
"""Started by its name: it writes the report too, and imports point the other way."""
LOOK_SECONDS = 1.0
FIRST_WAIT_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 60.0
STUCK_AFTER_SECONDS = 120.0
END_SECONDS = 60.0
"""The end of a run waits so long for what is left to be sent. A tracker that does not answer is given up earlier."""


class TrackerProcess:
    """Keeps one sending process running, from a thread of its own."""

    def __init__(self, folder: RunFolder, target: TrackerTarget, supervisor: Supervisor | None = None) -> None:
        self._folder = folder
        self._target = target
        self._part: Part = (supervisor or Supervisor()).part(f"tracker-{target.kind}", STUCK_AFTER_SECONDS)
        self._process: subprocess.Popen[bytes] | None = None
        self._said = ""
        self._wait = FIRST_WAIT_SECONDS
        self._not_before = 0.0
        self._ending = False
        self._worker = Worker(self._part, self._look, every_seconds=LOOK_SECONDS, what=f"sending to {target.kind}")

    def start(self) -> None:
        self._worker.start()

    def end(self) -> None:
        """The run has ended. `wait` waits until the rest is sent."""
        self._ending = True
        self._worker.stop(timeout_seconds=10.0)
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended
                process.stdin.close()

    def wait(self) -> str | None:
        """What was not sent in the end, in words."""
        if self._process is None or self._process.poll() not in (None, 0, NOT_SENT):
            self._start()  # it died, or never came to start: once more, for the rest
            self.end()
        assert self._process is not None
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            code = None
        if code == 0:
            return None
        reason = f" ({self._said})" if self._said else ""
        place = masked_message(self._target.spec)
        return (
            f"not all of the run was sent to {place}{reason}\n"
            f"  hint: the run folder has all of it; send the rest: pulsetrain export {self._folder.name} --to {place}"
        )

    def _look(self) -> None:
        process = self._process
        if process is None:
            if time.monotonic() >= self._not_before and not self._ending:
                self._start()
        elif (code := process.poll()) is not None and not self._ending:
            self._process = None
            if code:
                self._not_before = time.monotonic() + self._wait
                self._wait = min(2 * self._wait, LONGEST_WAIT_SECONDS)
                self._part.fail(f"the sending process exited with code {code}: {self._said}")

    def _start(self) -> None:
        # -P: the working folder may be anybody's, and its modules are none of ours.
        process = self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is meant for the command
        )
        assert process.stdin is not None
        job = {
            "folder": str(self._folder.path),
            "to": self._target.spec,
        }  # not in its command line: it may have secrets
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        process.stdin.flush()
        threading.Thread(target=self._listen, args=(process,), name=self._part.name, daemon=True).start()

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        """Each line says what does not work; an empty one that it works again."""
        assert process.stderr is not None
        for text in process.stderr:
            with self._part.attempt("a line of the sending process"):
                line = masked_message(text.decode(errors="replace").strip())
                if line.startswith(PREFIX):
                    self._said = line.removeprefix(PREFIX).strip()
                    if self._said:
                        self._part.fail(self._said)
                    else:
                        self._part.recover()


NOT_SENT = 75
"""With which it ends when a tracker did not take the rest in time."""
PREFIX = "pulsetrain sending:"
"""Of the lines that are meant for us: libraries of trackers print what they like."""
