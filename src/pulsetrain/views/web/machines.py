"""The machines in view as documents: their present, and the charts of what was seen of them."""

from collections.abc import Iterator, Sequence
from typing import Any

from pulsetrain.units import MIB
from pulsetrain.views.chart_list import CHARTS, GPUS, HOST, DeclaredChart
from pulsetrain.views.live.history import Points
from pulsetrain.views.live.machines import WatchedMachine, latest_events
from pulsetrain.views.text import bytes_text, number, percent, used_of
from pulsetrain.views.web.figures import event_document

POINTS = 300
WINDOW_SECONDS = 900.0
SHOWN = tuple(chart for chart in CHARTS if chart.group in (GPUS, HOST))
"""The charts of a machine."""
Document = dict[str, Any]


def machines_document(machines: Sequence[WatchedMachine], seconds: float = WINDOW_SECONDS) -> list[Document]:
    """Every machine in view."""
    found = []
    for machine in machines:
        with machine.lock:
            found.append(_document(machine, seconds))
    return found


def _document(machine: WatchedMachine, seconds: float) -> Document:
    live = machine.history.live
    end = machine.now
    return {
        "title": machine.title,
        "time": end,
        "seconds": seconds,
        "gpus": [_gpu(state) for state in live.table("gpu")],
        "host": _host(live.host),
        "processes": [_process(state) for state in live.table("process")],
        "charts": list(_charts(machine, seconds, end)) if end is not None else [],
        "events": [
            event_document(one.event.kind, one.event.message, one.event.severity, one.time, one.machine)
            for one in latest_events([machine], end or 0.0)
        ],
    }


def _gpu(state: Any) -> Document:
    labels = state.subject.labels
    used, total = state.number("memory_used_mb"), state.number("memory_total_mb")
    return {
        "name": f"{labels.get('gpu_index')} {str(labels.get('name') or 'GPU').removeprefix('NVIDIA ')}",
        "utilization": state.number("utilization_percent"),
        "utilization_text": number(state.number("utilization_percent"), "%"),
        "memory": used_of(used * MIB if used is not None else None, total * MIB if total is not None else None),
        "memory_percent": state.number("memory_percent"),
        "power": number(state.number("power_draw_watts"), "W"),
        "temperature": number(state.number("temperature_celsius"), "°C"),
    }


def _host(state: Any) -> dict[str, str]:
    found = {
        "CPU": percent(state.number("cpu_ratio")),
        "memory": used_of(state.number("memory_used_bytes"), state.number("memory_total_bytes")),
        "disk read": bytes_text(state.rates.get("disk_read_bytes"), "/s"),
        "disk written": bytes_text(state.rates.get("disk_written_bytes"), "/s"),
        "received": bytes_text(state.rates.get("network_received_bytes"), "/s"),
        "sent": bytes_text(state.rates.get("network_sent_bytes"), "/s"),
    }
    return {name: text for name, text in found.items() if text != "-"}


def _process(state: Any) -> Document:
    memory = state.number("gpu_memory_mb")
    return {
        **{name: state.subject.labels.get(name) for name in ("pid", "user", "command", "gpu_index")},
        "gpu_memory": bytes_text(memory * MIB) if memory is not None else "",
        "cpu": number(state.number("cpu_cores"), digits=1),
        "memory": bytes_text(state.number("memory_bytes")),
    }


def _charts(machine: WatchedMachine, seconds: float, end: float) -> Iterator[Document]:
    for chart in SHOWN:
        lines = list(_lines(machine, chart, seconds, end))
        if lines:
            yield {
                "key": chart.key,
                "title": chart.title,
                "unit": chart.unit,
                "group": chart.group,
                "kind": chart.kind,
                "top": chart.top,
                "zero": chart.zero,
                "lines": lines,
            }


def _lines(machine: WatchedMachine, chart: DeclaredChart, seconds: float, end: float) -> Iterator[Document]:
    history = machine.history
    subjects = [state.subject for state in history.live.table(chart.table)]
    for field, label in chart.fields.items():
        for subject in subjects:
            if field not in history.fields(subject.table, subject.key):
                continue
            points: Points = tuple(
                history.series(subject.table, subject.key, field, end - seconds, end, POINTS, "mean")
            )
            own = f"GPU {subject.labels.get('gpu_index')}" if chart.table == "gpu" else ""
            yield {
                "label": " ".join(filter(None, (own, label))),
                "last": [None if value is None else float(f"{value * chart.scale:.6g}") for value in points],
            }
