"""When this process began, what its start-up was spent on, and how often a launcher started it before."""

from __future__ import annotations

import os
import time

_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
_imported = time.monotonic()
_program_began: float | None = None
_imports: list[tuple[float, float]] = []


def began_at() -> float:
    """On the monotonic clock; where the system does not say it, when this module was imported."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name in parentheses may hold anything
        since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)
    except (OSError, ValueError, LookupError, AttributeError):
        return _imported


def note_import(began: float, program_began: float | None) -> None:
    """A framework was imported, which ends now. Those that it imported in turn are part of it."""
    global _program_began
    _program_began = program_began
    _imports[:] = [one for one in _imports if one[0] < began]
    _imports.append((began, time.monotonic()))


def start_up() -> dict[str, float]:
    """Seconds of the interpreter's own start and of importing frameworks; nothing where that was not watched."""
    if _program_began is None:
        return {}
    return {
        "interpreter_seconds": round(max(0.0, _program_began - began_at()), 6),
        "imports_seconds": round(sum(ended - began for began, ended in _imports), 6),
    }


def restarts() -> int | None:
    """How often the launcher started this rank again; None where it does not count."""
    for name in _RESTARTS:
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return None
