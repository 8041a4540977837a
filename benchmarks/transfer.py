"""Runs from elsewhere: what sending costs, how late a value is seen at home, and how many runs a collector takes.

The targets were set before anything was measured: they are those of the design. The run that is sent is one of 8 GPUs
read once a second and of a training of 100 steps a second. The CPU and memory of sending are those of a process that
does nothing else, over what a watching process has imported anyway.
"""

import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from benchmarks.processes import ROOT, Failed, Machine, cpu_seconds
from benchmarks.results import Limit, Report, Result
from pulsetrain.transfer.segments import SegmentHeader, SegmentPart, name_of, write_segment

GPUS, STEPS_PER_SECOND = 8, 100
SHIP_SECONDS, QUICK_SHIP_SECONDS = 60.0, 20.0
LATENCY_SECONDS, QUICK_LATENCY_SECONDS = 60.0, 25.0
SENDERS, SEND_SECONDS, QUICK_SEND_SECONDS = 200, 30, 10
TOKEN = "a token for the benchmark"
RUN = "20261116-120000-bench-0000"
TRAINING = """
import time, pulsetrain
end = time.monotonic() + float(__import__("sys").argv[1])
step = 0
while time.monotonic() < end:
    pulsetrain.log(step=step, loss=1.0, logged=time.time())
    step += 1
    time.sleep(0.01)
"""
SHIPPING = """
import json, os, sys, time
import psutil
import pulsetrain.watching.session
from pulsetrain.runs.folder import RunFolder
from pathlib import Path
me = psutil.Process()
before = me.memory_info().rss
from pulsetrain.transfer.shipper import Shipper
from pulsetrain.transfer.store import open_store
sending = Shipper(RunFolder(Path(sys.argv[1])), open_store(sys.argv[2]), sys.argv[2])
sending.start()
time.sleep(3)
cpu, begin = time.process_time(), time.monotonic()
time.sleep(float(sys.argv[3]))
share = (time.process_time() - cpu) / (time.monotonic() - begin)
print(json.dumps([100 * share, (me.memory_info().rss - before) / 1e6]), flush=True)
os._exit(0)
"""


def run(machine: Machine, quick: bool) -> Report:
    seconds = QUICK_SHIP_SECONDS if quick else SHIP_SECONDS
    watched = QUICK_LATENCY_SECONDS if quick else LATENCY_SECONDS
    results = []
    for kind in ("folder", "collector"):
        with _place(machine, f"ship-{kind}", kind) as (place, _, _):
            share, megabytes = _ship(machine, kind, place, seconds)
        results += [
            Result("transfer", f"sending to a {kind}, of a core", share, "%", target=Limit(0.3)),
            Result("transfer", f"sending to a {kind}, memory", megabytes, "MB", target=Limit(20)),
        ]
    for kind, target in (("folder", 15.0), ("collector", 3.0)):
        with _place(machine, f"late-{kind}", kind) as (place, home, _):
            late = _latencies(machine, kind, place, home, watched)
        name = f"from logged to seen, by {kind}"
        results.append(Result("transfer", f"{name}, median", statistics.median(late), "s"))
        results.append(Result("transfer", f"{name}, latest", max(late), "s", target=Limit(target)))
    with _place(machine, "many", "collector") as (place, home, process):
        share, slowest = _many(place, home, process, QUICK_SEND_SECONDS if quick else SEND_SECONDS)
    results += [
        Result("transfer", f"collector with {SENDERS} runs, of a core", share, "%", target=Limit(200)),
        Result("transfer", "the same: a segment acknowledged, p99", slowest, "s", target=Limit(1.0)),
    ]
    return Report(results)


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PULSETRAIN_HOME": str(home), "PULSETRAIN_COLLECTOR_TOKEN": TOKEN}


@contextmanager
def _place(machine: Machine, name: str, kind: str) -> "Iterator[tuple[str, Path, subprocess.Popen[str] | None]]":
    """Where runs are sent, the folder in which they arrive, and the process that takes them."""
    folder = machine.folder / name
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pulsetrain"]
    if kind == "folder":
        (folder / "store").mkdir()
        command += ["fetch", str(folder / "store"), "--follow", "--quiet"]
        process = subprocess.Popen(command, cwd=ROOT, env=_environment(folder / "home"), text=True)
        place = str(folder / "store")
    else:
        command += ["serve", "--collector", "--no-machine", "--port", "0"]
        process = subprocess.Popen(
            command, cwd=folder, env=_environment(folder / "home"), stderr=subprocess.PIPE, text=True
        )
        assert process.stderr
        said = ""
        while "stop with" not in said:
            said += process.stderr.readline() or "stop with nothing said"
        found = re.search(r"run --to (\S+),", said)
        if not found:
            raise Failed(f"the collector did not start: {said}")
        place = found[1]
    try:
        yield place, folder / "home/runs", process
    finally:
        process.terminate()
        process.communicate()


def _lines(second: int) -> tuple[bytes, bytes]:
    """What is written in a second: of the GPUs, and of the training."""
    gpu = {"timestamp": "2026-11-16T12:00:00.000Z", "elapsed_seconds": float(second), "gpu_index": 0}
    gpu |= {f"reading_{number}": second * 1.37 + number for number in range(30)}
    step = {"timestamp": "2026-11-16T12:00:00.000Z", "elapsed_seconds": float(second), "step": 0, "loss": 0.1234}
    step |= {f"phase_{number}_seconds": 0.001 * second + number for number in range(8)}
    gpus = b"".join(json.dumps(gpu | {"gpu_index": index}).encode() + b"\n" for index in range(GPUS))
    steps = b"".join(json.dumps(step | {"step": number}).encode() + b"\n" for number in range(STEPS_PER_SECOND))
    return gpus, steps


def _ship(machine: Machine, kind: str, place: str, seconds: float) -> tuple[float, float]:
    """Share of a core in percent, and MB."""
    from pulsetrain.runs.folder import Host, Run, RunFolder, host_name

    folder = RunFolder(machine.folder / f"sent-{kind}" / RUN)
    host = folder.host_folder(host_name())
    host.mkdir(parents=True)
    folder.save(Run(id=RUN, name="bench", start=datetime.now(UTC), hosts={host_name(): Host()}))
    enough = threading.Event()

    def write() -> None:
        second = 0
        with (host / "gpu_metrics_1.jsonl").open("ab") as gpus, (host / "training_metrics_1.jsonl").open("ab") as steps:
            while not enough.wait(1.0):
                second += 1
                for file, data in zip((gpus, steps), _lines(second), strict=True):
                    file.write(data)
                    file.flush()

    writing = threading.Thread(target=write)
    writing.start()
    try:
        command = [sys.executable, "-c", SHIPPING, str(folder.path), place, str(seconds)]
        done = subprocess.run(
            command,
            check=False,
            env=_environment(machine.folder),
            capture_output=True,
            text=True,
            timeout=machine.most_seconds + seconds,
        )
    finally:
        enough.set()
        writing.join()
    if done.returncode:
        raise Failed(done.stderr.strip().splitlines()[-1])
    share, megabytes = json.loads(done.stdout)
    return share, megabytes


def _latencies(machine: Machine, kind: str, place: str, home: Path, seconds: float) -> list[float]:
    """How long each logged value took until it was in the run folder at home."""
    command = [sys.executable, "-m", "pulsetrain", "run", "--quiet", "--simulate", "8xH100", "--to", place, "--"]
    command += [sys.executable, "-c", TRAINING, str(seconds)]
    training = subprocess.Popen(command, cwd=ROOT, env=_environment(machine.folder / f"late-{kind}-there"))
    late: list[float] = []
    position, rest = 0, b""
    while training.poll() is None:
        for file in home.glob("*/*/training_metrics_*.jsonl"):
            with file.open("rb") as opened:
                opened.seek(position)
                data = opened.read()
            now = time.time()
            position += len(data)
            *whole, rest = (rest + data).split(b"\n")
            late += [now - line["logged"] for line in map(json.loads, whole) if "logged" in line]
        time.sleep(0.02)
    if not late:
        raise Failed("nothing arrived")
    return late


def _segments(run: str, seconds: int) -> list[tuple[str, bytes]]:
    """A segment a second."""
    made: list[tuple[str, bytes]] = []
    previous, offset = "", 0
    about = json.dumps({"id": run, "name": "bench", "start": "2026-11-16T12:00:00Z", "hosts": {"vm": {}}}).encode()
    for second in range(1, seconds + 1):
        data = b"".join(_lines(second))
        parts = [SegmentPart("run.json", 0, len(about), whole=True)] if second == 1 else []
        parts.append(SegmentPart("vm/training_metrics_1.jsonl", offset, len(data)))
        header = SegmentHeader(run=run, writer="vm-0", seq=second, previous=previous, created=time.time(), parts=parts)
        segment = write_segment(header, [about, data] if second == 1 else [data])
        made.append((name_of(second, segment), segment))
        previous, offset = sha256(segment).hexdigest(), offset + len(data)
    return made


def _many(place: str, home: Path, process: "subprocess.Popen[str] | None", seconds: int) -> tuple[float, float]:
    """Share of a core that the collector takes while all send a segment a second, and the slowest acknowledgements."""
    assert process
    runs = [f"{RUN}{number}" for number in range(SENDERS)]
    prepared = {run: _segments(run, seconds) for run in runs}
    waits: list[float] = []
    begin = time.monotonic() + 2.0

    def send(number: int) -> None:
        connection = http.client.HTTPConnection(place.removeprefix("http://"), timeout=60)
        for second, (name, data) in enumerate(prepared[runs[number]]):
            time.sleep(max(0.0, begin + second + number / SENDERS - time.monotonic()))
            asked = time.monotonic()
            connection.request(
                "PUT", f"/collect/v1/{runs[number]}/vm-0/{name}", data, {"Authorization": f"Bearer {TOKEN}"}
            )
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.HTTPStatus.CREATED:
                raise Failed(f"the collector answers {answer.status}")
            waits.append(time.monotonic() - asked)
        connection.close()

    before = cpu_seconds(process.pid)
    with ThreadPoolExecutor(SENDERS) as senders:
        list(senders.map(send, range(SENDERS)))
    took = time.monotonic() - begin
    share = 100 * (cpu_seconds(process.pid) - before) / took
    for run in runs:
        size = (home / run / "vm/training_metrics_1.jsonl").stat().st_size
        if size != sum(len(b"".join(_lines(second))) for second in range(1, seconds + 1)):
            raise Failed(f"{run} is not whole")
    return share, statistics.quantiles(waits, n=100)[98]
