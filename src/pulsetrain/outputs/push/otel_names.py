"""The names that OpenTelemetry has for what is sent, beside ours.

GPUs have a convention, `hw.gpu.*`. A training has none yet: `pulsetrain.training.*` follows what Megatron-LM calls
its own. Times are in seconds, as OpenTelemetry wants them.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pulsetrain.outputs.points import Labels, with_label
from pulsetrain.outputs.push.series import PushSeries

MIB = 2.0**20


class OtelName(NamedTuple):
    """A name, and what one unit of ours is in its unit."""

    name: str
    factor: float = 1.0


GPU = {
    "gpu_utilization_percent": OtelName("hw.gpu.utilization", 0.01),
    "gpu_memory_used_mb": OtelName("hw.gpu.memory.usage", MIB),
    "gpu_memory_total_mb": OtelName("hw.gpu.memory.limit", MIB),
    "gpu_memory_percent": OtelName("hw.gpu.memory.utilization", 0.01),
    "gpu_power_draw_watts": OtelName("hw.power"),
    "gpu_temperature_celsius": OtelName("hw.temperature"),
    "gpu_energy_joules_total": OtelName("hw.energy"),
}
TRAINING = {
    "training_loss": OtelName("pulsetrain.training.loss"),
    "gradient_norm": OtelName("pulsetrain.training.grad_norm"),
    "learning_rate": OtelName("pulsetrain.training.learning_rate"),
    "training_steps_total": OtelName("pulsetrain.training.iterations"),
    "training_tokens_per_second": OtelName("pulsetrain.training.tokens_per_sec"),
    "training_samples_per_second": OtelName("pulsetrain.training.samples_per_sec"),
    "training_skipped_total": OtelName("pulsetrain.training.skipped_iters"),
    "memory_allocation_mb": OtelName("pulsetrain.training.memory_allocated_gb", MIB / 1e9),
}
STEP_DURATION = "training_step_duration_seconds"
"""A histogram: its series have suffixes."""


def otel_series(series: Iterable[PushSeries]) -> Iterator[PushSeries]:
    """The same samples under OpenTelemetry's names, of those that have one."""
    for one in series:
        if found := GPU.get(one.name):
            yield _renamed(one, found, _gpu_labels(one.labels))
        elif found := TRAINING.get(one.name):
            yield _renamed(one, found, one.labels)
        elif one.name.startswith(STEP_DURATION):
            yield one._replace(name=f"pulsetrain.training.step_duration{one.name.removeprefix(STEP_DURATION)}")


def _renamed(one: PushSeries, found: OtelName, labels: Labels) -> PushSeries:
    values = [None if value is None else value * found.factor for value in one.values]
    return one._replace(name=found.name, labels=labels, values=values)


def _gpu_labels(labels: Labels) -> Labels:
    known = dict(labels)
    return with_label(with_label(labels, "hw.id", known.get("uuid") or known.get("gpu", "")), "hw.type", "gpu")
