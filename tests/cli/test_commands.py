"""`sample`, `watch`, `runs`, `doctor`, `demo` and the frame around them, as a user meets them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pulsetrain.catalog import CORE_GPU_FIELDS
from pulsetrain.runs import liveness
from pulsetrain.runs.folder import Home, Host, Run, host_name

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]


def test_help_lists_every_command_and_imports_nothing_heavy(environment: dict[str, str]) -> None:
    code = """
import sys
from pulsetrain.cli.main import main
try:
    main(["--help"])
finally:
    heavy = {"psutil", "pynvml", "numpy", "msgspec", "rich", "ctypes", "asyncio", "json"} & set(sys.modules)
    print("HEAVY", heavy)
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert all(f"  {name} " in done.stdout for name in ("run", "watch", "sample", "runs", "doctor", "demo"))
    assert "HEAVY set()" in done.stdout


def test_version(pulsetrain: Pulsetrain) -> None:
    assert pulsetrain("--version").stdout.startswith("pulsetrain 0.")


def test_an_unknown_command_says_how_to_watch_it(pulsetrain: Pulsetrain) -> None:
    done = pulsetrain("python", "train.py")
    assert done.returncode == 2
    assert "pulsetrain run -- python train.py" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("run",), "COMMAND"),
        (("run", "--interval", "0.01", "--", "true"), "0.1"),
        (("run", "--interval", "soon", "--", "true"), "soon"),
        (("run", "--tag", "novalue", "--", "true"), "key=value"),
        (("run", "--simulate", "8xTPU", "--", "true"), "TPU"),
        (("run", "--simulate", "2xL4", "--gpus", "7", "--", "true"), "no single GPU here matches 7"),
        (("run", "--gpus", "0", "--", "true"), "--gpus 0: no GPU here"),
        (("sample", "--gpus", "0,GPU-12"), "--gpus 0,GPU-12: no GPU here"),
        (("sample", "--nonsense"), "nonsense"),
        (("runs", "prune", "--older-than", "soon"), "30d"),
        (("runs", "prune", "--keep-size", "lots"), "10GiB"),
        (("runs", "prune", "--keep", "10GB"), "--keep"),
        (("runs", "--where", "nonsense"), "loss<0.1"),
        (("runs", "prune"), "--older-than"),
    ],
)
def test_wrong_usage_is_a_clear_error_with_code_2(
    pulsetrain: Pulsetrain, arguments: tuple[str, ...], text: str
) -> None:
    done = pulsetrain(*arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_sample_shows_gpus_and_host(pulsetrain: Pulsetrain) -> None:
    done = pulsetrain("sample", "--simulate", "2xH100,1xL4")
    assert done.returncode == 0
    assert done.stdout.count("H100 80GB HBM3 (simulated)") == 2
    assert "simulated GPUs" in done.stdout
    assert "CPU" in done.stdout and "RAM" in done.stdout


def test_sample_as_json_has_the_names_of_the_run_files(pulsetrain: Pulsetrain) -> None:
    document = json.loads(pulsetrain("sample", "--simulate", "2xH100", "--gpus", "1", "--json").stdout)
    (gpu,) = document["gpus"]
    assert gpu["gpu_index"] == 1 and gpu["simulated"] is True
    assert set(CORE_GPU_FIELDS) <= gpu.keys()
    assert gpu["fan_speed_percent"] is None
    assert 0 <= document["host"]["cpu_ratio"] <= 1


def test_sample_without_a_gpu_says_so_and_shows_the_host(pulsetrain: Pulsetrain) -> None:
    done = pulsetrain("sample")
    assert done.returncode == 0
    assert "no GPU: none found" in done.stdout and "CPU" in done.stdout


def test_watch_runs_until_stopped_and_prints_json_lines(environment: dict[str, str]) -> None:
    process = _start(environment, "watch", "--simulate", "1xL4", "--interval", "0.2", "--json")
    assert process.stdout
    first, second = (json.loads(process.stdout.readline()) for _ in range(2))
    assert first["timestamp"] < second["timestamp"]
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 0


def test_watch_ends_quietly_when_its_reader_goes_away(environment: dict[str, str]) -> None:
    process = _start(environment, "watch", "--simulate", "1xL4", "--interval", "0.1")
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 0
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


@pytest.mark.parametrize("how", ["--record", "--to"])
def test_watch_records_when_asked_and_not_otherwise(environment: dict[str, str], home: Path, how: str) -> None:
    environment["PULSETRAIN_TO"] = str(home / "place")
    asked = [how] if how == "--record" else [how, str(home / "place")]
    for record, expected in ((False, 0), (True, 1)):
        process = _start(environment, "watch", "--simulate", "1xL4", "--json", *(asked if record else []))
        assert process.stdout
        for _ in range(2):
            process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert process.returncode == 0
        assert len(list((home / "runs").glob("*/run.json"))) == expected
    (run,) = (home / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert len(next(run.glob("*/gpu_metrics_*.jsonl")).read_text().splitlines()) >= 2
    assert list((home / "place" / run.name).rglob("*.seg"))


def test_runs_are_listed_shown_and_removed_after_asking(pulsetrain: Pulsetrain, home: Path) -> None:
    for name in ("first", "second"):
        assert pulsetrain("run", "-q", "--simulate", "1xL4", "--name", name, "--", "true").returncode == 0
    listed = pulsetrain("runs")
    assert "first" in listed.stdout and "1x L4 (simulated)" in listed.stdout
    assert [run["name"] for run in json.loads(pulsetrain("runs", "--json").stdout)] == ["first", "second"]
    shown = json.loads(pulsetrain("report", "first", "--json").stdout)
    assert shown["run"]["status"] == "finished" and shown["summary"]["gpus"][0]["simulated"] is True
    assert pulsetrain("runs", "remove", "first", stdin="n\n").returncode == 130
    assert len(list((home / "runs").iterdir())) == 2
    assert pulsetrain("runs", "remove", "first", stdin="y\n").returncode == 0
    assert [run["name"] for run in json.loads(pulsetrain("runs", "list", "--json").stdout)] == ["second"]


def test_damaged_lines_are_left_out_and_counted(pulsetrain: Pulsetrain, home: Path) -> None:
    pulsetrain("run", "-q", "--simulate", "1xL4", "--", "sleep", "1")
    file = next((home / "runs").glob("*/*/gpu_metrics_*.jsonl"))
    file.write_bytes(file.read_bytes() + b'{"timestamp":"2026-11-16T01:3\n\x00\xff\n{"half')
    shown = pulsetrain("report", "last")
    assert "3 damaged lines could not be read" in shown.stdout
    assert shown.returncode == 0


def test_one_damaged_run_json_does_not_hide_the_others(pulsetrain: Pulsetrain, home: Path) -> None:
    for name in ("good", "bad"):
        pulsetrain("run", "-q", "--simulate", "1xL4", "--name", name, "--", "true")
    (next((home / "runs").glob("*-bad-*")) / "run.json").write_text("{")
    listed = pulsetrain("runs")
    assert "good" in listed.stdout and "run.json cannot be read" in listed.stderr
    assert listed.returncode == 0


def test_prune_keeps_the_newest_runs_by_their_number(pulsetrain: Pulsetrain, home: Path) -> None:
    for name in ("a", "b", "c"):
        pulsetrain("run", "--simulate", "1xL4", "--name", name, "--", "true")
    assert pulsetrain("runs", "prune", "--keep", "2", "-y").returncode == 0
    assert _names(home) == ["b", "c"]


def test_a_run_can_be_renamed_tagged_annotated_and_grouped_and_is_found_by_it(
    pulsetrain: Pulsetrain, home: Path
) -> None:
    pulsetrain("run", "--simulate", "1xL4", "--name", "a", "--project", "vision", "--tag", "old=1", "--", "true")
    assert pulsetrain("runs", "rename", "a", "best").returncode == 0
    assert pulsetrain("runs", "tag", "best", "lr=0.1", "old=").returncode == 0
    assert pulsetrain("runs", "note", "best", "for the paper").returncode == 0
    (run,) = json.loads(pulsetrain("runs", "--where", "lr=0.1", "--json").stdout)
    assert (run["name"], run["tags"], run["note"]) == ("best", {"lr": "0.1"}, "for the paper")
    listed = pulsetrain("runs").stdout
    assert "lr=0.1" in listed and "for the paper" in listed and "run (UTC)" in listed
    assert "none of 1 runs" in pulsetrain("runs", "--where", "lr=0.2").stdout
    assert "vision" in pulsetrain("runs", "--project", "vision").stdout
    assert "none of 1 runs" in pulsetrain("runs", "--project", "audio").stdout
    assert pulsetrain("runs", "group", "best", "audio").returncode == 0
    assert "best" in pulsetrain("runs", "--project", "audio").stdout


def test_what_users_and_projects_used_is_added_up(pulsetrain: Pulsetrain) -> None:
    for project in ("vision", "vision", "audio"):
        pulsetrain("run", "--simulate", "2xL4", "--project", project, "--price", "1 EUR/GPUh", "--", "true")
    rows = json.loads(pulsetrain("runs", "--by", "project", "--json").stdout)
    assert {row["group"]: row["runs"] for row in rows} == {"vision": 2, "audio": 1}
    assert all(row["gpu_seconds"] > 0 and row["joules"] > 0 and row["cost"]["EUR"] > 0 for row in rows)
    head, *lines = pulsetrain("runs", "--by", "user", "--csv").stdout.splitlines()
    assert head.startswith("user,runs,gpu_hours,") and lines[0].split(",")[1] == "3"
    assert pulsetrain("runs", "--by", "user", "--markdown", "--project", "audio").stdout.count("\n") == 3
    assert pulsetrain("runs", "--by", "user", "--since", "1s", "--where", "name=nobody").stdout == "no runs\n"
    assert "--csv needs --by" in pulsetrain("runs", "--csv").stderr


def test_prune_removes_by_age_and_by_size(pulsetrain: Pulsetrain, home: Path) -> None:
    for name in ("a", "b", "c"):
        pulsetrain("run", "-q", "--simulate", "1xL4", "--name", name, "--", "true")
    old = next((home / "runs").glob("*-a-*")) / "run.json"
    document = json.loads(old.read_text())
    document["start"] = document["end"] = "2020-01-01T00:00:00Z"
    old.write_text(json.dumps(document))
    assert "nothing to remove" in pulsetrain("runs", "prune", "--older-than", "9999w", "-y").stdout
    assert pulsetrain("runs", "prune", "--older-than", "30d", "-y").returncode == 0
    assert _names(home) == ["b", "c"]
    size = sum(file.stat().st_size for file in next((home / "runs").glob("*-c-*")).rglob("*") if file.is_file())
    assert pulsetrain("runs", "prune", "--keep-size", str(size + 100), "-y").returncode == 0
    assert _names(home) == ["c"]


def test_a_run_in_progress_is_not_removed(environment: dict[str, str], pulsetrain: Pulsetrain, home: Path) -> None:
    process = _start(environment, "run", "-q", "--simulate", "1xL4", "--", "sh", "-c", "echo; exec sleep 3600")
    assert process.stdout
    process.stdout.readline()
    assert "running" in pulsetrain("runs").stdout
    done = pulsetrain("runs", "remove", "last", "-y")
    assert done.returncode == 2 and "still running" in done.stderr
    assert "nothing to remove" in pulsetrain("runs", "prune", "--keep", "0", "-y").stdout
    process.terminate()
    process.communicate()
    assert len(list((home / "runs").iterdir())) == 1


def test_doctor_reports_what_works_and_what_to_do_about_the_rest(pulsetrain: Pulsetrain, home: Path) -> None:
    done = pulsetrain("doctor", "--json")
    findings = {finding["part"]: finding for finding in json.loads(done.stdout)}
    assert findings["host"]["status"] == "works"
    assert findings["nvidia"]["status"] == "missing" and "driver" in findings["nvidia"]["hint"]
    assert findings["runs"]["status"] == "works" and str(home) in findings["runs"]["detail"]
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("troubled", "marks"),
    [
        ([], ["ok"]),
        (["push-grafana: degraded, 3 items skipped: samples: too old"], ["!"]),
        (["writer: degraded, 1 item skipped: a sample", "push-vm: down: vm:8428 does not answer"], ["!", "!!"]),
    ],
)
def test_doctor_reports_how_recording_goes_in_the_runs_in_progress(
    pulsetrain: Pulsetrain, home: Path, troubled: list[str], marks: list[str]
) -> None:
    folder = Home(home / "runs").create("bert", datetime.now(UTC))
    here = Host(boot_id=liveness.boot_id(), troubled=troubled)
    folder.save(Run(id=folder.path.name, name="bert", start=datetime.now(UTC), hosts={host_name(): here}))
    folder.host_folder(host_name()).mkdir()
    lock = liveness.hold(folder.host_folder(host_name()))
    assert lock is not None
    done = pulsetrain("doctor")
    os.close(lock)
    lines = [line for line in done.stdout.splitlines() if folder.path.name in line]
    assert [line.split()[:2] for line in lines] == [[mark, "run"] for mark in marks]
    assert all(line in done.stdout for line in troubled)
    after = pulsetrain("doctor")
    assert folder.path.name not in after.stdout  # it has ended


def test_doctor_ends_with_1_when_runs_cannot_be_kept(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = pulsetrain("doctor", PULSETRAIN_HOME=str(tmp_path / "file"))
    assert done.returncode == 1 and "!!  runs" in done.stdout


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("rnu",), "Did you mean run?"), (("runs", "lst"), "Did you mean 'list'?"), (("top", "--onec"), "--once")],
)
def test_a_typo_is_answered_with_what_is_near(pulsetrain: Pulsetrain, words: tuple[str, ...], meant: str) -> None:
    done = pulsetrain(*words)
    assert done.returncode == 2 and meant in done.stderr


def test_the_shell_completes_names_and_ids_of_runs(pulsetrain: Pulsetrain, home: Path) -> None:
    pulsetrain("run", "-q", "--name", "resnet", "--", "true")
    asked = {"_PULSETRAIN_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    assert pulsetrain(COMP_WORDS="pulsetrain report re", **asked).stdout == "plain,resnet\n"
    (run,) = (home / "runs").iterdir()
    assert run.name in pulsetrain(COMP_WORDS="pulsetrain compare ", **asked).stdout


def test_what_is_printed_as_json_says_the_version_of_its_form(pulsetrain: Pulsetrain, home: Path) -> None:
    pulsetrain("run", "-q", "--simulate", "1xL4", "--name", "a", "--", "true")
    for words in ("sample", "runs", "report", "compare a a", "doctor", "top a --once"):
        found = json.loads(pulsetrain(*words.split(), "--json").stdout)
        assert all(one["schema"] == 1 for one in (found if isinstance(found, list) else [found])), words


def test_the_demo_trains_for_real_and_shows_what_to_try_next(pulsetrain: Pulsetrain) -> None:
    done = pulsetrain("demo", "--seconds", "2")
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout and "What to try next" in done.stdout
    assert "demo finished" in done.stderr and "L4 (simulated)" in done.stderr
    assert "demo" in pulsetrain("runs").stdout
    again = next(line for line in done.stdout.splitlines() if " compare " in line)
    compared = pulsetrain("compare", *again.rpartition(" compare ")[2].split())
    assert "compared with itself" in compared.stdout


def test_options_come_before_the_environment_before_the_file(
    pulsetrain: Pulsetrain, tmp_path: Path, home: Path
) -> None:
    (tmp_path / "pulsetrain.toml").write_text(
        'name = "file"\nsimulate = "1xL4"\nquiet = true\n[tags]\nteam = "vision"\n'
    )

    def name_of_last_run() -> str:
        return str(json.loads(pulsetrain("report", "last", "--json").stdout)["run"]["name"])

    assert pulsetrain("run", "--", "true").stderr == ""
    assert name_of_last_run() == "file"
    assert json.loads(pulsetrain("runs", "--json").stdout)[0]["tags"] == {"team": "vision"}
    time.sleep(1.1)  # runs are ordered by the second they started in
    pulsetrain("run", "--", "true", PULSETRAIN_NAME="environment")
    assert name_of_last_run() == "environment"
    time.sleep(1.1)
    pulsetrain("run", "--name", "option", "--", "true", PULSETRAIN_NAME="environment")
    assert name_of_last_run() == "option"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("interval = ", "not valid TOML"),
        ("intervall = 1.0", "intervall"),
        ('interval = "often"', "Expected"),
    ],
)
def test_a_broken_configuration_file_is_a_clear_error(
    pulsetrain: Pulsetrain, tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "pulsetrain.toml").write_text(text)
    done = pulsetrain("sample")
    assert done.returncode == 2
    assert complaint in done.stderr and "pulsetrain.toml" in done.stderr
    assert pulsetrain("--help").returncode == 0


def _names(home: Path) -> list[str]:
    return sorted(json.loads((run / "run.json").read_text())["name"] for run in (home / "runs").iterdir())


def _start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pulsetrain", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_a_settings_file_of_the_working_folder_may_not_say_is_said(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    (tmp_path / "pulsetrain.toml").write_text('[push.x]\nurl = "victoriametrics:http://127.0.0.1:9"\n')
    done = pulsetrain("sample", "--simulate", "1xL4")
    assert done.returncode == 0
    assert "`push` is ignored" in done.stderr and "pulsetrain --config pulsetrain.toml" in done.stderr
    done = pulsetrain("--config", "pulsetrain.toml", "sample", "--simulate", "1xL4")
    assert done.returncode == 0 and done.stderr == ""


def test_doctor_reports_what_is_wrong_with_the_settings(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    (tmp_path / "pulsetrain.toml").write_text("interval = ")
    done = pulsetrain("doctor")
    assert done.returncode == 1
    assert "!!  config" in done.stdout and "not valid TOML" in done.stdout
