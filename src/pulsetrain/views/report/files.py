"""The files of a report. Beside report.html those of the older benchmark tool, with its names, titles and rows."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from pulsetrain.insight.report import Report, Study
from pulsetrain.runs.database import Database
from pulsetrain.units import JOULES_PER_KWH
from pulsetrain.views import phrases
from pulsetrain.views.text import grid

UNKNOWN = "unknown"
_AVERAGES = """
    any_value(name) AS name,
    avg(utilization_percent) FILTER (utilization_percent > 0) AS av_util,
    avg(power_draw_watts) FILTER (utilization_percent > 0) AS av_power,
    avg(temperature_celsius) FILTER (utilization_percent > 0) AS av_temp,
    avg(memory_used_mb) FILTER (utilization_percent > 0) AS av_mem,
    max(power_limit_watts) AS max_power_limit, max(memory_total_mb) AS total_mem
"""


def write_html(study: Study, database: Database, folder: Path) -> list[Path]:
    """report.html alone."""
    from pulsetrain.views.charts import run_charts
    from pulsetrain.views.report.html import report_html

    return [_write(folder, "report.html", report_html(study.report, run_charts(study, database)).encode())]


def write_files(
    study: Study, database: Database, folder: Path, *, more: Mapping[str, Any] | None = None, plot: bool = True
) -> list[Path]:
    """report.html, metrics.yml, formatted_metrics.txt and, of a run with GPUs, metrics_plot.png.

    `more` is added to metrics.yml; without `plot` there is no picture.
    """
    import yaml

    report = study.report
    figures, gpus = _figures(report, database), _gpu_averages(database)
    ours = {"summary": report.summary, "energy": report.energy, "carbon": report.carbon, "cost": report.cost}
    document = {**figures, "gpus": gpus, "run": report.run.id, **msgspec.to_builtins(ours), **(more or {})}
    written = [
        *write_html(study, database, folder),
        _write(folder, "metrics.yml", yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode()),
        _write(folder, "formatted_metrics.txt", _formatted(figures, gpus).encode()),
    ]
    return [*written, *(write_plot(report, database, folder) if plot else [])]


def write_plot(report: Report, database: Database, folder: Path) -> list[Path]:
    """metrics_plot.png, of a run with GPUs."""
    return [_write(folder, "metrics_plot.png", _plot(report, database))] if report.summary.gpus else []


def _plot(report: Report, database: Database) -> bytes:
    from pulsetrain.views import plots
    from pulsetrain.views.charts import gpu_charts, run_span

    charts = gpu_charts(database)
    return plots.png(charts, report.run.name, run_span(report, charts))


def _figures(report: Report, database: Database) -> dict[str, Any]:
    """What the older tool reported, under its names; None where it is not known."""
    energy = report.energy.of_kind("gpu")
    kwh = None if energy is None else energy.joules / JOULES_PER_KWH
    carbon = report.carbon
    slots = carbon.slots if carbon else []
    (averages,) = database.rows(f"SELECT {_AVERAGES} FROM gpu")
    return {
        "benchmark_image": report.run.name,
        "elapsed_time": report.seconds,
        "total_energy": kwh,
        "total_carbon": None if kwh is None or carbon is None else kwh * carbon.grams_per_kwh,
        "av_carbon_forecast": carbon.grams_per_kwh if carbon else None,
        "start_datetime": _time(slots[0].start if slots else report.run.start) if carbon else None,
        "end_datetime": _time(slots[-1].end if slots else report.run.end) if carbon else None,
        **averages,
        "name": _names(report),
    }


def _gpu_averages(database: Database) -> list[dict[str, Any]]:
    return database.rows(
        f"SELECT host, any_value(gpu_index) AS gpu_index, {_AVERAGES} FROM boards.gpu "
        "GROUP BY host, board ORDER BY host, gpu_index"
    )


def _names(report: Report) -> str | None:
    return ", ".join(dict.fromkeys(gpu.name for gpu in report.summary.gpus if gpu.name)) or None


def _time(time: datetime | None) -> str | None:
    return None if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _formatted(figures: dict[str, Any], gpus: list[dict[str, Any]]) -> str:
    results = [
        ("Benchmark Image Name", figures["benchmark_image"]),
        ("Elapsed Monitor Time of Container (s)", _number(figures["elapsed_time"])),
        ("Total GPU Energy Consumed (kWh)", _number(figures["total_energy"])),
        ("Total GPU Carbon Emissions (gCO2)", _number(figures["total_carbon"])),
    ]
    carbon = [
        ("Average Carbon Forecast (gCO2/kWh)", _number(figures["av_carbon_forecast"], 1)),
        ("Carbon Forecast Start Time", figures["start_datetime"] or UNKNOWN),
        ("Carbon Forecast End Time", figures["end_datetime"] or UNKNOWN),
    ]
    head = ("Metric", "Value")
    parts = [
        ("GPU and Carbon Performance Results", grid(head, results)),
        ("Carbon Information", grid(head, carbon)),
        ("GPU Information", grid(head, _gpu_rows(figures))),
    ]
    if len(gpus) > 1:
        parts.append(("Each GPU", grid(*_each_gpu(gpus))))
    return "\n\n".join(f"{title}\n\n{grid}" for title, grid in parts) + "\n"


def _gpu_rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    limit, memory = _number(figures["max_power_limit"], 0), _number(figures["total_mem"], 0)
    return [
        ("GPU Name", figures["name"] or UNKNOWN),
        ("Average GPU Util. (for >0.00% GPU Util.) (%)", _number(figures["av_util"])),
        ("Avg GPU Power (for >0.00% GPU Util.) (W)", f"{_number(figures['av_power'])} (Power Limit: {limit})"),
        ("Avg GPU Temperature (for >0.00% GPU Util.) (C)", _number(figures["av_temp"])),
        ("Avg GPU Memory (for >0.00% GPU Util.) (MiB)", f"{_number(figures['av_mem'])} (Total Memory: {memory})"),
    ]


def _each_gpu(gpus: list[dict[str, Any]]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """The same averages, one GPU after the other."""
    several_hosts = len({gpu["host"] for gpu in gpus}) > 1
    head = (
        "GPU",
        "Name",
        "Util. (%)",
        "Power (W)",
        "Power Limit (W)",
        "Temperature (C)",
        "Memory (MiB)",
        "Total (MiB)",
    )
    fields = ("av_util", "av_power", "max_power_limit", "av_temp", "av_mem", "total_mem")
    rows: list[Sequence[str]] = [
        (
            phrases.gpu_label(gpu["host"], gpu["gpu_index"], several_hosts),
            gpu["name"] or UNKNOWN,
            *(_number(gpu[field], 1) for field in fields),
        )
        for gpu in gpus
    ]
    return head, rows


def _number(value: float | None, digits: int = 5) -> str:
    """So many decimals, and more where a small value needs them to be seen."""
    if value is None:
        return UNKNOWN
    if 0 < value < 1:
        digits = max(digits, 2 - math.floor(math.log10(value)))
    return f"{value:.{digits}f}"


def _write(folder: Path, name: str, content: bytes) -> Path:
    """Whole or not at all; a folder that cannot be written is reported as such."""
    from pulsetrain.errors import PulsetrainError

    path, temporary = folder / name, folder / f".{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise PulsetrainError(
            f"{path} cannot be written: {error.strerror}.", hint="Choose another folder: --output FOLDER"
        ) from None
    return path
