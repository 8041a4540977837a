"""What a run did, in a few figures: its training loop, its GPUs, its machine. Energy has an account of its own."""

from typing import Any

import msgspec

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
    memory_mb_peak: float | None
    memory_total_mb: float | None
    power_watts_mean: float | None
    power_watts_peak: float | None
    temperature_celsius_peak: float | None
    throttled_share: float | None
    """Share of samples in which power or heat held the clocks down."""
    lost_samples: int
    """Readings at which the GPU did not answer."""


class TrainingSummary(msgspec.Struct, kw_only=True):
    """What the training loop did. Shares are of the time of all steps; None where nothing was seen."""

    steps: int
    last_step: float | None
    total_steps: float | None
    epoch: float | None
    ranks: int
    loss_first: float | None
    loss_last: float | None
    nonfinite_losses: int
    step_seconds_p50: float | None
    step_seconds_p95: float | None
    data_wait_share: float | None
    forward_share: float | None
    backward_share: float | None
    optimizer_share: float | None
    other_share: float | None
    samples: float | None
    tokens: float | None
    """Of all steps, on one rank."""
    samples_per_second: float | None
    tokens_per_second: float | None
    mfu_ratio: float | None
    """Estimated."""


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


def summarise(database: Database) -> Summary:
    """The figures of the one run that this database holds."""
    return Summary(gpus=_gpus(database), training=_training(database), **_host(database))


def _gpus(database: Database) -> list[GpuSummary]:
    words = ", ".join(f"'{word}'" for word in sorted(THROTTLING))
    rows = database.rows(f"""
        SELECT host, any_value(gpu_index) AS gpu_index, any_value(uuid) AS uuid, coalesce(any_value(name), '') AS name,
            coalesce(bool_or(simulated), false) AS simulated, count(up) AS samples,
            avg(utilization_percent) AS utilization_percent_mean, max(utilization_percent) AS utilization_percent_peak,
            max(memory_used_mb) AS memory_mb_peak, max(memory_total_mb) AS memory_total_mb,
            avg(power_draw_watts) AS power_watts_mean, max(power_draw_watts) AS power_watts_peak,
            max(temperature_celsius) AS temperature_celsius_peak,
            avg(list_has_any(throttle_reasons, [{words}])::INTEGER) AS throttled_share,
            count_if(up = 0) AS lost_samples
        FROM gpu GROUP BY host, coalesce(uuid, gpu_index::VARCHAR) HAVING count(up) > 0 ORDER BY host, gpu_index
    """)
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
                max(job_memory_bytes) AS job_memory, max(job_processes) AS job_processes,
                max(pulsetrain_cpu_seconds) AS own_cpu
            FROM host GROUP BY host
        )
    """)
    return row


def _training(database: Database) -> TrainingSummary | None:
    """Of several ranks the first alone: all of them do the same steps."""
    (row,) = database.rows("""
        SELECT count(step_seconds) AS steps, max(step) AS last_step, max(total_steps) AS total_steps,
            max(epoch) AS epoch, (SELECT count(DISTINCT coalesce(rank, 0)) FROM training) AS ranks,
            arg_min(loss, elapsed_seconds) AS loss_first, arg_max(loss, elapsed_seconds) AS loss_last,
            count_if(coalesce(map_contains(nonfinite, 'loss'), false)) AS nonfinite_losses,
            quantile_cont(step_seconds, 0.5) AS step_seconds_p50, quantile_cont(step_seconds, 0.95) AS step_seconds_p95,
            sum(step_seconds) AS seconds, sum(data_wait_seconds) AS data_wait, sum(forward_seconds) AS forward,
            sum(backward_seconds) AS backward, sum(optimizer_seconds) AS optimizer, sum(other_seconds) AS other,
            sum(samples) FILTER (step_seconds IS NOT NULL) AS samples,
            sum(tokens) FILTER (step_seconds IS NOT NULL) AS tokens, avg(mfu_ratio) AS mfu_ratio
        FROM training WHERE coalesce(rank, 0) = (SELECT min(coalesce(rank, 0)) FROM training)
    """)
    seconds = row.pop("seconds")
    sums = {name: row.pop(name) for name in ("data_wait", "forward", "backward", "optimizer", "other")}
    samples, tokens = row.pop("samples"), row.pop("tokens")
    if not row["steps"] and row["last_step"] is None and row["loss_last"] is None:
        return None

    def per_second(value: float | None) -> float | None:
        return value / seconds if value is not None and seconds else None

    shares: dict[str, Any] = {f"{name}_share": per_second(value) for name, value in sums.items()}
    return TrainingSummary(
        **row,
        samples=samples,
        tokens=tokens,
        samples_per_second=per_second(samples),
        tokens_per_second=per_second(tokens),
        **shares,
    )
