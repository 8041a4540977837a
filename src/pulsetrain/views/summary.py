"""A run in a few lines: what is shown when it ends."""

from pulsetrain.insight.report import Report
from pulsetrain.insight.summary import TrainingSummary
from pulsetrain.views import phrases
from pulsetrain.views.text import Style, table, wrap


def summary_lines(report: Report, style: Style) -> list[str]:
    """The run's name and outcome, its GPUs as a table, and a line for everything else that is known."""
    summary = report.summary
    lines = [phrases.headline(report, style)]
    if summary.gpus:
        rows = phrases.gpu_rows(report, style)
        lines += table(phrases.GPU_HEAD, rows, style, phrases.GPU_ALIGN, phrases.GPU_SPARE)
    lost = report.run.lost_samples
    facts = [
        ("GPUs", "" if summary.gpus else phrases.why_no_gpus(report.run)),
        *_training(summary.training),
        ("job", phrases.job(summary, phrases.run_seconds(report))),
        ("host", phrases.host(summary)),
        ("energy", phrases.total_energy(report)),
        ("carbon", phrases.carbon_line(report) if report.carbon or report.account.carbon_region else ""),
        ("cost", phrases.cost_line(report) if report.cost or report.account.price else ""),
        ("lost", f"{lost} samples could not be written" if lost else ""),
    ]
    lines += [f"{style(f'{name:<7}', 'dim')} {wrap(text, style, 8)}" for name, text in facts if text]
    return [*lines, f"{style('run    ', 'dim')} {report.path}"]


def _training(training: TrainingSummary | None) -> list[tuple[str, str]]:
    """The training loop in up to three lines."""
    if training is None:
        return []
    loss = phrases.loss(training)
    speed = [phrases.step_time(training), phrases.rates(training), phrases.flops(training)]
    return [
        ("steps", phrases.steps(training) + (f", loss {loss}" if loss else "")),
        ("speed", ", ".join(filter(None, speed))),
        ("time", phrases.shares(training)),
    ]
