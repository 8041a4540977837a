"""`pulsetrain doctor`: what works on this machine, what does not and why, and what to do."""

import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from pulsetrain.cli import options
from pulsetrain.errors import UsageError
from pulsetrain.runs.folder import SCHEMA
from pulsetrain.sources import Options

SILENT_SECONDS = 60.0
"""A run in progress of which nothing was written for so long is in trouble."""


class Check(NamedTuple):
    """How one part of pulsetrain does on this machine."""

    part: str
    status: str
    """works, missing, degraded, or broken."""
    detail: str
    hint: str = ""


@click.command(short_help="Check what works on this machine, and how to fix the rest.")
@options.machine
@options.directory
@options.json_output
def doctor(machine: Options, directory: str | None, as_json: bool) -> int:
    """Check every part of pulsetrain on this machine. Exits with 1 when something is broken."""
    checks = [*_sources(machine), _home(directory), *_runs_in_progress(directory), _config(), _nvml_package()]
    if as_json:
        click.echo(
            msgspec.json.format(
                msgspec.json.encode([{"schema": SCHEMA} | check._asdict() for check in checks]), indent=2
            )
        )
    else:
        _show(checks)
    return 1 if any(check.status == "broken" for check in checks) else 0


def _sources(machine: Options) -> list[Check]:
    from pulsetrain.sampler import Sampler
    from pulsetrain.sources import SOURCES
    from pulsetrain.sources.opening import PATIENCE_SECONDS, open_sources

    opened = open_sources(machine.all_by_default(), PATIENCE_SECONDS)
    sampler = Sampler(opened.sources, 1.0)
    snapshot = sampler.once(PATIENCE_SECONDS)
    reasons = {
        str(event.details.get("source")): event.message for event in snapshot.events if event.kind == "source_down"
    }
    health = next(sample.values for sample in snapshot.samples if sample.subject.table == "host")
    up, seconds = health["source_up"], health["source_read_seconds"]
    assert isinstance(up, dict) and isinstance(seconds, dict)
    found = []
    for source in opened.sources:
        name = source.name
        what = SOURCES.get(name, "")
        if up.get(name) and name in seconds:
            found.append(Check(name, "works", f"{what + ', ' if what else ''}read in {1000 * seconds[name]:.1f} ms"))
        else:
            found.append(Check(name, "broken", reasons.get(name, f"no answer within {PATIENCE_SECONDS:.0f} s")))
    gpus_seen = [sample.subject.labels for sample in snapshot.samples if sample.subject.table == "gpu"]
    found += [Check("gpu", "works", f"{label['gpu_index']}: {label['name']} ({label['uuid']})") for label in gpus_seen]
    sampler.stop()
    for name, error in opened.unavailable.items():
        found.append(Check(name, "broken" if error.broken else "missing", error.message, error.hint or ""))
    return found


def _home(directory: str | None) -> Check:
    from pulsetrain.errors import PulsetrainError
    from pulsetrain.runs.folder import Home
    from pulsetrain.views.text import bytes_text

    try:
        home = Home.find(directory)
        home.path.mkdir(parents=True, exist_ok=True)
        probe = home.path / ".doctor"
        probe.write_bytes(b"")
        probe.unlink()
    except PulsetrainError as error:
        return Check("runs", "broken", error.message, error.hint or "")
    except OSError as error:
        hint = "Set PULSETRAIN_HOME to a folder you can write to."
        return Check("runs", "broken", f"{home.path} cannot be written: {error.strerror}", hint)
    import shutil

    free = shutil.disk_usage(home.path).free
    return Check("runs", "works", f"{home.path}, {bytes_text(free)} free")


def _runs_in_progress(directory: str | None) -> list[Check]:
    """How recording goes in the runs that are being written now, as far as they say."""
    from pulsetrain.errors import PulsetrainError
    from pulsetrain.runs.folder import Home
    from pulsetrain.views.phrases import trouble
    from pulsetrain.views.text import duration

    checks = []
    try:
        folders = list(Home.find(directory).runs())
    except (PulsetrainError, OSError):
        return []  # the check of the folder says so
    for folder in folders:
        try:
            run = folder.load()
            silent = time.time() - folder.last_moved().timestamp()
        except (PulsetrainError, OSError):
            continue
        if run.status != "running":
            continue
        found = [
            Check("run", "broken" if ": down" in line else "degraded", f"{run.id}: {line}") for line in trouble(run)
        ]
        if silent > SILENT_SECONDS + 10 * run.interval_seconds:
            hint = "The disk is full or hangs, or the watching process was stopped."
            found.append(Check("run", "broken", f"{run.id}: nothing was written for {duration(silent)}", hint))
        checks += found or [Check("run", "works", f"{run.id} is being recorded")]
    return checks


def _config() -> Check:
    from pulsetrain import settings

    try:
        found = settings.in_force()
    except UsageError as error:
        return Check("config", "broken", error.message, error.hint or "")
    files = ", ".join(str(file.resolve()) for file in found.files) or "no pulsetrain.toml; using the defaults"
    return Check("config", "works", files, " ".join(found.ignored))


def _nvml_package() -> Check:
    """The abandoned `pynvml` package overwrites the module of nvidia-ml-py."""
    import pynvml

    try:
        intruder = version("pynvml")
    except PackageNotFoundError:
        intruder = ""
    if intruder and int(intruder.split(".")[0]) < 12:  # newer ones only depend on nvidia-ml-py
        hint = "pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py"
        return Check("nvml", "broken", f"the package pynvml {intruder} overwrites nvidia-ml-py", hint)
    return Check("nvml", "works", f"nvidia-ml-py {version('nvidia-ml-py')} in {Path(pynvml.__file__).parent}")


def _show(checks: list[Check]) -> None:
    from pulsetrain.views.text import Style

    style = Style(sys.stdout)
    marks = {
        "works": style("ok", "green"),
        "missing": style("--", "dim"),
        "degraded": style("! ", "yellow"),
        "broken": style("!!", "red"),
    }
    for check in checks:
        click.echo(f"{marks[check.status]}  {check.part:<16} {check.detail}")
        if check.hint:
            click.echo(style(f"    {'':<16} {check.hint}", "dim"))
