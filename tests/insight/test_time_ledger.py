"""Every instant of a rank belongs to one class: the classes add up, and what is known lands where it belongs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.catalog.time_classes import PART_CLASSES, TIME_CLASSES
from pulsetrain.insight.rank_timeline import ProcessLife, RankLines, rank_timelines
from pulsetrain.insight.report import make_report
from pulsetrain.insight.steps import PhaseInterval
from pulsetrain.insight.time_ledger import TimeLedger
from pulsetrain.runs.folder import CountingOptions, Host, RunFolder

MakeRun = Callable[..., RunFolder]
Line = dict[str, Any]
PARTS = (*PART_CLASSES, "other")


def head(pid: int, began: float, **about: Any) -> Line:
    return {"event": "training_process", "pid": pid, "began_seconds": began, "elapsed_seconds": began + 0.5} | about


def end(pid: int, at: float, outcome: str = "finished") -> Line:
    return {"event": "training_process_end", "pid": pid, "elapsed_seconds": at, "outcome": outcome}


def steps(count: int, begin: float, seconds: float = 1.0, first: int = 1, **parts: float) -> list[Line]:
    return [
        {"elapsed_seconds": begin + (place + 1) * seconds, "step": first + place, "step_seconds": seconds}
        | {f"{part}_seconds": value for part, value in parts.items()}
        for place in range(count)
    ]


def phase(name: str, begin: float, until: float) -> Line:
    return {"elapsed_seconds": until, "phase": name, "phase_seconds": until - begin}


def ledger_of(make_run: MakeRun, lines: list[Line], **about: Any) -> TimeLedger:
    found = make_report(make_run(training=lines, **about)).ledger
    assert found is not None
    assert sum(part.seconds for part in found.classes.values()) == pytest.approx(found.seconds)
    assert list(found.classes) == [name for name in TIME_CLASSES if name in found.classes]
    return found


def seconds_of(ledger: TimeLedger) -> dict[str, float]:
    return {name: part.seconds for name, part in ledger.classes.items()}


def test_a_kernel_that_is_older_than_its_run_counts_from_the_begin_of_the_run(make_run: MakeRun) -> None:
    lines = [head(1, -3600.0, elapsed_seconds=3.5), *steps(30, begin=4.0), end(1, 34.0)]
    found = ledger_of(make_run, lines, seconds=34.0)
    assert found.seconds == pytest.approx(34.0)
    assert found.classes["startup"].seconds == pytest.approx(4.0)


# The sum

_seconds = st.floats(0, 50)
_part = st.one_of(st.just(np.nan), st.floats(0, 20))
_steps = st.lists(st.tuples(_seconds, st.floats(0.001, 30), st.integers(0, 40), *[_part] * len(PARTS)), max_size=60)
_phases = st.lists(
    st.builds(
        lambda name, begin, length: PhaseInterval(name, begin, begin + length),
        st.sampled_from(["validation", "checkpoint", "compile", "loading", "my own"]),
        _seconds,
        st.floats(0.001, 30),
    ),
    max_size=8,
)
_cuts = st.lists(_seconds, min_size=2, max_size=6, unique=True)


@given(_steps, _phases, _cuts, st.booleans(), st.booleans(), st.booleans())
def test_the_classes_add_up_to_the_time_whatever_is_reported(
    rows: list[tuple[float, ...]],
    phases: list[PhaseInterval],
    cuts: list[float],
    on_device: bool,
    continues: bool,
    end_known: bool,
) -> None:
    columns = np.array(sorted(rows)).reshape(-1, 3 + len(PARTS)).T
    names = ("elapsed_seconds", "step_seconds", "step", *(f"{part}_seconds" for part in PARTS))
    lines = RankLines(dict(zip(names, columns, strict=True)), phases, on_device)
    cuts = sorted(cuts)
    lives = [
        ProcessLife(begin, until, number, continues, end_known=end_known)
        for number, (begin, until) in enumerate(zip(cuts[::2], cuts[1::2], strict=False), 1)
    ]
    timelines = rank_timelines("vm", 0, lives, lines)
    whole = lives[-1].ended - lives[0].began
    assert sum(sum(timeline.totals().values()) for timeline in timelines) == pytest.approx(whole, abs=1e-6)
    for timeline in timelines:
        assert (timeline.seconds >= -1e-9).all()
        assert timeline.seconds.sum(axis=1) == pytest.approx(np.diff(timeline.edges), abs=1e-6)
        band = timeline.band(np.linspace(timeline.began, timeline.ended, 7))
        for name, total in timeline.totals().items():
            assert band[name].sum() == pytest.approx(total, abs=1e-6)


# Where time belongs


def test_a_life_from_start_up_to_its_end(make_run: MakeRun) -> None:
    lines = [head(7, 1.0), *steps(40, 4.0, data_wait=0.25, forward=0.25, backward=0.25, optimizer=0.125), end(7, 46.0)]
    ledger = ledger_of(make_run, lines, seconds=50.0)
    expected = {"startup": 3.0, "data_wait": 10.0, "forward": 10.0, "backward": 10.0, "optimizer": 5.0}
    assert seconds_of(ledger) == pytest.approx(expected | {"tail": 2.0, "unknown": 5.0})
    assert ledger.seconds == pytest.approx(45.0)
    assert ledger.goodput == pytest.approx(25 / 45)


def test_phases_inside_steps_are_not_part_of_them_and_the_innermost_counts(make_run: MakeRun) -> None:
    lines = [head(7, 0.0), *steps(30, 1.0, forward=0.9), *steps(1, 31.0, 9.0, first=31, forward=0.9, other=8.1)]
    lines += [phase("validation", 32.0, 38.0), phase("checkpoint", 33.0, 35.0), end(7, 40.0)]
    seconds = seconds_of(ledger_of(make_run, lines, seconds=40.0))
    assert (seconds["evaluation"], seconds["checkpoint"]) == pytest.approx((4.0, 2.0))
    assert seconds["forward"] == pytest.approx(31 * 0.9)


def test_what_the_first_steps_take_longer_is_the_warm_up(make_run: MakeRun) -> None:
    slow = steps(2, 0.0, 5.0, forward=4.0, backward=1.0)
    lines = [head(7, 0.0), *slow, *steps(40, 10.0, first=3, forward=0.5, backward=0.5), end(7, 50.0)]
    ledger = ledger_of(make_run, lines, seconds=50.0)
    assert seconds_of(ledger) == pytest.approx({"warm_up": 8.0, "forward": 21.0, "backward": 21.0})
    assert ledger.classes["warm_up"].obtained == "estimated"


def test_one_step_that_hangs_is_a_stall_and_many_slow_ones_are_not(make_run: MakeRun) -> None:
    hung = steps(1, 60.0, 31.0, first=61, forward=30.5, backward=0.5)
    lines = [head(7, 0.0), *steps(60, 0.0, forward=0.5, backward=0.5), *hung, end(7, 91.0)]
    assert seconds_of(ledger_of(make_run, lines))["stall"] == pytest.approx(30.0)
    often = [*lines[:-1], *steps(4, 91.0, 31.0, first=62, forward=30.5, backward=0.5), end(7, 215.0)]
    assert "stall" not in seconds_of(ledger_of(make_run, often, id="20261116-120000-often-0000"))


def test_a_step_of_which_nothing_is_known_is_compute_and_says_that_it_is_assumed(make_run: MakeRun) -> None:
    ledger = ledger_of(make_run, [head(7, 0.0), *steps(30, 0.0), end(7, 30.0)])
    assert seconds_of(ledger) == pytest.approx({"compute": 30.0})
    assert ledger.classes["compute"].obtained == "assumed"


def test_what_is_left_of_a_step_of_which_only_the_wait_for_data_is_known_is_compute(make_run: MakeRun) -> None:
    ledger = ledger_of(make_run, [head(7, 0.0), *steps(30, 0.0, data_wait=0.25, other=0.75), end(7, 30.0)])
    assert seconds_of(ledger) == pytest.approx({"data_wait": 7.5, "compute": 22.5})
    assert ledger.classes["compute"].obtained == "estimated"


def test_on_a_gpu_the_parts_of_compute_cannot_be_distinguished(make_run: MakeRun) -> None:
    lines = [head(7, 0.0), *steps(30, 0.0, forward=0.25, backward=0.25, optimizer=0.25), end(7, 30.0)]
    lines[1]["memory_allocated_mb"] = 100.0
    assert seconds_of(ledger_of(make_run, lines)) == pytest.approx({"compute": 22.5, "unknown": 7.5})


def test_the_command_itself_ends_with_the_run_and_a_process_that_it_started_when_it_says_so(make_run: MakeRun) -> None:
    about = {"hosts": {"vm": Host(pid=4)}, "seconds": 35.0}
    command = [head(7, 0.0, parent_pid=4), *steps(30, 0.0, forward=1.0), end(7, 31.0)]
    assert seconds_of(ledger_of(make_run, command, **about))["tail"] == pytest.approx(5.0)
    child = [head(7, 0.0, parent_pid=5), *command[1:]]
    ledger = ledger_of(make_run, child, id="20261116-120000-child-0000", **about)
    assert seconds_of(ledger)["tail"] == pytest.approx(1.0)


# Attempts


def test_an_attempt_that_resumes_earlier_shows_what_the_one_before_lost(make_run: MakeRun) -> None:
    lines = [head(7, 0.0, command="train.py"), *steps(20, 1.0, forward=1.0), end(7, 21.0, "failed 1")]
    lines += [head(8, 25.0, command="train.py"), *steps(30, 27.0, first=16, forward=1.0), end(8, 57.0)]
    ledger = ledger_of(make_run, lines)
    expected = {"startup": 3.0, "forward": 45.0, "restart": 4.0, "lost_work": 5.0}
    assert seconds_of(ledger) == pytest.approx(expected)
    assert [(rank.attempt, rank.began, rank.ended) for rank in ledger.ranks] == [(1, 0.0, 21.0), (2, 21.0, 57.0)]
    assert ledger.goodput == pytest.approx(45 / 57)


def test_a_loop_that_loaded_a_checkpoint_and_has_no_numbers_lost_nothing_for_certain(make_run: MakeRun) -> None:
    lines = [head(7, 0.0, command="train.py"), *steps(20, 1.0, forward=1.0)]
    lines += [head(8, 25.0, command="train.py"), phase("loading", 26.0, 27.0), *steps(30, 27.0, forward=1.0)]
    assert "lost_work" not in seconds_of(ledger_of(make_run, [*lines, end(8, 57.0)]))


def test_what_the_launcher_counts_is_a_restart_whatever_the_process_believed(make_run: MakeRun) -> None:
    lines = [head(7, 0.0, restarts=0), *steps(20, 1.0, forward=1.0), end(7, 21.0)]
    lines += [head(8, 25.0, restarts=1), *steps(30, 27.0, forward=1.0), end(8, 57.0)]
    expected = {"startup": 3.0, "forward": 30.0, "restart": 4.0, "lost_work": 20.0}
    assert seconds_of(ledger_of(make_run, lines)) == pytest.approx(expected)


def test_programs_one_after_the_other_are_not_attempts(make_run: MakeRun) -> None:
    lines = [head(7, 0.0, command="train.py"), *steps(20, 1.0, forward=1.0), end(7, 21.0)]
    lines += [head(8, 25.0, command="train.py"), *steps(20, 27.0, forward=1.0), end(8, 47.0)]
    assert seconds_of(ledger_of(make_run, lines)) == pytest.approx({"startup": 3.0, "forward": 40.0, "unknown": 4.0})


# What it used


def test_joules_and_money_go_with_the_time(make_run: MakeRun) -> None:
    lines = [head(7, 0.0), *steps(40, 10.0, forward=1.0), end(7, 50.0)]
    watts = [
        {"elapsed_seconds": float(second), "gpu_index": 0, "uuid": "GPU-1", "power_draw_watts": 100.0, "up": 1}
        for second in range(51)
    ]
    folder = make_run(training=lines, gpu=watts, seconds=50.0)
    report = make_report(folder, CountingOptions(price="3.6 EUR/h"))
    ledger = report.ledger
    assert ledger is not None and report.energy.total is not None
    assert ledger.classes["forward"].joules == pytest.approx(4000.0, rel=0.01)
    assert sum(part.joules or 0.0 for part in ledger.classes.values()) == pytest.approx(report.energy.total.joules)
    assert ledger.classes["startup"].money == pytest.approx(0.01)


def test_ranks_share_the_energy_of_a_run(make_run: MakeRun) -> None:
    lines = [
        line | {"rank": rank}
        for rank in (0, 1)
        for line in [head(7 + rank, 0.0), *steps(50, 0.0, forward=1.0), end(7 + rank, 50.0)]
    ]
    watts = [
        {"elapsed_seconds": float(second), "gpu_index": 0, "uuid": "GPU-1", "power_draw_watts": 100.0, "up": 1}
        for second in range(51)
    ]
    ledger = make_report(make_run(training=lines, gpu=watts, seconds=50.0)).ledger
    assert ledger is not None
    assert [rank.classes["forward"].joules for rank in ledger.ranks] == pytest.approx([2500.0, 2500.0], rel=0.01)
    assert ledger.seconds == pytest.approx(100.0)


def test_a_run_without_a_training_has_no_ledger(make_run: MakeRun) -> None:
    assert make_report(make_run(training=[{"step": 3, "loss": 1.0}])).ledger is None


def test_a_start_up_is_reported_by_its_parts_where_every_rank_reports_them(make_run: MakeRun) -> None:
    told = head(7, 0.0, interpreter_seconds=0.25, imports_seconds=2.5)
    ledger = ledger_of(make_run, [told, *steps(5, 4.0), end(7, 10.0)])
    assert ledger.startup == {"interpreter": 0.25, "imports": 2.5, "set_up": pytest.approx(1.25)}
    assert sum(ledger.startup.values()) == pytest.approx(ledger.classes["startup"].seconds)
    assert ledger_of(make_run, [head(7, 0.0), *steps(5, 4.0), end(7, 10.0)]).startup == {}
    longer = head(7, 0.0, interpreter_seconds=0.25, imports_seconds=9.0)  # one of them in a later step
    assert ledger_of(make_run, [longer, *steps(5, 4.0), end(7, 10.0)]).startup["set_up"] == 0.0
