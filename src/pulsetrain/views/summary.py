"""A run in a few lines: what is shown when it ends."""

from pulsetrain.insight.report import Report
from pulsetrain.insight.time_ledger import TimeLedger
from pulsetrain.insight.training_summary import TrainingSummary
from pulsetrain.views import phrases, time_phrases
from pulsetrain.views import training_phrases as words
from pulsetrain.views.provenance_phrases import account_source
from pulsetrain.views.text import Style, table, wrap
from pulsetrain.views.verdict_phrases import verdict_lines


def summary_lines(report: Report, style: Style) -> list[str]:
    """The run's name and outcome, its GPUs as a table, and a line for everything else that is known."""
    lines = [phrases.headline(report, style)]
    if report.summary.gpus:
        rows = phrases.gpu_rows(report, style)
        lines += table(phrases.GPU_HEAD, rows, style, phrases.GPU_ALIGN, phrases.GPU_SPARE)
    return [*lines, *(f"{style(f'{name:<7}', 'dim')} {wrap(text, style, 8)}" for name, text in facts(report, style))]


def facts(report: Report, style: Style) -> list[tuple[str, str]]:
    """A name and a text for everything but the GPUs; an empty name continues the one before."""
    summary, lost = report.summary, report.run.lost_samples
    found = [
        ("GPUs", "" if summary.gpus else phrases.why_no_gpus(report.run)),
        *verdict_lines(report, style),
        *_training(summary.training),
        *_time(report.ledger, style),
        *phrases.own_metrics(report.own_metrics, style),
        ("job", phrases.job(summary, report.seconds)),
        ("host", phrases.host(summary)),
        ("energy", phrases.total_energy(report)),
        ("carbon", _with_source(phrases.carbon_line(report), report, "carbon_region")),
        ("cost", _with_source(phrases.cost_line(report), report, "price")),
        ("alerts", phrases.alerts_line(report)),
        *(("missing", reason.removesuffix(".")) for reason in report.missing),
        ("lost", f"{lost} samples could not be written" if lost else ""),
        ("trouble", "; ".join(phrases.trouble(report.run))),
        ("run", report.path),
    ]
    return [(name, text) for name, text in found if text]


def _with_source(line: str, report: Report, name: str) -> str:
    """A line about carbon or cost, and who named its region or price; nothing where nobody did."""
    return line + account_source(report, name) if getattr(report.account, name) else ""


def _training(training: TrainingSummary | None) -> list[tuple[str, str]]:
    """The training loop in a few lines."""
    if training is None:
        return []
    loss = words.loss(training)
    speed = [words.step_time(training), words.rates(training), words.flops(training)]
    return [
        ("steps", words.steps(training) + (f", loss {loss}" if loss else "")),
        ("updates", words.updates(training)),
        ("speed", ", ".join(filter(None, speed))),
        ("step", words.shares(training)),
        ("rest", words.left_out(training)),
    ]


def _time(ledger: TimeLedger | None, style: Style) -> list[tuple[str, str]]:
    """What all time went into, as a bar with words."""
    if ledger is None:
        return []
    bar = time_phrases.time_bar(ledger, style)
    return [("time", f"{bar}  {time_phrases.goodput(ledger)}".rstrip()), ("", time_phrases.time_words(ledger, style))]
