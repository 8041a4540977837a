"""How a run in progress is doing, over all its machines."""

import pytest
from tests.views.live.simulation import START

from pulsetrain.sampler import Consumer
from pulsetrain.snapshot import Sample, Snapshot, Subject, Value
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.views.live.progress import RunProgress


class Reports:
    """A feed that gives a training's reports and a host's account when it is asked to."""

    live = True

    def __init__(self, title: str, rank: int) -> None:
        self.title = title
        self._rank = Subject("training", f"rank {rank}", {"rank": rank})

    def start(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def stop(self) -> None:
        pass

    def give(self, elapsed: float, training: dict[str, Value], account: dict[str, Value] | None = None) -> None:
        samples = [Sample(self._rank, training)] + ([Sample(Subject("account", ""), account)] if account else [])
        self._consumer(Snapshot(START + elapsed, elapsed, tuple(samples)))


def watched(title: str = "a", rank: int = 0) -> tuple[Reports, WatchedMachine]:
    feed = Reports(title, rank)
    machine = WatchedMachine(feed)
    machine.start()
    return feed, machine


def test_what_is_left_is_that_of_the_account_and_before_its_first_entry_follows_from_the_pace() -> None:
    feed, machine = watched()
    feed.give(0.0, {"step": 0, "total_steps": 100})
    assert RunProgress([machine]).remaining_seconds is None
    feed.give(5.0, {"step": 10, "total_steps": 100})
    assert RunProgress([machine]).ratio == 0.1
    assert RunProgress([machine]).remaining_seconds == pytest.approx(45.0)
    feed.give(10.0, {"step": 20, "total_steps": 100}, {"remaining_seconds": 77.0})
    assert RunProgress([machine]).remaining_seconds == 77.0


def test_without_a_plan_nothing_is_left() -> None:
    feed, machine = watched()
    feed.give(0.0, {"step": 5}, {"remaining_seconds": 7.0})
    progress = RunProgress([machine])
    assert (progress.ratio, progress.remaining_seconds) == (None, None)


def test_the_first_rank_speaks_and_all_hosts_add_up() -> None:
    other, second = watched("b", rank=8)
    first, machine = watched("a", rank=0)
    other.give(3.0, {"step": 1, "loss": 2.0}, {"cost": {"EUR": 1.0}, "carbon_grams": 5.0})
    first.give(4.0, {"step": 1, "loss": 1.0}, {"cost": {"EUR": 2.0, "USD": 3.0}})
    progress = RunProgress([second, machine])
    assert progress.machine is machine
    assert progress.number("loss") == 1.0
    assert progress.elapsed_seconds == 4.0
    assert progress.used("cost") == {"EUR": 3.0, "USD": 3.0}
    assert (progress.total("carbon_grams"), progress.total("energy_joules")) == (5.0, None)


def test_a_projection_needs_that_of_every_host() -> None:
    first, machine = watched("a", rank=0)
    other, second = watched("b", rank=8)
    first.give(1.0, {"step": 1, "total_steps": 10}, {"energy_projected_joules": 100.0})
    other.give(1.0, {"step": 1, "total_steps": 10}, {"energy_joules": {"gpu": 9.0}})
    assert RunProgress([machine, second]).projected("energy_projected_joules") == {}
    other.give(2.0, {"step": 2, "total_steps": 10}, {"energy_projected_joules": 50.0})
    assert RunProgress([machine, second]).projected("energy_projected_joules") == {"": 150.0}


def test_nothing_is_projected_for_a_run_whose_planned_steps_are_done() -> None:
    feed, machine = watched()
    feed.give(1.0, {"step": 9, "total_steps": 10}, {"energy_projected_joules": 100.0})
    feed.give(2.0, {"step": 10, "total_steps": 10})
    assert RunProgress([machine]).projected("energy_projected_joules") == {}
    past = RunProgress([machine], START + 1.0)
    assert past.projected("energy_projected_joules") == {"": 100.0}
