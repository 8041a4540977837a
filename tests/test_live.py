"""The present state of a machine, kept up from snapshots."""

from pulsetrain.live import HOLD_SECONDS, Live
from pulsetrain.snapshot import Event, Label, Sample, Snapshot, Subject, Value

GPU = Subject("gpu", "GPU-1", {"gpu_index": 0})


def at(elapsed: float, **values: Value) -> Snapshot:
    return Snapshot(1.8e9 + elapsed, elapsed, (Sample(GPU, dict(values)),))


def test_a_slow_value_holds_between_its_readings_and_goes_when_it_is_old() -> None:
    live = Live()
    live(at(0, up=1, power_limit_watts=300.0))
    live(at(10, up=1))
    assert next(live.table("gpu")).number("power_limit_watts") == 300.0
    live(at(HOLD_SECONDS + 1, up=1))
    assert next(live.table("gpu")).number("power_limit_watts") is None


def test_a_lost_gpu_keeps_none_of_its_last_values() -> None:
    live = Live()
    live(at(0, up=1, utilization_percent=90, power_limit_watts=300.0))
    live(at(1, up=0, utilization_percent=None))
    state = next(live.table("gpu"))
    assert state.values == {"up": 0, "utilization_percent": None}


def test_counters_give_rates_over_the_true_time_between_two_readings() -> None:
    live = Live()
    live(at(0, up=1, energy_joules=1000.0))
    live(at(2.5, up=1, energy_joules=1500.0))
    assert next(live.table("gpu")).rates["energy_joules"] == 200.0


def rates(live: Live) -> dict[str, float]:
    return next(live.table("gpu")).rates


def test_a_rate_goes_with_the_value_it_is_of() -> None:
    live = Live()
    live(at(0, up=1, energy_joules=1000.0))
    live(at(1, up=1, energy_joules=1100.0))
    live(at(HOLD_SECONDS + 1, up=1))
    assert rates(live)["energy_joules"] == 100.0
    live(at(HOLD_SECONDS + 1.5, up=1))
    assert "energy_joules" not in rates(live)


def test_a_lost_gpu_has_no_rates() -> None:
    live = Live()
    live(at(0, up=1, energy_joules=1000.0))
    live(at(1, up=1, energy_joules=1100.0))
    live(at(2, up=0))
    assert rates(live) == {}
    live(at(3, up=1, energy_joules=1400.0))
    assert "energy_joules" not in rates(live)


def test_a_value_that_is_no_longer_known_has_no_rate() -> None:
    live = Live()
    live(at(0, up=1, energy_joules=1000.0))
    live(at(1, up=1, energy_joules=1100.0))
    live(at(2, up=1, energy_joules=None))
    assert "energy_joules" not in rates(live)
    live(at(3, up=1, energy_joules=1400.0))
    assert "energy_joules" not in rates(live)


def test_a_counter_that_restarts_has_no_rate_and_a_gauge_may_fall() -> None:
    live = Live()
    live(at(0, up=1, energy_joules=1000.0, power_draw_watts=300.0))
    live(at(1, up=1, energy_joules=1100.0, power_draw_watts=320.0))
    live(at(2, up=1, energy_joules=50.0, power_draw_watts=310.0))
    assert "energy_joules" not in rates(live)
    assert rates(live)["power_draw_watts"] == -10.0


def test_a_counter_that_stays_as_it_is_has_a_rate_of_zero() -> None:
    live = Live()
    live(at(0, up=1, energy_joules=1000.0))
    live(at(1, up=1, energy_joules=1000.0))
    assert rates(live)["energy_joules"] == 0.0


def test_two_lines_of_one_tick_leave_the_rate_as_it_was() -> None:
    live = Live()
    live(at(0, up=1, energy_joules=1000.0))
    live(at(1, up=1, energy_joules=1100.0))
    live(at(1, up=1, energy_joules=1100.0))
    assert rates(live)["energy_joules"] == 100.0


def test_a_subject_that_shows_nothing_new_is_gone() -> None:
    live = Live()
    live(at(0, up=1))
    live(Snapshot(1.8e9, HOLD_SECONDS, ()))
    assert len(list(live.table("gpu"))) == 1
    live(Snapshot(1.8e9, HOLD_SECONDS + 1, ()))
    assert list(live.table("gpu")) == []


def test_what_is_newly_said_of_a_subject_is_kept() -> None:
    live = Live()
    said: list[dict[str, Label]] = [{"pid": 7}, {"pid": 7, "run": "r1"}]
    for elapsed, labels in enumerate(said):
        live(Snapshot(1.8e9, elapsed, (Sample(Subject("process", "7", labels), {"threads": 1}),)))
    (state,) = live.table("process")
    assert state.subject.labels["run"] == "r1"


def test_what_a_run_says_of_itself_holds_until_it_says_something_else() -> None:
    live = Live()
    training, account = Subject("training", "rank 0", {"rank": 0}), Subject("account", "")
    for elapsed, samples in ((0.0, 32), (300.0, 16)):
        live(
            Snapshot(
                1.8e9, elapsed, (Sample(training, {"loss": 0.5, "samples": samples}), Sample(account, {"cost": 1}))
            )
        )
    live(at(900, up=1))
    (state,) = live.table("training")
    assert (state.number("loss"), state.totals["samples"]) == (0.5, 48)
    assert next(live.table("account")).number("cost") == 1


def test_events_are_counted_and_the_last_xid_of_a_gpu_is_known() -> None:
    live = Live()
    for xid in (31, 79):
        live(Snapshot(1.8e9, 0.0, (), (Event("xid", "XID", "critical", {"uuid": "GPU-1", "xid": xid}),)))
    assert live.events == {("xid", "critical"): 2}
    assert {uuid: last.number for uuid, last in live.xids.items()} == {"GPU-1": 79}


def test_a_program_that_counts_its_steps_from_zero_has_done_one_more_than_the_last_number() -> None:
    rank = Subject("training", "rank 0", {"rank": 0})
    for first, done in ((0, 30), (1, 30), (1000, 1029)):
        live = Live()
        for step in range(first, first + 30):
            values: dict[str, Value] = {"step": step, "step_counts": {"0.1": 1}}
            live(Snapshot(1.8e9 + step, step, (Sample(rank, values),)))
        state = next(live.table("training"))
        assert state.number("step") == done
        assert state.rates["step"] == 1.0
