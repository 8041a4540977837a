"""A run of which all is known has the same speed on every surface: summary, report, JSON, page, compare, top."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from pulsetrain.insight.report import make_report
from pulsetrain.runs.folder import RunFolder
from pulsetrain.views.summary import summary_lines
from pulsetrain.views.text import PLAIN

Pulsetrain = Callable[..., CompletedProcess[str]]
Line = dict[str, Any]

PARTS = {"data_wait": 0.025, "forward": 0.1, "backward": 0.1, "optimizer": 0.025, "other": 0.0}
"""Seconds of a steady step of 0.25 s."""
STARTED, COMPILED, VALIDATED = 3.0, 45.0, 4.0


def training_lines(rank: int) -> list[Line]:
    """60 steps of 16 samples: the first compiles for 45 s, and two have a validation of 4 s inside."""
    lines: list[Line] = []
    now = STARTED
    for step in range(1, 61):
        parts = dict(PARTS)
        if step == 1:
            parts["optimizer"] += COMPILED
        if step in (30, 50):
            begin = now + 0.0
            parts["other"] += VALIDATED
            lines.append({"rank": rank, "elapsed_seconds": begin + VALIDATED, "step": step - 1, "phase": "validation"})
            lines[-1]["phase_seconds"] = VALIDATED
        seconds = sum(parts.values())
        now += seconds
        line = {"rank": rank, "elapsed_seconds": now, "step": step, "step_seconds": seconds, "samples": 16, "loss": 1.0}
        lines.append(line | {f"{part}_seconds": length for part, length in parts.items()})
    return lines


@pytest.fixture
def run(make_run: Callable[..., RunFolder], home: Path) -> RunFolder:
    """Two ranks on two GPUs of 100 W each, 300 W while it compiles and validates."""
    training = [line for rank in (0, 1) for line in training_lines(rank)]
    busy = [(line["elapsed_seconds"] - VALIDATED, line["elapsed_seconds"]) for line in training if "phase" in line]
    busy.append((STARTED, STARTED + COMPILED))
    gpu, joules = [], 0.0
    for tick in range(4 * 75):
        now = tick / 4
        for index in (0, 1):
            labels = {"gpu_index": index, "uuid": f"GPU-{index}", "name": "NVIDIA L4", "up": 1}
            gpu.append(labels | {"elapsed_seconds": now, "energy_joules": joules, "utilization_percent": 50.0})
        joules += 0.25 * (300.0 if any(begin <= now < end for begin, end in busy) else 100.0)
    return make_run("20261116-120000-agreed-aaaa", name="agreed", home=home / "runs", training=training, gpu=gpu)


def test_speed_shares_and_energy_per_step_agree_on_all_surfaces(pulsetrain: Pulsetrain, run: RunFolder) -> None:
    answers = [pulsetrain("report", "agreed", "--json"), pulsetrain("compare", "agreed", "agreed", "--json")]
    report, comparison = (json.loads(answer.stdout) for answer in answers)
    training, energy = report["summary"]["training"], report["energy"]
    figures = {figure["key"]: figure for figure in comparison["figures"]}

    assert training["step_seconds_mean"] == pytest.approx(0.25)
    assert training["steady_steps"] == 48
    for key in ("step_seconds_mean", "step_seconds_p50", "step_seconds_p95", "samples_per_second"):
        assert figures[key]["values"][0] == pytest.approx(training[key])
    assert training["samples_per_second"] == pytest.approx(64.0)
    assert training["all_ranks_samples_per_second"] == pytest.approx(128.0)
    assert figures["all_ranks_samples_per_second"]["values"][0] == pytest.approx(128.0)
    for part, seconds in PARTS.items():
        assert training[f"{part}_share"] == pytest.approx(seconds / 0.25, abs=1e-9)
        assert figures[f"{part}_seconds"]["shares"][0] == pytest.approx(seconds / 0.25, abs=1e-9)
    assert energy["joules_per_step"] == pytest.approx(50.0, rel=0.03)
    assert figures["joules_per_step"]["values"][0] == pytest.approx(energy["joules_per_step"])
    assert energy["joules_per_sample"] == pytest.approx(energy["joules_per_step"] / 32)


def test_the_same_words_are_in_the_summary_the_report_the_page_and_top(
    pulsetrain: Pulsetrain, run: RunFolder, tmp_path: Path
) -> None:
    summary = "\n".join(summary_lines(make_report(run), PLAIN))
    text = pulsetrain("report", "agreed").stdout
    markdown = pulsetrain("report", "agreed", "--markdown").stdout
    pulsetrain("report", "agreed", "--html", "--output", str(tmp_path))
    page = (tmp_path / "report.html").read_text()
    rest = "of 60 steps, 10 warm-up (47.5 s) and 2 with validation excluded; start-up 3.00 s, validation 8.00 s"
    for shown in (summary, text, markdown, page):
        assert "128 samples/s on 2 ranks (64.0 samples/s on the first)" in shown
        assert "250 ms a step (median 250 ms, p95 250 ms)" in shown
        assert "waiting for data 10 %, forward 40 %, backward 40 %, optimizer 10 %, other 0 %" in shown
        assert rest in shown
    top = pulsetrain("top", "agreed", "--once").stdout
    assert re.search(r"step 250 ms +128 samples/s", top)
    assert re.search(r"data wait 10 % .* forward 40 % .* backward 40 % .* optimizer 10 %", top)
