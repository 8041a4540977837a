"""Where samples come from, one file each. A new source is one new file and one line in `SOURCES`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Protocol

from pulsetrain.errors import Unavailable, UsageError
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
    "rapl": "CPU and memory energy",
}
"""Module below this package, and what it sees. Each has `open_sources(options)`, which raises `Unavailable`."""

GPU_SOURCES = ("nvidia", "nvidia_smi", "amd", "simulated")


@dataclass(frozen=True)
class Opened:
    """What works here, and why the rest does not."""

    sources: tuple[Source, ...]
    unavailable: dict[str, Unavailable]

    def close(self) -> None:
        """For those who do not use them after all."""
        for source in self.sources:
            source.close()


def open_sources(options: Options) -> Opened:
    """Open every source that works on this machine."""
    sources: list[Source] = []
    unavailable: dict[str, Unavailable] = {}
    refused: list[UsageError] = []
    for name in SOURCES:
        try:
            if reason := _not_wanted(name, options, unavailable):
                raise Unavailable(reason)
            sources += import_module(f"{__name__}.{name}").open_sources(options)
        except Unavailable as error:
            unavailable[name] = error
        except UsageError as error:
            refused.append(error)
            unavailable[name] = Unavailable(error.message, hint=error.hint)
    # With GPUs of two makers, --gpus may name those of one; it is wrong when nobody knows them.
    if refused and all(name in unavailable for name in GPU_SOURCES):
        raise refused[0]
    return Opened(tuple(sources), unavailable)


def _not_wanted(name: str, options: Options, unavailable: Mapping[str, Unavailable]) -> str | None:
    if name == "simulated" and not options.simulate:
        return "not asked for (--simulate 2xL4)"
    if name in GPU_SOURCES and name != "simulated" and options.simulate:
        return "the GPUs are simulated"
    if name == "nvidia_smi" and "nvidia" not in unavailable:
        return "not needed, NVML works"
    return None
