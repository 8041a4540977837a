"""How far the clock of this host may be off, as far as the host itself can tell."""

import contextlib
import ctypes
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

UNSYNCHRONIZED = 0x40
"""STA_UNSYNC of <sys/timex.h>."""
STAMP_SECONDS = 0.01
"""Linux stamps files with the time of its last timer tick."""


class AheadOfFolder(NamedTuple):
    seconds: float
    error: float


class _Timex(ctypes.Structure):
    """The beginning of struct timex, and more room than the rest of it takes."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("max_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


def kernel_clock_error() -> float | None:
    """What the kernel says of a clock that NTP or PTP keeps; None of one that nobody keeps, or elsewhere than Linux."""
    if sys.platform != "linux":
        return None
    timex = _Timex()  # modes 0: read, and change nothing
    with contextlib.suppress(OSError, AttributeError):
        if ctypes.CDLL(None).ntp_adjtime(ctypes.byref(timex)) >= 0 and not timex.status & UNSYNCHRONIZED:
            return float(timex.max_error) / 1e6
    return None


def ahead_of_folder(folder: Path) -> AheadOfFolder | None:
    """The clock of this host against that of whoever stamps files here: a file server, or this host itself."""
    probe = folder / f".clock-{os.getpid()}"
    try:
        before = time.time()
        with probe.open("wb") as file:
            file.write(b"?")
            file.flush()
            os.fsync(file.fileno())
        after = time.time()
        stamp = probe.stat().st_mtime
    except OSError:
        return None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    error = (after - before) / 2 + STAMP_SECONDS
    return AheadOfFolder((before + after) / 2 - stamp, error)
