"""`pulsetrain bench` of commands, and its gate, as a user meets them."""

import base64
import importlib
import json
import os
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from tests.bench_results import bench_result
from tests.servers import VictoriaMetrics
from tests.waiting import eventually

from pulsetrain.bench.results import Results, save

Pulsetrain = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).parents[2]
BENCH = ("bench", "--simulate", "1xL4", "--carbon-region", "250", "--interval", "0.5", "--no-plot")


def results(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return document


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> tuple["subprocess.CompletedProcess[str]", Path]:
    """Two runs of a benchmark after a warm-up; the second prints to the terminal as a progress bar does."""
    folder = tmp_path_factory.mktemp("bench")
    script = (
        "x = bytearray(300_000_000)\nprint('  0%\\r100%\\naccuracy: 0.75', flush=True)\nimport time; time.sleep(0.5)"
    )
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pulsetrain",
                *BENCH[:-1],
                "--repeat",
                "2",
                "--warm-up",
                "1",
                "--junit",
                "bench.xml",
            ),
            *(
                "--score",
                r"accuracy: (\S+)",
                "--env",
                "API_TOKEN=hush-4711-very-long",
                "--",
                sys.executable,
                "-c",
                script,
            ),
        ],
        cwd=folder,
        env={**os.environ, "PULSETRAIN_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done, folder


def test_a_benchmark_prints_the_older_tools_tables_and_the_spread(
    repeated: tuple["subprocess.CompletedProcess[str]", Path],
) -> None:
    done, _ = repeated
    for title in ("GPU and Carbon Performance Results", "Carbon Information", "GPU Information"):
        assert title in done.stdout
    assert "2 runs after 1 warm-up run" in done.stdout and "median" in done.stdout


def test_results_are_kept_in_a_folder_and_as_runs(
    repeated: tuple["subprocess.CompletedProcess[str]", Path],
) -> None:
    _, folder = repeated
    found = folder / "results"
    assert (found / "metrics_plot.png").read_bytes().startswith(b"\x89PNG")
    assert (found / "repeat-1/output.log").read_text() == "100%\naccuracy: 0.75\n"
    assert list((found / "repeat-2").glob("gpu_metrics_*.jsonl"))
    assert len(list((folder / "home/runs").iterdir())) == 3
    metrics = yaml.safe_load((found / "metrics.yml").read_text())
    assert metrics["status"] == "finished" and metrics["exit_code"] == 0
    assert metrics["benchmark"]["surroundings"]["power_limit_watts"] == [72.0]
    assert metrics["benchmark"]["repeat"]["energy_source"].startswith("simulated, ")
    (result,) = results(found)["benchmarks"]
    assert [repeat["warm_up"] for repeat in result["repeats"]] == [True, False, False]
    assert result["figures"]["score"]["values"] == [0.75, 0.75]
    assert min(result["figures"]["memory_bytes"]["values"]) > 300_000_000
    assert min(result["figures"]["seconds"]["values"]) >= 0.5
    assert "hush" not in (found / "results.json").read_text()
    (suite,) = ElementTree.fromstring((folder / "bench.xml").read_bytes())
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")


def test_the_gate_answers_by_its_exit_code(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    for name, factor in (("base", 1.0), ("worse", 1.2), ("same", 1.001)):
        seconds = [factor * value for value in (1.0, 1.001, 0.999, 1.002, 1.0)]
        save(Results(start=datetime.now(UTC), benchmarks=[bench_result(seconds=seconds)]), tmp_path / name)
    save(Results(start=datetime.now(UTC), benchmarks=[bench_result(seconds=[1.0, 1.2])]), tmp_path / "few")
    codes = {name: pulsetrain("bench", "gate", "base", name).returncode for name in ("same", "worse", "few")}
    assert codes == {"same": 0, "worse": 1, "few": 3}
    done = pulsetrain("bench", "gate", "base", "worse", "--json", "--junit", "gate.xml")
    assert json.loads(done.stdout)[0]["figures"][0]["verdict"] == "worse"
    assert b'failures="1"' in (tmp_path / "gate.xml").read_bytes()
    assert "no benchmark 'b'" in pulsetrain("bench", "gate", "base:b", "worse").stderr
    assert "cannot be read" in pulsetrain("bench", "gate", "nowhere").stderr


def test_a_failure_and_a_timeout_leave_results_marked_so_and_the_rest_of_a_suite_runs(
    pulsetrain: Pulsetrain, tmp_path: Path
) -> None:
    (tmp_path / "suite.toml").write_text(
        f"""
        repeat = 2
        [benchmarks.good]
        command = ["{sys.executable}", "-c", "print(1)"]
        [benchmarks.bad]
        command = ["{sys.executable}", "-c", "raise SystemExit(7)"]
        [benchmarks.slow]
        command = ["sleep", "600"]
        timeout = 0.5
        [benchmarks.missing]
        command = "no-such-command"
        """
    )
    (tmp_path / "out/good/repeat-9").mkdir(parents=True)
    (tmp_path / "out/good/repeat-9/output.log").touch()  # of an earlier benchmark
    done = pulsetrain(*BENCH, "--results", "out", "suite.toml", "--json")
    assert done.returncode == 1, done.stderr
    found = {one["benchmark"]["name"]: one for one in json.loads(done.stdout)["benchmarks"]}
    states = {name: [(r["status"], r["exit_code"]) for r in one["repeats"]] for name, one in found.items()}
    assert states == {
        "good": [("finished", 0), ("finished", 0)],
        "bad": [("failed", 7)],
        "slow": [("timed out", 124)],
        "missing": [("failed", 127)],
    }
    assert not (tmp_path / "out/good/repeat-9").exists()
    assert (tmp_path / "out/slow/metrics.yml").exists() and (tmp_path / "out/good/repeat-2/output.log").exists()


def _recorded(folder: Path) -> bool:
    return any(file.stat().st_size for file in folder.glob("home/runs/*/*/host_metrics_*.jsonl"))


def test_ctrl_c_ends_the_command_and_keeps_what_there_is(environment: dict[str, str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pulsetrain", *BENCH, "--repeat", "9", "--", "sh", "-c", "echo $$; exec sleep 600"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        log = tmp_path / "results/repeat-1/output.log"
        assert eventually(lambda: _recorded(tmp_path))
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate()
    assert process.returncode == 130, text
    (result,) = results(tmp_path / "results")["benchmarks"]
    assert [repeat["status"] for repeat in result["repeats"]] == ["interrupted"]
    pid = int(log.read_text())
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Usage"),
        (["--repeat", "3"], "nothing to run."),
        (["--repeat", "0", "--", "true"], "--repeat"),
        (["--", "no-such-command"], "command not found"),
        (["--memory", "1g", "--", "true"], "memory needs a container image"),
        (["nowhere.toml"], "nowhere.toml cannot be read"),
        (["python", "train.py"], "Put -- before a command"),
    ],
)
def test_wrong_use_is_explained(pulsetrain: Pulsetrain, arguments: list[str], message: str) -> None:
    done = pulsetrain("bench", *arguments)
    assert done.returncode in (0, 2, 127) and message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_readings_reach_victoriametrics_with_user_and_password(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    with VictoriaMetrics(tmp_path / "victoria", user="me", password="hush") as server:
        login = {
            "PULSETRAIN_VICTORIA_URL": server.url,
            "PULSETRAIN_PUSH_USER": "me",
            "PULSETRAIN_PUSH_PASSWORD": "hush",
        }
        done = pulsetrain(*BENCH, "--export_to_victoria", "--", "sleep", "1", **login)
        assert done.returncode == 0, done.stderr
        asking = urllib.request.Request(f"{server.url}/api/v1/series?match[]=gpu_power_draw_watts")
        asking.add_header("Authorization", "Basic " + base64.b64encode(b"me:hush").decode())

        def found() -> bool:
            with urllib.request.urlopen(asking) as answer:
                return bool(json.load(answer)["data"])

        assert eventually(found)
    done = pulsetrain(*BENCH, "--export_to_victoria", "--", "true")
    assert done.returncode == 2 and "PULSETRAIN_VICTORIA_URL" in done.stderr


def test_dummy_reports_what_watching_costs(pulsetrain: Pulsetrain, home: Path) -> None:
    done = pulsetrain("bench", "dummy", "--simulate", "1xL4", "--seconds", "3", "--interval", "0.2", "--json")
    assert done.returncode == 0, done.stderr
    cost = json.loads(done.stdout)
    assert cost["cpu_seconds"] > 0 and cost["memory_bytes"] > 2**20
    (gpu,) = cost["gpus"]
    assert gpu["name"] == "NVIDIA L4 (simulated)" and gpu["watched_watts"] > 0 and gpu["unwatched_watts"] > 0
    assert list((home / "runs").iterdir()) == []


def test_the_older_commands_are_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name in ("iris-gpubench", "gpu_monitor", "gpu_dashboard"):
        module, _, function = scripts[name].partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_the_older_monitor_watches_and_records(environment: dict[str, str], tmp_path: Path) -> None:
    older = [sys.executable, "-m", "pulsetrain.monitoring.gpu_monitor"]
    process = subprocess.Popen(
        [*older, "--gpu", "0", "--interval", "1.0", "--prometheus-port", "0"],
        env={**environment, "PULSETRAIN_SIMULATE": "2xL4"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert eventually(lambda: list(tmp_path.glob("home/runs/*/*/gpu_metrics_*.jsonl")))
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_the_older_dashboard_is_top(environment: dict[str, str]) -> None:
    older = [sys.executable, "-m", "pulsetrain.monitoring.gpu_dashboard", "--gpu", "0", "--interval", "0.5", "--once"]
    done = subprocess.run(older, env={**environment, "PULSETRAIN_SIMULATE": "2xL4"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "L4" in done.stdout
