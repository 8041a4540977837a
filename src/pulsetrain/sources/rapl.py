"""CPU package and memory energy, from the Linux powercap (RAPL) counters."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pulsetrain.catalog import HOST
from pulsetrain.errors import Unavailable
from pulsetrain.snapshot import Event, Sample, Value
from pulsetrain.sources import Options

MAX_WATTS = 1000.0
"""No package or memory bank draws more: a greater rise is not energy but a counter that was reset."""
SLACK_SECONDS = 0.1
"""The counters move in steps of their own, so that two reads close together may show more than their time allows."""


def open_sources(options: Options) -> list["Rapl"]:
    return [Rapl()]


class Rapl:
    """Needs read access to energy_uj, which is root-only on most kernels. AMD CPUs have the same files."""

    name = "rapl"
    period = None

    def __init__(self, sys: Path = Path("/sys"), clock: Callable[[], float] = time.monotonic) -> None:
        # The MMIO copies (intel-rapl-mmio:0) count the same energy again; psys counts the whole board.
        zones = {path.name: path for path in sorted(sys.glob("class/powercap/intel-rapl:*"))}
        names = {zone: (path / "name").read_text().strip() for zone, path in zones.items()}
        packages = {zone: name for zone, name in names.items() if name.startswith("package")}
        if not packages:
            raise Unavailable("no RAPL counters in /sys/class/powercap", hint="Most virtual machines hide them.")
        self._packages = [_Zone(name, name, zones[zone], clock) for zone, name in packages.items()]
        self._memory = [
            _Zone(f"memory of {packages[parent]}", packages[parent], zones[zone], clock)
            for zone, name in names.items()
            if name == "dram" and (parent := re.sub(r":\d+$", "", zone)) in packages
        ]

    def read(self) -> Iterator[Sample | Event]:
        values: dict[str, Value] = {}
        failure: OSError | None = None
        for field, zones in (("cpu", self._packages), ("dram", self._memory)):
            joules: dict[str, float] = {}
            for zone in zones:
                try:
                    event = zone.advance()
                except OSError as error:
                    # A gap, never a zero. What is used in it is in the counter at the next good read.
                    failure = error
                    event = zone.fail(error)
                else:
                    joules[zone.package] = zone.joules
                if event:
                    yield event
            if joules:
                values[f"{field}_package_energy_joules"] = joules
            if zones and len(joules) == len(zones):
                values[f"{field}_energy_joules"] = sum(joules.values())
        if failure and not values:
            raise failure
        yield Sample(HOST, values)

    def close(self) -> None:
        pass


class _Zone:
    """One counter, as joules that only rise."""

    def __init__(self, name: str, package: str, path: Path, clock: Callable[[], float]) -> None:
        self.package = package
        self.joules = 0.0
        self._name = name
        self._path = path / "energy_uj"
        self._clock = clock
        self._failing = False
        try:
            self._range = int((path / "max_energy_range_uj").read_text())
            self._last = int(self._path.read_text())
        except PermissionError as error:
            raise Unavailable(
                f"no permission to read RAPL counters: {error.strerror} ({self._path})",
                hint="Until the next boot: sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj. "
                'Permanently, with a udev rule: SUBSYSTEM=="powercap", RUN+="/bin/chmod a+r /sys%p/energy_uj". '
                "Only root can read them by default, because power reveals what other programs do.",
            ) from error
        except OSError as error:
            raise Unavailable(f"RAPL counters cannot be read: {error.strerror} ({self._path})") from error
        self._at = clock()

    def advance(self) -> Event | None:
        """Add what was used since the last good read, where that can be known."""
        counter = int(self._path.read_text())
        now = self._clock()
        seconds = now - self._at
        rise = (counter - self._last) % self._range
        self._last, self._at, self._failing = counter, now, False
        if seconds * MAX_WATTS * 1e6 > self._range:
            return self._not_counted(
                "counter_gap", f"was not read for {seconds:.0f} s and may have wrapped more than once", seconds
            )
        if rise > (seconds + SLACK_SECONDS) * MAX_WATTS * 1e6:
            return self._not_counted("counter_reset", "was reset", seconds)
        self.joules += rise / 1e6
        return None

    def fail(self, error: OSError) -> Event | None:
        """Tell a failed read, once."""
        if self._failing:
            return None
        self._failing = True
        message = f"the energy counter of {self._name} cannot be read: {error.strerror}"
        return Event("counter_unreadable", message, "warning", {"counter": self._name})

    def _not_counted(self, kind: str, what: str, seconds: float) -> Event:
        return Event(
            kind,
            f"the energy counter of {self._name} {what}: its energy of the last {seconds:.1f} s is not counted",
            "warning",
            {"counter": self._name, "seconds": round(seconds, 3)},
        )
