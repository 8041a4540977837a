"""Has the full segments of a run sealed, by a short-lived child process: the watching process itself stays small."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

log = logging.getLogger(__name__)


class Sealer:
    """Takes closed segments of one host's folder. A failure is told once; what failed is tried again with the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._lock = threading.Lock()
        self._closed: set[str] = set()
        self._arrived = False
        self._thread: threading.Thread | None = None
        self._told: set[str] = set()

    def add(self, segment: Path) -> None:
        """A segment is full, and nobody writes it any more. Returns at once; called from any thread."""
        if sys.platform == "win32":
            return  # a file that is being read cannot be removed there
        with self._lock:
            self._closed.add(segment.name)
            self._arrived = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sealer", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Until what has been added so far is dealt with."""
        while (thread := self._thread) is not None:
            thread.join()

    def _run(self) -> None:
        """One child after the other, as long as segments arrive."""
        while True:
            with self._lock:
                self._closed = {name for name in self._closed if (self._folder / name).exists()}
                if not self._arrived or not self._closed:
                    self._thread = None
                    return
                self._arrived = False
                names = sorted(self._closed)
            self._seal(names)

    def _seal(self, names: list[str]) -> None:
        command = [sys.executable, "-m", "pulsetrain.runs.seal", str(self._folder), *names]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
                start_new_session=True,  # Ctrl-C is meant for the command
            )  # fmt: skip
            failure = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            failed = done.returncode != 0
        except OSError as error:
            failed, failure = True, str(error)
        if failed and failure not in self._told:
            self._told.add(failure)
            log.warning("full files of the run could not be sealed, and stay JSON lines: %s", failure)
