"""`pulsetrain runs`: the recorded runs, to list, remove, prune and seal."""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click
import msgspec

from pulsetrain.cli import options
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home, Run, RunFolder

_AGE_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZE_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


class _Age(click.ParamType[timedelta]):
    name = "AGE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", str(value).lower())
        if not found:
            self.fail(f"{value!r} is not an age such as 30d, 12h or 2w")
        return timedelta(seconds=float(found[1]) * _AGE_UNITS[found[2]])


class _Size(click.ParamType[float]):
    name = "SIZE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", str(value).lower())
        if not found or found[2] not in _SIZE_UNITS:
            self.fail(f"{value!r} is not a size such as 500MB or 10GiB")
        return float(found[1]) * _SIZE_UNITS[found[2]]


@click.group(invoke_without_command=True, short_help="List, remove, prune and seal recorded runs.")
@options.directory
@options.json_output
@click.pass_context
def runs(ctx: click.Context, directory: str | None, as_json: bool) -> None:
    """The recorded runs. Without a command: list them, oldest first."""
    ctx.obj = Home.find(directory)
    if ctx.invoked_subcommand is None:
        _list(ctx.obj, as_json)


@runs.command("list")
@options.json_output
@click.pass_obj
def list_runs(home: Home, as_json: bool) -> None:
    """List all runs, oldest first."""
    _list(home, as_json)


@runs.command()
@click.argument("run", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def remove(home: Home, run: tuple[str, ...], yes: bool) -> None:
    """Remove runs, after asking. A run that still goes on is kept."""
    _remove([home.resolve(wanted) for wanted in run], yes)


@runs.command()
@click.option("--older-than", type=_Age(), metavar="AGE", help="Remove runs that ended longer ago, such as 30d.")
@click.option("--keep", type=_Size(), metavar="SIZE", help="Remove the oldest until all together take at most this.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def prune(home: Home, older_than: timedelta | None, keep: float | None, yes: bool) -> None:
    """Remove old runs, by age or until the rest fits into a size."""
    if older_than is None and keep is None:
        raise click.UsageError("say --older-than AGE, --keep SIZE, or both")
    candidates = [folder for folder, about in _readable(home) if about.status != "running"]
    chosen = []
    if older_than is not None:
        limit = datetime.now(UTC) - older_than
        chosen = [folder for folder in candidates if _last_moment(folder.load()) < limit]
    if keep is not None:
        left = sum(folder.size_bytes() for folder in home.runs() if folder not in chosen)
        for folder in candidates:
            if left <= keep:
                break
            if folder not in chosen:
                chosen.append(folder)
                left -= folder.size_bytes()
    if not chosen:
        click.echo("nothing to remove")
        return
    _remove(chosen, yes)


@runs.command()
@click.argument("run", nargs=-1, required=True)
@click.pass_obj
def seal(home: Home, run: tuple[str, ...]) -> None:
    """Make Parquet of the JSON lines of runs that have ended: a fraction of the size, and quick to read.

    While a run goes on, its full files (64 MiB) are sealed by themselves.
    """
    from pulsetrain.runs import seal as sealing
    from pulsetrain.views.text import bytes_text

    for folder in [home.resolve(wanted) for wanted in run]:
        if folder.load().status == "running":
            raise click.UsageError(f"{folder.path.name} is still running")
        before = folder.size_bytes()
        sealed = sealing.seal_all(folder)
        click.echo(f"{folder.path.name}: {sealed} files, {bytes_text(before)} became {bytes_text(folder.size_bytes())}")


def _list(home: Home, as_json: bool) -> None:
    from pulsetrain.views.text import Style, bytes_text, cut, duration, table

    found = list(_readable(home))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode([about for _, about in found]), indent=2))
        return
    if not found:
        click.echo(f"no runs in {home.path}. Record one: pulsetrain run -- python train.py")
        return
    style = Style(sys.stdout)
    colours = {"failed": ("red",), "died": ("red",), "running": ("green",), "interrupted": ("yellow",)}
    rows = [
        (
            cut(about.id, 50),
            about.name,
            f"{about.start.astimezone():%Y-%m-%d %H:%M}",
            duration((_last_moment(about) - about.start).total_seconds()) if about.end else "",
            style(about.status, *colours.get(about.status, ())),
            _gpus(about),
            bytes_text(folder.size_bytes()),
        )
        for folder, about in found
    ]
    head = ("run", "name", "started", "took", "status", "GPUs", "size")
    click.echo("\n".join(table(head, rows, style, "lllrllr")))


def _readable(home: Home) -> Iterator[tuple[RunFolder, Run]]:
    """All runs but those whose run.json is damaged, which are named."""
    for folder in home.runs():
        try:
            yield folder, folder.load()
        except PulsetrainError as error:
            click.echo(f"warning: {error}", err=True)


def _gpus(run: Run) -> str:
    names: dict[str, int] = {}
    for host in run.hosts.values():
        for gpu in host.gpus:
            name = str(gpu.get("name", "?")).removeprefix("NVIDIA ")
            names[name] = names.get(name, 0) + 1
    return ", ".join(f"{count}x {name}" for name, count in names.items())


def _last_moment(run: Run) -> datetime:
    return run.end or run.start


def _remove(folders: list[RunFolder], yes: bool) -> None:
    from pulsetrain.views.text import bytes_text

    for folder in folders:
        if folder.load().status == "running":
            raise click.UsageError(f"{folder.path.name} is still running")
    size = bytes_text(sum(folder.size_bytes() for folder in folders))
    for folder in folders:
        click.echo(f"  {folder.path}")
    if not yes:
        click.confirm(f"Remove {len(folders)} run{'s' if len(folders) > 1 else ''} ({size})?", abort=True)
    for folder in folders:
        folder.remove()
    click.echo(f"removed {len(folders)}, {size} freed")
