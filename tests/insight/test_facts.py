"""The facts of one run, without another to compare it with."""

from collections.abc import Callable

import numpy as np
import pytest

from pulsetrain.insight.facts import Facts
from pulsetrain.insight.report import study
from pulsetrain.insight.steps import StepFacts
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import CountingOptions, RunFolder

MakeRun = Callable[..., RunFolder]


def facts_of(run: RunFolder, account: CountingOptions | None = None) -> Facts:
    return study(Database([run]), run, account).facts


def steps_of(run: RunFolder) -> StepFacts:
    steps = facts_of(run).steps
    assert steps is not None
    return steps


def test_the_warm_up_is_left_out(make_run: MakeRun) -> None:
    lines = [{"step": n, "step_seconds": 5.0 if n < 10 else 0.01, "elapsed_seconds": 50.0 + n} for n in range(200)]
    steps = steps_of(make_run(training=lines))
    assert (steps.warm_up, steps.count) == (10, 190)
    assert steps.mean_seconds == pytest.approx(0.01)


def test_only_the_steps_of_the_first_rank_are_taken(make_run: MakeRun) -> None:
    lines = [
        {"rank": rank, "step_seconds": 0.1 + rank, "elapsed_seconds": float(n)} for n in range(40) for rank in (0, 1)
    ]
    assert set(steps_of(make_run(training=lines)).seconds) == {0.1}


def test_a_run_without_steps_has_facts_of_its_machine(make_run: MakeRun) -> None:
    host = [{"elapsed_seconds": float(n), "cpu_ratio": 0.5, "cpu_cores": 8, "job_cpu_cores": 1.0} for n in range(3)]
    facts = facts_of(make_run(host=host))
    assert facts.steps is None
    assert (facts.machine.cpu_share, facts.machine.cpu_cores, facts.machine.others_cores) == (0.5, 8, 3.0)
    assert facts.machine.gpu_busy_share is None and not facts.timeline.seconds.size


def test_the_machine_is_that_of_the_time_between_the_first_step_and_the_last(make_run: MakeRun) -> None:
    gpu = [
        {"elapsed_seconds": float(n), "gpu_index": 0, "uuid": "GPU-0", "up": 1}
        | {"utilization_percent": 80.0 if 10 <= n <= 20 else 0.0}
        for n in range(60)
    ]
    training = [{"step": n, "step_seconds": 1.0, "elapsed_seconds": 11.0 + n} for n in range(10)]
    assert facts_of(make_run(gpu=gpu, training=training)).machine.gpu_busy_share == pytest.approx(0.8)


def test_time_between_steps_is_outside_of_them(make_run: MakeRun) -> None:
    training = [{"step": n, "step_seconds": 1.0, "elapsed_seconds": 4.0 * n} for n in range(1, 41)]
    steps = steps_of(make_run(training=training))
    assert (steps.began, steps.ended, steps.outside) == (3.0, 160.0, 117.0)
    assert steps.outside_share == pytest.approx(117 / 157)


def test_energy_is_that_of_all_charged_devices_over_time(make_run: MakeRun) -> None:
    gpu = [
        {"elapsed_seconds": float(n), "gpu_index": index, "uuid": f"GPU-{index}", "up": 1, "energy_joules": 300.0 * n}
        for n in range(10)
        for index in (0, 1)
    ]
    curve = facts_of(make_run(gpu=gpu), CountingOptions(pue=2.0)).energy
    assert np.allclose(curve.joules_between(2.0, 5.0), 1800.0)


def test_a_gpu_is_idle_up_to_the_threshold(make_run: MakeRun) -> None:
    run = make_run(
        gpu=[
            {"elapsed_seconds": float(n), "gpu_index": index, "uuid": f"GPU-{index}", "up": 1}
            | {"utilization_percent": busy, "energy_joules": 100.0 * n}
            for n in range(10)
            for index, busy in enumerate((0.0, 1.0, 3.0, 90.0))
        ]
    )
    for limit, joules in ((1.0, 1800), (3.0, 2700)):
        found = study(Database([run]), run, thresholds=Thresholds(idle_percent=limit))
        assert found.report.energy.gpu_idle_joules == pytest.approx(joules)
