"""Opens the sources of this machine, each driver in a thread of its own: one that hangs holds up nobody.

Whoever opens them waits for a moment, in which all healthy drivers answer. What answers later joins the sampler then.
A driver that is there and broken is tried again, with increasing delay; one that is not there is not.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module

from pulsetrain.errors import Unavailable, UsageError
from pulsetrain.snapshot import Event
from pulsetrain.sources import GPU_SOURCES, SOURCES, STAND_INS, Options, Source
from pulsetrain.sources.selection import names_gpus
from pulsetrain.supervise import reason_of

log = logging.getLogger(__name__)

GRACE_SECONDS = 0.5
"""So long the start of a command may wait for drivers."""
PATIENCE_SECONDS = 5.0
"""So long somebody waits who wants one complete answer."""
HUNG_SECONDS = 4.0
"""A driver that has not answered for so long is reported as one that does not work."""
RETRY_SECONDS = (5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Waits between tries of a driver that is broken."""


class StillOpening(Unavailable):
    """A driver that has not answered yet."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"still opening (no answer for {seconds:.1f} s)",
            still="Its metrics appear once it answers.",
            hint="See the driver's log: dmesg.",
            broken=seconds > HUNG_SECONDS,
        )


class Driver:
    """What opens the sources of one module, and how far that is."""

    def __init__(self, name: str, open: Callable[[], Iterable[Source]]) -> None:
        """`open` raises `Unavailable` when it cannot work here, or `UsageError` when the user names what is not."""
        self.name = name
        self.open = open
        self.opening_since: float | None = None
        self.sources: tuple[Source, ...] = ()
        self.error: Unavailable | None = None
        """Why the last try failed."""
        self.refused: UsageError | None = None
        self.reported = False
        """Whether it was reported that it does not work."""

    @property
    def decided(self) -> bool:
        return bool(self.sources) or self.error is not None

    def missing(self, now: float) -> Unavailable | None:
        """Why there is nothing of it, for now or for good."""
        if self.decided:
            return self.error
        if self.opening_since is None:
            return Unavailable("not needed so far")
        return StillOpening(now - self.opening_since)


class Opened:
    """The sources of this machine, as far as they are open. Given to the sampler, it brings the late ones."""

    def __init__(
        self,
        groups: Iterable[Sequence[Driver]],
        patience_seconds: float,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
    ) -> None:
        """In each group, a driver replaces those before it. Returns when all are decided, or patience ends."""
        groups = list(groups)
        self._drivers = [driver for group in groups for driver in group]
        self._retry_seconds = retry_seconds
        self._state = threading.Condition()
        self._stopped = threading.Event()
        self._arrived: list[Source | Event] = []
        self.changes = 0
        """Rises whenever `unavailable` has changed."""
        for group in groups:
            threading.Thread(target=self._open, args=(group,), name=f"open-{group[0].name}", daemon=True).start()
        with self._state:
            self._state.wait_for(lambda: all(driver.decided for driver in self._drivers), patience_seconds)
            self.sources = tuple(source for driver in self._drivers for source in driver.sources)
            self._arrived.clear()  # these were in time, and what failed is in `unavailable`

    @property
    def unavailable(self) -> dict[str, Unavailable]:
        """Why the rest is not there, by the names of `SOURCES`, as of now."""
        now = time.monotonic()
        with self._state:
            missing = {driver.name: driver.missing(now) for driver in self._drivers}
        return {name: error for name, error in missing.items() if error is not None}

    @property
    def refused(self) -> UsageError | None:
        """The user's mistake, when they named GPUs that no driver knows. With two makers, one may not know them."""
        with self._state:
            gpu_drivers = [driver for driver in self._drivers if driver.name in GPU_SOURCES]
            if any(driver.sources or not driver.decided for driver in gpu_drivers):
                return None
            return next((driver.refused for driver in gpu_drivers if driver.refused), None)

    @property
    def without_gpus(self) -> bool:
        """Whether there is no driver of GPUs, not even one that is broken or has not answered yet."""
        with self._state:
            gpu_drivers = [driver for driver in self._drivers if driver.name in GPU_SOURCES]
            return all(driver.error and not driver.error.broken for driver in gpu_drivers)

    def arrivals(self) -> list[Source | Event]:
        """What has opened since the last call, and what is worth an event. For the sampler, which then owns them."""
        now = time.monotonic()
        with self._state:
            for driver in self._drivers:
                since = driver.opening_since
                if since is not None and now - since > HUNG_SECONDS:
                    self._report(driver, StillOpening(now - since))
            arrived, self._arrived = self._arrived, []
        return arrived

    def down(self) -> list[str]:
        """The drivers that are there and do not work: broken, or without an answer for long."""
        return [driver.name for driver in self._drivers if driver.reported and not driver.sources]

    def stop(self) -> None:
        """Open nothing more. What has opened and was not taken, or opens now, is closed."""
        with self._state:
            self._stopped.set()
            arrived, self._arrived = self._arrived, []
        _close(item for item in arrived if not isinstance(item, Event))

    def close(self) -> None:
        """For those who do not use the sources after all."""
        self.stop()
        _close(self.sources)

    def _open(self, group: Sequence[Driver]) -> None:
        """Try the drivers of a group in order until one works; again later, when one is broken."""
        tries = 0
        while not self._stopped.is_set():
            for number, driver in enumerate(group):
                self._try(driver)
                if driver.sources:
                    for other in group[number + 1 :]:
                        self._settle(other, error=Unavailable(f"not needed, {driver.name} works"))
                    return
            if not any(driver.error and driver.error.broken for driver in group):
                return
            self._stopped.wait(self._retry_seconds[min(tries, len(self._retry_seconds) - 1)])
            tries += 1

    def _try(self, driver: Driver) -> None:
        driver.opening_since = time.monotonic()
        try:
            self._settle(driver, sources=driver.open())
        except Unavailable as error:
            self._settle(driver, error=error)
        except UsageError as error:
            driver.refused = error
            self._settle(driver, error=Unavailable(error.message, hint=error.hint))
        except Exception as error:
            log.debug("%s failed to open", driver.name, exc_info=error)
            self._settle(driver, error=Unavailable(f"failed to open: {reason_of(error)}", broken=True))

    def _settle(self, driver: Driver, sources: Iterable[Source] = (), error: Unavailable | None = None) -> None:
        """Note how a try ended."""
        sources = tuple(sources)
        if not sources and error is None:
            error = Unavailable("nothing to read here")
        with self._state:
            too_late = self._stopped.is_set()
            if not too_late:
                began, driver.opening_since = driver.opening_since, None
                driver.sources, driver.error = sources, error
                self.changes += 1
                if began is not None and sources:
                    self._arrived += [*sources, _up(driver.name, time.monotonic() - began)]
                elif error and (error.broken or driver.refused):
                    self._report(driver, error)
                self._state.notify_all()
        if too_late:
            _close(sources)

    def _report(self, driver: Driver, error: Unavailable) -> None:
        """Say once that a driver does not work."""
        if not driver.reported:
            driver.reported = True
            self.changes += 1
            message = f"{driver.name}: {error.message}"
            self._arrived.append(Event("source_down", message, "warning", {"source": driver.name}))


def open_sources(options: Options, patience_seconds: float = GRACE_SECONDS) -> Opened:
    """Open every source that works on this machine; those that take longer join later."""
    drivers = {name: _driver(name, options) for name in SOURCES}
    groups = {name: [driver] for name, driver in drivers.items() if name not in STAND_INS}
    for name, other in STAND_INS.items():
        groups[other].append(drivers[name])
    opened = Opened(groups.values(), patience_seconds)
    refused = opened.refused
    if refused is None and names_gpus(options.gpus) and opened.without_gpus:
        refused = UsageError(f"--gpus {options.gpus}: no GPU here.", hint="See why: pulsetrain doctor.")
    if refused:
        opened.close()
        raise refused
    return opened


def _driver(name: str, options: Options) -> Driver:
    """The module is imported here, so that patience is for drivers alone."""
    if name == "simulated" and not options.simulate:
        return Driver(name, partial(_raise, Unavailable("not requested (--simulate 2xL4)")))
    if name in GPU_SOURCES and name != "simulated" and options.simulate:
        return Driver(name, partial(_raise, Unavailable("the GPUs are simulated")))
    try:
        module = import_module(f"pulsetrain.sources.{name}")
    except ImportError as error:
        return Driver(name, partial(_raise, error))
    return Driver(name, partial(module.open_sources, options))


def _raise(error: Exception) -> Sequence[Source]:
    raise error


def _up(name: str, seconds: float) -> Event:
    return Event("source_up", f"{name}: open after {seconds:.1f} s", "info", {"source": name})


def _close(sources: Iterable[Source]) -> None:
    for source in sources:
        source.close()
