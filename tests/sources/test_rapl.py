"""CPU and memory energy from powercap counters."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pulsetrain.errors import Unavailable
from pulsetrain.snapshot import Event, Sample, Value
from pulsetrain.sources import Source
from pulsetrain.sources.rapl import Rapl

Tree = Callable[[str], Path]
Read = Callable[[Source], list[Sample]]
Events = Callable[[Source], list[Event]]

JOULE = 1_000_000
XEON_RANGE = 262143328850


class Machine:
    """A recorded tree, a clock, and a source that reads both."""

    def __init__(self, sys: Path, read: Read) -> None:
        self.sys = sys
        self.now = 1000.0
        self.source = Rapl(sys, clock=lambda: self.now)
        self._read = read

    def counter(self, zone: str) -> Path:
        return self.sys / "class/powercap" / zone / "energy_uj"

    def use(self, zone: str, microjoules: int) -> None:
        """Let a counter rise, and wrap as the kernel's does."""
        wraps_at = int((self.counter(zone).parent / "max_energy_range_uj").read_text())
        value = (int(self.counter(zone).read_text()) + microjoules) % wraps_at
        self.counter(zone).write_text(f"{value}\n")

    def values(self) -> dict[str, Value]:
        (sample,) = self._read(self.source)
        assert (sample.subject.table, sample.subject.key) == ("host", "")
        return sample.values


@pytest.fixture
def xeon(tree: Tree, read: Read) -> Machine:
    return Machine(tree("xeon-2-socket"), read)


def test_energy_starts_at_zero_and_rises_by_what_each_package_and_its_memory_used(xeon: Machine) -> None:
    assert xeon.values() == {
        "cpu_energy_joules": 0.0,
        "cpu_package_energy_joules": {"package-0": 0.0, "package-1": 0.0},
        "dram_energy_joules": 0.0,
        "dram_package_energy_joules": {"package-0": 0.0, "package-1": 0.0},
    }
    xeon.now += 1
    xeon.use("intel-rapl:0", 200 * JOULE)
    xeon.use("intel-rapl:1", 150 * JOULE)
    xeon.use("intel-rapl:1:0", 12 * JOULE)
    xeon.use("intel-rapl:2", 500 * JOULE)  # psys
    assert xeon.values() == {
        "cpu_energy_joules": 350.0,
        "cpu_package_energy_joules": {"package-0": 200.0, "package-1": 150.0},
        "dram_energy_joules": 12.0,
        "dram_package_energy_joules": {"package-0": 0.0, "package-1": 12.0},
    }


def test_a_package_that_is_also_shown_through_mmio_counts_once_and_memory_that_is_not_shown_is_left_out(
    tree: Tree, read: Read
) -> None:
    laptop = Machine(tree("core-laptop"), read)
    laptop.now += 1
    for zone in ("intel-rapl:0", "intel-rapl-mmio:0", "intel-rapl:0:0", "intel-rapl:1"):
        laptop.use(zone, 30 * JOULE)
    assert laptop.values() == {"cpu_energy_joules": 30.0, "cpu_package_energy_joules": {"package-0": 30.0}}


def test_energy_keeps_rising_when_the_counter_wraps(xeon: Machine) -> None:
    xeon.now += 10
    xeon.use("intel-rapl:0", 2000 * JOULE)
    assert int(xeon.counter("intel-rapl:0").read_text()) < XEON_RANGE / 2  # it did
    assert xeon.values()["cpu_energy_joules"] == pytest.approx(2000.0)


def test_no_energy_is_lost_over_many_wraps(tree: Tree, read: Read) -> None:
    epyc = Machine(tree("epyc-1-socket"), read)
    last = 0.0
    for _ in range(500):
        epyc.now += 2
        epyc.use("intel-rapl:0", 1234 * JOULE)
        joules = epyc.values()["cpu_energy_joules"]
        assert isinstance(joules, float)
        assert joules >= last
        last = joules
    assert last == pytest.approx(500 * 1234.0)


def test_a_reset_adds_nothing_is_reported_and_counting_continues_from_there(xeon: Machine, events: Events) -> None:
    xeon.now += 1
    xeon.use("intel-rapl:0", 100 * JOULE)
    xeon.values()
    xeon.now += 1
    xeon.counter("intel-rapl:0").write_text("130000000000\n")  # as a wrap, this would be 131 kJ in a second
    (reset,) = events(xeon.source)
    assert (reset.kind, reset.severity, reset.details["counter"]) == ("counter_reset", "warning", "package-0")
    xeon.now += 1
    xeon.use("intel-rapl:0", 100 * JOULE)
    assert xeon.values()["cpu_energy_joules"] == 200.0
    assert events(xeon.source) == []


def test_a_jump_upwards_that_no_package_could_draw_is_a_reset_too(xeon: Machine, events: Events) -> None:
    xeon.now += 1
    xeon.use("intel-rapl:1", 90_000 * JOULE)
    assert [event.kind for event in events(xeon.source)] == ["counter_reset"]
    assert xeon.values()["cpu_energy_joules"] == 0.0


def test_two_reads_at_the_same_instant_are_no_reset(xeon: Machine, events: Events) -> None:
    xeon.use("intel-rapl:0", JOULE)
    assert events(xeon.source) == []
    assert xeon.values()["cpu_energy_joules"] == 1.0


def test_a_gap_in_which_a_counter_may_have_wrapped_twice_is_reported_and_not_counted(
    xeon: Machine, events: Events
) -> None:
    xeon.now += 100  # longer than 65.7 kJ of memory at 1000 W, shorter than 262 kJ of a package
    xeon.use("intel-rapl:0", 5000 * JOULE)
    xeon.use("intel-rapl:0:0", 5000 * JOULE)
    told = events(xeon.source)
    assert [(event.kind, event.details["counter"]) for event in told] == [
        ("counter_gap", "memory of package-0"),
        ("counter_gap", "memory of package-1"),
    ]
    assert told[0].details["seconds"] == 100.0
    values = xeon.values()
    assert values["cpu_energy_joules"] == pytest.approx(5000.0)
    assert values["dram_energy_joules"] == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that fails with an I/O error")
def test_a_read_error_is_a_gap_and_its_energy_is_counted_by_the_next_good_read(xeon: Machine, events: Events) -> None:
    counter = xeon.counter("intel-rapl:0")
    kept = counter.rename(counter.with_name("kept"))
    counter.symlink_to("/proc/self/mem")  # reading it at 0 is EIO
    xeon.now += 1
    (failed,) = events(xeon.source)
    assert (failed.kind, failed.severity) == ("counter_unreadable", "warning")
    assert "package-0" in failed.message
    values = xeon.values()
    assert values["cpu_package_energy_joules"] == {"package-1": 0.0}
    assert "cpu_energy_joules" not in values
    assert values["dram_energy_joules"] == 0.0
    assert events(xeon.source) == []  # told once
    kept.replace(counter)
    xeon.use("intel-rapl:0", 300 * JOULE)
    xeon.now += 1
    assert xeon.values()["cpu_energy_joules"] == 300.0


def test_when_no_counter_can_be_read_the_source_fails(xeon: Machine) -> None:
    shutil.rmtree(xeon.sys / "devices")
    with pytest.raises(FileNotFoundError):
        list(xeon.source.read())


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no RAPL counters") as error:
        Rapl(tmp_path)
    assert error.value.hint == "Most virtual machines hide them."


@contextmanager
def not_root() -> Iterator[None]:
    """Without the rights of root, whom no file mode stops."""
    own = os.geteuid()
    os.seteuid(own or 65534)
    try:
        yield
    finally:
        os.seteuid(own)


def test_counters_that_only_root_may_read_say_how_to_change_that(tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sys = shutil.copytree(tree("xeon-2-socket"), Path(folder, "sys"), symlinks=True)
        sys.parent.chmod(0o755)  # unlike pytest's own folders, which nobody else may enter
        (sys / "class/powercap/intel-rapl:0/energy_uj").chmod(0)
        with (
            not_root(),
            pytest.raises(Unavailable, match="no permission to read RAPL counters: Permission denied") as error,
        ):
            Rapl(sys)
    assert error.value.hint
    assert "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj" in error.value.hint
    assert 'SUBSYSTEM=="powercap", RUN+="/bin/chmod a+r /sys%p/energy_uj"' in error.value.hint
