"""Why figures of a training are missing."""

from collections.abc import Callable

from pulsetrain.insight.report import make_report
from pulsetrain.runs.folder import RunFolder

MakeRun = Callable[..., RunFolder]
NORM = "The gradient norm is not recorded: FSDP splits gradients across ranks."


def test_what_the_recorder_could_not_see_is_said_once_for_all_ranks(make_run: MakeRun) -> None:
    events = [{"kind": "not_seen", "severity": "info", "message": NORM, "rank": rank} for rank in (0, 1)]
    events.append({"kind": "gap", "severity": "warning", "message": "host: 3 ticks missed"})
    assert make_report(make_run(events=events)).missing == [NORM]


def test_without_batches_and_parts_a_training_says_so(make_run: MakeRun) -> None:
    run = make_run(training=[{"step": n, "step_seconds": 1.0, "other_seconds": 1.0} for n in range(1, 4)])
    assert make_report(run).missing == [
        "The parts of a step are not known: only whole steps were reported.",
        "The throughput is not known: no batch was seen.",
    ]


def test_a_training_of_which_all_was_seen_misses_nothing(make_run: MakeRun) -> None:
    step = {"step_seconds": 1.0, "forward_seconds": 0.5, "other_seconds": 0.5, "samples": 8}
    assert make_report(make_run(training=[step | {"step": n} for n in range(1, 4)])).missing == []
