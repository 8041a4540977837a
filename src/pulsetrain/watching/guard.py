"""Answers signals while the watched command does not run: before it has started, and after it has ended.

All threads hold signals back, so that none interrupts a reading. While there is no command to get them, whoever presses
Ctrl-C means us, and we may be stuck: in a driver, on a file system that is away, in a slow report.
"""

import os
import signal
import threading
from collections.abc import Callable, Collection

WAKE = getattr(signal, "SIGURG", None)
"""Sent to the guard's own thread to end it; nobody else uses it."""


class SignalGuard:
    """A thread that waits for these signals, blocked in all threads, and calls `act` with the number of each."""

    def __init__(self, numbers: Collection[int], act: Callable[[int], None]) -> None:
        self._numbers = {*numbers}
        self._act = act
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more: signals wait from here on."""
        assert WAKE is not None and self._thread.ident is not None
        self._ending = True
        if self._thread.is_alive():
            signal.pthread_kill(self._thread.ident, WAKE)
            self._thread.join()

    def _run(self) -> None:
        assert WAKE is not None
        while True:
            number = signal.sigwait({*self._numbers, WAKE})
            if self._ending:
                if number != WAKE:  # it came for whoever waits next
                    os.kill(os.getpid(), number)
                return
            if number != WAKE:
                self._act(number)


def within(seconds: float, work: Callable[[], object]) -> None:
    """Do something that may hang, for at most so long."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
