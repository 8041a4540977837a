"""Small file systems of a test's own, which may be full or frozen."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, *how: str | Path) -> Iterator[Path]:
    """`mount HOW... FOLDER`, for a while. Skips where it is not allowed, and fails there when CI=true."""
    folder.mkdir()
    done = subprocess.run(["mount", *how, folder], capture_output=True, text=True)
    if done.returncode:
        if os.environ.get("CI") == "true":
            pytest.fail(f"cannot mount a file system: {done.stderr}")
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def small(folder: Path, size: str) -> AbstractContextManager[Path]:
    """A file system in memory that is soon full."""
    return mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")
