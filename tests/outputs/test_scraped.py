"""What a real Prometheus makes of a scraped run and of a scraped node."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.nvml.scenario import Scenario
from tests.servers import Prometheus, free_port
from tests.waiting import eventually

from pulsetrain.alerts.prometheus import render_rules

Start = Callable[..., subprocess.Popen[str]]

STEPS = """
import itertools, os, sys, time, pulsetrain
for step in itertools.count(1):
    if os.path.exists(sys.argv[1]):
        break
    time.sleep(0.05)
    pulsetrain.log(step=step, loss=1 / step, step_seconds=0.05, samples=32, accuracy=step / 1000)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A pulsetrain in the background, ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environ: str) -> subprocess.Popen[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PULSETRAIN_", "CUDA_", "NVIDIA_"))}
        process = subprocess.Popen(
            [sys.executable, "-m", "pulsetrain", *arguments],
            env={**kept, "PULSETRAIN_HOME": str(tmp_path / "home"), **environ},
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        if process.stderr and not process.stderr.closed:
            process.communicate()


def steps(stop: Path) -> list[str]:
    """A training that reports its steps itself, until there is such a file."""
    return ["--", sys.executable, "-c", STEPS, str(stop)]


def lines(home: Path, table: str) -> list[dict[str, Any]]:
    files = home.glob(f"runs/*/*/{table}_metrics_*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def samples(server: Prometheus, selector: str) -> dict[float, float]:
    """All that was scraped of one series, by time."""
    found = server.query(f"{selector}[10m]")
    return {time: float(value) for series in found for time, value in series["values"]}


def often_scraped(server: Prometheus, selector: str) -> bool:
    return len(set(samples(server, selector).values())) >= 4


def test_what_prometheus_has_of_a_run_are_the_values_of_its_lines(tmp_path: Path, start: Start) -> None:
    port = free_port()
    with Prometheus(tmp_path / "prometheus", targets=[f"127.0.0.1:{port}"]) as server:
        assert eventually(lambda: server.query("up"))  # it takes some seconds before it scrapes
        options = ["--simulate", "8xH100", "--name", "resnet", "--tag", "team=vision", "--prometheus-port", str(port)]
        run = start("run", *options, "--names", "native,dcgm,nvidia_smi", *steps(tmp_path / "stop"))
        for selector in ('gpu_power_draw_watts{gpu="3"}', "training_steps_total"):
            assert eventually(partial(often_scraped, server, selector))
        (tmp_path / "stop").touch()
        assert run.wait() == 0
        gpus, reports = lines(tmp_path / "home", "gpu"), lines(tmp_path / "home", "training")
        (info,) = server.query("last_over_time(run_info[10m])")
        assert {"name": "resnet", "tag_team": "vision", "status": "running"}.items() <= info["metric"].items()
        scraped = samples(server, 'gpu_power_draw_watts{gpu="3"}')
        drawn = {line["power_draw_watts"] for line in gpus if line["gpu_index"] == 3}
        assert set(scraped.values()) <= drawn
        assert samples(server, 'DCGM_FI_DEV_POWER_USAGE{gpu="3"}') == scraped
        assert len(server.query("last_over_time(nvidia_smi_power_draw_watts[10m])")) == 8
        loss_at = {line["step"]: line["loss"] for line in reports if "step" in line}
        done, loss = samples(server, "training_steps_total"), samples(server, "training_loss")
        assert [loss[time] for time in done] == [loss_at[step] for step in done.values()]
        assert samples(server, "training_step_duration_seconds_count") == done
        assert samples(server, "training_samples_total") == {time: 32 * step for time, step in done.items()}
        assert eventually(lambda: server.query("gpu_up") == [])  # the run has ended: its series are stale


def test_the_series_of_a_lost_gpu_go_stale_and_come_back_with_it(
    tmp_path: Path, start: Start, nvml_library: Path
) -> None:
    port = free_port()
    away = tmp_path / "away"
    scenario = Scenario().gpus(2, "H100").lost_while(1, away)
    with Prometheus(tmp_path / "prometheus", targets=[f"127.0.0.1:{port}"]) as server:
        nvml = scenario.environment(nvml_library, tmp_path / "scenario")
        start("watch", "--quiet", "--prometheus-port", str(port), **nvml)

        def seen_gpus() -> set[str]:
            return {series["metric"]["gpu"] for series in server.query("gpu_power_draw_watts")}

        assert eventually(lambda: seen_gpus() == {"0", "1"})
        away.touch()
        assert eventually(lambda: seen_gpus() == {"0"})

        def lost_gpu() -> dict[str, str]:
            found = server.query('{gpu="1", __name__=~"gpu_.*"}')
            return {series["metric"]["__name__"]: series["value"][1] for series in found}

        assert eventually(lambda: lost_gpu() == {"gpu_up": "0"})  # an answer that was under way may come after the loss
        assert eventually(lambda: server.query('pulsetrain_events_total{kind="gpu_lost"} == 1'))
        away.unlink()
        assert eventually(lambda: seen_gpus() == {"0", "1"})


def test_the_xid_by_which_a_gpu_is_lost_is_still_scraped_with_its_code_and_fires(
    tmp_path: Path, start: Start, nvml_library: Path
) -> None:
    port, rules = free_port(), tmp_path / "rules.yml"
    rules.write_text(render_rules())
    scenario = Scenario().gpus(2, "H100").lost(1, 4).xid(1, 79, 4)
    with Prometheus(tmp_path / "prometheus", [f"127.0.0.1:{port}"], [rules]) as server:
        nvml = scenario.environment(nvml_library, tmp_path / "scenario")
        start("watch", "--quiet", "--prometheus-port", str(port), **nvml)
        firing = 'ALERTS{alertname="GpuXidError", alertstate="firing", gpu="1"}'
        assert eventually(lambda: server.query(firing))
        (alert,) = server.query(firing)
        assert (alert["metric"]["xid"], alert["metric"]["severity"]) == ("79", "critical")
        assert eventually(lambda: server.query('gpu_up{gpu="1"} == 0'))
        (counted,) = server.query('gpu_xid_code_errors_total{gpu="1"}')
        assert (counted["metric"]["xid"], counted["value"][1]) == ("79", "1")


def test_the_agent_of_a_node_shows_all_runs_in_progress_and_forgets_those_that_end(
    tmp_path: Path, start: Start
) -> None:
    port = free_port()
    with Prometheus(tmp_path / "prometheus", targets=[f"127.0.0.1:{port}"]) as server:
        start("watch", "--quiet", "--simulate", "2xL4", "--prometheus-port", str(port))
        assert eventually(lambda: server.query("up == 1"))
        short = start("run", "--name", "short", *steps(tmp_path / "stop"))
        start("run", "--name", "long", *steps(tmp_path / "never"))

        def trained() -> set[str]:
            query = "training_loss * on (run) group_left (name) run_info"
            return {series["metric"]["name"] for series in server.query(query)}

        assert eventually(lambda: trained() == {"short", "long"})
        assert eventually(lambda: "run" not in server.query('gpu_up{gpu="0"}')[0]["metric"])
        (tmp_path / "stop").touch()
        short.wait()
        assert eventually(lambda: trained() == {"long"})


def test_a_taken_port_stops_the_command_before_it_starts_and_leaves_no_run(tmp_path: Path, start: Start) -> None:
    first = start("watch", "--json", "--prometheus-port", "0")
    assert first.stderr
    said = first.stderr.readline()
    port = re.search(r":(\d+)/metrics", said)
    assert port, said
    second = start("run", "--prometheus-port", port[1], "--", "touch", "started")
    _, errors = second.communicate()
    assert second.returncode == 1
    assert f"cannot listen on 127.0.0.1, port {port[1]}: Address already in use" in errors
    assert not (tmp_path / "started").exists()
    assert list((tmp_path / "home/runs").iterdir()) == []
