"""What the user does not want to hear of for a while: one file below $PULSETRAIN_HOME, which every engine follows."""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pulsetrain.errors import PulsetrainError
from pulsetrain.regular_files import read_description
from pulsetrain.rules.rule import Rule
from pulsetrain.supervise import Supervisor, Worker

FILE_NAME = "silences.json"
LOOK_SECONDS = 1.0
MOST_BYTES = 2**20


class Silence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule, of one run or of all, until a time or for good."""

    rule: str
    run: str | None = None
    """The id of a run; None for all that this user watches."""
    until: float | None = None
    """Seconds since the epoch; None for as long as nobody takes it back."""

    def lasts(self, now: float) -> bool:
        return self.until is None or now < self.until

    def applies(self, rule: Rule, run: str | None, now: float) -> bool:
        return self.rule == rule.name and self.run in (None, run) and self.lasts(now)


def silences_file() -> Path:
    return Path(os.environ.get("PULSETRAIN_HOME") or Path("~/.pulsetrain").expanduser(), FILE_NAME)


def load_silences(path: Path) -> list[Silence]:
    """Those in the file that have not ended."""
    now = time.time()
    try:
        found = msgspec.json.decode(read_description(path), type=list[Silence])
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PulsetrainError(f"{path} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise PulsetrainError(
            f"{path} is not a silences file.", hint="Delete it, and silence the rules again."
        ) from None
    return [silence for silence in found if silence.lasts(now)]


def save_silences(path: Path, silences: Sequence[Silence]) -> None:
    """Replace the file as a whole."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(silences), indent=2) + b"\n")
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise PulsetrainError(f"{path} cannot be written: {error.strerror}.") from None


class SilencesFile:
    """The silences of the user, followed in a thread: the disk they are on may hang."""

    def __init__(self, path: Path, supervisor: Supervisor) -> None:
        self._path = path
        self._changed: tuple[int, int] | None = None
        self._silences: Sequence[Silence] = ()
        self._worker = Worker(supervisor.part("silences"), self._look, every_seconds=LOOK_SECONDS)

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        self._worker.stop(0.0)

    def __call__(self) -> Sequence[Silence]:
        """The same object until the file changes."""
        return self._silences

    def _look(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            if self._changed is not None:
                self._changed, self._silences = None, ()
            return
        changed = (status.st_mtime_ns, status.st_ino)
        if changed != self._changed:
            self._changed = changed
            self._silences = tuple(load_silences(self._path))
