"""`pulsetrain doctor`: what works on this machine, what does not and why, and what to do."""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from pulsetrain.cli import options
from pulsetrain.sources import Options

PATIENCE_SECONDS = 5.0


class Finding(NamedTuple):
    part: str
    status: str
    """works, missing, or broken."""
    detail: str
    hint: str = ""


@click.command(short_help="Say what works here, what does not, and what to do.")
@options.machine
@options.directory
@options.json_output
def doctor(machine: Options, directory: str | None, as_json: bool) -> int:
    """Try every part of pulsetrain on this machine. Ends with 1 when something is broken."""
    findings = [*_sources(machine), _home(directory), _config(), _nvml_package()]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode([finding._asdict() for finding in findings]), indent=2))
    else:
        _show(findings)
    return 1 if any(finding.status == "broken" for finding in findings) else 0


def _sources(machine: Options) -> list[Finding]:
    from pulsetrain.sampler import Sampler
    from pulsetrain.sources import SOURCES, open_sources

    opened = open_sources(machine.all_by_default())
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
            found.append(Finding(name, "works", f"{what + ', ' if what else ''}read in {1000 * seconds[name]:.1f} ms"))
        else:
            found.append(Finding(name, "broken", reasons.get(name, f"no answer within {PATIENCE_SECONDS:.0f} s")))
    gpus_seen = [sample.subject.labels for sample in snapshot.samples if sample.subject.table == "gpu"]
    found += [
        Finding("gpu", "works", f"{label['gpu_index']}: {label['name']} ({label['uuid']})") for label in gpus_seen
    ]
    sampler.stop()
    for name, error in opened.unavailable.items():
        found.append(Finding(name, "broken" if error.broken else "missing", error.message, error.hint or ""))
    return found


def _home(directory: str | None) -> Finding:
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
        return Finding("runs", "broken", error.message, error.hint or "")
    except OSError as error:
        hint = "Set PULSETRAIN_HOME to a folder you may write to."
        return Finding("runs", "broken", f"{home.path} cannot be written: {error.strerror}", hint)
    import shutil

    free = shutil.disk_usage(home.path).free
    return Finding("runs", "works", f"{home.path}, {bytes_text(free)} free")


def _config() -> Finding:
    from pulsetrain import config

    path = config.find()  # a broken one has already been reported: it is read before any command runs
    return Finding("config", "works", str(path.resolve()) if path else "no pulsetrain.toml, defaults apply")


def _nvml_package() -> Finding:
    """The abandoned `pynvml` package overwrites the module of nvidia-ml-py."""
    import pynvml

    try:
        intruder = version("pynvml")
    except PackageNotFoundError:
        intruder = ""
    if intruder and int(intruder.split(".")[0]) < 12:  # newer ones only depend on nvidia-ml-py
        hint = "pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py"
        return Finding("nvml", "broken", f"the package pynvml {intruder} overwrites nvidia-ml-py", hint)
    return Finding("nvml", "works", f"nvidia-ml-py {version('nvidia-ml-py')} in {Path(pynvml.__file__).parent}")


def _show(findings: list[Finding]) -> None:
    from pulsetrain.views.text import Style

    style = Style(sys.stdout)
    marks = {"works": style("ok", "green"), "missing": style("--", "dim"), "broken": style("!!", "red")}
    for finding in findings:
        click.echo(f"{marks[finding.status]}  {finding.part:<16} {finding.detail}")
        if finding.hint:
            click.echo(style(f"    {'':<16} {finding.hint}", "dim"))
