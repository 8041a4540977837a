"""What a benchmark runs: the same questions to a command and to a container."""

import signal
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from pulsetrain.sources import Source
from pulsetrain.watching.recording import RunRecording

TIMEOUT_EXIT_CODE = 124
"""As `timeout` has it."""
GRACE_SECONDS = 10.0
"""Between asking to end and killing."""


class WorkloadExit(NamedTuple):
    """How a command or container ended."""

    exit_code: int
    start: datetime
    end: datetime
    seconds: float
    reason: str = ""
    """Why it did not end well, as far as is known."""


class Workload(Protocol):
    """One run of a benchmark. Its life: `prepare`, `start`, `wait` until it has ended, `close`, in any case."""

    stages: dict[str, float]
    """Seconds that went by before it ran."""
    notes: list[str]
    image_id: str
    image_digest: str
    """Of a container's image; empty for a command."""

    @property
    def source(self) -> Source:
        """Reads what it uses."""

    def prepare(self, recording: RunRecording) -> None:
        """All that need not be measured."""

    def start(self) -> None: ...

    def wait(self, seconds: float) -> WorkloadExit | None:
        """How it ended; None when it has not after so long."""

    def ended(self) -> None:
        """It has ended, and its counters will be read a last time."""

    def stop(self) -> None:
        """Ask it to end. Does not wait."""

    def kill(self) -> None: ...

    def keep(self, folder: Path) -> None:
        """Keep what it left."""

    def close(self) -> None:
        """Leave nothing of it behind."""


def signal_reason(exit_code: int) -> str:
    """What ended a process, by the exit code that a shell shows; empty for one that ended by itself."""
    number = exit_code - 128
    if number <= 0:
        return ""
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return ""
