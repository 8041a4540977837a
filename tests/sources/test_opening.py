"""Opening sources: no driver holds up another or whoever waits, and what is broken is tried again."""

import threading
from collections.abc import Callable, Iterable, Sequence

from pulsetrain.errors import Unavailable, UsageError
from pulsetrain.sampler import Sampler
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject
from pulsetrain.sources import Source
from pulsetrain.sources.opening import Driver, Opened, StillOpening

FOREVER_SECONDS = 60.0
"""Longer than any test waits, so that only the event that it waits for ends it."""


class Board:
    """A source that shows one GPU."""

    period = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = threading.Event()

    def read(self) -> Iterable[Sample | Event]:
        return [Sample(Subject("gpu", self.name), {"up": 1})]

    def close(self) -> None:
        self.closed.set()


class Hanging:
    """A driver that answers when a test lets it."""

    def __init__(self, answer: Callable[[], Sequence[Source]]) -> None:
        self.release = threading.Event()
        self.asked = threading.Event()
        self._answer = answer

    def __call__(self) -> Sequence[Source]:
        self.asked.set()
        self.release.wait(FOREVER_SECONDS)
        return self._answer()


def works(name: str = "nvidia") -> Driver:
    return Driver(name, lambda: [Board(name)])


def fails(error: Exception, name: str = "nvidia") -> Driver:
    def open() -> Sequence[Source]:
        raise error

    return Driver(name, open)


def wait_for_arrivals(opened: Opened) -> list[Source | Event]:
    while not (arrived := opened.arrivals()):
        threading.Event().wait(0.01)
    return arrived


def test_healthy_drivers_are_open_at_once_in_their_order() -> None:
    opened = Opened([[works("nvidia")], [works("amd")], [works("host")]], FOREVER_SECONDS)
    assert [source.name for source in opened.sources] == ["nvidia", "amd", "host"]
    assert (opened.unavailable, opened.arrivals(), opened.down()) == ({}, [], [])


def test_a_driver_that_hangs_holds_up_nobody_and_joins_when_it_answers() -> None:
    board = Board("nvidia")
    hanging = Hanging(lambda: [board])
    opened = Opened([[Driver("nvidia", hanging)], [works("host")]], patience_seconds=0.2)
    assert [source.name for source in opened.sources] == ["host"]
    assert isinstance(opened.unavailable["nvidia"], StillOpening)
    assert "still opening (no answer for" in opened.unavailable["nvidia"].message
    changes = opened.changes
    hanging.release.set()
    source, event = wait_for_arrivals(opened)
    assert source is board
    assert isinstance(event, Event) and event.kind == "source_up" and event.details == {"source": "nvidia"}
    assert opened.unavailable == {}
    assert opened.changes > changes


def test_a_broken_driver_is_tried_again_until_it_works() -> None:
    answers: list[Exception | None] = [
        Unavailable("the driver is not loaded", broken=True),
        OSError("interrupted"),
        None,
    ]

    again = threading.Event()

    def open() -> Sequence[Source]:
        if len(answers) < 3:
            again.wait(FOREVER_SECONDS)
        if answer := answers.pop(0):
            raise answer
        return [Board("nvidia")]

    opened = Opened([[Driver("nvidia", open)]], FOREVER_SECONDS, retry_seconds=[0.01])
    assert opened.sources == ()
    assert opened.unavailable["nvidia"].message == "the driver is not loaded"
    assert opened.down() == ["nvidia"]
    again.set()
    source, event = wait_for_arrivals(opened)
    assert not isinstance(source, Event) and source.name == "nvidia"
    assert isinstance(event, Event) and event.kind == "source_up"
    assert (answers, opened.unavailable, opened.down()) == ([], {}, [])


def test_a_driver_that_is_not_there_is_not_tried_again() -> None:
    tries: list[int] = []

    def open() -> Sequence[Source]:
        tries.append(1)
        raise Unavailable("no such device")

    opened = Opened([[Driver("amd", open)]], FOREVER_SECONDS, retry_seconds=[0.0])
    for thread in threading.enumerate():
        if thread.name == "open-amd":
            thread.join(FOREVER_SECONDS)
    assert len(tries) == 1
    assert opened.down() == []


def test_a_fault_of_a_driver_is_a_reason_and_not_an_end() -> None:
    opened = Opened([[fails(ZeroDivisionError("division by zero"))], [works("host")]], FOREVER_SECONDS)
    assert [source.name for source in opened.sources] == ["host"]
    error = opened.unavailable["nvidia"]
    assert (error.message, error.broken) == ("failed to open: ZeroDivisionError: division by zero", True)
    opened.stop()


def test_a_stand_in_is_opened_only_when_the_driver_is_known_not_to_work() -> None:
    hanging = Hanging(lambda: [Board("nvidia")])
    stand_in = Hanging(lambda: [Board("nvidia_smi")])
    stand_in.release.set()
    opened = Opened([[Driver("nvidia", hanging), Driver("nvidia_smi", stand_in)]], patience_seconds=0.1)
    assert opened.unavailable["nvidia_smi"].message == "not needed so far"
    hanging.release.set()
    wait_for_arrivals(opened)
    assert {name: error.message for name, error in opened.unavailable.items()} == {
        "nvidia_smi": "not needed, nvidia works"
    }
    assert not stand_in.asked.is_set()

    instead = Opened([[fails(Unavailable("no library")), works("nvidia_smi")]], FOREVER_SECONDS)
    assert [source.name for source in instead.sources] == ["nvidia_smi"]


def test_gpus_that_nobody_knows_are_the_users_mistake_once_every_driver_has_answered() -> None:
    mistake = UsageError("there is no GPU 7")
    assert Opened([[fails(mistake)], [works("amd")]], FOREVER_SECONDS).refused is None
    assert Opened([[fails(mistake)], [fails(Unavailable("none"), "amd")]], FOREVER_SECONDS).refused is mistake
    hanging = Hanging(lambda: [Board("amd")])
    assert Opened([[fails(mistake)], [Driver("amd", hanging)]], 0.1).refused is None
    hanging.release.set()


def test_a_machine_is_without_gpus_when_every_driver_has_said_so() -> None:
    none, broken = Unavailable("no library"), Unavailable("versions differ", broken=True)
    assert Opened([[fails(none)], [fails(none, "amd")], [works("host")]], FOREVER_SECONDS).without_gpus
    assert not Opened([[works()], [fails(none, "amd")]], FOREVER_SECONDS).without_gpus
    tried_again = Opened([[fails(broken)], [fails(none, "amd")]], FOREVER_SECONDS)
    assert not tried_again.without_gpus
    tried_again.close()
    hanging = Hanging(lambda: [Board("nvidia")])
    late = Opened([[Driver("nvidia", hanging)], [fails(none, "amd")]], 0.1)
    assert not late.without_gpus
    hanging.release.set()
    wait_for_arrivals(late)


def test_what_opens_after_the_end_is_closed() -> None:
    board = Board("nvidia")
    hanging = Hanging(lambda: [board])
    opened = Opened([[Driver("nvidia", hanging)]], patience_seconds=0.05)
    opened.stop()
    hanging.release.set()
    assert board.closed.wait(FOREVER_SECONDS)
    assert opened.arrivals() == []


def test_closing_closes_what_is_open() -> None:
    opened = Opened([[works()]], FOREVER_SECONDS)
    opened.close()
    (board,) = opened.sources
    assert isinstance(board, Board) and board.closed.is_set()


def test_the_sampler_reads_a_late_source_from_the_next_tick_on() -> None:
    hanging = Hanging(lambda: [Board("nvidia")])
    opened = Opened([[Driver("nvidia", hanging)], [works("amd")]], patience_seconds=0.05)
    seen: list[Snapshot] = []
    joined = threading.Event()

    def consume(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        if len(seen) == 2:
            hanging.release.set()
        if len(_gpus(snapshot)) == 2:
            joined.set()

    sampler = Sampler(opened.sources, 0.05, [consume], opened=opened)
    sampler.start()
    assert joined.wait(FOREVER_SECONDS)
    sampler.stop()
    assert _gpus(seen[0]) == ["amd"]
    assert [event.kind for snapshot in seen for event in snapshot.events if event.kind != "gap"] == ["source_up"]


def test_a_broken_driver_is_down_in_the_snapshots() -> None:
    opened = Opened([[fails(Unavailable("the driver is not loaded", broken=True))], [works("amd")]], FOREVER_SECONDS)
    seen: list[Snapshot] = []
    Sampler(opened.sources, 0.01, [seen.append], opened=opened).run(ticks=1)
    (host,) = (sample for sample in seen[0].samples if sample.subject.table == "host")
    assert host.values["source_up"] == {"nvidia": 0, "amd": 1}
    opened.stop()


def _gpus(snapshot: Snapshot) -> list[str]:
    return sorted(sample.subject.key for sample in snapshot.samples if sample.subject.table == "gpu")
