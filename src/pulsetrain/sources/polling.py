"""Energy from power, for devices without an energy counter: power is looked at at random moments and added up.

One look at a random moment in each fortieth of a second, whatever the tick is: looks at a steady pace fall into step
with a training loop and can miss half of what it draws. So do sequences that only spread well.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from pulsetrain.errors import PulsetrainError
from pulsetrain.snapshot import Value
from pulsetrain.supervise import reason_of

STRATUM_SECONDS = 0.025
"""One look falls into each stretch of this length."""
MOST_SECONDS = 0.5
"""Two looks further apart than this leave a gap between them."""


class PowerSensor(NamedTuple):
    """How a power sensor works: it renews what it shows now and then, with the mean over a window before."""

    update_seconds: float
    window_seconds: float

    @property
    def blind_seconds(self) -> float:
        """The part of each update that is in no window."""
        return max(0.0, self.update_seconds - self.window_seconds)

    def unseen_joules(self, before_watts: float, watts: float, seconds: float, limit_watts: float) -> float:
        """How far energy between two looks may be off because the sensor did not look all the time.

        One that is slower than we are may miss the same part of a loop every time: anything may have happened in it.
        One that is quicker is blind for a moment between windows that are much alike, and errs where power changes.
        """
        if self.update_seconds < STRATUM_SECONDS:
            return abs(watts - before_watts) * self.blind_seconds
        mean = (watts + before_watts) / 2
        return max(mean, limit_watts - mean) * seconds * self.blind_seconds / self.update_seconds

    @property
    def lag_seconds(self) -> float:
        """How far behind the energy can be that is added up from what it shows, in seconds of power."""
        return self.window_seconds / 2 + self.update_seconds + 2 * STRATUM_SECONDS


class EnergyIntegral:
    """The energy of one device, and what is needed to tell how far it may be off."""

    def __init__(self, sensor: PowerSensor, limit_watts: float | None) -> None:
        """Without a power limit nobody can say what happened while the sensor did not look."""
        self._sensor = sensor
        self._limit_watts = limit_watts
        self._joules = self._variance = self._unseen = self._gap_seconds = 0.0
        self._at: float | None = None
        self._watts: float | None = None
        self._shown_joules = 0.0

    def add(self, now: float, watts: float | None) -> None:
        """Take in a look. One that failed is a gap: nothing is assumed about the time until the next good one."""
        seconds = 0.0 if self._at is None else now - self._at
        if watts is None or self._watts is None or seconds > MOST_SECONDS:
            self._gap_seconds += seconds
        else:
            # The mean of both ends: what a look stands for then does not depend on where in its stretch it fell.
            self._joules += (watts + self._watts) / 2 * seconds
            self._variance += ((watts - self._watts) * seconds) ** 2 / 2
            if self._limit_watts is not None:
                self._unseen += self._sensor.unseen_joules(self._watts, watts, seconds, self._limit_watts)
        self._at, self._watts = now, watts

    def values(self, now: float) -> dict[str, Value]:
        """The catalog's fields, at this moment: the power of the last look holds since then."""
        joules = self._joules
        if self._at is not None and self._watts is not None:
            joules += self._watts * min(now - self._at, MOST_SECONDS)
        self._shown_joules = max(self._shown_joules, joules)
        values: dict[str, Value] = {
            "polled_energy_joules": round(self._shown_joules, 3),
            "polled_energy_variance_joules2": round(self._variance, 3),
            "polled_energy_gap_seconds": round(self._gap_seconds, 3),
        }
        if self._limit_watts is not None:
            values["polled_energy_unseen_joules"] = round(self._unseen, 3)
            values["polled_energy_edge_joules"] = round(self._sensor.lag_seconds * self._limit_watts, 3)
        return values


class PowerPoller:
    """The thread that looks, for as long as there is something to look at."""

    def __init__(self, name: str, look: Callable[[], bool]) -> None:
        """`look` is called at each of the random moments, until it returns False."""
        self._name = name
        self._look = look
        self._closed = False
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def start(self) -> None:
        """Look from now on; nothing changes if it does already. Raises while looking fails: then the source is down."""
        if failure := self._failure:
            raise PulsetrainError(f"power cannot be polled: {reason_of(failure)}")
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._closed = True
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        looking = True
        while looking:
            time.sleep(_until_next())  # costs half of what waiting for an event does
            try:
                looking = not self._closed and self._look()
                self._failure = None
            except Exception as error:  # noqa: BLE001 - the next look may go well
                self._failure = error


def _until_next() -> float:
    """Seconds from now to a random moment in the next stretch."""
    now = time.monotonic()
    return (now // STRATUM_SECONDS + 1 + random.random()) * STRATUM_SECONDS - now
