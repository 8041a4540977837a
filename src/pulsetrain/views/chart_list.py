"""Every chart of a run, declared once. Reports draw them from the whole run, the web page from any part of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.units import GIB, JOULES_PER_WH, MIB, MIB_PER_GIB

GAP = 5.0
"""So many times the usual distance between points is a gap in the record, and a line does not cross it."""

TRAINING, TIME, GPUS, HOST, ENERGY = "Training", "Time", "GPUs", "Host", "Energy"
OWN_METRICS = "Logged by the program"
GROUPS = (TRAINING, OWN_METRICS, GPUS, HOST, ENERGY)
"""In the order in which a page shows them."""

ChartKind = Literal["lines", "stack", "steps"]


@dataclass(frozen=True, kw_only=True)
class DeclaredChart:
    """What one chart shows, and how."""

    key: str
    """Its name in addresses."""
    title: str
    unit: str = ""
    group: str
    table: str
    fields: Mapping[str, str]
    """Fields of the table, each with the label of its line. An empty one: the line is called what its subject is."""
    scale: float = 1.0
    """From the unit of the fields to that of the chart."""
    rate: bool = False
    """Whether the fields are counters, and their rise per second is shown."""
    kind: ChartKind = "lines"
    top: float | None = None
    """Where the axis must reach to at least."""
    zero: bool = True
    """Whether the axis begins at 0."""


_training = partial(DeclaredChart, group=TRAINING, table="training")
_gpu = partial(DeclaredChart, group=GPUS, table="gpu")
_host = partial(DeclaredChart, group=HOST, table="host")
_used = partial(DeclaredChart, group=ENERGY, table="account")

LOSS = _training(key="loss", title="Loss", fields={"loss": "loss"}, zero=False)
LEARNING_RATE = _training(key="learning_rate", title="Learning rate", fields={"learning_rate": "learning rate"})
STEP_TIME = _training(
    key="step_time",
    title="Step time",
    unit="s",
    fields={f"{part}_seconds": label for part, label in STEP_PARTS.items()},
    kind="stack",
)
WHOLE_STEP_TIME = _training(key="step_seconds", title="Step time", unit="s", fields={"step_seconds": "step"})
"""Where the parts of a step are not known."""
SAMPLES = _training(
    key="samples", title="Throughput", unit="samples/s", fields={"throughput_samples_per_sec": "samples/s"}
)
TOKENS = _training(key="tokens", title="Throughput", unit="tokens/s", fields={"throughput_tokens_per_sec": "tokens/s"})
UTILIZATION = _gpu(key="utilization", title="Utilization", unit="%", fields={"utilization_percent": ""}, top=100.0)
POWER = _gpu(key="power", title="Power", unit="W", fields={"power_draw_watts": ""})
TEMPERATURE = _gpu(key="temperature", title="Temperature", unit="°C", fields={"temperature_celsius": ""}, zero=False)
GPU_MEMORY = _gpu(
    key="gpu_memory", title="Memory in use", unit="GiB", fields={"memory_used_mb": ""}, scale=1 / MIB_PER_GIB
)

CHARTS: tuple[DeclaredChart, ...] = (
    LOSS,
    LEARNING_RATE,
    _training(key="gradient_norm", title="Gradient norm", fields={"gradient_norm": "gradient norm"}),
    STEP_TIME,
    WHOLE_STEP_TIME,
    SAMPLES,
    TOKENS,
    _training(key="mfu", title="Model FLOPs utilization", unit="%", fields={"mfu_ratio": "MFU"}, scale=100.0),
    _training(
        key="tensors",
        title="Training memory",
        unit="GiB",
        fields={"memory_allocated_mb": "tensors", "memory_reserved_mb": "allocator"},
        scale=1 / MIB_PER_GIB,
    ),
    UTILIZATION,
    POWER,
    GPU_MEMORY,
    TEMPERATURE,
    _gpu(key="clock", title="SM clock", unit="MHz", fields={"clock_sm_hertz": ""}, scale=1e-6),
    _gpu(key="sm", title="SMs active", unit="%", fields={"sm_active_ratio": ""}, scale=100.0, top=100.0),
    _gpu(
        key="tensor", title="Tensor cores active", unit="%", fields={"tensor_active_ratio": ""}, scale=100.0, top=100.0
    ),
    _gpu(key="dram", title="GPU memory active", unit="%", fields={"dram_active_ratio": ""}, scale=100.0, top=100.0),
    _gpu(
        key="memory_temperature",
        title="Memory temperature",
        unit="°C",
        fields={"memory_temperature_celsius": ""},
        zero=False,
    ),
    _gpu(
        key="pcie_received",
        title="PCIe to the GPU",
        unit="MiB/s",
        fields={"pcie_received_bytes_per_second": ""},
        scale=1 / MIB,
    ),
    _gpu(
        key="pcie_sent",
        title="PCIe from the GPU",
        unit="MiB/s",
        fields={"pcie_sent_bytes_per_second": ""},
        scale=1 / MIB,
    ),
    _host(
        key="cpu",
        title="CPU",
        unit="%",
        fields={"cpu_ratio": "in use", "cpu_iowait_ratio": "waiting for I/O"},
        scale=100.0,
        top=100.0,
    ),
    _host(key="job_cpu", title="Job CPU", unit="cores", fields={"job_cpu_cores": "job"}),
    _host(
        key="memory",
        title="Memory",
        unit="GiB",
        fields={"memory_used_bytes": "in use", "job_memory_bytes": "job"},
        scale=1 / GIB,
    ),
    _host(
        key="disk",
        title="Disks",
        unit="MiB/s",
        fields={"disk_read_bytes": "read", "disk_written_bytes": "written"},
        scale=1 / MIB,
        rate=True,
    ),
    _host(
        key="network",
        title="Network",
        unit="MiB/s",
        fields={"network_received_bytes": "received", "network_sent_bytes": "sent"},
        scale=1 / MIB,
        rate=True,
    ),
    _host(key="cpu_power", title="CPU power", unit="W", fields={"cpu_energy_joules": "CPU"}, rate=True),
    _used(
        key="energy", title="Cumulative energy", unit="Wh", fields={"energy_joules": "energy"}, scale=1 / JOULES_PER_WH
    ),
    _used(key="carbon", title="Cumulative carbon", unit="g CO2e", fields={"carbon_grams": "carbon"}),
    _used(key="cost", title="Cumulative cost", fields={"cost": "cost"}),
)


def own_chart(name: str) -> DeclaredChart:
    """The chart of a name that the program made up."""
    return DeclaredChart(
        key=f"own:{name}", title=name, group=OWN_METRICS, table="training", fields={name: name}, zero=False
    )
