"""Files written into a folder that belongs to a user: what is unchanged is not touched, what they edited is kept."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class WriteResult(NamedTuple):
    """What became of each file, by its path in the folder."""

    new: list[str]
    changed: list[str]
    removed: list[str]
    kept: list[str]
    """Edited by the user, and so not overwritten."""
    hashes: dict[str, str]
    """What we last wrote to each file, to give with the next call."""

    @property
    def touched(self) -> list[str]:
        return [*self.new, *self.changed, *self.removed]


def write_files(folder: Path, wanted: Mapping[str, bytes], known: Mapping[str, str], *, force: bool) -> WriteResult:
    """Make the files of a folder what is `wanted`; `known` are the hashes of the last time.

    Everybody may read them: servers in containers run as users of their own. The folder itself is closed to others.
    """
    written = WriteResult([], [], [], [], {})
    for name, content in wanted.items():
        file = folder / name
        present = file.read_bytes() if file.exists() else None
        ours = _hash(content)
        if present is not None and present != content and not force and _hash(present) != known.get(name):
            written.kept.append(name)
            written.hashes[name] = known.get(name, "")
            continue
        written.hashes[name] = ours
        if present != content:
            (written.new if present is None else written.changed).append(name)
            _replace(file, content, folder)
    for name in known.keys() - wanted.keys():
        file = folder / name
        if file.exists() and _hash(file.read_bytes()) == known[name]:
            file.unlink()
            written.removed.append(name)
    return written


def _replace(file: Path, content: bytes, top: Path) -> None:
    for parent in reversed(file.relative_to(top).parents[:-1]):
        (top / parent).mkdir(exist_ok=True)
        (top / parent).chmod(0o755)
    new = file.with_name(file.name + ".new")
    new.write_bytes(content)
    new.chmod(0o644)
    new.replace(file)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
