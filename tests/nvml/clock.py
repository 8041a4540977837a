"""A clock for processes on the simulated NVML that a busy machine cannot disturb."""

from __future__ import annotations

import ctypes
import os
import threading
import time


class Clock:
    """Time that passes only when the main thread sleeps: that of the library, and the `time` of this process.

    Other threads that sleep are woken in their order, and each may work until it sleeps again.
    """

    def __init__(self, second: float) -> None:
        """Hold all time of this process, at this second of the scenario."""
        library = ctypes.CDLL("libnvidia-ml.so.1")
        self._hold, self._held = library.pulsetrain_test_hold, library.pulsetrain_test_held
        self._hold.argtypes = [ctypes.c_double]
        self._held.restype = ctypes.c_double
        self.epoch = time.monotonic() - second
        os.environ["PULSETRAIN_TEST_NVML_EPOCH"] = repr(self.epoch)
        self._wall_seconds = _wall_seconds()
        self._sleepers: dict[threading.Thread, float] = {}
        self._changed = threading.Condition()
        self._hold(second)
        time.monotonic = self.monotonic
        time.time = self.time
        time.sleep = self.sleep  # type: ignore[assignment]

    @property
    def second(self) -> float:
        """Of the scenario."""
        return float(self._held())

    def monotonic(self) -> float:
        return self.epoch + self.second

    def time(self) -> float:
        return self._wall_seconds + self.monotonic()

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            self.until(self.second + seconds)
            return
        with self._changed:
            me = threading.current_thread()
            self._sleepers[me] = self.second + seconds
            self._changed.notify_all()
            self._changed.wait_for(lambda: me not in self._sleepers)

    def until(self, second: float) -> None:
        """Let time pass; from the main thread alone."""
        with self._changed:
            self._wait_for_others()
            while self._sleepers and min(self._sleepers.values()) <= second:
                first = min(self._sleepers, key=self._sleepers.__getitem__)
                self._hold(max(self.second, self._sleepers.pop(first)))
                self._changed.notify_all()
                self._wait_for_others()
            self._hold(max(self.second, second))

    def _wait_for_others(self) -> None:
        """Until every other thread sleeps or has ended."""
        main = threading.main_thread()
        while any(thread not in self._sleepers for thread in threading.enumerate() if thread is not main):
            self._changed.wait(0.001)


def _wall_seconds() -> float:
    """What the wall clock is ahead of the monotonic one; of several tries that which was interrupted least."""
    tries = [(time.monotonic(), time.time(), time.monotonic()) for _ in range(10)]
    before, wall, _ = min(tries, key=lambda one: one[2] - one[0])
    return wall - before
