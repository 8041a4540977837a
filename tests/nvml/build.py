"""Compiles the simulated NVML: `python tests/nvml/build.py FOLDER`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent
NAME = "libnvidia-ml.so.1"
FLAGS = (
    *("-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread"),
    *("-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{NAME}"),
)


def build(folder: Path) -> Path:
    """Compile the library into `folder`, unless the one there is newer than its sources; returns its path."""
    library = folder / NAME
    newest = max(source.stat().st_mtime for source in (*SOURCES.glob("*.[ch]"), Path(__file__)))
    if library.exists() and library.stat().st_mtime > newest:
        return library
    folder.mkdir(parents=True, exist_ok=True)
    # Written beside it and moved: another test process may be loading the library at this moment.
    draft = folder / f"{NAME}.{os.getpid()}"
    sources = sorted(str(source) for source in SOURCES.glob("*.c"))
    subprocess.run(["gcc", *FLAGS, "-o", str(draft), *sources, "-lm"], check=True)
    draft.replace(library)
    return library


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
