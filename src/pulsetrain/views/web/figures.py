"""Figures for the page, in words: the same names, units and rounding as in the terminal and in reports."""

from typing import TYPE_CHECKING, Any

from pulsetrain.views.live.progress import RunProgress
from pulsetrain.views.text import duration, energy, grams, money, number, percent, rate, short_duration

if TYPE_CHECKING:
    from pulsetrain.insight.report import Report

Figures = list[dict[str, str]]


def progress_figures(progress: RunProgress) -> Figures:
    """A run in progress, in the figures that matter."""
    step, total = progress.number("step"), progress.number("total_steps")
    steps = progress.steps
    found = {
        "step": "" if step is None else number(step) + (f" of {number(total)}" if total else ""),
        "done": percent(progress.ratio) if progress.ratio is not None else "",
        "left": duration(progress.remaining_seconds) if progress.remaining_seconds is not None else "",
        "loss": _plain(progress.number("loss")),
        "step time": short_duration(steps.quantile(0.5)) if steps else "",
        "samples/s": rate(progress.number("throughput_samples_per_sec")),
        "energy": energy(progress.total("energy_joules")),
        "carbon": grams(progress.total("carbon_grams")),
        "cost": ", ".join(money(amount, currency) for currency, amount in progress.used("cost").items()),
    }
    return _figures(found)


def report_figures(report: "Report") -> Figures:
    """A recorded run, in the figures that matter."""
    from pulsetrain.insight.summary import mean
    from pulsetrain.views import phrases

    training, gpus = report.summary.training, report.summary.gpus
    found = {
        "steps": number(training.steps) if training and training.steps else "",
        "loss": _plain(training.loss_last) if training else "",
        "step time": short_duration(training.step_seconds_p50) if training else "",
        "samples/s": rate(training.samples_per_second) if training else "",
        "GPU utilization": number(mean(gpu.utilization_percent_mean for gpu in gpus), "%"),
        "energy": phrases.energy_text(report.energy.total),
        "carbon": grams(report.carbon.grams) if report.carbon else "",
        "cost": money(report.cost.amount, report.cost.currency) if report.cost else "",
    }
    return _figures(found)


def event_document(kind: str, message: str, severity: str, seconds: float, host: str) -> dict[str, Any]:
    """An event as the page gets it."""
    return {"kind": kind, "message": message, "severity": severity, "seconds": round(seconds, 3), "host": host}


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _figures(found: dict[str, str]) -> Figures:
    return [{"name": name, "value": value} for name, value in found.items() if value and value != "-"]
