"""`pulsetrain runs`: the recorded runs, to list, name, tag, annotate, group, remove, prune and seal."""

import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from pulsetrain.cli import options
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home, Run, RunFolder
from pulsetrain.untrusted import printable

if TYPE_CHECKING:
    from pulsetrain.cli.usage import UsageFormat
    from pulsetrain.insight.listing import ListedRun
    from pulsetrain.insight.usage import Grouping

Command = TypeVar("Command", bound=Callable[..., Any])

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


def _choice(command: Command) -> Command:
    """Which runs are listed, in which order, with which figures."""
    where = click.option(
        "--where",
        multiple=True,
        metavar="CONDITION",
        help="Only runs that match: 'loss<0.1', status=failed, a tag or a setting such as lr=0.1, a name that the "
        "program logs. May be repeated.",
    )
    sort = click.option(
        "--sort",
        metavar="FIELD",
        help="By name, user, project, status, started, took, size, steps, loss, step_seconds, energy, carbon, cost, "
        "goodput, utilization, a tag, a setting, a logged name or best/NAME; -FIELD reverses the order.",
    )
    show = click.option(
        "--show",
        metavar="NAMES",
        help="Columns for tags, settings, logged names or versions: lr,val_loss,commit,torch.",
    )
    project = click.option("--project", help="Only runs of this project.")
    return project(where(sort(show(command))))


@click.group(invoke_without_command=True, short_help="List, tag, remove, prune and seal recorded runs.")
@options.directory
@_choice
@click.option(
    "--since", type=_Age(), metavar="AGE", help="Only runs that started within this time, such as 30d or 12h."
)
@click.option(
    "--by",
    type=click.Choice(["user", "project", "host"]),
    help="Show totals instead: GPU hours, idle hours, energy, carbon, cost and goodput of each.",
)
@click.option("--csv", "form", flag_value="csv", help="With --by: print CSV with plain numbers.")
@click.option("--markdown", "form", flag_value="markdown", help="With --by: print a Markdown table.")
@options.json_output
@click.pass_context
def runs(
    ctx: click.Context,
    directory: str | None,
    project: str | None,
    where: tuple[str, ...],
    sort: str | None,
    show: str | None,
    since: timedelta | None,
    by: "Grouping | None",
    form: "UsageFormat | None",
    as_json: bool,
) -> None:
    """Manage recorded runs. Without a command, list them, oldest first.

    Times are in this machine's time zone; the time in a run's id is UTC.
    """
    ctx.obj = Home.find(directory)
    if ctx.invoked_subcommand is not None:
        return
    if form and not by:
        raise click.UsageError(f"--{form} needs --by")
    if by and (sort or show):
        raise click.UsageError("--sort and --show cannot be combined with --by")
    readable = _started_since(_readable(ctx.obj), since)
    if by:
        _add_up(readable, project, where, by, "json" if as_json else form or "text")
    else:
        _list(ctx.obj, readable, project, where, sort, show, as_json)


@runs.command("list")
@_choice
@options.json_output
@click.pass_obj
def list_runs(
    home: Home, project: str | None, where: tuple[str, ...], sort: str | None, show: str | None, as_json: bool
) -> None:
    """List runs, oldest first: `pulsetrain runs list --where 'loss<0.1' --sort loss --show val_loss`."""
    _list(home, list(_readable(home)), project, where, sort, show, as_json)


@runs.command()
@options.run_required
@click.argument("name")
@click.pass_obj
def rename(home: Home, run: str, name: str) -> None:
    """Give a run another NAME. Its id and folder stay the same."""
    _change(home.resolve(run), name=name)


@runs.command()
@options.run_required
@click.argument("tags", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.pass_obj
def tag(home: Home, run: str, tags: tuple[str, ...]) -> None:
    """Tag a run. A tag with an empty value, such as `lr=`, is removed."""
    folder = home.resolve(run)
    pairs = [tag.partition("=") for tag in tags]
    if wrong := [key for key, sign, _ in pairs if not key or not sign]:
        raise click.UsageError(f"{wrong[0]!r} is not KEY=VALUE")
    kept = folder.load().tags | {key: value for key, _, value in pairs}
    _change(folder, tags={key: value for key, value in kept.items() if value})


@runs.command()
@options.run_required
@click.argument("text")
@click.pass_obj
def note(home: Home, run: str, text: str) -> None:
    """Write a note about a run; an empty TEXT removes it."""
    _change(home.resolve(run), note=text)


@runs.command()
@options.run_required
@click.argument("project")
@click.pass_obj
def group(home: Home, run: str, project: str) -> None:
    """Put a run into a PROJECT, for `runs --project` and `runs --by project`. An empty PROJECT takes it out."""
    _change(home.resolve(run), project=project)


@runs.command()
@options.some_runs
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def remove(home: Home, run: tuple[str, ...], yes: bool) -> None:
    """Remove runs, after asking for confirmation. A run in progress cannot be removed."""
    _remove([home.resolve(wanted) for wanted in run], yes)


@runs.command()
@click.option(
    "--older-than", type=_Age(), metavar="AGE", help="Remove runs that ended longer ago than this, such as 30d."
)
@click.option(
    "--keep", type=click.IntRange(min=0), metavar="COUNT", help="Keep only this many of the newest runs, such as 10."
)
@click.option(
    "--keep-size",
    type=_Size(),
    metavar="SIZE",
    help="Remove the oldest runs until the rest fit into this size, such as 10GB.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def prune(home: Home, older_than: timedelta | None, keep: int | None, keep_size: float | None, yes: bool) -> None:
    """Remove old runs: by age, all but the newest, or until the rest fit into a given size."""
    if older_than is None and keep is None and keep_size is None:
        raise click.UsageError("choose --older-than AGE, --keep COUNT or --keep-size SIZE")
    candidates = [folder for folder, about in _readable(home) if not folder.may_live(about)]
    chosen = []
    if older_than is not None:
        limit = datetime.now(UTC) - older_than
        chosen = [folder for folder in candidates if (folder.load().end or folder.last_moved()) < limit]
    if keep is not None:
        newest = list(home.runs())[-keep:] if keep else []
        kept = {folder.path for folder in newest}
        chosen += [folder for folder in candidates if folder.path not in kept and folder not in chosen]
    if keep_size is not None:
        left = sum(folder.size_bytes() for folder in home.runs() if folder not in chosen)
        for folder in candidates:
            if left <= keep_size:
                break
            if folder not in chosen:
                chosen.append(folder)
                left -= folder.size_bytes()
    if not chosen:
        click.echo("nothing to remove")
        return
    _remove(chosen, yes)


@runs.command()
@options.some_runs
@click.pass_obj
def seal(home: Home, run: tuple[str, ...]) -> None:
    """Convert the JSON lines of runs that have ended to Parquet: a fraction of the size, and faster to read.

    Full files (64 MiB) of a run in progress are sealed automatically. Large files also get a coarse copy, a .pyramid,
    so that the web page opens at once.
    """
    from pulsetrain.runs import seal as sealing
    from pulsetrain.views.text import bytes_text

    for folder in [home.resolve(wanted) for wanted in run]:
        folder.must_have_ended()
        before = folder.size_bytes()
        sealed = sealing.seal_all(folder)
        click.echo(f"{folder.name}: {sealed} files, {bytes_text(before)} became {bytes_text(folder.size_bytes())}")


def _add_up(
    readable: list[tuple[RunFolder, Run]],
    project: str | None,
    where: tuple[str, ...],
    by: "Grouping",
    form: "UsageFormat",
) -> None:
    from pulsetrain.cli.usage import print_usage
    from pulsetrain.insight.digest import whole_digest
    from pulsetrain.insight.listing import ListedRun
    from pulsetrain.insight.usage import usage_by

    meets = _conditions(project, where)
    found = []
    for folder, run in readable:
        digest = whole_digest(folder, run)
        if digest and meets(ListedRun(run=run, digest=digest)):
            found.append((run, digest))
    if not found and form == "text":
        click.echo("no runs")
        return
    print_usage(usage_by(by, found), by, form)


def _conditions(project: str | None, where: tuple[str, ...]) -> "Callable[[ListedRun], bool]":
    from pulsetrain.insight.listing import condition

    conditions = [condition(text) for text in where]
    if project is not None:
        conditions.append(lambda listed: listed.run.project == project)
    return lambda listed: all(meets(listed) for meets in conditions)


def _list(
    home: Home,
    readable: list[tuple[RunFolder, Run]],
    project: str | None,
    where: tuple[str, ...],
    sort: str | None,
    show: str | None,
    as_json: bool,
) -> None:
    from pulsetrain.insight import listing
    from pulsetrain.views.text import Style, bytes_text, cut, durations, in_one_unit, short_duration, table

    meets = _conditions(project, where)
    found = [run for run in listing.list_runs(readable) if meets(run)]
    if sort:
        found.sort(key=listing.sort_key(sort.removeprefix("-")), reverse=sort.startswith("-"))
    if as_json:
        documents = [msgspec.to_builtins(one.digest) | msgspec.to_builtins(one.run) for one in found]
        click.echo(msgspec.json.format(msgspec.json.encode(documents), indent=2))
        return
    if not readable:
        click.echo(f"no runs in {home.path}. Record one: pulsetrain run -- python train.py")
        return
    if not found:
        wanted = (*([f"project={project}"] if project is not None else []), *where)
        click.echo(f"none of {len(readable)} runs match {' and '.join(wanted)}")
        return
    shown = [name.strip() for name in (show or "").split(",") if name.strip()]
    projects = any(one.run.project for one in found)
    style = Style(sys.stdout)
    colors = {"failed": ("red",), "died": ("red",), "running": ("green",), "interrupted": ("yellow",)}
    step_times = in_one_unit([one.digest.step_seconds for one in found], short_duration)
    lasted = durations([one.run.seconds for one in found])
    sizes = in_one_unit([one.digest.size_bytes for one in found], bytes_text)
    rows = [
        (
            cut(one.run.id, 50),
            one.run.name,
            *([cut(one.run.project, 24)] if projects else []),
            f"{one.run.start.astimezone():%Y-%m-%d %H:%M}",
            took,
            style(one.run.status, *colors.get(one.run.status, ())),
            _shown(one.digest.loss),
            step_time,
            *(_shown(one.value(name)) for name in shown),
            _gpus(one.run),
            size,
            cut(" ".join(f"{key}={value}" for key, value in one.run.tags.items()), 40),
            cut(one.run.note, 40),
        )
        for one, took, step_time, size in zip(found, lasted, step_times, sizes, strict=True)
    ]
    started = f"started ({datetime.now().astimezone():%Z})"
    first = ("run (UTC)", "name", *(["project"] if projects else []))
    head = (*first, started, "took", "status", "loss", "step time", *shown, "GPUs", "size", "tags", "note")
    spare = tuple(head.index(name) for name in ("size", "GPUs", "note", "tags"))
    align = len(first) * "l" + "lrlrr" + len(shown) * "r" + "lrll"
    click.echo("\n".join(table(head, rows, style, align, spare)))


def _shown(value: str | float | None) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _change(folder: RunFolder, **changes: Any) -> None:
    """Change what run.json says of a run that has ended: while it lives, the watching process writes that file."""
    folder.must_have_ended()
    folder.save(msgspec.structs.replace(folder.load(), **changes))
    click.echo(f"{folder.path.name}: {', '.join(changes)} changed")


def _started_since(found: Iterator[tuple[RunFolder, Run]], age: timedelta | None) -> list[tuple[RunFolder, Run]]:
    first = None if age is None else datetime.now(UTC) - age
    return [(folder, run) for folder, run in found if first is None or run.start >= first]


def _readable(home: Home) -> Iterator[tuple[RunFolder, Run]]:
    """All runs but those whose run.json is damaged, which are named."""
    for folder in home.runs():
        try:
            yield folder, folder.load()
        except PulsetrainError as error:
            click.echo(printable(f"warning: {error}"), err=True)


def _gpus(run: Run) -> str:
    names: dict[str, int] = {}
    for host in run.hosts.values():
        for gpu in host.gpus:
            name = str(gpu.get("name", "?")).removeprefix("NVIDIA ")
            names[name] = names.get(name, 0) + 1
    return ", ".join(f"{count}x {name}" for name, count in names.items())


def _remove(folders: list[RunFolder], yes: bool) -> None:
    from pulsetrain.views.text import bytes_text

    for folder in folders:
        folder.must_have_ended()
    size = bytes_text(sum(folder.size_bytes() for folder in folders))
    for folder in folders:
        click.echo(f"  {folder}")
    if not yes:
        click.confirm(f"Remove {len(folders)} run{'s' if len(folders) > 1 else ''} ({size})?", abort=True)
    for folder in folders:
        folder.remove()
    click.echo(f"removed {len(folders)}, {size} freed")
