"""What a rule says about a run, as scripts read it."""

import msgspec

from pulsetrain.rules.finding import Evidence, Finding, FindingCost
from pulsetrain.snapshot import severity_of

WAITS = Finding(
    rule="InputBound",
    severity="warning",
    confidence="high",
    summary="78 % of a step waits for data",
    evidence=(Evidence(signal="data_wait_seconds", value=0.78, unit="ratio", threshold=0.3, where={"rank": 1}),),
    cost=FindingCost(seconds=3600.0, money=2.5),
    advice="Four more workers would save about 50 min.",
)


def test_a_finding_as_json_has_all_its_parts_and_says_null_where_a_cost_is_unknown() -> None:
    assert msgspec.to_builtins(WAITS) == {
        "rule": "InputBound",
        "severity": "warning",
        "confidence": "high",
        "summary": "78 % of a step waits for data",
        "evidence": (
            {"signal": "data_wait_seconds", "value": 0.78, "unit": "ratio", "threshold": 0.3, "where": {"rank": 1}},
        ),
        "cost": {"seconds": 3600.0, "joules": None, "grams": None, "money": 2.5},
        "advice": "Four more workers would save about 50 min.",
    }


def test_a_finding_is_read_back_from_its_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(WAITS), type=Finding) == WAITS


def test_the_error_of_older_versions_is_critical_and_an_unknown_severity_is_info() -> None:
    recorded = ("info", "warning", "critical", "error", "fatal", None)
    assert [severity_of(one) for one in recorded] == ["info", "warning", "critical", "critical", "info", "info"]
