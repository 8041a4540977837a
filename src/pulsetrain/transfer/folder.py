"""A folder that somebody else carries: a disk that both machines mount, or what Drive, Dropbox or Syncthing sync."""

import contextlib
import os
import tempfile
from pathlib import Path

from pulsetrain.regular_files import open_regular
from pulsetrain.transfer.segments import MOST_SEGMENT_BYTES
from pulsetrain.transfer.store import StoreError, StoreRejected

EVERY_SECONDS = 5.0


def open_store(url: str, *, to_read: bool = False) -> "FolderStore":
    return FolderStore(Path(url).expanduser().absolute(), must_exist=to_read)


class FolderStore:
    """Files below a folder. One appears under its name when it is whole, and is never touched again."""

    every_seconds = EVERY_SECONDS

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self._path = path
        if must_exist and not path.is_dir():
            raise StoreRejected(
                f"there is no folder {path}.", hint="Check that it is mounted, or synced to this machine."
            )

    def put(self, path: str, data: bytes) -> None:
        place = self._path / path
        try:
            if place.exists():
                return
            place.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".", dir=place.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                Path(name).replace(place)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written: {error.strerror}.") from None

    def list(self, folder: str, after: str = "") -> list[str]:
        try:
            with os.scandir(self._path / folder) as entries:
                return [entry.name for entry in entries if entry.name > after and not entry.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}.") from None

    def get(self, path: str) -> bytes:
        try:
            with open_regular(self._path / path) as file:
                return file.read(MOST_SEGMENT_BYTES + 1)
        except OSError as error:
            raise StoreError(f"{self._path / path} cannot be read: {error.strerror}.") from None

    def close(self) -> None:
        pass
