"""Settings from a file: ./pulsetrain.toml, else the one in the pulsetrain home. Options and PULSETRAIN_* come first."""

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from pulsetrain.errors import UsageError

FILE_NAME = "pulsetrain.toml"


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
    price: str | None = None
    pue: float | None = None
    quiet: bool | None = None
    simulate: str | None = None
    tags: dict[str, str] = {}

    def defaults(self) -> dict[str, Any]:
        """The settings as defaults of the command-line options."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        if "dir" in values:
            values["directory"] = values.pop("dir")
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
