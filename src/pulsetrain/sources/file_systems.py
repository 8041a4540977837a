"""Room on the disks that a run writes to: where it was started, and where runs are kept."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pulsetrain.catalog import HOST
from pulsetrain.errors import Unavailable
from pulsetrain.snapshot import Sample
from pulsetrain.sources import Options

PERIOD_SECONDS = 10.0
"""Shorter than values of slow sources are held."""


def open_sources(options: Options) -> list["FileSystems"]:
    home = os.environ.get("PULSETRAIN_HOME") or Path("~/.pulsetrain").expanduser()
    return [FileSystems([Path.cwd(), Path(home)])]


class FileSystems:
    """A source of its own, because a network disk that hangs must not hold up readings of the machine."""

    name = "file_systems"
    period = PERIOD_SECONDS

    def __init__(self, folders: Sequence[Path]) -> None:
        """Each file system counts once, by the first of its folders; one that is not there yet, by what is above it."""
        self._paths: dict[int, str] = {}
        for folder in map(_existing, folders):
            self._paths.setdefault(folder.stat().st_dev, str(folder))
        if not hasattr(os, "statvfs"):
            raise Unavailable("this system does not report how full its disks are")

    def read(self) -> Iterator[Sample]:
        available: dict[str, float] = {}
        size: dict[str, float] = {}
        for path in self._paths.values():
            found = os.statvfs(path)
            available[path] = found.f_bavail * found.f_frsize
            size[path] = found.f_blocks * found.f_frsize
        yield Sample(HOST, {"filesystem_available_bytes": available, "filesystem_size_bytes": size})

    def close(self) -> None:
        pass


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
