"""Fleets: 10, 50 and 200 nodes with eight GPUs each, every 15 s, into a real VictoriaMetrics on loopback.

The exposition of one node is that of our own agent, with eight H100 and a training of eight ranks. The other nodes get
their own names, GPUs and runs in it, and values that differ. Each fleet gets a server of its own. What the page asks
for over its time range is there for all of it: six hours.
"""

import gzip
import json
import random
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import psutil
import yaml
from tests.nvml.scenario import Scenario
from tests.servers import VictoriaMetrics, free_port
from tests.waiting import eventually

from benchmarks.processes import ROOT, Machine, end
from benchmarks.results import Limit, Report, Result
from benchmarks.scrape import TrainingRuns
from pulsetrain.runs.folder import host_name

STACK = ROOT / "src/pulsetrain/deploy/stack"
FLEETS, QUICK_FLEETS = (10, 50, 200), (10, 50)
GPUS = RANKS = 8
NODES_OF_A_RUN = 8
INTERVAL_SECONDS = 15
TICKS, QUICK_TICKS = 24, 8
"""Six minutes: recording rules look back five."""
MOST_QUERY_SECONDS = 1.0
ROUNDS = 3
RANGE_HOURS = 6
VARIABLES = {"$__range": f"{RANGE_HOURS}h", "$__interval": "1m", "$host": ".*"}
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$")


@dataclass(frozen=True)
class Loaded:
    """What one fleet cost its server."""

    nodes: int
    series: int
    tick_seconds: float
    """Until the server has taken a tick of all nodes."""
    cpu_seconds: float
    """Of the server, for a tick."""
    memory_bytes: int
    queries: "Timed"
    rules: "Timed"


@dataclass(frozen=True)
class Timed:
    """How long queries took, each the best of a few rounds, and the CPU time of the server for each."""

    seconds: dict[str, float]
    cpu: dict[str, float]

    @property
    def cpu_seconds(self) -> float:
        return sum(self.cpu.values())

    @property
    def slowest(self) -> str:
        return max(self.seconds, key=lambda name: self.seconds[name])

    @property
    def most(self) -> float:
        return self.seconds[self.slowest]


def run(machine: Machine, quick: bool) -> Report:
    if shutil.which(VictoriaMetrics.name) is None:
        return Report([], [f"fleet: {VictoriaMetrics.name} is not installed"])
    node = _node_exposition(machine)
    sizes, ticks = (QUICK_FLEETS, QUICK_TICKS) if quick else (FLEETS, TICKS)
    fleets = [_load(machine, node, nodes, ticks) for nodes in sizes]
    smallest, largest = fleets[0], fleets[-1]
    results = [
        Result(
            "fleet",
            f"slowest query of the fleet page, {fleet.nodes} nodes",
            fleet.queries.most,
            "s",
            target=Limit(MOST_QUERY_SECONDS),
        )
        for fleet in fleets
    ]
    results += [
        Result(
            "fleet",
            f"slowest recording rule, {fleet.nodes} nodes",
            fleet.rules.most,
            "s",
            target=Limit(MOST_QUERY_SECONDS),
        )
        for fleet in fleets
    ]
    results.append(
        Result(
            "fleet",
            f"server CPU for a node, {largest.nodes} nodes beside {smallest.nodes}",
            1000 * largest.cpu_seconds / largest.nodes,
            "ms a tick",
            peer=f"{smallest.nodes} nodes",
            peer_value=1000 * smallest.cpu_seconds / smallest.nodes,
        )
    )
    return Report(results, [*map(_line, fleets), *_churn(node)], {"fleet": [asdict(fleet) for fleet in fleets]})


def _line(fleet: Loaded) -> str:
    return (
        f"fleet: {fleet.nodes} nodes: {fleet.series:,} series, {fleet.series / INTERVAL_SECONDS:,.0f} samples/s; a "
        f"tick takes {fleet.tick_seconds:.2f} s and {fleet.cpu_seconds:.2f} s of CPU; "
        f"{fleet.memory_bytes / 2**20:,.0f} MiB of memory; the "
        f"{len(fleet.queries.seconds)} queries of the page take {fleet.queries.cpu_seconds:.2f} s of CPU, the "
        f"{len(fleet.rules.seconds)} recording rules {fleet.rules.cpu_seconds:.2f} s; slowest: "
        f"{fleet.queries.slowest[:100]} ... ({fleet.queries.cpu[fleet.queries.slowest]:.2f} s of CPU), "
        f"{fleet.rules.slowest} ({fleet.rules.cpu[fleet.rules.slowest]:.2f} s of CPU)"
    )


# One node


def _node_exposition(machine: Machine) -> list[str]:
    """The lines of our own agent on a node with eight GPUs and a training of eight ranks."""
    port = free_port()
    runs = TrainingRuns(machine.folder / "runs", runs=1, ranks=RANKS)
    environment = machine.environment(Scenario().gpus(GPUS, "H100")) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pulsetrain", "watch", "--quiet", "--prometheus-port", str(port)]
    agent = subprocess.Popen([*command, "--runs", str(runs.folder)], cwd=machine.folder, env=environment)

    def scrape() -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        lines = [line for line in text.splitlines() if SAMPLE.match(line)]
        return lines if sum(line.startswith("training_loss{") for line in lines) == RANKS else []

    try:
        assert eventually(scrape)
        time.sleep(12)  # until values that are read every ten seconds have come
        runs.go_on(1.0)
        return list(eventually(scrape))
    finally:
        end([agent])
        runs.close()


def _churn(node: Sequence[str]) -> Iterator[str]:
    """How many series of a node are new with every run."""
    of_run = [line for line in node if 'run="' in line]
    by_rank = sum('rank="' in line for line in of_run)
    names = Counter(line.partition("{")[0].removesuffix("_bucket") for line in of_run)
    yield (
        f"fleet: a node has {len(node)} series; {len(of_run)} of them carry a run id and are new with every run: "
        f"{by_rank / RANKS:.0f} for each rank and {len(of_run) - by_rank} for the run on this node"
    )
    yield f"fleet: most of them: {', '.join(f'{name} {count}' for name, count in names.most_common(4))}"


# A fleet


def _load(machine: Machine, node: Sequence[str], nodes: int, ticks: int) -> Loaded:
    templates = [_renamed(node, number) for number in range(nodes)]
    with VictoriaMetrics(machine.folder / f"fleet-{nodes}") as server:
        process = _process_of(server)
        start = int(time.time()) - ticks * INTERVAL_SECONDS
        _send_past(server.url, templates, start)
        before, began = _cpu(process), time.monotonic()
        for tick in range(ticks):
            for template in templates:
                _send(server.url, template, tick, 1000 * (start + (tick + 1) * INTERVAL_SECONDS))
        seconds, cpu = (time.monotonic() - began) / ticks, (_cpu(process) - before) / ticks
        urllib.request.urlopen(f"{server.url}/internal/force_flush", timeout=60).close()
        at = start + ticks * INTERVAL_SECONDS
        rules = _timed(server.url, process, dict(_rules()), at, record=True)
        queries = _timed(server.url, process, {query: query for query in _fleet_page()}, at)
        series = nodes * len(node)
        memory = process.memory_info().rss
    return Loaded(nodes, series, seconds, cpu, memory, queries, rules)


class Series(NamedTuple):
    """One series of one node, and how its value goes on."""

    name: str
    value: float
    rises: bool
    moves: bool


def _renamed(node: Sequence[str], number: int) -> list[Series]:
    """The series of one node, with its own host, GPUs and run."""
    host, run = f"node-{number:05}", f"run-{number // NODES_OF_A_RUN:05}"
    found = []
    for line in node:
        match = SAMPLE.match(line)
        assert match
        name, labels, value = match.groups()
        labels = labels.replace(f'host="{host_name()}"', f'host="{host}"').replace('run="run-0"', f'run="{run}"')
        labels = labels.replace('uuid="GPU-', f'uuid="GPU-{number:05}-')
        rises = name.endswith(("_total", "_sum", "_count", "_bucket"))
        found.append(Series(f"{name}{{{labels}}}", float(value), rises, not rises and value not in ("0", "1")))
    return found


def _send(url: str, template: Sequence[Series], tick: int, milliseconds: int) -> None:
    """One scrape of one node: counters rise, and other values move about, differently on each node."""
    risen, moved = 1 + tick / 1000, 0.9 + 0.2 * random.random()
    lines = "\n".join(
        f"{name} {value * (risen if rises else moved if moves else 1):.9g} {milliseconds}"
        for name, value, rises, moves in template
    )
    request = urllib.request.Request(
        f"{url}/api/v1/import/prometheus",
        gzip.compress(lines.encode(), 1),
        {"Content-Encoding": "gzip"},
        method="POST",
    )
    urllib.request.urlopen(request, timeout=60).close()


def _send_past(url: str, templates: Sequence[Sequence[Series]], until: int) -> None:
    """The hours before, of what the page asks for over its whole time range."""
    asked = {name for query in _fleet_page() for name in re.findall(r"(\w+)\{[^{}]*\}\)?\[", query)}
    past = range(until - 3600 * RANGE_HOURS, until, INTERVAL_SECONDS)
    times = ",".join(f"{1000 * one}" for one in past)
    for template in templates:
        found = [series for series in template if series.name.partition("{")[0] in asked]
        _import(url, (_line_of(series.name, _past_values(series, len(past)), times) for series in found))


def _past_values(series: Series, count: int) -> str:
    if series.rises:
        return ",".join(f"{series.value * (0.5 + 0.5 * tick / count):.6g}" for tick in range(count))
    moved = [f"{series.value * (0.9 + 0.2 * random.random() if series.moves else 1):.4g}" for _ in range(16)]
    return ",".join(moved[tick % 16] for tick in range(count))


def _line_of(name: str, values: str, times: str) -> str:
    bare, _, labels = name.partition("{")
    metric = {"__name__": bare, **dict(LABEL.findall(labels))}
    return f'{{"metric":{json.dumps(metric)},"values":[{values}],"timestamps":[{times}]}}'


def _import(url: str, lines: Iterable[str]) -> None:
    """Series with many samples each."""
    request = urllib.request.Request(f"{url}/api/v1/import", "\n".join(lines).encode(), method="POST")
    urllib.request.urlopen(request, timeout=60).close()


def _rules() -> Iterator[tuple[str, str]]:
    document = yaml.safe_load((STACK / "prometheus/rules.yml").read_text())
    for group in document["groups"]:
        yield from ((rule["record"], rule["expr"]) for rule in group["rules"] if "record" in rule)


def _fleet_page() -> list[str]:
    """Every query of the fleet dashboard, for all hosts."""
    found: dict[str, None] = {}

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if isinstance(part.get("expr"), str):
                found[part["expr"]] = None
            part = list(part.values())
        if isinstance(part, list):
            for inner in part:
                walk(inner)

    walk(json.loads((STACK / "grafana/pulsetrain-fleet.json").read_text()))
    queries = list(found)
    for name, value in VARIABLES.items():
        queries = [query.replace(name, value) for query in queries]
    return queries


def _timed(url: str, process: psutil.Process, queries: dict[str, str], at: int, *, record: bool = False) -> Timed:
    """How long each query takes, the best of a few rounds; what is recorded is kept as the server would."""
    found, cpu = {}, {}
    for name, query in queries.items():
        seconds, before = [], _cpu(process)
        for _ in range(ROUNDS):
            began = time.monotonic()
            asked = urllib.parse.urlencode({"query": query, "time": at, "nocache": 1}).encode()
            with urllib.request.urlopen(f"{url}/api/v1/query", asked, timeout=60) as answer:
                result = json.load(answer)["data"]["result"]
            seconds.append(time.monotonic() - began)
        found[name], cpu[name] = min(seconds), (_cpu(process) - before) / ROUNDS
        if record:
            _keep(url, name, result, at)
    return Timed(found, cpu)


def _keep(url: str, name: str, result: Sequence[dict[str, Any]], at: int) -> None:
    """A recorded series with the hours before."""
    past = range(at - 3600 * RANGE_HOURS, at + 1, INTERVAL_SECONDS)
    times = ",".join(f"{1000 * one}" for one in past)
    rows = [(row["metric"], row["value"][1]) for row in result if row["value"][1] not in ("NaN", "+Inf")]
    names = [(f"{name}{{{_labels(metric)}}}", value) for metric, value in rows]
    _import(url, (_line_of(one, ",".join([value] * len(past)), times) for one, value in names))
    urllib.request.urlopen(f"{url}/internal/force_flush", timeout=60).close()


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f"{label}={json.dumps(value)}" for label, value in labels.items() if label != "__name__")


def _process_of(server: VictoriaMetrics) -> psutil.Process:
    for connection in psutil.net_connections("tcp4"):
        if connection.status == "LISTEN" and connection.laddr.port == server.port and connection.pid:
            return psutil.Process(connection.pid)
    raise AssertionError(f"nobody listens on port {server.port}")


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
