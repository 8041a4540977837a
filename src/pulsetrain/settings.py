"""Settings from files. Options and PULSETRAIN_* come first.

The user's own file is ~/.pulsetrain/pulsetrain.toml, or the one that --config names. A `pulsetrain.toml` of the working
folder may have come with somebody else's repository: what it says about display, thresholds and counting is added, what
it says about where data goes is not.
"""

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from pulsetrain.errors import UsageError, did_you_mean
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds
from pulsetrain.snapshot import Severity

FILE_NAME = "pulsetrain.toml"
CONFIG_VARIABLE = "PULSETRAIN_CONFIG"
MOST_BYTES = 2**20
ALL_THRESHOLDS = "All thresholds: docs/alerts.md."
USERS_OWN = frozenset({"dir", "notify", "on_alert", "push", "shared", "to"})
"""Settings that say where data goes, who may see it or what is run: not for a file that came with a repository."""
RENAMED = {
    "temperature_celsius": "gpu_hot_celsius and gpu_too_hot_celsius",
    "memory_percent": "gpu_memory_full_percent and gpu_memory_exhausted_percent",
    "host_memory_percent": "host_memory_full_percent and host_memory_ratio",
}
"""Thresholds of older versions, and what they are called now."""


class Push(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A section `[push.NAME]`: a server that gets what is read; docs/push.md."""

    url: str
    """With what it speaks before it: `remote-write:https://host/api/v1/write`."""
    username: str | None = None
    password_file: str | None = None
    bearer_token_file: str | None = None
    headers: dict[str, str] = {}
    ca_file: str | None = None
    """Who vouches for the server, when no well-known authority does."""
    cert_file: str | None = None
    key_file: str | None = None
    insecure_skip_verify: bool = False
    interval: Annotated[float, msgspec.Meta(gt=0)] | None = None
    keep_group: bool = False


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[notify]`: what is sent to people, and where their URLs are; docs/notify.md."""

    url_file: str | None = None
    """A file of mode 600 with a URL of Apprise a line."""
    severity: Severity = "warning"
    """The least severe alerts that are sent."""
    resolved: bool = True
    """Whether the end of an alert is sent too."""
    finished: bool = True
    """Whether the end of a run is sent."""
    failed: bool = True
    """Whether the end of a run that failed or was interrupted is sent."""


class Config(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the file may say: the long options, with _ for -."""

    carbon_region: str | None = None
    charge: Literal["all", "used"] | None = None
    dir: str | None = None
    gpus: str | None = None
    interval: float | None = None
    log_format: Literal["text", "json"] | None = None
    log_level: Literal["debug", "info", "warning", "critical"] | None = None
    name: str | None = None
    notify: Notify = Notify()
    on_alert: list[str] = []
    """What is done when a rule fires: `NonFinite=stop`; docs/notify.md."""
    palette: Literal["terminal", "okabe-ito", "cividis", "plain"] | None = None
    price: str | None = None
    private: bool | None = None
    project: str | None = None
    pue: float | None = None
    push: dict[str, Push] = {}
    quiet: bool | None = None
    shared: bool | None = None
    simulate: str | None = None
    tags: dict[str, str] = {}
    to: str | None = None
    """Where runs are sent while they are recorded; docs/transfer.md."""
    thresholds: Thresholds = DEFAULTS
    """What rules and the colors of live views compare with; docs/alerts.md."""

    def defaults(self) -> dict[str, Any]:
        """The settings as defaults of the command-line options."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        for section in ("notify", "thresholds"):  # no options: who needs them asks for them
            values.pop(section, None)
        if "dir" in values:
            values["directory"] = values.pop("dir")
        if "to" in values:
            values["send_to"] = [values.pop("to")]
        if "push" in values:
            values["push"] = list(values["push"])
        tags = [f"{key}={value}" for key, value in values.pop("tags", {}).items()]
        return values | ({"tag": tags} if tags else {})


class Settings(NamedTuple):
    """What all files together say."""

    config: Config
    files: list[Path]
    """Those that were read."""
    ignored: list[str]
    """What was not taken from them, and why, in words."""


def in_force() -> Settings:
    """The settings in force: the file that $PULSETRAIN_CONFIG names, else the user's own and the working folder's."""
    if named := os.environ.get(CONFIG_VARIABLE):
        return Settings(load(Path(named)), [Path(named)], [])
    home = Path(os.environ.get("PULSETRAIN_HOME") or Path("~/.pulsetrain").expanduser(), FILE_NAME)
    here = Path(FILE_NAME)
    files: list[Path] = []
    ignored: list[str] = []
    document: dict[str, Any] = {}
    if home.is_file():
        _check_mode(home)
        document = _read(home)
        _convert(home, document)
        files.append(home)
    if here.is_file() and not (home.is_file() and here.samefile(home)):
        added, reasons = _of_working_folder(here)
        document = _over(added, document)
        ignored += reasons
        files += [here] if added else []
    return Settings(msgspec.convert(document, Config), files, ignored)


def _of_working_folder(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What a file that may be somebody else's adds, and what is not taken from it."""
    status = path.stat()
    if hasattr(os, "getuid") and status.st_uid not in (os.getuid(), 0):
        return {}, [f"{path.resolve()} is ignored: it belongs to another user."]
    _check_mode(path)
    found = _read(path)
    _convert(path, found)
    users_own = sorted(USERS_OWN & found.keys())
    reasons = [f"{path.resolve()}: `{name}` is ignored: only your own settings may set it." for name in users_own]
    return {name: value for name, value in found.items() if name not in USERS_OWN}, reasons


def load(path: Path) -> Config:
    """The settings in one file that the user named."""
    _check_mode(path)
    return _convert(path, _read(path))


def load_thresholds(path: Path) -> Thresholds:
    """The section `[thresholds]` of a file. One without sections is taken for that section itself."""
    document = _read(path)
    return _convert(path, document if "thresholds" in document else {"thresholds": document}).thresholds


def _over(upper: dict[str, Any], lower: dict[str, Any]) -> dict[str, Any]:
    """Settings of one file before those of another; sections are joined."""
    joined = {**lower, **upper}
    for name, value in upper.items():
        below = lower.get(name)
        if isinstance(value, dict) and isinstance(below, dict):
            joined[name] = _over(value, below)
    return joined


def _check_mode(path: Path) -> None:
    """Settings say where data goes: not everybody may write them."""
    if path.exists() and path.stat().st_mode & stat.S_IWOTH:
        raise UsageError(f"{path} is writable by everyone.", hint=f"chmod o-w {path}")


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise UsageError(f"{path} is too large for a settings file.")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from None


def _convert(path: Path, document: dict[str, Any]) -> Config:
    section = document.get("thresholds")
    for old in RENAMED.keys() & (section if isinstance(section, dict) else {}):
        raise UsageError(f"{path}: the threshold {old} was replaced by {RENAMED[old]}.", hint=ALL_THRESHOLDS)
    try:
        config = msgspec.convert(document, Config)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}.", hint=_hint(str(error))) from None
    _check_rule_names(path, config.thresholds)
    return config


def _hint(error: str) -> str:
    """What an unknown name may have meant, and where the right ones are."""
    thresholds = "$.thresholds" in error
    known = [field.name for field in msgspec.structs.fields(Thresholds if thresholds else Config)]
    unknown = re.search(r"unknown field `(.+?)`", error)
    meant = did_you_mean(unknown[1], known) if unknown else ""
    return meant + (ALL_THRESHOLDS if thresholds else f"Known settings: {', '.join(known)}.")


def _check_rule_names(path: Path, thresholds: Thresholds) -> None:
    named = thresholds.off | thresholds.hold.keys()
    if not named:
        return
    from pulsetrain.rules.declared import NAMES, unknown_rule_hint

    for name in sorted(named - NAMES):
        raise UsageError(f"{path}: unknown rule: {name}.", hint=unknown_rule_hint(name))
