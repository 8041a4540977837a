"""The steady steps of a run in view are those of its report."""

import json
from collections.abc import Callable

from tests.waiting import eventually

from pulsetrain.insight.report import study
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Host, RunFolder
from pulsetrain.views.live.machines import machines_of
from pulsetrain.views.live.progress import RunProgress
from pulsetrain.views.live.steady import SteadySteps

MakeRun = Callable[..., RunFolder]
STEPS = [{"step": n, "step_seconds": 9.0 if n == 1 else 1.0, "elapsed_seconds": 8.0 + n} for n in range(1, 13)]


def test_the_steps_of_a_run_that_has_ended_are_read_once(make_run: MakeRun) -> None:
    run = make_run(training=STEPS)
    steps = SteadySteps(run)
    steps.start()
    assert eventually(steps.read_once.is_set)
    expected = study(Database([run]), run).facts.steps
    assert steps.facts is not None and expected is not None
    assert (steps.facts.count, steps.facts.mean_seconds) == (expected.count, expected.mean_seconds) == (11, 1.0)


def test_the_machines_of_a_run_share_its_steps_and_a_past_moment_has_none(make_run: MakeRun) -> None:
    run = make_run(training=STEPS, host=[{"elapsed_seconds": float(n), "cpu_ratio": 0.5} for n in range(21)])
    (machine,) = machines_of(run)
    machine.start()
    assert machine.steady is not None
    assert eventually(machine.steady.read_once.is_set) and eventually(lambda: machine.snapshots > 0)
    assert eventually(lambda: RunProgress([machine]).steps is not None)
    assert machine.now is not None and RunProgress([machine], machine.now).steps is None
    machine.stop()


def test_a_run_in_progress_is_read_again(make_run: MakeRun) -> None:
    run = make_run(training=STEPS, host_name="gpu01", status="running", hosts={"gpu01": Host(pid=1)})
    steps = SteadySteps(run, period_seconds=0.01)
    steps.start()
    assert eventually(lambda: steps.facts is not None and steps.facts.total == len(STEPS))
    line = STEPS[-1] | {"timestamp": "2026-11-16T12:00:21Z", "elapsed_seconds": 21.0, "step": 13}
    (file,) = run.files("training")
    with file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")
    assert eventually(lambda: steps.facts is not None and steps.facts.total == len(STEPS) + 1)
    steps.stop()


def test_a_run_that_cannot_be_read_has_no_steps_and_is_tried_again(make_run: MakeRun) -> None:
    run = make_run(training=STEPS)
    about = (run.path / "run.json").read_bytes()
    (run.path / "run.json").write_text("{")
    steps = SteadySteps(run, period_seconds=0.01)
    steps.start()
    assert eventually(steps.read_once.is_set) and steps.facts is None
    (run.path / "run.json").write_bytes(about)
    assert eventually(lambda: steps.facts is not None)
