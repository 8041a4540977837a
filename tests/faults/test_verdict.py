"""Real trainings with a known fault: it comes first in the verdict, and healthy ones get no warning.

The whole set, with several seeds and sizes, is `python -m benchmarks verdict`. Here are those that take a few seconds
and do not depend on how busy the machine is.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.faults.runs import BY_NAME, record

from pulsetrain.insight.report import Report
from pulsetrain.views.report import report_lines, report_markdown
from pulsetrain.views.summary import summary_lines
from pulsetrain.views.text import PLAIN

LONG_FORWARD_SECONDS = 0.03
"""In a healthy run: what the CPU is lost for on a busy machine is short beside it."""
Recorded = Callable[[str], Report]


@pytest.fixture(scope="session")
def recorded_run(user_python: str, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The report of a run of `runs.py`, which is run once for all tests that ask for it."""
    reports: dict[str, Report] = {}

    def recorded_run(name: str) -> Report:
        if name not in reports:
            kind, folder = BY_NAME[name], tmp_path_factory.mktemp(name)
            forward = 0.0 if kind.rule else LONG_FORWARD_SECONDS
            reports[name] = record(kind, user_python, folder, nvml_library, forward=forward)
        return reports[name]

    return recorded_run


@pytest.mark.parametrize(
    "name",
    [
        "InputBound-slow_loader",
        "NonFinite-nan",
        "GradientExplosion-exploding",
        "Stalled-stall",
        "Straggler-slow_rank",
        "ThermalThrottle-none",
    ],
)
def test_the_fault_comes_first(name: str, recorded_run: Recorded) -> None:
    verdict = recorded_run(name).verdict
    assert verdict is not None and verdict.main is not None
    assert verdict.main.rule == BY_NAME[name].rule, verdict
    assert verdict.findings[0] is verdict.main
    assert verdict.headline.startswith(verdict.main.summary)


def test_a_healthy_run_gets_no_warning(recorded_run: Recorded) -> None:
    verdict = recorded_run("healthy-scheduled").verdict
    assert verdict is not None and verdict.main is None
    assert [finding.rule for finding in verdict.findings if finding.severity != "info"] == []


def test_data_wait_has_its_cause_its_cost_and_its_gain(recorded_run: Recorded) -> None:
    report = recorded_run("InputBound-slow_loader")
    assert report.verdict and report.verdict.main and report.ledger
    finding = report.verdict.main
    assert "loaded by the training process itself" in finding.summary
    assert "num_workers" in finding.advice and "would save up to" in finding.advice
    assert finding.cost.seconds == pytest.approx(report.ledger.share("data_wait") * report.seconds)
    assert finding.cost.joules == report.ledger.classes["data_wait"].joules


def test_the_slow_rank_is_named_with_its_lag(recorded_run: Recorded) -> None:
    verdict = recorded_run("Straggler-slow_rank").verdict
    assert verdict and verdict.main
    lag = next(evidence for evidence in verdict.main.evidence if evidence.signal == "behind_seconds")
    assert lag.where["rank"] == 1 and lag.value >= 0.03


def test_a_stall_has_its_moment(recorded_run: Recorded) -> None:
    verdict = recorded_run("Stalled-stall").verdict
    assert verdict and verdict.main
    (silence,) = verdict.main.evidence
    assert silence.value >= 4.0
    assert silence.start_seconds is not None and silence.end_seconds is not None
    assert silence.end_seconds - silence.start_seconds == pytest.approx(silence.value, abs=0.01)


def test_every_surface_has_the_headline(recorded_run: Recorded) -> None:
    report = recorded_run("NonFinite-nan")
    assert report.verdict and report.verdict.main
    for text in (
        *(["\n".join(lines(report, PLAIN)) for lines in (summary_lines, report_lines)]),
        report_markdown(report),
    ):
        assert "The loss is NaN or infinite from step 81 on" in text
    document = msgspec.json.decode(msgspec.json.encode(report))["verdict"]
    assert document["main"] == document["findings"][0]
    assert document["main"]["rule"] == "NonFinite" and document["main"]["severity"] == "critical"
    assert document["main"]["cost"].keys() == {"seconds", "joules", "grams", "money"}
