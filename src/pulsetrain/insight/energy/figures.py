"""What a run used in energy: measured by counters, else estimated from power, with an error bound."""

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

Origin = Literal["measured", "estimated", "assumed"]
"""The best first."""
DeviceKind = Literal["gpu", "cpu", "dram"]


def worst_origin(*origins: Origin | None) -> Origin:
    """What a figure that rests on several was obtained by."""
    return max((origin for origin in origins if origin), key=get_args(Origin).index, default="measured")


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """An amount of energy, how it was obtained, and how far it may be off."""

    joules: float
    error_joules: float | None = None
    """The truth lies within so much above or below; None where nobody can say."""
    origin: Origin
    method: str
    """counter, power, rapl, load, ... or several, for a sum: `counter + load`."""


def summed(parts: Iterable[Energy | None], *, factor: float = 1.0) -> Energy | None:
    """The sum of what is known, times a factor; None when nothing is.

    A sum is as good as the worst of its parts, and an error that is not known for one is not known for the sum.
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    errors = [part.error_joules for part in known if part.error_joules is not None]
    methods = dict.fromkeys(word for part in known for word in part.method.split(" + "))
    return Energy(
        joules=factor * sum(part.joules for part in known),
        error_joules=factor * sum(errors) if len(errors) == len(known) else None,
        origin=worst_origin(*(part.origin for part in known)),
        method=" + ".join(methods),
    )


def shares_by_origin(parts: Iterable[Energy | None]) -> dict[Origin, float]:
    """How much of a sum was obtained in which way, the best first."""
    joules: dict[Origin, float] = dict.fromkeys(get_args(Origin), 0.0)
    for part in parts:
        if part is not None:
            joules[part.origin] += part.joules
    whole = sum(joules.values())
    return {origin: used / whole for origin, used in joules.items() if used > 0}


class DeviceEnergy(msgspec.Struct, kw_only=True):
    """What one GPU, or the CPUs or the memory of one host, used."""

    device: DeviceKind
    host: str
    gpu_index: int | None = None
    uuid: str | None = None
    name: str = ""
    total: Energy | None
    """None where nothing is known."""
    idle_joules: float | None = None
    """While the GPU was idle (`idle_percent` of the thresholds); idle and active make up the total."""
    active_joules: float | None = None
    power_joules: float | None = None
    """Power added up over time, where a counter is the source: to compare."""
    disagreement_ratio: float | None = None
    """How far that lies above (or below) the counter."""
    charged: bool = True
    """False for a GPU that the run's processes did not use, when it is charged for those alone."""
    used: bool | None = None
    """Whether a process of the run was on this GPU; None where that is not known."""
    others: list[str] = []
    """Whose processes were on it beside the run's: `alice (python train.py)`."""
    notes: list[str] = []
    """Gaps, resets, a counter that stood still: what a reader should know."""


class Portion(msgspec.Struct, kw_only=True):
    """A part of the run in time: a phase, an epoch, a range of steps."""

    name: str
    start_seconds: float
    """Elapsed time at which it first began."""
    seconds: float
    joules: float
    error_joules: float | None = None
    steps: int = 0
    samples: float | None = None
    tokens: float | None = None


class RunEnergy(msgspec.Struct, kw_only=True):
    """What a run used. Every list of portions adds up to the total of the devices."""

    total: Energy | None
    """All charged devices, times PUE. Its origin is that of its worst part; `origin_shares` says how much that is."""
    origin_shares: dict[Origin, float] = {}
    """How much of the total was obtained in which way, the best first."""
    devices: list[DeviceEnergy]
    pue: float = 1.0
    """Power usage effectiveness of the building: 1 counts the machine alone."""
    phases: list[Portion] = []
    """start-up, warm-up, training, the program's own phases, other: each stretch of time once."""
    epochs: list[Portion] = []
    joules_per_step: float | None = None
    joules_per_sample: float | None = None
    joules_per_token: float | None = None
    """In steady steps, over all charged devices and ranks, times PUE."""
    also_counted_in: list[str] = []
    """Sentences about other runs that watched the same GPU at the same time."""

    @property
    def kinds(self) -> list[DeviceKind]:
        """The kinds of devices that the total is made of."""
        known = {device.device for device in self.devices if device.charged and device.total}
        return [kind for kind in get_args(DeviceKind) if kind in known]

    def of_kind(self, kind: DeviceKind) -> Energy | None:
        """The charged devices of a kind together, without PUE."""
        return summed(device.total for device in self._charged(kind))

    @property
    def gpu_idle_joules(self) -> float | None:
        """What the charged GPUs used while idle; None where their utilization is not known."""
        known = [gpu.idle_joules for gpu in self._charged("gpu") if gpu.idle_joules is not None]
        return sum(known) if known else None

    @property
    def gpu_active_joules(self) -> float | None:
        """What the charged GPUs used while not idle; None where their utilization is not known."""
        known = [gpu.active_joules for gpu in self._charged("gpu") if gpu.active_joules is not None]
        return sum(known) if known else None

    def _charged(self, kind: DeviceKind) -> list[DeviceEnergy]:
        return [device for device in self.devices if device.device == kind and device.charged]
