"""What a benchmark is: a command or a container image, with everything it is run with."""

import math
import re
from typing import Literal

import msgspec

from pulsetrain.errors import UsageError
from pulsetrain.units import GIB, KIB, MIB

UNITS = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": GIB}
RESULTS_PATH = "/results"


class Benchmark(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """One benchmark. A suite file has these fields, with `-` for `_`."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    """What is run; in a container, the arguments of the image."""
    env: dict[str, str] = {}
    mounts: tuple[str, ...] = ()
    """`HOST:CONTAINER` or `HOST:CONTAINER:ro`."""
    shm_size: str = ""
    cpus: float | None = None
    memory: str = ""
    """Memory limit of the container: `8g`."""
    network: str = ""
    """The container's network; the engine's own choice when empty."""
    results_path: str = RESULTS_PATH
    """What the container leaves here is kept."""
    timeout: float | None = None
    """Seconds after which it is stopped."""
    score: str = ""
    """A regular expression with one group: the number in its last match is the score."""
    score_better: Literal["higher", "lower"] = "higher"
    repeat: int = 1
    warm_up: int = 0
    """Runs before those that count."""

    @property
    def total(self) -> int:
        return self.warm_up + self.repeat


def checked(benchmark: Benchmark) -> Benchmark:
    """The benchmark, when it can be run as it is said; else an error that says what is wrong."""
    name = benchmark.name
    if not benchmark.image and not benchmark.command:
        raise UsageError(f"benchmark {name!r} has neither an image nor a command.")
    if benchmark.repeat < 1 or benchmark.warm_up < 0:
        raise UsageError(f"benchmark {name!r}: repeat must be at least 1 and warm_up at least 0.")
    for what, number in (("timeout", benchmark.timeout), ("cpus", benchmark.cpus)):
        if number is not None and not (math.isfinite(number) and number > 0):
            raise UsageError(f"benchmark {name!r}: {what} must be above 0.")
    if not benchmark.image:
        limited: dict[str, object] = {
            "mounts": benchmark.mounts,
            "shm-size": benchmark.shm_size,
            "cpus": benchmark.cpus,
            "memory": benchmark.memory,
            "network": benchmark.network,
        }
        if given := [option for option, value in limited.items() if value]:
            raise UsageError(f"benchmark {name!r}: {', '.join(given)} needs a container image.")
    for size in (benchmark.shm_size, benchmark.memory):
        parse_size(size)
    for mount in benchmark.mounts:
        parse_mount(mount)
    score_pattern(benchmark.score)
    return benchmark


def parse_size(text: str) -> int | None:
    """`512m`, `8g`, in binary units, as container engines have it; None for an empty text."""
    if not text:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmg]?)(?:i?b)?", text.strip().lower())
    if not found or float(found[1]) <= 0:
        raise UsageError(f"{text!r} is not a size.", hint="Use 512m or 8g.")
    return int(float(found[1]) * UNITS[found[2]])


def parse_mount(text: str) -> tuple[str, str, str]:
    """Folder or volume of the host, path in the container, and `rw` or `ro`."""
    parts = text.split(":")
    mode = parts.pop() if len(parts) == 3 and parts[-1] in ("ro", "rw") else "rw"
    if len(parts) != 2 or not parts[0] or not parts[1].startswith("/"):
        raise UsageError(f"{text!r} is not a mount.", hint="Use HOST:CONTAINER or HOST:CONTAINER:ro.")
    return parts[0], parts[1], mode


def score_pattern(text: str) -> "re.Pattern[str] | None":
    """The expression that finds a score; None for an empty text."""
    if not text:
        return None
    try:
        pattern = re.compile(text, re.MULTILINE)
    except re.error as error:
        raise UsageError(f"{text!r} is not a regular expression: {error}.") from None
    if pattern.groups != 1:
        raise UsageError(
            f"the score expression {text!r} has {pattern.groups} groups; it needs exactly one.",
            hint="Use one such as 'accuracy: (\\S+)'.",
        )
    return pattern
