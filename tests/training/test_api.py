"""init, log, monitor, phase, set_training, finish: in a program of its own, and under `pulsetrain run`."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import eventually

import pulsetrain
from pulsetrain.insight.compare.sides import load_sides
from pulsetrain.insight.report import make_report
from pulsetrain.runs.folder import RunFolder
from pulsetrain.views.training_phrases import steps


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


RUN = (sys.executable, "-m", "pulsetrain", "run", "-q", "--")


def start(
    home: Path, script: str | Path, *before: str, python: str = sys.executable, **environment: str
) -> subprocess.Popen[str]:
    program = [str(script)] if isinstance(script, Path) else ["-c", textwrap.dedent(script)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PULSETRAIN_")}
    return subprocess.Popen(
        [*before, python, "-W", "always", *program],
        env={**kept, "PULSETRAIN_HOME": str(home), "PULSETRAIN_SIMULATE": "1xL4", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out, err


def only_run(home: Path) -> Path:
    (run,) = (home / "runs").iterdir()
    return run


def about(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((only_run(home) / "run.json").read_text())
    return found


def training(home: Path) -> list[dict[str, Any]]:
    files = sorted(only_run(home).glob("*/training_metrics_*.jsonl"))
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [line for line in found if line.get("event") not in ("training_process", "training_process_end")]


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
    begin, *summary = err.splitlines()
    assert begin == f"pulsetrain: recording to {run} (live: pulsetrain top {run.name})"
    assert summary[0].startswith("pulsetrain  resnet50 finished after")
    assert any(line.startswith("steps   20, loss 1 -> 0.05") for line in summary)
    _ended(home)
    assert about(home)["status"] == "finished" and about(home)["tags"] == {"lr": "0.1"}
    lines = training(home)
    assert [line["step"] for line in lines if "step" in line] == list(range(20))
    assert lines[-1]["some_stat"] == 0.123
    gpus = [json.loads(line) for line in next(run.glob("*/gpu_metrics_*")).read_text().splitlines()]
    assert len(gpus) >= 2
    # The loop and the machine stand on one clock.
    assert 0 <= lines[0]["elapsed_seconds"] < lines[-1]["elapsed_seconds"] <= gpus[-1]["elapsed_seconds"] + 1


def test_thirty_logged_steps_are_thirty_steps_wherever_they_are_shown(home: Path) -> None:
    script = """
    import pulsetrain
    pulsetrain.init(name="by hand")
    for i in range(30):
        pulsetrain.log({"loss": 1 / (i + 1)}, step=i)
        if i == 9:
            with pulsetrain.phase("validation"):
                pulsetrain.log(val_loss=0.5)
    pulsetrain.finish()
    """
    finished(start(home, script))
    assert next(line["step"] for line in training(home) if line.get("phase_seconds")) == 9
    report = make_report(RunFolder(only_run(home)))
    assert report.summary.training is not None
    assert report.summary.training.steps == 30
    assert report.summary.training.step_seconds_p50 is not None
    assert steps(report.summary.training) == "30"
    (side,) = load_sides([RunFolder(only_run(home))])
    assert side.steps is not None
    assert side.steps.total == 30


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
    time.sleep(3600)
    """
    process = start(home, script)
    assert process.stdout and process.stdout.readline() == "ready\n"
    (watcher,) = psutil.Process(process.pid).children()
    process.send_signal(how)
    process.communicate()
    watcher.wait()
    _ended(home)


@pytest.mark.parametrize(
    ("end", "status", "exit_code"),
    [
        ("", "finished", None),
        ("raise ValueError('mine')", "failed", 1),
        ("raise KeyboardInterrupt", "interrupted", 130),
        ("os._exit(3)", "failed", 3),
        ("os.kill(os.getpid(), 9)", "died", None),
        ("os.kill(os.getpid(), 15)", "died", None),
        ("sys.excepthook = lambda *error: None; raise ValueError('mine')", "failed", 1),
        ("os.fork() or sys.exit(); os.wait(); os.kill(os.getpid(), 9)", "died", None),
    ],
)
def test_a_run_of_init_ends_as_its_program_does(home: Path, end: str, status: str, exit_code: int | None) -> None:
    process = start(home, f"import os, sys, pulsetrain\npulsetrain.init()\n{end}")
    process.communicate()
    assert eventually(lambda: about(home)["status"] != "running")
    assert (about(home)["status"], about(home)["exit_code"]) == (status, exit_code)


def test_finish_leaves_a_watching_process_that_does_not_answer_to_itself(home: Path) -> None:
    script = """
    import os, signal, pulsetrain
    import pulsetrain.training.watcher as waiting
    waiting.SUMMARY_SECONDS = waiting.STOP_SECONDS
    pulsetrain.init()
    watcher = pulsetrain.training.api._watcher._process
    watcher.send_signal(signal.SIGSTOP)
    pulsetrain.log(step=1)
    pulsetrain.finish()
    print("went on", flush=True)
    os.kill(watcher.pid, signal.SIGCONT)
    """
    out, err = finished(start(home, script))
    assert out == "went on\n"
    assert len(err.splitlines()) == 1  # what `init` says, and no summary
    _ended(home)
    assert [line["step"] for line in training(home)] == [1]


def test_init_quiet_prints_nothing_in_the_end_either(home: Path) -> None:
    script = """
    import pulsetrain
    pulsetrain.init(quiet=True)
    pulsetrain.finish()
    """
    assert finished(start(home, script)) == ("", "")


def test_the_configuration_and_the_project_are_in_the_run_without_secrets(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"  # its text is not in the command, as that of `python -c` is
    text = """
    import argparse, pulsetrain
    class Odd:
        def __str__(self): return "odd"
    config = argparse.Namespace(lr=0.1, layers=[64, 64], model={"depth": 12, "scale": float("inf")}, what=Odd(),
                                api_key="sesame", url="https://me:sesame@host/", hub={"password": 1234})
    pulsetrain.init(project="vision", config=config, tags={"seed": 1}, quiet=True)
    pulsetrain.finish()
    pulsetrain.init(config=3, quiet=True)
    """
    script.write_text(textwrap.dedent(text))
    _, err = finished(start(home, script))
    assert "config is neither a dict nor an object with attributes" in err
    assert "sesame" not in "".join(path.read_text() for path in home.rglob("run.json"))
    (run,) = (run for run in (home / "runs").iterdir() if (json.loads((run / "run.json").read_text()))["project"])
    about = json.loads((run / "run.json").read_text())
    assert (about["project"], about["tags"]) == ("vision", {"seed": "1"})
    assert about["config"] == {
        "lr": 0.1,
        "layers": [64, 64],
        "model": {"depth": 12, "scale": "inf"},
        "what": "odd",
        "api_key": "***",
        "url": "https://me:***@host/",
        "hub": {"password": "***"},
    }


@pytest.mark.parametrize(
    "order", ["import torch, pulsetrain; pulsetrain.init()", "import pulsetrain; pulsetrain.init(); import torch"]
)
def test_init_sees_the_loop_as_run_does_whether_torch_was_imported_before_or_after(
    home: Path, user_python: str, order: str
) -> None:
    script = f"""
    {order}
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)), batch_size=2)
    for (batch,) in data:
        model(batch).mean().backward()
        optimizer.step()
    pulsetrain.finish()
    """
    ours = [str(Path(pulsetrain.__file__).parents[1]), str(Path(psutil.__file__).parents[1])]
    finished(start(home, script, python=user_python, PYTHONPATH=os.pathsep.join(ours)))
    lines = training(home)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert all(line["samples"] == 2 and line["backward_seconds"] > 0 for line in lines)


def test_an_optimizer_that_is_older_than_init_makes_steps_of_all_its_passes(home: Path, user_python: str) -> None:
    script = """
    import torch, pulsetrain
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    pulsetrain.init()
    for _ in range(3):
        for _ in range(2):
            model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
    pulsetrain.finish()
    """
    ours = [str(Path(pulsetrain.__file__).parents[1]), str(Path(psutil.__file__).parents[1])]
    finished(start(home, script, python=user_python, PYTHONPATH=os.pathsep.join(ours)))
    assert [line["accumulation"] for line in training(home)] == [2, 2, 2]


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


def test_a_home_that_cannot_be_written_warns_and_the_program_continues(home: Path) -> None:
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
    began = time.monotonic()
    with pulsetrain.phase("validation"):
        time.sleep(0.2)
    print(time.monotonic() - began)
    try:
        with pulsetrain.phase("test"):
            raise ValueError
    except ValueError:
        pass
    pulsetrain.set_training("colab_ResNet_50")
    """
    took, _ = finished(start(home, script, *RUN))
    events = [json.loads(line) for line in next(only_run(home).glob("*/events.jsonl")).read_text().splitlines()]
    kinds = [(event["kind"], event.get("phase")) for event in events if event["kind"].startswith("phase")]
    assert kinds == [
        ("phase_begin", "validation"),
        ("phase_end", "validation"),
        ("phase_begin", "test"),
        ("phase_end", "test"),
    ]
    assert 0.2 <= next(event["seconds"] for event in events if event["kind"] == "phase_end") <= float(took) + 0.001
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
    process = start(home, script, *RUN, python=user_python)
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
    finished(start(home, script, *RUN))
    assert sorted(line["who"] for line in training(home)) == [1, 2, 3]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("how", ["pool", "process"])
def test_workers_of_multiprocessing_lose_nothing(home: Path, tmp_path: Path, method: str, how: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import multiprocessing, pulsetrain

            def work(item):
                pulsetrain.log(item=item)

            if __name__ == "__main__":
                context = multiprocessing.get_context("{method}")
                if "{how}" == "pool":
                    with context.Pool(2) as pool:
                        pool.map(work, range(8))
                else:
                    workers = [context.Process(target=work, args=(item,)) for item in range(8)]
                    for worker in workers: worker.start()
                    for worker in workers: worker.join()
            """
        )
    )
    finished(start(home, script, *RUN))
    assert sorted(line["item"] for line in training(home)) == list(range(8))


def test_what_a_line_says_of_itself_cannot_be_logged_over(home: Path) -> None:
    script = """
    import pulsetrain
    for _ in range(3):
        pulsetrain.log(step=1, rank=7, event=8, timestamp=9, nonfinite=1, elapsed_seconds=2)
    pulsetrain.monitor("event", 3)
    pulsetrain.log({5: 0.5})
    """
    _, err = finished(start(home, script, *RUN))
    first, *_, monitored, number = training(home)
    assert [first[f"logged_{name}"] for name in ("rank", "event", "timestamp", "nonfinite", "elapsed_seconds")] == [
        *(7, 8, 9, 1, 2)
    ]
    assert first["rank"] == 0 and "event" not in first and first["timestamp"].endswith("Z")
    assert monitored["logged_event"] == 3
    assert number["5"] == 0.5
    assert err.count("'rank' is a reserved field; yours is recorded as 'logged_rank'") == 1


OUTLIVES = """
import glob, os, subprocess, sys, time
script = '''
import json, os, time
import pulsetrain
%(first)s
run = os.path.dirname(os.environ["PULSETRAIN_TRAINING_FOLDER"])
while json.load(open(run + "/run.json"))["status"] == "running": time.sleep(0.1)
%(then)s
pulsetrain.log(late=1)
pulsetrain.finish()
open(run + "/done", "w").close()
'''
subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
%(wait)s
"""


def test_a_process_that_starts_after_its_run_has_ended_adds_nothing_to_it(home: Path) -> None:
    process = start(home, OUTLIVES % {"first": "", "then": "", "wait": ""}, *RUN)
    _, err = process.communicate()
    assert eventually((only_run(home) / "done").exists)
    assert training(home) == []
    assert "has ended: nothing more of this process is recorded" in err


def test_a_process_that_outlives_its_run_stops_adding_to_it(home: Path) -> None:
    first = "from pulsetrain.training import report_writer; report_writer.LIVENESS_SECONDS = 0; pulsetrain.log(early=1)"
    wait = "while not glob.glob(os.environ['PULSETRAIN_TRAINING_FOLDER'] + '/training_*'): time.sleep(0.1)"
    process = start(home, OUTLIVES % {"first": first, "then": "", "wait": wait}, *RUN)
    process.communicate()
    assert eventually((only_run(home) / "done").exists)
    assert ["early" in line for line in training(home)] == [True]


def test_init_begins_a_run_of_its_own_where_that_of_the_environment_has_ended(home: Path) -> None:
    process = start(home, OUTLIVES % {"first": "", "then": "pulsetrain.init(name='own')", "wait": ""}, *RUN)
    process.communicate()
    assert eventually(lambda: any((home / "runs").glob("*/done")))
    (own,) = (run for run in (home / "runs").iterdir() if "-own-" in run.name)
    (file,) = own.glob("*/training_metrics_*")
    assert [line["late"] for line in map(json.loads, file.read_text().splitlines()) if "late" in line] == [1]


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
    assert eventually(lambda: about(home)["status"] != "running")
