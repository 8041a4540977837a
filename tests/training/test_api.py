"""init, log, monitor, phase, set_training, finish: in a program of its own, and under `pulsetrain run`."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import pulsetrain


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def start(home: Path, script: str, *before: str, python: str = sys.executable) -> subprocess.Popen[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PULSETRAIN_")}
    return subprocess.Popen(
        [*before, python, "-W", "always", "-c", textwrap.dedent(script)],
        env={**kept, "PULSETRAIN_HOME": str(home), "PULSETRAIN_SIMULATE": "1xL4"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out, err


def only_run(home: Path) -> Path:
    (run,) = (home / "runs").iterdir()
    return run


def training(home: Path) -> list[dict[str, Any]]:
    files = sorted(only_run(home).glob("*/training_metrics_*.jsonl"))
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [line for line in found if line.get("event") != "training_process"]


def test_every_public_name_is_there_and_nothing_else_is_promised() -> None:
    assert all(getattr(pulsetrain, name) is not None for name in pulsetrain.__all__ if name != "torch")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pulsetrain.nonsense


def test_a_program_of_its_own_is_watched_from_init_to_finish(home: Path) -> None:
    script = """
    import pulsetrain, time
    run = pulsetrain.init(name="resnet50", tags={"lr": "0.1"})
    print(run.id)
    for i in range(20):
        pulsetrain.log(step=i, loss=1 / (i + 1), learning_rate=0.1, accuracy=0.5)
        time.sleep(0.1)
    pulsetrain.monitor("some_stat", 0.123)
    pulsetrain.finish()
    """
    out, err = finished(start(home, script))
    run = only_run(home)
    assert out.strip() == run.name and "resnet50" in run.name
    assert err == ""
    about = json.loads((run / "run.json").read_text())
    assert about["status"] == "finished" and about["tags"] == {"lr": "0.1"}
    lines = training(home)
    assert [line["step"] for line in lines if "step" in line] == list(range(20))
    assert lines[-1]["some_stat"] == 0.123
    gpus = [json.loads(line) for line in next(run.glob("*/gpu_metrics_*")).read_text().splitlines()]
    assert len(gpus) >= 2
    # The loop and the machine stand on one clock.
    assert 0 <= lines[0]["elapsed_seconds"] < lines[-1]["elapsed_seconds"] <= gpus[-1]["elapsed_seconds"] + 1


def test_a_program_that_ends_without_finish_loses_nothing_and_its_watcher_ends(home: Path) -> None:
    script = """
    import pulsetrain
    pulsetrain.init()
    for i in range(100):
        pulsetrain.log(step=i)
    """
    finished(start(home, script))
    assert len(training(home)) == 100
    _ended(home)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_watching_process_ends_with_its_parent_however_that_ends(home: Path, how: signal.Signals) -> None:
    script = """
    import pulsetrain, time
    pulsetrain.init()
    print("ready", flush=True)
    time.sleep(60)
    """
    process = start(home, script)
    assert process.stdout and process.stdout.readline() == "ready\n"
    (watcher,) = psutil.Process(process.pid).children()
    process.send_signal(how)
    process.communicate(timeout=20)
    watcher.wait(20)
    _ended(home)


def test_init_twice_is_one_run(home: Path) -> None:
    script = """
    import pulsetrain
    first = pulsetrain.init(name="a")
    second = pulsetrain.init(name="b")
    print(first == second)
    pulsetrain.finish()
    """
    assert finished(start(home, script))[0] == "True\n"
    assert "-a-" in only_run(home).name


def test_init_after_finish_is_a_new_run(home: Path) -> None:
    script = """
    import pulsetrain
    for name in ("a", "b"):
        pulsetrain.init(name=name)
        pulsetrain.log(step=1)
        pulsetrain.finish()
    """
    finished(start(home, script))
    runs = sorted((home / "runs").iterdir(), key=lambda run: run.name.split("-")[2])
    assert [json.loads((run / "run.json").read_text())["name"] for run in runs] == ["a", "b"]
    assert all(len(list(run.glob("*/training_metrics_*"))) == 1 for run in runs)


def test_calls_before_init_and_after_finish_say_so_once_and_never_raise(home: Path) -> None:
    script = """
    import pulsetrain
    for _ in range(3):
        pulsetrain.log(step=1)
    pulsetrain.init()
    pulsetrain.finish()
    for _ in range(3):
        pulsetrain.monitor("x", 1)
    with pulsetrain.phase("validation"):
        pulsetrain.set_training("y")
    """
    _, err = finished(start(home, script))
    assert err.count("pulsetrain.log: nothing is recorded before") == 1
    assert err.count("pulsetrain.monitor: nothing is recorded after") == 1
    assert not list(only_run(home).glob("*/training_metrics_*"))


def test_a_home_that_cannot_be_written_warns_and_the_program_goes_on(home: Path) -> None:
    home.write_text("a file")
    script = """
    import pulsetrain
    print(pulsetrain.init())
    pulsetrain.log(step=1)
    print("went on")
    """
    out, err = finished(start(home, script))
    assert out == "None\nwent on\n"
    assert "runs cannot be kept in" in err and "nothing is recorded" in err


def test_under_run_init_does_nothing_and_log_works(home: Path) -> None:
    script = """
    import pulsetrain
    run = pulsetrain.init(name="ignored")
    pulsetrain.log(step=7, loss=0.5)
    print(run.id, run.folder)
    """
    out, _ = finished(start(home, script, sys.executable, "-m", "pulsetrain", "run", "--name", "outer", "--"))
    assert out.split() == [only_run(home).name, str(only_run(home))]
    assert [line["step"] for line in training(home)] == [7]


def test_phases_become_events_with_their_length(home: Path) -> None:
    script = """
    import pulsetrain, time
    with pulsetrain.phase("validation"):
        time.sleep(0.2)
    try:
        with pulsetrain.phase("test"):
            raise ValueError
    except ValueError:
        pass
    pulsetrain.set_training("colab_ResNet_50")
    """
    finished(start(home, script, sys.executable, "-m", "pulsetrain", "run", "-q", "--"))
    events = [json.loads(line) for line in next(only_run(home).glob("*/events.jsonl")).read_text().splitlines()]
    kinds = [(event["kind"], event.get("phase")) for event in events if event["kind"].startswith("phase")]
    assert kinds == [
        ("phase_begin", "validation"),
        ("phase_end", "validation"),
        ("phase_begin", "test"),
        ("phase_end", "test"),
    ]
    assert 0.2 <= next(event["seconds"] for event in events if event["kind"] == "phase_end") < 5
    assert [event["training"] for event in events if event["kind"] == "set_training"] == ["colab_ResNet_50"]


def test_finish_keeps_the_steps_that_hooks_have_only_noted(home: Path, user_python: str) -> None:
    script = """
    import torch
    import pulsetrain
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(5):
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
    pulsetrain.finish()
    """
    process = start(home, script, sys.executable, "-m", "pulsetrain", "run", "-q", "--", python=user_python)
    finished(process)
    assert [line["step"] for line in training(home)] == [1, 2, 3, 4, 5]


def test_a_forked_worker_may_log_too(home: Path) -> None:
    script = """
    import os, pulsetrain
    pulsetrain.log(who=1)
    pid = os.fork()
    if pid == 0:
        pulsetrain.log(who=2)
        pulsetrain.finish()
        os._exit(0)
    os.waitpid(pid, 0)
    pulsetrain.log(who=3)
    """
    finished(start(home, script, sys.executable, "-m", "pulsetrain", "run", "-q", "--"))
    assert sorted(line["who"] for line in training(home)) == [1, 2, 3]


def test_importing_pulsetrain_imports_next_to_nothing() -> None:
    script = """
    import sys
    before = set(sys.modules)
    import pulsetrain
    new = set(sys.modules) - before - {"pulsetrain"}
    import json
    print(json.dumps(sorted(new)))
    """
    done = subprocess.run([sys.executable, "-I", "-c", textwrap.dedent(script)], capture_output=True, text=True)
    small = {"__future__", "importlib", "importlib._bootstrap", "importlib._bootstrap_external", "warnings"}
    assert set(json.loads(done.stdout)) <= small


def _ended(home: Path) -> None:
    deadline = time.monotonic() + 20
    while json.loads((only_run(home) / "run.json").read_text())["status"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.1)
