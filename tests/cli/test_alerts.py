"""Alerts of real runs: on every surface, listed, silenced."""

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Pulsetrain
from tests.waiting import eventually

HOT = "[thresholds]\ngpu_hot_celsius = 1\n[thresholds.hold]\nGpuHot = '0'\n"
NAN_LOOP = """
import time, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    inputs = torch.randn(8, 4) * (float("nan") if step > 9 else 1.0)
    loss = (model(inputs) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.03)
"""


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in path.rglob("events.jsonl") for line in file.read_text().splitlines()]


def test_a_training_that_goes_nan_is_an_alert_of_its_run(pulsetrain: Pulsetrain, home: Path, user_python: str) -> None:
    done = pulsetrain("run", "--simulate", "1xL4", "--", user_python, "-c", NAN_LOOP)
    assert done.returncode == 0, done.stderr
    (alert,) = [event for event in lines(home) if event["kind"] == "alert_firing"]
    assert (alert["rule"], alert["severity"], alert["value"]) == ("NonFinite", "critical", 1)
    assert "critical: The loss of run" in done.stderr
    assert "alerts  NonFinite (critical) after" in done.stderr
    assert "to the end" in done.stderr
    report = json.loads(pulsetrain("report", "--json").stdout)
    assert [(one["rule"], one["severity"]) for one in report["alerts"]] == [("NonFinite", "critical")]
    assert "NonFinite: Stop it" in pulsetrain("report").stdout
    listed = json.loads(pulsetrain("alerts", "--json").stdout)
    assert listed["firing"] == []
    assert listed["before"][0]["rule"] == "NonFinite"


def test_an_alert_is_on_every_surface_until_it_is_silenced(
    pulsetrain: Pulsetrain, home: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pulsetrain.toml").write_text(HOT)
    run = subprocess.Popen(
        [sys.executable, "-m", "pulsetrain", "run", "--quiet", "--simulate", "2xL4", "--", "sleep", "300"],
        env=environment,
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert eventually(lambda: len(lines(home)) >= 2)
        listed = json.loads(pulsetrain("alerts", "last", "--json").stdout)
        assert {(one["rule"], one["labels"]["gpu_index"]) for one in listed["firing"]} == {("GpuHot", 0), ("GpuHot", 1)}
        assert "GPU 1 on" in pulsetrain("alerts").stdout
        shown = eventually(lambda: "Alerts" in (top := pulsetrain("top", "last", "--once").stdout) and top)
        assert "GpuHot  GPU 0 on" in shown
        silenced = pulsetrain("alerts", "silence", "gpuhot", "--for", "2h", "--run", "last")
        assert "GpuHot for 2" in silenced.stdout
        assert "is silenced until" in silenced.stdout
        assert eventually(lambda: [e["kind"] for e in lines(home)].count("alert_silenced") == 2)
        assert pulsetrain("alerts").stdout.startswith("no alerts are firing")
        assert pulsetrain("alerts", "unsilence", "GpuHot", "--run", "last").returncode == 0
        assert eventually(lambda: [e["kind"] for e in lines(home)].count("alert_firing") == 4)
    finally:
        run.terminate()
        run.wait()


def test_top_of_this_machine_has_alerts_by_the_thresholds_of_the_user(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    (tmp_path / "pulsetrain.toml").write_text(HOT)
    shown = pulsetrain("top", "--simulate", "1xL4", "--once").stdout
    assert "GpuHot  GPU 0 on" in shown


def test_wrong_names_get_a_clear_answer(pulsetrain: Pulsetrain) -> None:
    unknown = pulsetrain("alerts", "silence", "GpuHut")
    assert unknown.returncode == 2
    assert "unknown rule: GpuHut" in unknown.stderr
    assert "Did you mean GpuHot or GpuLost? All rules: docs/alerts.md.\n" in unknown.stderr
    assert "is not a duration such as" in pulsetrain("alerts", "silence", "GpuHot", "--for", "soon").stderr
    assert "GpuHot is not silenced" in pulsetrain("alerts", "unsilence", "GpuHot").stderr
    assert pulsetrain("alerts", "silense").returncode == 2
    assert pulsetrain("alerts").stdout == "no alerts are firing\n"
