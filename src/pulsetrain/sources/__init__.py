"""Where samples come from, one file each. A new source is one new file and one line in `SOURCES`.

`opening.py` opens them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from pulsetrain.snapshot import Event, Sample


class Source(Protocol):
    """Read by a thread of its own. An error from `read` marks the source down until it answers again."""

    @property
    def name(self) -> str: ...

    @property
    def period(self) -> float | None:
        """Least seconds between readings; None for every tick. No tick waits for a source with more than a second."""

    def read(self) -> Iterable[Sample | Event]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Options:
    """What the user asked to see."""

    gpus: str | None = None
    """Indices or UUIDs, separated by commas, or `all`. None: what CUDA_VISIBLE_DEVICES leaves visible."""
    simulate: str | None = None
    """Simulated GPUs instead of real ones: `8xH100`, `2xL4,1xA100`."""

    def all_by_default(self) -> "Options":
        """The same, but with every GPU when none are named, whatever CUDA_VISIBLE_DEVICES says."""
        return replace(self, gpus=self.gpus or "all")


SOURCES: dict[str, str] = {
    "nvidia": "GPUs, through NVML",
    "nvidia_smi": "GPUs, through nvidia-smi, when NVML cannot be loaded",
    "amd": "AMD GPUs, from sysfs",
    "simulated": "simulated GPUs",
    "host": "CPU, memory, disks, network, container limits",
    "file_systems": "disk space",
    "rapl": "CPU and memory energy",
    "gpu_pods": "which pod holds which GPU, on Kubernetes",
}
"""Module below this package, and what it sees. Each has `open_sources(options)`, which raises `Unavailable`."""

GPU_SOURCES = ("nvidia", "nvidia_smi", "amd", "simulated")

PROCESS_SOURCES = frozenset({"nvidia_processes"})
"""Those that list the processes on GPUs, whoever started them. Where none is up, it is not known who is on them."""

STAND_INS = {"nvidia_smi": "nvidia"}
"""Opened only when the other one cannot be: both see the same devices."""
