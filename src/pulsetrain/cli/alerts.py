"""`pulsetrain alerts`: what fires now and fired before, and what is not to be heard of."""

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from pulsetrain.cli import options
from pulsetrain.errors import PulsetrainError, UsageError, did_you_mean
from pulsetrain.rules.declared import RULES
from pulsetrain.rules.thresholds import duration_seconds, is_duration
from pulsetrain.runs.folder import Home, Run, RunFolder
from pulsetrain.untrusted import printable

if TYPE_CHECKING:
    from pulsetrain.insight.alerts import RunAlert

MOST_RUNS = 200
"""So many of the newest runs are looked at."""
MOST_BEFORE = 20
"""Alerts of the past that are listed, unless a run is named."""


class _Alerts(click.Group):
    """Whatever is not the name of a command is a run whose alerts are wanted."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            return "list", self.commands["list"], args
        return super().resolve_command(ctx, args)


class _Found(NamedTuple):
    run: Run
    alert: "RunAlert"

    @property
    def firing(self) -> bool:
        return not self.alert.ended and self.run.status == "running"


@click.group(cls=_Alerts, invoke_without_command=True, short_help="List alerts, and silence them.")
@options.directory
@options.json_output
@click.pass_context
def alerts(ctx: click.Context, directory: str | None, as_json: bool) -> None:
    """List the alerts that are firing and those that fired before, for all runs or for one: `pulsetrain alerts last`.

    The rules and their thresholds are in docs/alerts.md.
    """
    ctx.obj = Home.find(directory)
    if ctx.invoked_subcommand is None:
        _list(ctx.obj, None, as_json)


@alerts.command("list")
@click.argument("run", required=False)
@options.json_output
@click.pass_obj
def list_alerts(home: Home, run: str | None, as_json: bool) -> None:
    """List the alerts of RUN (an id or the start of one, a name, a path, or `last`), or of all runs."""
    _list(home, home.resolve(run) if run else None, as_json)


def _duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    if not is_duration(value):
        raise click.BadParameter(f"{value!r} is not a duration such as 30m, 2h or 1d")
    return duration_seconds(value)


_of_run = click.option("--run", metavar="RUN", help="For this run only.")


@alerts.command()
@click.argument("rule")
@click.option(
    "--for",
    "seconds",
    metavar="DURATION",
    callback=_duration,
    help="How long, such as 30m, 2h or 1d. [default: until unsilenced]",
)
@_of_run
@click.pass_obj
def silence(home: Home, rule: str, seconds: float | None, run: str | None) -> None:
    """Do not show or send RULE for a while. Runs in progress notice within seconds."""
    from pulsetrain.alerts.silences import Silence, load_silences, save_silences, silences_file

    until = time.time() + seconds if seconds is not None else None
    added = Silence(rule=_known(rule), run=_run_id(home, run), until=until)
    kept = [one for one in load_silences(silences_file()) if (one.rule, one.run) != (added.rule, added.run)]
    save_silences(silences_file(), [*kept, added])
    click.echo(_silence_text(added))


@alerts.command()
@click.argument("rule")
@_of_run
@click.pass_obj
def unsilence(home: Home, rule: str, run: str | None) -> None:
    """Show RULE again."""
    from pulsetrain.alerts.silences import load_silences, save_silences, silences_file

    name, run_id = _known(rule), _run_id(home, run)
    silences = load_silences(silences_file())
    kept = [one for one in silences if (one.rule, one.run) != (name, run_id)]
    if len(kept) == len(silences):
        raise UsageError(f"{name} is not silenced{f' for {run_id}' if run_id else ''}.", hint="See: pulsetrain alerts")
    save_silences(silences_file(), kept)
    click.echo(f"{name} is shown again")


def _known(rule: str) -> str:
    """The name of a rule, however it is capitalized."""
    names = {known.name.lower(): known.name for known in RULES}
    if rule.lower() in names:
        return names[rule.lower()]
    hint = f"{did_you_mean(rule, names.values())}All rules: docs/alerts.md."
    raise UsageError(f"unknown rule: {rule}.", hint=hint)


def _run_id(home: Home, run: str | None) -> str | None:
    return home.resolve(run).load().id if run else None


def _list(home: Home, folder: RunFolder | None, as_json: bool) -> None:
    from pulsetrain.alerts.silences import load_silences, silences_file

    found = _found([folder] if folder else list(home.runs())[: -MOST_RUNS - 1 : -1])
    silences = load_silences(silences_file())
    if as_json:
        document = {
            "firing": [_document(one) for one in found if one.firing],
            "before": [_document(one) for one in found if not one.firing],
            "silences": silences,
        }
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
        return
    lines = _lines(found, most_before=None if folder else MOST_BEFORE)
    lines += [_silence_text(silence) for silence in silences]
    click.echo(printable("\n".join(lines)))


def _found(folders: list[RunFolder]) -> list[_Found]:
    """The alerts of these runs: those that fire, the gravest first; then those that fired, the latest first."""
    from pulsetrain.insight.alerts import read_alerts
    from pulsetrain.rules.alert import GRAVITY

    found: list[_Found] = []
    for folder in folders:
        try:
            run = folder.load()
        except PulsetrainError:  # `runs` shows what is wrong with it
            continue
        found += [_Found(run, alert) for alert in read_alerts(folder)]
    latest = sorted(found, key=lambda one: -(one.alert.time or 0.0))
    return sorted(latest, key=lambda one: GRAVITY[one.alert.severity] if one.firing else len(GRAVITY))


def _document(one: _Found) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(one.alert)
    return {"run": one.run.id, "name": one.run.name, **document}


def _lines(found: list[_Found], most_before: int | None) -> list[str]:
    from pulsetrain.views.text import Style, wrap

    style = Style(sys.stdout)
    firing = [one for one in found if one.firing]
    before = [one for one in found if not one.firing]
    lines = [style("firing", "bold") if firing else "no alerts are firing", *_table(firing, style)]
    advice = dict.fromkeys(f"{one.alert.rule}: {one.alert.advice}" for one in firing if one.alert.advice)
    lines += [f"  {wrap(text, style, 4)}" for text in advice]
    if before:
        lines += ["", style("before", "bold"), *_table(before[:most_before], style)]
        hidden = len(before) - len(before[:most_before])
        lines += [style(f"  and {hidden} more: pulsetrain alerts RUN, or --json", "dim")] if hidden else []
    return lines


def _table(shown: list[_Found], style: Any) -> list[str]:
    from pulsetrain.views.machine import SEVERITIES
    from pulsetrain.views.phrases import alert_length
    from pulsetrain.views.text import table

    rows = [
        (
            style(one.alert.severity, SEVERITIES[one.alert.severity]),
            one.alert.rule,
            "" if one.alert.time is None else f"{_local(one.alert.time):%Y-%m-%d %H:%M:%S}",
            alert_length(one.alert, one.run),
            one.alert.message,
        )
        for one in shown
    ]
    return (
        [f"  {line}" for line in table(("", "alert", "since", "for", "message"), rows, style, "lllll")] if rows else []
    )


def _local(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).astimezone()


def _silence_text(silence: Any) -> str:
    run = f" for {silence.run}" if silence.run else ""
    until = "" if silence.until is None else f" until {_local(silence.until):%Y-%m-%d %H:%M:%S}"
    return f"{silence.rule}{run} is silenced{until}"
