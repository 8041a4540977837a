"""`pulsetrain fetch`: runs that other machines send, put together here as they arrive."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pulsetrain.cli import options
from pulsetrain.outputs import OutputOptions

if TYPE_CHECKING:
    from pulsetrain.transfer.fetching import FetchedRun, Fetcher

CLOCK_SECONDS = 5.0
"""A clock that is ahead by more is reported."""


@click.command(short_help="Fetch runs that other machines send.")
@click.argument("place", required=False)
@click.option("--follow", "-f", is_flag=True, help="Keep fetching until Ctrl-C.")
@click.option(
    "--every", type=click.FloatRange(0.2, 3600.0), metavar="SECONDS", help="Time between checks. [default: 5]"
)
@click.option(
    "--run", "only", multiple=True, metavar="ID", help="Only runs whose id starts with this; may be repeated."
)
@click.option(
    "--patience",
    type=click.FloatRange(0.0, 1e6),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long --follow waits for a missing segment after later ones have arrived.",
)
@click.option(
    "--setup",
    is_flag=False,
    flag_value="read",
    type=click.Choice(["read", "send"]),
    help="Sign in to Google Drive, or show how to; use `send` on a machine that sends runs there.",
)
@click.option("--client", metavar="FILE", help="With --setup: the client file from the Google console.")
@options.directory
@options.prometheus
@options.json_output
@options.quiet
@options.logs
def fetch(
    place: str | None,
    follow: bool,
    every: float | None,
    only: tuple[str, ...],
    patience: float,
    setup: str | None,
    client: str | None,
    directory: str | None,
    outputs: OutputOptions,
    as_json: bool,
    quiet: bool,
) -> int:
    """Fetch what `pulsetrain run --to PLACE` and `pulsetrain.init(to=PLACE)` send from elsewhere.

    Fetched runs are ordinary runs here, for `top`, `serve`, `report` and all other commands, even while they are in
    progress. Only new data is fetched. Missing pieces are reported.

    \b
        pulsetrain fetch drive:MyDrive/pulsetrain --follow
        pulsetrain fetch ~/Dropbox/runs
    """
    from pulsetrain.errors import UsageError

    if setup:
        from pulsetrain.transfer.drive_login import sign_in

        for line in sign_in(Path(client) if client else None, setup):
            click.echo(line)
        return 0
    if place is None:
        raise UsageError(
            "PLACE is missing: where should runs be fetched from?", hint="pulsetrain fetch drive:MyDrive/pulsetrain"
        )
    if outputs.prometheus_port is not None and not follow:
        raise UsageError("--prometheus-port needs --follow.")

    from pulsetrain.runs.folder import Home
    from pulsetrain.transfer.fetching import Fetcher
    from pulsetrain.transfer.store import open_store

    store = open_store(place, to_read=True)
    fetcher = Fetcher(store, Home.find(directory), only=only, patience_seconds=patience)
    told = _Told(as_json=as_json, quiet=quiet)
    try:
        if follow:
            _follow(fetcher, every or store.every_seconds, told, outputs, quiet=quiet)
            return 0
        found = fetcher.look(last=True)
        told(found)
        if not found and not quiet and not as_json:
            click.echo(f"there are no runs in {place}")
        return int(any(run.refused for run in found))
    finally:
        fetcher.close()


def _follow(fetcher: "Fetcher", every: float, told: "_Told", outputs: OutputOptions, *, quiet: bool) -> None:
    """Look again and again, and serve what comes to Prometheus where that is wanted."""
    from pulsetrain.cli.messages import to_terminal
    from pulsetrain.cli.stopping import stop_on_signals
    from pulsetrain.serving import web_config
    from pulsetrain.transfer import fetching

    stop = stop_on_signals()
    if outputs.prometheus_port is None:
        fetching.follow(fetcher, stop.wait, every, told)
        return
    from pulsetrain.outputs.prometheus import Exporter
    from pulsetrain.watching.fetched import FetchedMetrics

    protection = web_config.load(Path(outputs.web_config)) if outputs.web_config else None
    exporter = Exporter(
        outputs.prometheus_address,
        outputs.prometheus_port,
        names=outputs.names,
        interval_seconds=every,
        protection=protection,
    )
    metrics = FetchedMetrics(exporter)
    if not quiet:
        to_terminal([exporter.notice])

    def tell(found: "list[FetchedRun]") -> None:
        told(found)
        metrics.take(found, fetcher.seconds)

    try:
        fetching.follow(fetcher, stop.wait, every, tell)
    finally:
        metrics.close()


class _Told:
    """Says what has come, a line for each run in which something has changed."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self._as_json = as_json
        self._quiet = quiet
        self._known: dict[str, tuple[str, ...]] = {}

    def __call__(self, found: "list[FetchedRun]") -> None:
        for run in found:
            news = tuple(self._news(run))
            if (not run.segments and news == self._known.get(run.folder.name)) or (self._quiet and not run.refused):
                continue
            self._known[run.folder.name] = news
            click.echo(_json(run) if self._as_json else f"{run.folder.name}  {', '.join(news) or 'nothing new'}")

    def _news(self, run: "FetchedRun") -> list[str]:
        news = []
        if run.segments:
            news.append(f"{run.segments:,} segment{'s' if run.segments > 1 else ''}, {_size(run.bytes)}")
        news += [f"gap: {gap}" for gap in run.gaps]
        news += [f"waiting for {missing}" for missing in run.waiting]
        if run.created and run.created > time.time() + CLOCK_SECONDS:
            news.append(f"its clock is at least {run.created - time.time():.0f} s ahead of this one")
        return [*news, run.refused] if run.refused else news


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _json(run: "FetchedRun") -> str:
    import msgspec

    document = {
        "run": run.folder.name,
        "folder": str(run.folder),
        "segments": run.segments,
        "bytes": run.bytes,
        "gaps": [{"first": gap.first, "last": gap.last} for gap in run.gaps],
        "waiting": run.waiting,
        "age_seconds": round(run.age_seconds, 3) if run.created else None,
        "refused": run.refused or None,
    }
    return msgspec.json.encode(document).decode()
