"""`pulsetrain run` as a user meets it: real processes, real signals, a real terminal."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from pulsetrain.catalog import CORE_GPU_FIELDS

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]
RUN = (sys.executable, "-m", "pulsetrain", "run", "--simulate", "2xL4")


def only_run(home: Path) -> Path:
    (run,) = (home / "runs").iterdir()
    return run


def about(home: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((only_run(home) / "run.json").read_text())
    return document


def table(home: Path, name: str) -> list[dict[str, Any]]:
    files = sorted(only_run(home).glob(f"*/{name}*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


UNTIL = """
import json, os, pathlib, sys, time

folder = pathlib.Path(os.environ["PULSETRAIN_HOME"], "runs", os.environ["PULSETRAIN_RUN_ID"])

def recorded(table):
    texts = [file.read_text() for file in folder.glob(f"*/{table}_metrics_*.jsonl")]
    return [json.loads(line) for text in texts for line in text.split("\\n")[:-1]]

while not eval(sys.argv[1]):
    time.sleep(0.1)
"""


def until(condition: str) -> list[str]:
    """A command that ends when something is recorded of it."""
    return [sys.executable, "-c", UNTIL, condition]


def test_a_run_leaves_a_folder_with_all_fields_of_the_design(pulsetrain: Pulsetrain, home: Path) -> None:
    options = ("--simulate", "2xL4", "--interval", "0.2", "--name", "nap", "--tag", "lr=0.1")
    done = pulsetrain("run", *options, "--", *until("len(recorded('host')) >= 5"))
    assert done.returncode == 0, done.stderr
    gpus = table(home, "gpu_metrics")
    assert {line["gpu_index"] for line in gpus} == {0, 1}
    assert all({"timestamp", "elapsed_seconds", "uuid", "name", *CORE_GPU_FIELDS} <= line.keys() for line in gpus)
    assert all(line["simulated"] is True for line in gpus)
    hosts = table(home, "host_metrics")
    assert len(hosts) >= 6
    assert hosts[-1]["memory_total_bytes"] > 0
    assert hosts[-1]["source_up"]["simulated"] == 1
    run = about(home)
    assert run["name"] == "nap" and run["tags"] == {"lr": "0.1"}
    assert run["status"] == "finished" and run["exit_code"] == 0 and run["simulated"] is True
    assert [gpu["gpu_index"] for host in run["hosts"].values() for gpu in host["gpus"]] == [0, 1]


def test_the_summary_reports_gpus_energy_and_where_the_run_is(pulsetrain: Pulsetrain, home: Path) -> None:
    done = pulsetrain("run", "--simulate", "2xL4", "--", "sleep", "1")
    assert done.stdout == ""
    told = re.search(r"finished after ([\d.]+) s", done.stderr)
    assert told and float(told[1]) >= 1
    assert "0 L4 (simulated)" in done.stderr and "1 L4 (simulated)" in done.stderr
    assert " J simulated, CPU" in done.stderr
    assert str(only_run(home)) in done.stderr


def test_quiet_says_nothing(pulsetrain: Pulsetrain) -> None:
    done = pulsetrain("run", "--quiet", "--simulate", "1xL4", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_stdio_passes_through_untouched(pulsetrain: Pulsetrain) -> None:
    done = pulsetrain("run", "-q", "--simulate", "1xL4", "--", "cat", stdin="one\ntwo\n")
    assert done.stdout == "one\ntwo\n"


@pytest.mark.parametrize("code", [1, 3, 255])
def test_the_exit_code_is_the_commands_own(pulsetrain: Pulsetrain, home: Path, code: int) -> None:
    assert pulsetrain("run", "--simulate", "1xL4", "--", "sh", "-c", f"exit {code}").returncode == code
    assert about(home)["status"] == "failed" and about(home)["exit_code"] == code


def test_a_command_killed_by_a_signal_gives_the_shells_code_and_a_hint(pulsetrain: Pulsetrain, home: Path) -> None:
    done = pulsetrain("run", "--simulate", "1xL4", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 137
    assert "memory runs out" in done.stderr
    assert about(home)["status"] == "failed"


def test_a_command_that_does_not_exist_gives_127_and_leaves_no_run(pulsetrain: Pulsetrain, home: Path) -> None:
    done = pulsetrain("run", "--", "no-such-command", "--flag")
    assert done.returncode == 127
    assert done.stderr == "error: no-such-command: command not found.\n"
    assert not (home / "runs").exists()


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("train.py", "pulsetrain run -- python train.py"),
        ("python3 train.py", "Leave out the quotes: pulsetrain run -- python3 train.py"),
        ("prepare-it", "pulsetrain run -- ./prepare-it"),
        ("data", "chmod +x data"),
    ],
)
def test_a_command_that_cannot_start_gets_the_one_that_was_meant(
    pulsetrain: Pulsetrain, tmp_path: Path, command: str, hint: str
) -> None:
    (tmp_path / "data").write_text("")
    (tmp_path / "prepare-it").write_text("")
    (tmp_path / "prepare-it").chmod(0o755)
    done = pulsetrain("run", "--", command)
    assert done.returncode == 127 and hint in done.stderr


def test_the_report_can_be_the_last_line_as_json(pulsetrain: Pulsetrain, home: Path) -> None:
    done = pulsetrain("run", "--json", "--simulate", "1xL4", "--", "echo", "its own")
    assert done.stdout == "its own\n"
    report = json.loads(done.stderr.splitlines()[-1])
    assert (report["schema"], report["run"]["status"]) == (1, "finished")


def test_a_file_that_is_not_executable_gives_126(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('hi')\n")
    done = pulsetrain("run", "--", str(script))
    assert done.returncode == 126
    assert "python" in done.stderr


def test_a_script_without_an_interpreter_gives_126(pulsetrain: Pulsetrain, tmp_path: Path, home: Path) -> None:
    script = tmp_path / "broken"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = pulsetrain("run", "--", str(script))
    assert done.returncode in (126, 127)
    assert done.stderr.startswith("error: ")
    assert about(home)["status"] == "failed"


def test_a_home_that_cannot_be_written_is_said_before_the_command_starts(
    pulsetrain: Pulsetrain, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    done = pulsetrain("run", "--", "touch", "started", PULSETRAIN_HOME=str(tmp_path / "file"))
    assert done.returncode == 1
    assert "runs cannot be kept in" in done.stderr and "hint:" in done.stderr
    assert not (tmp_path / "started").exists()


def test_two_runs_started_in_the_same_second_do_not_mix(environment: dict[str, str], home: Path) -> None:
    both = [subprocess.Popen([*RUN, "-q", "--name", "twin", "--", "sleep", "1"], env=environment) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    runs = list((home / "runs").iterdir())
    assert len(runs) == 2
    assert all(len(list(run.glob("*/gpu_metrics_*.jsonl"))) == 1 for run in runs)


def test_the_ranks_of_one_host_share_a_run_and_the_machine_is_watched_once(
    environment: dict[str, str], home: Path
) -> None:
    code = """
import os, pathlib, pulsetrain, time
pulsetrain.log(step=1)
runs = pathlib.Path(os.environ["PULSETRAIN_HOME"], "runs")
while len(list(runs.glob("*/*/training_metrics_*"))) < 3:
    time.sleep(0.1)
"""
    ranks = [
        subprocess.Popen(
            [*RUN, "-q", "--run-id", "job7", "--", sys.executable, "-c", code],
            env={**environment, "RANK": str(rank), "WORLD_SIZE": "3"},
        )
        for rank in range(3)
    ]
    assert [process.wait() for process in ranks] == [0, 0, 0]
    (run,) = (path for path in (home / "runs").iterdir() if not path.name.startswith("."))
    assert len(list(run.glob("*/gpu_metrics_*.jsonl"))) == 1
    names = sorted(file.name.partition(".")[2] for file in run.glob("*/training_metrics_*.jsonl"))
    assert names == ["jsonl", "rank1.jsonl", "rank2.jsonl"]


CHILD = """
import signal, sys, time
got = []
def caught(number, frame):
    got.append(number)
    print("got", signal.Signals(number).name, flush=True)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), caught)
print("ready", flush=True)
while not got:
    time.sleep(0.05)
time.sleep(1)  # for a second one, which should not come
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_a_signal_sent_to_pulsetrain_alone_reaches_the_command_once(environment: dict[str, str], name: str) -> None:
    process = subprocess.Popen(
        [*RUN, "-q", "--", sys.executable, "-c", CHILD, name], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    rest = process.stdout.read()
    assert rest == f"got {name}\n"
    assert process.wait() == 0
    process.stdout.close()


def test_the_command_gets_default_signals_and_nothing_blocked(pulsetrain: Pulsetrain) -> None:
    code = """
import signal
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
ignored = [s.name for s in signal.Signals if signal.getsignal(s) is signal.SIG_IGN]
print(blocked, ignored)
"""
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert pulsetrain("run", "-q", "--simulate", "1xL4", "--", sys.executable, "-c", code).stdout == plain.stdout


def test_ctrl_c_in_a_terminal_reaches_the_command_once_and_the_run_ends_cleanly(
    environment: dict[str, str], home: Path
) -> None:
    command = [*RUN, "--", sys.executable, "-u", "-c", CHILD, "SIGINT"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], command, environment)
    screen = _read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    screen += _read_until(terminal, b"run  ")
    _, status = os.waitpid(pid, 0)
    assert screen.count(b"got SIGINT") == 1
    assert os.waitstatus_to_exitcode(status) == 0
    assert about(home)["status"] == "finished"
    assert b"Traceback" not in screen


def test_a_command_that_ctrl_c_ends_is_interrupted(environment: dict[str, str], home: Path) -> None:
    command = [*RUN, "--", sys.executable, "-u", "-c", "print('ready'); import time; time.sleep(3600)"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], command, environment)
    _read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    screen = _read_until(terminal, b"run  ")
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert about(home)["status"] == "interrupted"
    assert b"interrupted" in screen


def test_the_terminal_and_its_size_are_the_commands_own(environment: dict[str, str]) -> None:
    code = "import os, sys; print(sys.stdin.isatty(), sys.stdout.isatty(), *os.get_terminal_size(), 'end')"
    command = [*RUN, "-q", "--", sys.executable, "-c", code]
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
        os.execve(command[0], command, environment)
    assert b"True True 77 33 end" in _read_until(terminal, b"end")
    os.waitpid(pid, 0)


def test_the_job_counts_worker_processes(pulsetrain: Pulsetrain, home: Path) -> None:
    code = """
import subprocess, sys
workers = [subprocess.Popen(["sleep", "3600"]) for _ in range(3)]
exec(sys.argv.pop(1))
for worker in workers:
    worker.kill()
    worker.wait()
"""
    seen = "any(line.get('job_processes') == 4 for line in recorded('host'))"
    command = [sys.executable, "-c", code, UNTIL, seen]
    done = pulsetrain("run", "--simulate", "1xL4", "--interval", "0.5", "--", *command)
    assert done.returncode == 0
    assert max(line.get("job_processes", 0) for line in table(home, "host_metrics")) == 4
    assert "up to 4 processes" in done.stderr


def test_what_the_command_used_in_its_last_moment_is_counted(pulsetrain: Pulsetrain, home: Path) -> None:
    code = "import time\nwhile time.process_time() < 1.0: pass"
    assert (
        pulsetrain("run", "-q", "--simulate", "1xL4", "--interval", "5", "--", sys.executable, "-c", code).returncode
        == 0
    )
    assert table(home, "host_metrics")[-1]["job_cpu_seconds"] >= 0.95


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone keeps a command that has ended for its counters")
def test_the_memory_peak_of_a_command_shorter_than_a_reading_is_known(pulsetrain: Pulsetrain, home: Path) -> None:
    hold = [sys.executable, "-c", "held = b'1' * (500 << 20)"]
    done = pulsetrain("run", "--simulate", "1xL4", "--interval", "60", "--", "sh", "-c", '"$@"; true', "sh", *hold)
    assert done.returncode == 0
    (peak,) = [line["job_memory_peak_bytes"] for line in table(home, "host_metrics") if "job_memory_peak_bytes" in line]
    assert 500 << 20 <= peak < 700 << 20
    assert re.search(r"memory peak 5\d\d MiB", done.stderr)


def test_a_memory_peak_that_is_not_known_is_left_out(pulsetrain: Pulsetrain, home: Path) -> None:
    done = pulsetrain("run", "--simulate", "1xL4", "--interval", "60", "--", "true")
    assert "of" in done.stderr and "cores on average" in done.stderr
    assert "job_memory_peak_bytes" not in table(home, "host_metrics")[-1]
    job = next(line for line in done.stderr.splitlines() if line.startswith("job"))
    assert "memory" not in job


def test_when_pulsetrain_is_killed_the_command_continues_and_the_run_is_said_to_have_died(
    environment: dict[str, str], home: Path, tmp_path: Path, pulsetrain: Pulsetrain
) -> None:
    killed, done = tmp_path / "killed", tmp_path / "done"
    script = f"echo $$; until [ -e {killed} ]; do sleep 0.1; done; touch {done}"
    process = subprocess.Popen([*RUN, "-q", "--", "sh", "-c", script], env=environment, stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline()
    assert eventually(lambda: len(table(home, "gpu_metrics")) >= 2)
    process.kill()
    process.wait()
    killed.touch()
    assert eventually(done.exists)
    process.stdout.close()
    shown = pulsetrain("report", "last")
    assert "died (it or pulsetrain was killed)" in shown.stdout and "0 L4 (simulated)" in shown.stdout


def test_logs_can_be_json_with_the_run_as_correlation_id(pulsetrain: Pulsetrain, home: Path) -> None:
    options = ("-q", "--log-format", "json", "--log-level", "info", "--simulate", "1xL4")
    code = "import pulsetrain; pulsetrain.set_training('second')"
    done = pulsetrain("run", *options, "--", sys.executable, "-c", code)
    (line,) = map(json.loads, done.stderr.splitlines())
    assert (line["message"], line["event"], line["level"]) == ("now training second", "set_training", "info")
    assert line["run"] == only_run(home).name


def test_the_run_id_is_in_the_commands_environment(pulsetrain: Pulsetrain, home: Path) -> None:
    done = pulsetrain("run", "-q", "--simulate", "1xL4", "--", "sh", "-c", "echo $PULSETRAIN_RUN_ID")
    assert done.stdout.strip() == only_run(home).name


def _read_until(terminal: int, text: bytes) -> bytes:
    """What the terminal shows, up to and a little beyond a text."""
    screen = b""
    while text not in screen:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the other end closed
            break
        if not chunk:
            break
        screen += chunk
    assert text in screen, screen.decode(errors="replace")
    return screen
