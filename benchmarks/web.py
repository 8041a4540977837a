"""The web page: its weight, how fast it answers on large runs, and what viewers cost, beside TensorBoard.

The targets were set before anything was measured: they are those of the design.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import psutil

from benchmarks.processes import ROOT, Failed, Machine, cpu_seconds
from benchmarks.results import Limit, Report, Result
from pulsetrain.runs.folder import Host, Run, RunFolder
from pulsetrain.runs.pyramid import write_pyramid

PEER = "tensorboard"
WEEK_SECONDS, QUICK_WEEK_SECONDS = 604_800, 86_400
GPUS = 8
FIRST_VIEW = ("utilization", "power", "gpu_memory", "temperature", "cpu", "memory")
POINTS, PIXELS_POINTS = 1_000_000, 1000
METRICS, STEPS = 100, 400_000
RUNS = 1000
VIEWERS, VIEWER_SECONDS = 20, 20.0
ZOOMS = 20
START = datetime(2026, 11, 16, 12, tzinfo=UTC)


def run(machine: Machine, quick: bool) -> Report:
    seconds = QUICK_WEEK_SECONDS if quick else WEEK_SECONDS
    home = machine.folder / "runs"
    week, points, wide = _week(home, seconds), _points(home), _wide(home)
    with _server(machine, home) as ask:
        first_view = _timed(lambda: (ask(f"/runs/{week}"), ask(f"/runs/{week}/series", chart=FIRST_VIEW, points=1000)))
        zooms = [_zoom(ask, week, seconds, number) for number in range(ZOOMS)]
        many = _timed(lambda: ask(f"/runs/{wide}/series", chart=[f"own:m{n}" for n in range(METRICS)], points=1000))
    ours, our_cpu = _from_start(machine, home, points)
    (theirs, their_cpu), failure = _tensorboard(machine)
    listed = _list(machine)
    share = _viewers(machine)
    length = "a week" if seconds == WEEK_SECONDS else "a day"
    results = [
        Result("web", "JavaScript and CSS of all pages", _weight(), "kB", target=Limit(150)),
        Result("web", f"{length} of {GPUS} GPUs: data of the first view", first_view, "s", target=Limit(1.0)),
        Result("web", "the same: a zoom, median", statistics.median(zooms), "s", target=Limit(0.1)),
        Result(
            "web",
            "1M points, from start to data",
            ours,
            "s",
            PEER,
            theirs,
            Limit(0.1, "ratio"),
            failure=failure,
        ),
        Result("web", "the same, CPU time", our_cpu, "s", PEER, their_cpu, failure=failure),
        Result("web", f"{METRICS} metrics x {STEPS:,} steps, first time", many, "s", target=Limit(0.5)),
        Result("web", f"list of {RUNS:,} runs, first time", listed, "s", target=Limit(0.3)),
        Result("web", f"{VIEWERS} viewers of a live run, of a core", 100 * share, "%", target=Limit(5)),
    ]
    return Report(results)


def _weight() -> float:
    static = ROOT / "src/pulsetrain/views/web/static"
    return sum(file.stat().st_size for file in static.iterdir() if file.suffix in (".js", ".css")) / 1000


Ask = Callable[..., Any]


@contextmanager
def _server(machine: Machine, home: Path) -> Iterator[Ask]:
    """The real command, in a process of its own."""
    with _serving(machine, home) as (_, ask):
        yield ask


@contextmanager
def _serving(machine: Machine, home: Path) -> "Iterator[tuple[subprocess.Popen[bytes], Ask]]":
    from tests.servers import free_port

    port = free_port()
    command = [sys.executable, "-m", "pulsetrain", "serve", "--no-machine", "--quiet", "--port", str(port)]
    process = subprocess.Popen([*command, "--dir", str(home)], cwd=machine.folder)
    address = f"http://127.0.0.1:{port}/api/v1"

    def ask(path: str, **query: Any) -> Any:
        with urllib.request.urlopen(f"{address}{path}?{urllib.parse.urlencode(query, doseq=True)}") as answer:
            return json.load(answer)

    try:
        _until_answered(f"http://127.0.0.1:{port}/healthz", machine.most_seconds)
        yield process, ask
    finally:
        process.terminate()
        process.wait()


def _until_answered(url: str, most_seconds: float) -> Any:
    """The first answer with anything in it, from a server that is starting."""
    deadline = time.monotonic() + most_seconds
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                if body := answer.read():
                    return body
        except OSError:
            pass
        time.sleep(0.01)
    raise Failed(f"no answer in {most_seconds:g} s")


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _zoom(ask: Ask, id: str, seconds: int, number: int) -> float:
    """Into another part each time, from half of all to a thousandth."""
    width = seconds / 2 ** (1 + number % 10)
    start = (seconds - width) * (number / ZOOMS)
    return _timed(lambda: ask(f"/runs/{id}/series", chart=FIRST_VIEW[:4], start=start, end=start + width, points=1000))


def _from_start(machine: Machine, home: Path, id: str) -> tuple[float, float]:
    """Seconds, and those of the CPU."""
    began = time.perf_counter()
    with _serving(machine, home) as (process, ask):
        found = ask(f"/runs/{id}/series", chart="loss", points=PIXELS_POINTS)
        took = time.perf_counter() - began, _cpu_of_all(process)
    assert found["charts"]["loss"][0]["x"]
    return took


def _cpu_of_all(process: "subprocess.Popen[bytes]") -> float:
    """CPU time of a process and those it started: TensorBoard has its files read by another program."""
    first = psutil.Process(process.pid)
    times = [one.cpu_times() for one in (first, *first.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def _tensorboard(machine: Machine) -> tuple[tuple[float | None, float | None], str | None]:
    """The same points in its files, from the start of its server until it has the last of them."""
    if not importlib.util.find_spec("tensorboard"):
        return (None, None), "not installed"
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tests.servers import free_port

    folder = machine.folder / "tensorboard" / "points"
    writer = EventFileWriter(str(folder))
    for step in range(POINTS):
        value = Summary(value=[Summary.Value(tag="loss", simple_value=1 / (1 + step))])
        writer.add_event(Event(wall_time=START.timestamp() + step / 100, step=step, summary=value))
    writer.close()
    port = free_port()
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder.parent), "--port", str(port)]
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=machine.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/data/plugin/scalars/scalars?run=points&tag=loss"
        deadline = time.monotonic() + machine.most_seconds
        while time.monotonic() < deadline:
            shown = json.loads(_until_answered(url, machine.most_seconds))
            if shown[-1][1] == POINTS - 1:
                return (time.perf_counter() - began, _cpu_of_all(process)), None
            time.sleep(0.05)
        return (None, None), f"not all points in {machine.most_seconds:g} s"
    except Failed as error:
        return (None, None), str(error)
    finally:
        process.terminate()
        process.wait()


def _list(machine: Machine) -> float:
    home = machine.folder / "many"
    for number in range(RUNS):
        _make(home, f"20261116-120000-run-{number:04}", 60.0, {})
    with _server(machine, home) as ask:
        return _timed(lambda: ask("/runs"))


def _viewers(machine: Machine) -> float:
    """CPU of the server while many look at a live run that ticks once a second."""
    home = machine.folder / "live"
    code = "import time; time.sleep(100000)"
    command = [sys.executable, "-m", "pulsetrain", "run", "-q", "--simulate", "8xH100", "--dir", str(home)]
    live = subprocess.Popen([*command, "--", sys.executable, "-c", code], env={**os.environ})
    stop = threading.Event()
    try:
        while not (found := list(home.glob("*/run.json"))):
            time.sleep(0.1)
        time.sleep(5)
        id = found[0].parent.name
        with _serving(machine, home) as (server, ask):
            ask(f"/runs/{id}/series", chart=FIRST_VIEW, points=1000)
            url = f"http://127.0.0.1:{_port(server)}/api/v1/stream?topic=run:{id}"
            for _ in range(VIEWERS):
                threading.Thread(target=_view, args=(url, stop), daemon=True).start()
            time.sleep(3)
            before, began = cpu_seconds(server.pid), time.monotonic()
            time.sleep(VIEWER_SECONDS)
            return (cpu_seconds(server.pid) - before) / (time.monotonic() - began)
    finally:
        stop.set()
        live.terminate()
        live.wait()


def _port(server: "subprocess.Popen[bytes]") -> str:
    arguments = [str(word) for word in server.args] if isinstance(server.args, list) else []
    return arguments[arguments.index("--port") + 1]


def _view(url: str, stop: threading.Event) -> None:
    try:
        with urllib.request.urlopen(url) as stream:
            while not stop.is_set():
                stream.readline()
    except OSError:
        return


def _make(home: Path, id: str, seconds: float, tables: Mapping[str, str]) -> str:
    """A sealed run with its pyramids, its tables from SQL over `range`."""
    folder = RunFolder(home / id)
    host = folder.host_folder("vm")
    host.mkdir(parents=True)
    for table, sql in tables.items():
        file = host / f"{table}_metrics_20261116_120000.parquet"
        duckdb.execute(f"COPY ({sql}) TO '{file}' (FORMAT parquet)")
        write_pyramid(file, table)
    end = START + timedelta(seconds=seconds)
    hosts = {"vm": Host(gpus=[{"name": "NVIDIA H100"}] * GPUS)}
    folder.save(Run(id=id, name=id, start=START, end=end, seconds=seconds, status="finished", hosts=hosts))
    return id


def _times(second: str) -> str:
    start = "TIMESTAMP '2026-11-16 12:00:00'"
    return f"{start} + INTERVAL 1 SECOND * ({second}) AS timestamp, ({second})::DOUBLE AS elapsed_seconds"


def _week(home: Path, seconds: int) -> str:
    gpu = f"""
        SELECT {_times("t.range")}, g.range::INTEGER AS gpu_index, 'GPU-' || g.range AS uuid, 'NVIDIA H100' AS name,
            false AS simulated, 1.0 AS up, 90 + 10 * random() AS utilization_percent,
            70000 + 9 * random() AS memory_used_mb, 81559.0 AS memory_total_mb,
            60 + 9 * random() AS temperature_celsius, 600 + 90 * random() AS power_draw_watts
        FROM range({seconds}) t, range({GPUS}) g ORDER BY t.range, g.range"""
    host = f"""
        SELECT {_times("range")}, random() AS cpu_ratio, 8.0 AS cpu_cores, 1e10 * random() AS memory_used_bytes
        FROM range({seconds})"""
    return _make(home, "20261116-120000-week-0001", float(seconds), {"gpu": gpu, "host": host})


def _points(home: Path) -> str:
    fields = "0 AS rank, range::DOUBLE AS step, 1 / (1 + range) AS loss, NULL::VARCHAR AS event"
    sql = f"SELECT {_times('range / 100')}, {fields} FROM range({POINTS})"
    return _make(home, "20261116-130000-points-0002", POINTS / 100, {"training": sql})


def _wide(home: Path) -> str:
    own = ", ".join(f"random() AS m{number}" for number in range(METRICS))
    sql = (
        f"SELECT {_times('range')}, 0 AS rank, range::DOUBLE AS step, {own}, NULL::VARCHAR AS event FROM range({STEPS})"
    )
    return _make(home, "20261116-140000-wide-0003", float(STEPS), {"training": sql})
