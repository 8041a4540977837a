"""Supervision: a bad item is skipped, counted and named; what is stuck or dead is noticed."""

import threading

import pytest

from pulsetrain.errors import PulsetrainError
from pulsetrain.supervise import DEGRADED_SECONDS, DOWN_AFTER_FAILURES, STUCK_AFTER_SECONDS, Part, Supervisor, Worker


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def supervisor(time: Time) -> Supervisor:
    return Supervisor(time)


def skip(part: Part, times: int = 1) -> None:
    for number in range(times):
        with part.attempt("a reading"):
            raise ValueError(f"bad value {number}")


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_an_exception_skips_one_item_and_the_part_is_degraded(supervisor: Supervisor) -> None:
    part = supervisor.part("writer")
    done = []
    for item in (1, 0, 2):
        with part.attempt("a division"):
            done.append(2 / item)
    (health,) = supervisor.health()
    assert done == [2.0, 1.0]
    assert (health.status, health.skipped_items) == ("degraded", 1)
    assert str(health) == "writer: degraded, 1 item skipped: a division: ZeroDivisionError: division by zero"


def test_whoever_works_on_an_item_can_ask_whether_it_was_skipped(supervisor: Supervisor) -> None:
    part = supervisor.part("writer")
    with part.attempt("a good item") as good:
        pass
    with part.attempt("a bad item") as bad:
        raise OSError("no space")
    assert (good.failed, bad.failed) == (False, True)


def test_a_part_is_well_again_some_time_after_the_last_skipped_item_and_the_count_stays(
    supervisor: Supervisor, time: Time
) -> None:
    part = supervisor.part("writer")
    skip(part)
    with part.attempt("a reading"):
        pass
    assert part.status()[0] == "degraded"
    time.now += DEGRADED_SECONDS + 1
    (health,) = supervisor.health()
    assert (health.status, health.skipped_items, health.troubled) == ("ok", 1, True)


def test_a_part_that_fails_on_every_item_is_down_until_one_goes_well(supervisor: Supervisor) -> None:
    part = supervisor.part("exporter")
    skip(part, DOWN_AFTER_FAILURES)
    assert part.status()[0] == "down"
    with part.attempt("a reading"):
        pass
    assert part.status()[0] == "degraded"


def test_a_part_that_is_stuck_on_one_item_is_down_and_the_item_is_named(supervisor: Supervisor, time: Time) -> None:
    part = supervisor.part("node")
    with part.attempt("the run resnet50"):
        assert part.status()[0] == "ok"
        time.now += STUCK_AFTER_SECONDS + 1
        assert part.status() == ("down", "the run resnet50: no progress for 61 s")
    assert part.status()[0] == "ok"


def test_a_part_that_hangs_between_two_pieces_of_an_item_is_down(supervisor: Supervisor, time: Time) -> None:
    part = supervisor.part("writer")
    with part.attempt("a batch"):
        time.now += STUCK_AFTER_SECONDS - 1
        with part.attempt("a line"):
            pass
        time.now += STUCK_AFTER_SECONDS - 1  # a piece has been done meanwhile
        assert part.status()[0] == "ok"
        time.now += 2
        assert part.status() == ("down", "a batch: no progress for 61 s")
    assert part.status()[0] == "ok"


def test_an_item_whose_pieces_all_failed_did_not_go_well(supervisor: Supervisor) -> None:
    part = supervisor.part("writer")
    for _ in range(DOWN_AFTER_FAILURES):
        with part.attempt("a batch"):
            skip(part)
    assert part.status()[0] == "down"


def test_what_does_not_work_as_a_whole_is_down_until_it_recovers(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    part = supervisor.part("writer")
    part.fail("the disk is full")
    part.fail("the disk is full")
    assert [str(health) for health in supervisor.troubled()] == ["writer: down: the disk is full"]
    assert messages(caplog) == ["writer is down: the disk is full"]
    part.recover()
    assert supervisor.troubled() == []


def test_the_same_failure_is_logged_at_once_and_then_with_increasing_delay(
    supervisor: Supervisor, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    part = supervisor.part("writer")
    for _ in range(2000):  # two thousand seconds
        skip(part)
        time.now += 1
    assert messages(caplog) == [
        "writer skipped a reading: ValueError: bad value 0",
        "writer skipped a reading: ValueError: bad value 0 (and 59 more like it)",
        "writer skipped a reading: ValueError: bad value 0 (and 599 more like it)",
    ]
    assert part.skipped_items == 2000


def test_another_failure_of_the_same_part_is_logged_at_once(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    part = supervisor.part("writer")
    skip(part, 2)
    with part.attempt("a line"):
        raise PulsetrainError("too long")
    assert messages(caplog) == [
        "writer skipped a reading: ValueError: bad value 0",
        "writer skipped a line: too long",
    ]


def test_a_traceback_is_logged_once_and_only_for_a_fault_of_the_program(
    supervisor: Supervisor, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    part = supervisor.part("writer")
    skip(part)
    time.now += 61
    skip(part)
    with part.attempt("a batch"):
        raise OSError("no space")
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False]


def test_every_change_is_an_event_once(supervisor: Supervisor, time: Time) -> None:
    part = supervisor.part("push-grafana")
    assert supervisor.news() == []
    skip(part)
    (degraded,) = supervisor.news()
    assert (degraded.kind, degraded.severity) == ("part_degraded", "warning")
    assert degraded.details == {"part": "push-grafana", "skipped_items": 1}
    skip(part)
    assert supervisor.news() == []
    part.fail("the server refuses")
    assert [event.kind for event in supervisor.news()] == ["part_down"]
    part.recover()
    part.succeed()
    time.now += DEGRADED_SECONDS + 1
    assert [event.kind for event in supervisor.news()] == ["part_ok"]


def test_that_a_part_is_stuck_is_logged_once(
    supervisor: Supervisor, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    part = supervisor.part("writer")
    with part.attempt("a batch"):
        for _ in range(3):
            time.now += STUCK_AFTER_SECONDS + 1
            supervisor.news()
    assert messages(caplog) == ["writer: down: a batch: no progress for 61 s"]


def test_two_parts_of_one_name_are_kept_apart(supervisor: Supervisor) -> None:
    supervisor.part("push")
    skip(supervisor.part("push"))
    assert [(health.name, health.status) for health in supervisor.health()] == [("push", "ok"), ("push-2", "degraded")]


def test_a_worker_works_on_after_a_round_that_failed() -> None:
    supervisor = Supervisor()
    rounds: list[int] = []
    third = threading.Event()

    def work() -> None:
        rounds.append(len(rounds))
        if len(rounds) == 2:
            raise ValueError("one bad round")
        if len(rounds) >= 3:
            third.set()

    worker = Worker(supervisor.part("node"), work, every_seconds=0.001)
    worker.start()
    assert third.wait(30)
    assert worker.stop(30)
    (health,) = supervisor.health()
    assert (health.status, health.skipped_items) == ("degraded", 1)


def test_a_worker_that_is_woken_does_not_wait_for_its_turn() -> None:
    called = threading.Semaphore(0)
    worker = Worker(Supervisor().part("writer"), called.release, every_seconds=3600)
    worker.start()
    assert called.acquire(timeout=30)
    worker.wake()
    assert called.acquire(timeout=30)
    assert worker.stop(30)


def test_a_round_says_how_long_to_wait_for_the_next() -> None:
    waits: list[float | None] = [0.001, None]
    called = threading.Semaphore(0)

    def work() -> float | None:
        called.release()
        return waits.pop(0)

    worker = Worker(Supervisor().part("carbon"), work, every_seconds=3600)
    worker.start()
    assert called.acquire(timeout=30) and called.acquire(timeout=30)
    assert worker.stop(30)
    assert waits == []


def test_a_worker_finishes_in_its_own_thread_even_after_failures() -> None:
    finished: list[str] = []

    def work() -> None:
        raise ValueError("always")

    worker = Worker(
        Supervisor().part("writer"),
        work,
        every_seconds=3600,
        finish=lambda: finished.append(threading.current_thread().name),
    )
    worker.start()
    assert worker.stop(30)
    assert finished == ["writer"]


def test_a_worker_that_hangs_does_not_hold_up_whoever_stops_it() -> None:
    release, inside = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        release.wait(60)

    worker = Worker(Supervisor().part("writer"), work, every_seconds=1)
    worker.start()
    assert inside.wait(30)
    assert not worker.stop(0.01)
    release.set()
    assert worker.stop(30)


def test_a_worker_whose_thread_ends_is_down() -> None:
    supervisor = Supervisor()

    def work() -> None:
        raise SystemExit("somebody called exit")

    worker = Worker(supervisor.part("node"), work, every_seconds=1)
    worker.start()
    worker._thread.join(30)
    assert [str(health) for health in supervisor.troubled()] == [
        "node: down: its thread ended: SystemExit: somebody called exit"
    ]
