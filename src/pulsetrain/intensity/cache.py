"""Answers of providers, kept on disk: one file for each provider and region."""

import logging
import os
import re
import threading
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from pulsetrain.intensity.slots import Slot, merged

MAX_SLOTS = 10_000
"""What is kept of one region, the newest: half a year of half hours."""
FRESH = timedelta(minutes=20)
"""So long, what a provider may still change is not asked for again."""
SETTLED = timedelta(hours=24)
"""So long after a slot, what a provider has not made an actual value it never will."""

log = logging.getLogger(__name__)


class Cache:
    """Two processes may use it at once: a file is replaced whole, and what one of them loses is asked for again."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or default_folder()

    def load(self, spec: str) -> list[Slot]:
        """What is known of a region; nothing, if the file is not there or damaged."""
        file = self._file(spec)
        try:
            return msgspec.json.decode(file.read_bytes(), type=list[Slot])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.info("the carbon cache %s cannot be read and is not used: %s", file, error)
            return []

    def store(self, spec: str, slots: Iterable[Slot]) -> None:
        """Add to what is known. A disk that cannot be written costs a question the next time, and no more."""
        file = self._file(spec)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, merged(self.load(spec), slots)[-MAX_SLOTS:])
        except OSError as error:
            log.info("the carbon cache %s cannot be written: %s", file, error)

    def _file(self, spec: str) -> Path:
        return self._folder / f"{re.sub(r'[^A-Za-z0-9_-]+', '-', spec)}.json"


def default_folder() -> Path:
    """In $PULSETRAIN_HOME, else in ~/.pulsetrain; nowhere, for one who has no home."""
    try:
        home = Path(os.environ.get("PULSETRAIN_HOME") or "~/.pulsetrain").expanduser()
    except RuntimeError:
        home = Path(os.devnull)  # nothing is found in it, and nothing can be written to it
    return home / "cache" / "carbon"


def keeps(slot: Slot, now: datetime) -> bool:
    """Whether a value need not be asked for again."""
    if slot.quality == "actual" or slot.fetched >= slot.end + SETTLED:
        return True
    foreseen = slot.fetched < slot.end <= now  # its time has passed since: there may be more than a forecast now
    return not foreseen and now - slot.fetched < FRESH


def write_json(path: Path, document: object) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}")
    temporary.write_bytes(msgspec.json.encode(document))
    temporary.replace(path)
