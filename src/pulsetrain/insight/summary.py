"""What a run did, in a few figures: its training loop, its GPUs, its machine. Energy is counted apart."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from pulsetrain.insight.steps import StepFacts
from pulsetrain.insight.training_summary import TrainingSummary, summarize_training
from pulsetrain.rules.thresholds import DEFAULTS
from pulsetrain.runs.database import Database
from pulsetrain.sources.throttle import THROTTLING


class GpuSummary(msgspec.Struct, kw_only=True):
    """What one GPU did in a run. What was never seen is None."""

    host: str
    gpu_index: int | None
    uuid: str | None
    name: str
    simulated: bool
    samples: int
    utilization_percent_mean: float | None
    utilization_percent_peak: float | None
    idle_share: float | None
    """Share of samples in which it was idle (`idle_percent` of the thresholds)."""
    memory_mb_peak: float | None
    memory_total_mb: float | None
    power_watts_mean: float | None
    power_watts_peak: float | None
    temperature_celsius_peak: float | None
    throttled_share: float | None
    """Share of samples in which power or heat held the clocks down."""
    lost_samples: int
    """Readings at which the GPU did not answer."""


class Summary(msgspec.Struct, kw_only=True):
    """A run in a few figures."""

    seconds: float
    training: TrainingSummary | None
    """None when nothing of a training loop was seen."""
    gpus: list[GpuSummary]
    cpu_ratio_mean: float | None
    cpu_ratio_peak: float | None
    cpu_cores: float | None
    memory_used_bytes_peak: float | None
    memory_total_bytes: float | None
    job_cpu_seconds: float | None
    job_memory_bytes_peak: float | None
    job_processes_peak: float | None
    pulsetrain_cpu_seconds: float | None

    @property
    def simulated(self) -> bool:
        """Whether any of its GPUs is."""
        return any(gpu.simulated for gpu in self.gpus)

    @property
    def gpu_counts(self) -> dict[str, int]:
        """How many GPUs there are of each model."""
        return Counter(gpu.name.removeprefix("NVIDIA ") for gpu in self.gpus)

    @property
    def throttled_share(self) -> float | None:
        """Mean over the GPUs."""
        return mean(gpu.throttled_share for gpu in self.gpus)


def summarize(database: Database, steps: StepFacts | None, idle_percent: float = DEFAULTS.idle_percent) -> Summary:
    """The figures of the one run that this database holds; `steps` are its own."""
    return Summary(gpus=_gpus(database, idle_percent), training=summarize_training(database, steps), **_host(database))


def _gpus(database: Database, idle_percent: float) -> list[GpuSummary]:
    words = ", ".join(f"'{word}'" for word in sorted(THROTTLING))
    rows = database.rows(
        f"""
        SELECT host, any_value(gpu_index) AS gpu_index, any_value(uuid) AS uuid, coalesce(any_value(name), '') AS name,
            coalesce(bool_or(simulated), false) AS simulated, count(up) AS samples,
            avg(utilization_percent) AS utilization_percent_mean, max(utilization_percent) AS utilization_percent_peak,
            avg((utilization_percent <= ?)::INTEGER) AS idle_share,
            max(memory_used_mb) AS memory_mb_peak, max(memory_total_mb) AS memory_total_mb,
            avg(power_draw_watts) AS power_watts_mean, max(power_draw_watts) AS power_watts_peak,
            max(temperature_celsius) AS temperature_celsius_peak,
            avg(list_has_any(throttle_reasons, [{words}])::INTEGER) AS throttled_share,
            count_if(up = 0) AS lost_samples
        FROM boards.gpu GROUP BY host, board HAVING count(up) > 0 ORDER BY host, gpu_index
    """,
        [idle_percent],
    )
    return [GpuSummary(**row) for row in rows]


def _host(database: Database) -> dict[str, Any]:
    (row,) = database.rows("""
        SELECT coalesce(max(seconds), 0.0) AS seconds, sum(mean * readings) / sum(readings) AS cpu_ratio_mean,
            max(peak) AS cpu_ratio_peak, sum(cores) AS cpu_cores, max(memory) AS memory_used_bytes_peak,
            max(memory_total) AS memory_total_bytes, sum(job_cpu) AS job_cpu_seconds,
            sum(job_memory) AS job_memory_bytes_peak, sum(job_processes) AS job_processes_peak,
            sum(own_cpu) AS pulsetrain_cpu_seconds
        FROM (
            SELECT max(elapsed_seconds) AS seconds, count(cpu_ratio) AS readings, avg(cpu_ratio) AS mean,
                max(cpu_ratio) AS peak, max(cpu_cores) AS cores, max(memory_used_bytes) AS memory,
                max(memory_total_bytes) AS memory_total, max(job_cpu_seconds) AS job_cpu,
                nullif(greatest(max(job_memory_bytes), max(job_memory_peak_bytes)), 0) AS job_memory,
                max(job_processes) AS job_processes,
                max(pulsetrain_cpu_seconds) AS own_cpu
            FROM host GROUP BY host
        )
    """)
    return row


def mean(values: Iterable[float | None]) -> float | None:
    """Of the values that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
