"""A fleet as a document, from a Prometheus-compatible server: its nodes, GPUs that are held and idle, and its runs."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pulsetrain import catalog
from pulsetrain.errors import PulsetrainError
from pulsetrain.rules.alert import GRAVITY
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds
from pulsetrain.snapshot import Metric
from pulsetrain.units import MIB
from pulsetrain.views.chart_list import DeclaredChart
from pulsetrain.views.text import bytes_text, duration, money, number, percent, short_duration
from pulsetrain.views.web.machines import SHOWN
from pulsetrain.views.web.promql import PromSeries, PromServer, quoted_label

Document = dict[str, Any]

KEPT_SECONDS = 5.0
"""All viewers get the same answer for so long."""
POINTS = 240
NEAR = "1h"
"""A node that was seen in this time is shown, also while it is away."""
AWAY_SECONDS = 120.0
HELD_SECONDS = 60.0
IDLE_LEAST_SECONDS = 300.0
LONGEST_IDLE = "1d"
"""How far back the last work of a GPU is looked for."""
LONGEST_IDLE_SECONDS = 86400.0
PACE = "5m"
MOST_NODES = 500
MOST_ROWS = 200
MOST_KEPT = 16


def _name(table: str, field: str) -> str:
    return catalog.metric(table, field).name


_UTILIZATION = _name("gpu", "utilization_percent")
_BUILD = catalog.BUILD_INFO.name
_RUN = catalog.RUN_INFO.name


class Fleet:
    """What a server knows of a fleet. Callers are in several threads; one of them asks at a time."""

    def __init__(self, address: str, thresholds: Thresholds = DEFAULTS) -> None:
        self._server = PromServer(address)
        self._idle_percent = thresholds.idle_percent
        self._lock = threading.Lock()
        self._kept: dict[tuple[float, str], tuple[float, Document]] = {}

    @property
    def title(self) -> str:
        return self._server.title

    def close(self) -> None:
        self._server.close()

    def document(self, seconds: float, host: str = "") -> Document:
        """The fleet in the last so many seconds, or one node of it. A server that is away is reported, not raised."""
        with self._lock:
            made, found = self._kept.get((seconds, host), (0.0, {}))
            if not found or time.monotonic() > made + KEPT_SECONDS:
                found = self._read(seconds, host)
                while len(self._kept) >= MOST_KEPT:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[seconds, host] = time.monotonic(), found
            return found

    def _read(self, seconds: float, host: str) -> Document:
        now = time.time()
        about: Document = {"server": self.title, "time": now, "seconds": seconds, "host": host, "problem": None}
        try:
            found = self._node(host, now, seconds) if host else self._all(now, seconds)
        except PulsetrainError as error:
            about["problem"] = " ".join(filter(None, (error.message, error.hint)))
            found = {}
        return {"nodes": [], "idle": [], "runs": [], "charts": []} | found | about

    def _all(self, now: float, seconds: float) -> Document:
        runs = self._runs(now)
        charts = [
            self._chart("node_utilization", "Utilization", "%", f"avg by (host) ({_UTILIZATION})", now, seconds, 100.0),
            self._chart("node_power", "Power", "W", f"sum by (host) ({_each('power_draw_watts')})", now, seconds),
        ]
        return {
            "nodes": self._nodes(),
            "idle": self._idle(now),
            "runs": runs,
            "charts": [chart for chart in charts if chart["lines"]],
        }

    def _nodes(self) -> list[Document]:
        """Every node that was seen lately, with its GPUs as they are now."""
        away = self._by(f"time() - max by (host) (max_over_time(timestamp({_BUILD})[{NEAR}:1m]))", "host")
        gpus: dict[str, dict[str, Document]] = defaultdict(dict)
        for field in ("utilization_percent", "memory_percent", "power_draw_watts", "temperature_celsius", "up"):
            for series in self._server.now(_each(field)):
                gpu = gpus[_label(series, "host")].setdefault(_label(series, "gpu"), {"gpu": _label(series, "gpu")})
                gpu[field] = series.value
        for series in self._server.now(f"group by (host, gpu, name) ({catalog.DEVICE_INFO['gpu'].name})"):
            known = gpus[_label(series, "host")].get(_label(series, "gpu"))
            if known:
                known["name"] = _label(series, "name").removeprefix("NVIDIA ")
        hosts = sorted({host for (host,) in away} | {host for host in gpus if host})
        return [_node(host, gpus[host], away.get((host,))) for host in hosts[:MOST_NODES]]

    def _idle(self, now: float) -> list[Document]:
        """GPUs that a process holds and that have done nothing for a while: whose, how long, and what it cost."""
        busy = f"timestamp({_each('utilization_percent')} > {self._idle_percent!r})"
        since = self._by(f"time() - max_over_time({busy}[{LONGEST_IDLE}:1m])", "host", "gpu")
        now_idle = self._by(f"{_each('utilization_percent')} <= {self._idle_percent!r}", "host", "gpu")
        started = self._by(f"max by (host, pid) ({_name('process', 'start_time_seconds')})", "host", "pid")
        prices = self._prices()
        labels = ("host", "gpu", "pid", "user", "command", "run")
        held = self._by(f"max by ({', '.join(labels)}) ({_name('process', 'gpu_memory_mb')}) > 0", *labels)
        rows: list[Document] = []
        for (host, gpu, pid, user, command, run), memory in held.items():
            if (host, gpu) not in now_idle:
                continue
            known = [since.get((host, gpu), LONGEST_IDLE_SECONDS)]
            known += [max(0.0, now - started[host, pid])] if (host, pid) in started else []
            idle = min(known)
            if idle < IDLE_LEAST_SECONDS:
                continue
            rate, currency = prices.get(run, (None, ""))
            rows.append(
                {
                    "host": host,
                    "gpu": gpu,
                    "pid": pid,
                    "user": user,
                    "command": command,
                    "run": run,
                    "memory": bytes_text(memory * MIB),
                    "seconds": idle,
                    "idle": ("over " if idle >= LONGEST_IDLE_SECONDS else "") + duration(idle),
                    "cost": money(rate * idle, currency) if rate is not None else "",
                }
            )
        return sorted(rows, key=lambda row: -row["seconds"])[:MOST_ROWS]

    def _prices(self) -> dict[str, tuple[float, str]]:
        """What a second of a GPU of a run costs, with its currency."""
        time_of = self._by(f"sum by (run) ({_name('account', 'gpu_seconds')})", "run")
        cost = self._by(f"sum by (run, currency) ({_name('account', 'cost')})", "run", "currency")
        return {
            run: (amount / time_of[run,], currency)
            for (run, currency), amount in cost.items()
            if time_of.get((run,), 0.0) > 0
        }

    def _runs(self, now: float) -> list[Document]:
        """The runs in progress: how far, how fast, and what is wrong with them."""
        hosts: dict[str, set[str]] = defaultdict(set)
        names: dict[str, str] = {}
        for run, name, host in self._by(f"group by (run, name, host) ({_RUN})", "run", "name", "host"):
            hosts[run].add(host)
            names[run] = name
        start = self._by(f"min by (run) ({catalog.RUN_START.name})", "run")
        figures = {
            "progress": f"max by (run) ({_name('account', 'progress_ratio')})",
            "left": f"max by (run) ({_name('account', 'remaining_seconds')})",
            "pace": f"max by (run) (rate({_name('training', 'step')}[{PACE}]))",
            "loss": f"max by (run) ({_name('training', 'loss')})",
            "idle": f"sum by (run) (rate({_name('account', 'gpu_idle_seconds')}[{PACE}])) "
            f"/ sum by (run) (rate({_name('account', 'gpu_seconds')}[{PACE}]))",
        }
        values = {name: self._by(query, "run") for name, query in figures.items()}
        cost = self._by(f"sum by (run, currency) ({_name('account', 'cost')})", "run", "currency")
        alerts = self._alerts()
        rows = []
        for run in sorted(hosts, key=lambda run: -start.get((run,), 0.0))[:MOST_ROWS]:
            own = {name: found.get((run,)) for name, found in values.items()}
            amounts = [money(amount, currency) for (other, currency), amount in cost.items() if other == run]
            rows.append(
                {
                    "run": run,
                    "name": names[run] or run,
                    "hosts": sorted(hosts[run]),
                    "took": duration(max(0.0, now - start[run,])) if (run,) in start else "",
                    "progress": percent(own["progress"]) if own["progress"] is not None else "",
                    "left": duration(own["left"]) if own["left"] is not None else "",
                    "step_time": short_duration(1 / own["pace"]) if own["pace"] else "",
                    "loss": f"{own['loss']:.4g}" if own["loss"] is not None else "",
                    "idle": percent(own["idle"]) if own["idle"] is not None else "",
                    "cost": ", ".join(amounts),
                    "alerts": alerts.get(run, []),
                }
            )
        return rows

    def _alerts(self) -> dict[str, list[Document]]:
        """What fires of each run, the gravest first."""
        found: dict[str, list[Document]] = defaultdict(list)
        query = f"group by (run, alertname, severity) ({catalog.ALERT.name} == 1)"
        for run, name, severity in self._by(query, "run", "alertname", "severity"):
            found[run].append({"name": name, "severity": severity})
        for rows in found.values():
            rows.sort(
                key=lambda row: ([*GRAVITY].index(row["severity"]) if row["severity"] in GRAVITY else 9, row["name"])
            )
        return found

    def _node(self, host: str, now: float, seconds: float) -> Document:
        """The charts of one node, as those of a machine."""
        nodes = [node for node in self._nodes() if node["host"] == host]
        found = [self._node_chart(chart, host, now, seconds) for chart in SHOWN] if nodes else []
        return {"nodes": nodes, "charts": [chart for chart in found if chart["lines"]]}

    def _node_chart(self, chart: DeclaredChart, host: str, now: float, seconds: float) -> Document:
        lines: list[Document] = []
        for field, label in chart.fields.items():
            metric = catalog.metric(chart.table, field)
            query = _of_host(metric, host, "gpu" if chart.table == "gpu" else "", rate=chart.rate)
            for series in sorted(self._course(query, now, seconds), key=lambda one: _natural(_label(one, "gpu"))):
                own = f"GPU {_label(series, 'gpu')}" if chart.table == "gpu" else ""
                text = " ".join(filter(None, (own, label))) or chart.title
                lines.append({"label": text, "last": _on_grid(series, now, seconds, chart.scale)})
        return _chart_document(chart.key, chart.title, chart.unit, lines, chart.top, zero=chart.zero)

    def _chart(
        self, key: str, title: str, unit: str, query: str, now: float, seconds: float, top: float | None = None
    ) -> Document:
        found = sorted(self._course(query, now, seconds), key=lambda one: _label(one, "host"))
        lines = [
            {"label": _label(series, "host"), "last": _on_grid(series, now, seconds)} for series in found[:MOST_NODES]
        ]
        return _chart_document(key, title, unit, lines, top)

    def _course(self, query: str, now: float, seconds: float) -> list[PromSeries]:
        step = seconds / POINTS
        return self._server.between(query, now - seconds + step / 2, now, step)

    def _by(self, query: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The values of a query by these labels."""
        return {tuple(_label(series, name) for name in labels): series.value for series in self._server.now(query)}


def _each(field: str) -> str:
    """A gauge of each GPU: an agent and a run on one machine both tell it."""
    return f"max by (host, gpu) ({_name('gpu', field)})"


def _of_host(metric: Metric, host: str, by: str, *, rate: bool) -> str:
    selected = f"{metric.name}{{host={quoted_label(host)}}}"
    if rate:
        selected = f"rate({selected}[1m])"
    total = f"sum by (run, {by or 'host'}) ({selected})" if metric.by else selected
    return f"max by ({by}) ({total})" if by else f"max({total})"


def _label(series: PromSeries, name: str) -> str:
    return series.labels.get(name, "")


def _natural(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isascii() and text.isdigit() and len(text) < 9 else (10**9, text)


def _node(host: str, gpus: Mapping[str, Document], away: float | None) -> Document:
    is_away = away is not None and away > AWAY_SECONDS
    return {
        "host": host,
        "away": duration(away) if is_away and away is not None else "",
        "gpus": [_gpu(gpus[gpu]) for gpu in sorted(gpus, key=_natural)],
    }


def _gpu(gpu: Document) -> Document:
    return {
        "gpu": gpu["gpu"],
        "name": gpu.get("name", ""),
        "lost": gpu.get("up") == 0,
        "utilization": gpu.get("utilization_percent"),
        "text": ", ".join(
            text
            for text in (
                number(gpu.get("utilization_percent"), "%"),
                f"memory {number(gpu.get('memory_percent'), '%')}",
                number(gpu.get("power_draw_watts"), "W"),
                number(gpu.get("temperature_celsius"), "°C"),
            )
            if not text.endswith("-")
        ),
    }


def _on_grid(series: PromSeries, now: float, seconds: float, scale: float = 1.0) -> list[float | None]:
    """A value for each of the equal parts of the time; it holds for a while, for nodes say something now and then."""
    found: list[float | None] = [None] * POINTS
    width = seconds / POINTS
    for place, value in _placed(series.values, now - seconds, width):
        until = min(POINTS, place + 1 + int(HELD_SECONDS / width))
        found[place:until] = [float(f"{value * scale:.6g}")] * (until - place)
    return found


def _placed(values: Iterable[tuple[float, float]], start: float, width: float) -> Iterator[tuple[int, float]]:
    for moment, value in values:
        place = int((moment - start) // width)
        if 0 <= place < POINTS:
            yield place, value


def _chart_document(
    key: str, title: str, unit: str, lines: Sequence[Document], top: float | None, *, zero: bool = True
) -> Document:
    about = {"key": key, "title": title, "unit": unit, "group": "", "kind": "lines", "top": top, "zero": zero}
    return about | {"lines": lines}
