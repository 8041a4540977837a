"""pulsetrain on a Debian or Ubuntu machine over ssh: everything in one connection, run again without harm."""

import base64
import csv
import hashlib
import io
import re
import tarfile
import zipfile
from importlib import metadata, resources
from pathlib import Path
from typing import NamedTuple

from pulsetrain.deploy.cloud.remote import Remote
from pulsetrain.deploy.cloud.tools import run_tool
from pulsetrain.errors import PulsetrainError, UsageError

STACK_HOME = "/var/lib/pulsetrain-stack"
PACKAGE = "pulsetrain"
_UNPACK = (
    'd=$(mktemp -d) && trap \'rm -rf "$d"\' EXIT && tar -xzf - -C "$d" && '
    'if [ "$(id -u)" = 0 ]; then sh "$d/install.sh" "$d" {words}; else sudo -n sh "$d/install.sh" "$d" {words}; fi'
)
"""In one command, so that a password or a touch of a key is asked for once."""


class InstallResult(NamedTuple):
    """What changed on the machine, and what it warned of."""

    changes: list[str]
    warnings: list[str]


def install(remote: Remote, *, package: str | None, stack: bool) -> InstallResult:
    """Install pulsetrain there, as the agent of the machine."""
    files = _files()
    name = package
    if package is None:
        name, files_of_wheel = own_wheel()
        files[name] = files_of_wheel
    elif _is_file(package):
        name = Path(package).name
        files[name] = _read(Path(package))
    words = f"{_quoted(name or '')} {'yes' if stack else 'no'}"
    if (
        remote.by_gcloud
    ):  # which makes a key, and waits for the machine, with connections of its own that would read ours
        first = run_tool(remote.command("true"), environment=remote.environment)
        if first.code:
            raise _failed(remote, first.code, first.stderr, [])
    command = remote.command(_UNPACK.format(words=words))
    done = run_tool(command, given=_archive(files), environment=remote.environment)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    changes = [line.removeprefix("changed: ") for line in lines if line.startswith("changed: ")]
    if done.code:
        raise _failed(remote, done.code, done.stderr, changes)
    warned = [line for line in done.stderr.splitlines() if line.startswith(("warning: ", "  hint: "))]
    return InstallResult(changes, warned)


def _failed(remote: Remote, code: int, stderr: str, changes: list[str]) -> PulsetrainError:
    lines = [line for line in stderr.splitlines() if line.strip()]
    ours = next((number for number, line in enumerate(lines) if line.startswith("error: ")), None)
    still = f"Done before that: {'; '.join(changes)}." if changes else "Nothing was changed there."
    if ours is not None:
        before = "".join(f"\n  {line}" for line in lines[:ours] if not line.startswith(("warning:", "  hint:")))
        hint = next((line.partition("hint: ")[2] for line in lines[ours:] if "hint: " in line), None)
        return PulsetrainError(f"{remote.name}: {lines[ours].removeprefix('error: ')}{before}", still=still, hint=hint)
    said = " ".join(lines[-3:]) or f"exit code {code}"
    if "sudo" in said:
        hint = "Log in as root (root@HOST), or let your user use sudo without a password."
    elif remote.by_gcloud:
        hint = f"Does this work? pulsetrain cloud vm ssh {remote.name}. A new machine needs a minute to start."
    else:
        hint = f"Does this work? {' '.join(remote.command())}"
    return PulsetrainError(f"{remote.name}: {said}", still=still, hint=hint)


def _files() -> dict[str, bytes]:
    package = resources.files("pulsetrain.deploy")
    return {
        "install.sh": (package / "cloud/install.sh").read_bytes(),
        "pulsetrain.service": (package / "systemd/pulsetrain.service").read_bytes(),
    }


def _archive(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def _is_file(package: str) -> bool:
    if package.endswith((".whl", ".tar.gz")) and "://" not in package:
        if not Path(package).is_file():
            raise UsageError(f"{package} does not exist.", hint="Build one: python -m build, or pip wheel --no-deps .")
        return True
    if package.startswith("-") or not re.fullmatch(r"[^\s'\"\\]+", package):
        raise UsageError(f"{package!r} is not a wheel, a URL or a requirement such as pulsetrain==0.1.")
    return False


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def own_wheel() -> tuple[str, bytes]:
    """A wheel of this very installation, always with the same bytes: its name and its content."""
    found = metadata.distribution(PACKAGE)
    tag = f"{PACKAGE}-{found.version}"
    folder = Path(str(resources.files(PACKAGE)))
    files = {
        f"{PACKAGE}/{file.relative_to(folder).as_posix()}": file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    about = found.read_text("METADATA")
    if not about:
        raise PulsetrainError("this installation cannot be copied.", hint="Give a wheel with --package.")
    files[f"{tag}.dist-info/METADATA"] = about.encode()
    files[f"{tag}.dist-info/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: pulsetrain\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{tag}.dist-info/entry_points.txt"] = (found.read_text("entry_points.txt") or "").encode()
    record = io.StringIO()
    writer = csv.writer(record, lineterminator="\n")
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        writer.writerow((name, f"sha256={digest}", len(content)))
    writer.writerow((f"{tag}.dist-info/RECORD", "", ""))
    files[f"{tag}.dist-info/RECORD"] = record.getvalue().encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return f"{tag}-py3-none-any.whl", stream.getvalue()
