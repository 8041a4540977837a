"""Texts of rules: declared once, filled in by Python as by Prometheus."""

import subprocess
from pathlib import Path

import pytest
import yaml
from tests.servers import program

from pulsetrain.alerts.prometheus import template
from pulsetrain.rules.declared import RULES
from pulsetrain.rules.rule import Rule
from pulsetrain.rules.text import VALUE, amount_text, filled, pieces
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds

LABELS = {"currency", "gpu", "host", "instance", "part", "path", "rank", "run", "source", "xid"}
VALUES = (0, 0.0004, 0.25, 0.5, 1, 12.345, 59.99, 60, 93.5, 999.9, 1234.5, 86399, 100000, 3.6e6, -0.5, -75, -4000)
TEXT = "{gpu} {nowhere}: {value:.0f} {value:.2f} {value:percent} {value:duration} {value:si} {gpu_hot_celsius}"


def test_python_fills_a_text_as_prometheus_does(tmp_path: Path) -> None:
    """Each value is the series of a GPU of its own; promtool fills in the template of an alert on them."""
    written = {"text": template(TEXT, DEFAULTS)}
    rule = {"alert": "Any", "expr": "some > -Inf", "annotations": written}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}))
    expected = [
        {"exp_labels": {"gpu": str(n)}, "exp_annotations": {"text": filled(TEXT, {"gpu": str(n)}, value, DEFAULTS)}}
        for n, value in enumerate(VALUES)
    ]
    test = {
        "interval": "30s",
        "input_series": [{"series": f'some{{gpu="{n}"}}', "values": str(value)} for n, value in enumerate(VALUES)],
        "alert_rule_test": [{"alertname": "Any", "eval_time": "0s", "exp_alerts": expected}],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [test]}))
    command = [program("promtool"), "test", "rules", "test.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_message_names_where_how_much_and_the_threshold_of_the_user() -> None:
    (hot,) = (rule for rule in RULES if (rule.name, rule.severity) == ("GpuHot", "warning"))
    labels = {"gpu": "3", "host": "gpu01", "uuid": "GPU-3"}
    assert filled(hot.summary, labels, 84.6, DEFAULTS) == "GPU 3 on gpu01 is at 85 °C"
    assert filled(hot.description, labels, 84.6, Thresholds(gpu_hot_celsius=75)).startswith("Above 75 °C.")


def test_a_percentage_has_a_space_before_its_sign() -> None:
    (low,) = (rule for rule in RULES if rule.name == "InputBound")
    assert filled(low.summary, {"run": "r1"}, 0.4138, DEFAULTS) == "Run r1 waits for data 41.38 % of its time"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name} {rule.severity}")
def test_texts_name_only_labels_the_value_and_thresholds_of_the_rule(rule: Rule) -> None:
    known = {VALUE, *LABELS, *rule.thresholds}
    for text in (rule.summary, rule.description):
        assert {piece.name for piece in pieces(text)} - {None} <= known
    assert not [piece for piece in pieces(rule.advice) if piece.name], "advice is the same for all"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (4.56, "4.56"), (999.6, "1,000"), (8100.4, "8,100"), (-1794, "-1,790"), (3e7, "3e+07")],
)
def test_an_amount_has_three_digits_and_below_a_million_no_exponent(value: float, text: str) -> None:
    assert amount_text(value) == text
