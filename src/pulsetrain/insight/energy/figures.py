"""What a run used in energy: measured by counters, else estimated from power, with an error bound."""

from typing import Literal

import msgspec

Origin = Literal["measured", "estimated", "assumed"]


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """An amount of energy, how it was obtained, and how far it may be off."""

    joules: float
    error_joules: float | None = None
    """The truth lies within so much above or below; None where nobody can say."""
    origin: Origin
    method: str
    """counter, power, rapl, load, ... or several, for a sum: `counter + load`."""


class DeviceEnergy(msgspec.Struct, kw_only=True):
    """What one GPU, or the CPUs or the memory of one host, used."""

    device: Literal["gpu", "cpu", "dram"]
    host: str
    gpu_index: int | None = None
    uuid: str | None = None
    name: str = ""
    total: Energy | None
    """None where nothing can be told."""
    idle_joules: float | None = None
    """While no kernel ran; idle and active make up the total."""
    active_joules: float | None = None
    power_joules: float | None = None
    """Power added up over time, where a counter is the source: to compare."""
    disagreement_ratio: float | None = None
    """How far that lies above (or below) the counter."""
    charged: bool = True
    """False for a GPU that the run's processes did not use, when it is charged for those alone."""
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
    """The whole account. Every list of portions adds up to the total of the devices."""

    total: Energy | None
    """All charged devices, times PUE."""
    devices: list[DeviceEnergy]
    pue: float = 1.0
    """Power usage effectiveness of the building: 1 counts the machine alone."""
    phases: list[Portion] = []
    """start-up, the program's own phases, training, other: each stretch of time once."""
    epochs: list[Portion] = []
    joules_per_step: float | None = None
    joules_per_sample: float | None = None
    joules_per_token: float | None = None
    """Of the energy in steps, over all charged devices, times PUE."""
    also_counted_in: list[str] = []
    """Sentences about other runs that watched the same GPU at the same time."""
