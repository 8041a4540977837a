"""Better, worse, the same, and what cannot be told."""

from xml.etree import ElementTree

import numpy as np
import pytest
from tests.bench_results import bench_result as result

from pulsetrain.bench.gate import exit_code, gate
from pulsetrain.bench.junit import gate_xml
from pulsetrain.errors import UsageError

STEADY = [10.0, 10.02, 9.98, 10.01, 9.99]


def times(factor: float) -> list[float]:
    return [factor * value for value in STEADY]


@pytest.mark.parametrize(
    ("seconds", "verdict", "code"),
    [
        (times(1.0), "same", 0),
        (times(1.02), "same", 0),  # certain, and within the margin
        (times(1.05), "worse", 1),
        (times(0.9), "better", 0),
        ([10.5, 10.6], "cannot tell", 3),
        ([7.0, 13.0, 10.0, 8.0, 12.0], "cannot tell", 3),
    ],
)
def test_the_gate_wants_more_than_noise_and_more_than_the_margin(seconds: list[float], verdict: str, code: int) -> None:
    found = gate([result(seconds=STEADY)], [result(seconds=seconds)])
    assert ([one.verdict for one in found], exit_code(found)) == ([verdict], code)


def test_too_much_noise_says_how_many_runs_would_tell() -> None:
    (found,) = gate([result(seconds=STEADY)], [result(seconds=[9.5, 10.5, 10.0, 9.7, 10.3])])
    assert "runs on each side would settle it" in found.figures[0].reason


def test_energy_and_memory_fail_the_gate_as_time_does() -> None:
    base = result(seconds=STEADY, joules=times(100), memory_bytes=[1000.0] * 5)
    (found,) = gate([base], [result(seconds=STEADY, joules=times(110), memory_bytes=[1100.0] * 5)])
    assert {figure.key: figure.verdict for figure in found.figures} == {
        "seconds": "same",
        "joules": "worse",
        "memory_bytes": "worse",
    }
    (found,) = gate(
        [base], [result(seconds=STEADY, joules=times(110), memory_bytes=[1000.0] * 5)], only=["memory_bytes"]
    )
    assert found.verdict == "same"


def test_a_score_that_falls_is_worse_unless_lower_is_better() -> None:
    (found,) = gate([result(score=times(1.0))], [result(score=times(0.9))])
    assert found.verdict == "worse"
    (found,) = gate([result(score=times(1.0))], [result(score=times(0.9), score_better="lower")])
    assert found.verdict == "better"


def test_a_failed_run_never_passes() -> None:
    (found,) = gate([result(seconds=STEADY)], [result(status="failed", seconds=STEADY)])
    assert found.verdict == "worse" and "exit code 3" in found.reason


def test_other_gpus_cannot_be_compared() -> None:
    (found,) = gate([result(seconds=STEADY, gpus=("NVIDIA L4",))], [result(seconds=STEADY, gpus=("NVIDIA H100",))])
    assert found.verdict == "cannot tell" and "GPUs NVIDIA L4 in the baseline, NVIDIA H100 now" in found.reason


def test_suites_are_gated_by_name() -> None:
    base = [result("a", seconds=STEADY), result("b", seconds=STEADY), result("gone", seconds=STEADY)]
    found = gate(base, [result("b", seconds=times(2)), result("a", seconds=STEADY)])
    assert {one.name: one.verdict for one in found} == {"a": "same", "b": "worse", "gone": "cannot tell"}
    assert exit_code(found) == 1
    with pytest.raises(UsageError, match="no benchmark in common"):
        gate([result("x", seconds=STEADY)], [result("a", seconds=STEADY), result("b", seconds=STEADY)])


def test_junit_has_failures_for_what_is_worse_and_skips_what_is_unknown() -> None:
    base = [result("a", seconds=STEADY), result("b", seconds=STEADY)]
    document = gate_xml(gate(base, [result("a", seconds=times(2)), result("b", seconds=[1.0])]))
    (suite,) = ElementTree.fromstring(document)
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "1")
    (failure,) = suite.findall("testcase/failure")
    assert "+100.0 %" in (failure.get("message") or "")


@pytest.mark.parametrize(("noise", "runs", "least_found"), [(0.01, 5, 0.99), (0.02, 10, 0.94), (0.03, 20, 0.94)])
def test_the_documented_number_of_runs_finds_5_percent_and_raises_no_false_alarm(
    noise: float, runs: int, least_found: float
) -> None:
    """As docs/bench.md tells, in its table of the gate's power."""
    rng = np.random.default_rng(7)

    def verdicts(factor: float) -> list[str]:
        pairs = [(rng.lognormal(0, noise, runs), factor * rng.lognormal(0, noise, runs)) for _ in range(200)]
        return [gate([result(seconds=list(a))], [result(seconds=list(b))])[0].verdict for a, b in pairs]

    changed, unchanged = verdicts(1.05), verdicts(1.0)
    assert changed.count("worse") >= least_found * 200 and changed.count("same") <= 2
    assert unchanged.count("worse") <= 4 and unchanged.count("same") >= 150
