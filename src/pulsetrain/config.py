"""Settings from a file: ./pulsetrain.toml, else the one in the pulsetrain home. Options and PULSETRAIN_* come first."""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from pulsetrain.errors import UsageError

FILE_NAME = "pulsetrain.toml"
Limits = tuple[float, float]
"""From the first on a value deserves a look, from the second on it is bad."""


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


class Thresholds(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The section `[thresholds]`: where live views colour a value; docs/top.md."""

    temperature_celsius: Limits = (80.0, 90.0)
    memory_percent: Limits = (90.0, 97.0)
    """Of a GPU."""
    host_memory_percent: Limits = (90.0, 97.0)


class Config(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the file may say: the long options, with _ for -."""

    carbon_region: str | None = None
    charge: Literal["all", "used"] | None = None
    dir: str | None = None
    gpus: str | None = None
    interval: float | None = None
    log_format: Literal["text", "json"] | None = None
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    name: str | None = None
    palette: Literal["terminal", "okabe-ito", "cividis", "plain"] | None = None
    price: str | None = None
    pue: float | None = None
    push: dict[str, Push] = {}
    quiet: bool | None = None
    simulate: str | None = None
    tags: dict[str, str] = {}
    thresholds: Thresholds = msgspec.field(default_factory=Thresholds)

    def defaults(self) -> dict[str, Any]:
        """The settings as defaults of the command-line options."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        values.pop("thresholds", None)  # no option: the commands that show values ask for them
        if "dir" in values:
            values["directory"] = values.pop("dir")
        if "push" in values:
            values["push"] = list(values["push"])
        tags = [f"{key}={value}" for key, value in values.pop("tags", {}).items()]
        return values | ({"tag": tags} if tags else {})


def find() -> Path | None:
    """The file in force: $PULSETRAIN_CONFIG, ./pulsetrain.toml, or the one in $PULSETRAIN_HOME (~/.pulsetrain)."""
    if named := os.environ.get("PULSETRAIN_CONFIG"):
        return Path(named)
    home = os.environ.get("PULSETRAIN_HOME") or Path("~/.pulsetrain").expanduser()
    return next((path for path in (Path(FILE_NAME), Path(home, FILE_NAME)) if path.is_file()), None)


def load(path: Path | None) -> Config:
    if path is None:
        return Config()
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), Config)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from None
    except msgspec.ValidationError as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(Config))
        raise UsageError(f"{path}: {error}.", hint=f"Known settings: {known}.") from None
