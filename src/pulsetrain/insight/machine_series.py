"""What a machine did while a run trained: each GPU, each rank, the loading processes, and memory over time."""

from dataclasses import dataclass

import numpy as np

from pulsetrain.insight.robust import Floats
from pulsetrain.runs.database import Database

WINDOW_SECONDS = 600
"""Throttling counts by its worst ten minutes."""
IDLE_GPU_PERCENT, FULL_GPU_PERCENT = 10, 70
"""Below the first a GPU waits for the CPUs, below the second it has room."""
LEAST_READINGS = 5
"""Of the machine while it trained, to say what it did most of the time."""


@dataclass(frozen=True)
class GpuFacts:
    """One GPU while the run trained. None where it does not tell."""

    host: str
    gpu: str
    name: str
    simulated: bool
    busy_percent: float | None
    busy_percent_p95: float | None
    memory_percent_p95: float | None
    memory_percent_peak: float | None
    celsius_peak: float | None
    thermal_share: float | None
    """Share of the readings with that reason to throttle, in the worst ten minutes."""
    power_share: float | None
    brake_share: float | None
    limit_watts: float | None
    limit_max_watts: float | None
    clock_ratio: float | None
    """Of its highest clock, on average."""
    tensor_ratio: float | None
    lost: int
    readings: int
    """Of its utilization."""


@dataclass(frozen=True)
class RankFacts:
    """The median steady step of one rank, in seconds."""

    rank: int
    host: str
    step: float
    data_wait: float
    forward: float
    backward: float
    quick_before_exchange: float
    """What it takes at most in the quicker quarter of its steps."""
    samples: float | None
    tokens: float | None

    @property
    def before_exchange(self) -> float:
        """What a rank does on its own before it meets the others."""
        return self.data_wait + self.forward


@dataclass(frozen=True)
class LoadingFacts:
    """How batches were prepared."""

    workers: int
    """Loading processes, of one training process."""
    worker_cores: float | None
    """Cores that the busiest of them kept busy, on average."""
    read_bytes_per_second: float | None
    cooled_ratio: float | None
    """Bytes read from disks in the first third of the training, by those of the last."""


@dataclass(frozen=True)
class MemoryCourse:
    """Memory over elapsed seconds, in MiB, and what there is at most."""

    whose: str
    seconds: Floats
    mb: Floats
    left_mb: float | None
    """Free at the end."""


@dataclass(frozen=True)
class MachineSeries:
    """All of it."""

    gpus: tuple[GpuFacts, ...]
    ranks: tuple[RankFacts, ...]
    loading: LoadingFacts
    memory: tuple[MemoryCourse, ...]
    cpu_bound_share: float | None
    """Share of the readings with GPUs below IDLE_GPU_PERCENT while the CPUs were saturated; None with few readings."""
    io_bound_share: float | None
    cpu_percent_p95: float | None
    load_by_core: float | None
    """Programs that want to run, by the cores there are: the mean of the load average of a minute."""
    others_cores: tuple[Floats, Floats]
    """Elapsed seconds, and the cores that other programs kept busy then."""


def read_machine_series(
    database: Database, began: float, ended: float, warm_at: float, *, saturated_ratio: float, iowait_ratio: float
) -> MachineSeries:
    times = (began, ended)
    (both,) = database.rows(
        """
        SELECT count(*) AS readings, avg((gpu.busy < ? AND host.cpu_ratio > ?)::INTEGER) AS cpu,
            avg((gpu.busy < ? AND host.cpu_iowait_ratio > ?)::INTEGER) AS io
        FROM host JOIN (
            SELECT host, elapsed_seconds, avg(utilization_percent) AS busy FROM boards.gpu
            WHERE simulated IS NOT true GROUP BY ALL
        ) AS gpu ON host.host = gpu.host AND host.elapsed_seconds = gpu.elapsed_seconds
        WHERE gpu.busy IS NOT NULL AND host.elapsed_seconds BETWEEN ? AND ?""",
        (IDLE_GPU_PERCENT, saturated_ratio, FULL_GPU_PERCENT, iowait_ratio, *times),
    )
    (cpu,) = database.rows(
        "SELECT quantile_cont(100 * cpu_ratio, 0.95) AS p95, avg(load_1m / cpu_cores) AS load FROM host "
        "WHERE elapsed_seconds BETWEEN ? AND ?",
        times,
    )
    others = database.arrays(
        "SELECT elapsed_seconds, sum(greatest(0, cpu_ratio * cpu_cores - job_cpu_cores)) AS cores FROM host "
        "WHERE cpu_ratio IS NOT NULL AND job_cpu_cores IS NOT NULL AND cpu_cores IS NOT NULL "
        "GROUP BY elapsed_seconds ORDER BY elapsed_seconds"
    )
    return MachineSeries(
        gpus=_gpus(database, began, ended),
        ranks=_ranks(database, warm_at),
        loading=_loading(database, began, ended),
        memory=_memory(database, warm_at, ended),
        cpu_bound_share=both["cpu"] if both["readings"] >= LEAST_READINGS else None,
        io_bound_share=both["io"] if both["readings"] >= LEAST_READINGS else None,
        cpu_percent_p95=cpu["p95"],
        load_by_core=cpu["load"],
        others_cores=(others["elapsed_seconds"], others["cores"]),
    )


def _gpus(database: Database, began: float, ended: float) -> tuple[GpuFacts, ...]:
    rows = database.rows(
        f"""
        WITH lines AS (
            SELECT *, floor((elapsed_seconds - ?) / {WINDOW_SECONDS}) AS place,
                list_has_any(throttle_reasons, ['hw_thermal', 'sw_thermal'])::INTEGER AS thermal,
                list_has_any(throttle_reasons, ['sw_power_cap', 'hw_power_brake'])::INTEGER AS power,
                list_has_any(throttle_reasons, ['hw_power_brake'])::INTEGER AS brake
            FROM boards.gpu WHERE elapsed_seconds BETWEEN ? AND ?
        ), windows AS (
            SELECT host, board, avg(thermal) AS thermal, avg(power) AS power, avg(brake) AS brake FROM lines
            GROUP BY host, board, place
            HAVING count(*) >= 0.5 * (SELECT max(n) FROM (SELECT count(*) AS n FROM lines GROUP BY host, board, place))
        ), worst AS (
            SELECT host, board, max(thermal) AS thermal_share, max(power) AS power_share, max(brake) AS brake_share
            FROM windows GROUP BY host, board
        ), limits AS (  -- read now and then: those of the whole run count
            SELECT host, board, min(power_limit_watts) AS limit_watts, max(power_limit_max_watts) AS limit_max_watts
            FROM boards.gpu GROUP BY host, board
        )
        SELECT lines.host, coalesce(any_value(gpu_index)::VARCHAR, lines.board) AS gpu,
            coalesce(any_value(name), '') AS name, coalesce(bool_or(simulated), false) AS simulated,
            avg(utilization_percent) AS busy_percent,
            quantile_cont(utilization_percent, 0.95) AS busy_percent_p95,
            quantile_cont(memory_percent, 0.95) AS memory_percent_p95, max(memory_percent) AS memory_percent_peak,
            max(temperature_celsius) AS celsius_peak, any_value(thermal_share) AS thermal_share,
            any_value(power_share) AS power_share, any_value(brake_share) AS brake_share,
            any_value(limit_watts) AS limit_watts, any_value(limit_max_watts) AS limit_max_watts,
            avg(clock_sm_hertz) / max(clock_sm_max_hertz) AS clock_ratio, avg(tensor_active_ratio) AS tensor_ratio,
            coalesce(count_if(up = 0), 0) AS lost,
            count(utilization_percent) AS readings
        FROM lines LEFT JOIN worst ON lines.host = worst.host AND lines.board = worst.board
            LEFT JOIN limits ON lines.host = limits.host AND lines.board = limits.board
        GROUP BY lines.host, lines.board ORDER BY lines.host, lines.board""",
        (began, began, ended),
    )
    return tuple(GpuFacts(**row) for row in rows)


def _ranks(database: Database, warm_at: float) -> tuple[RankFacts, ...]:
    rows = database.rows(
        """
        SELECT coalesce(rank, 0) AS rank, any_value(host) AS host, median(step_seconds) AS step,
            coalesce(median(data_wait_seconds), 0) AS data_wait, median(forward_seconds) AS forward,
            median(backward_seconds) AS backward,
            quantile_cont(coalesce(data_wait_seconds, 0) + forward_seconds, 0.25) AS quick_before_exchange,
            avg(samples) AS samples, avg(tokens) AS tokens
        FROM training WHERE step_seconds > 0 AND forward_seconds IS NOT NULL AND elapsed_seconds > ?
        GROUP BY coalesce(rank, 0) ORDER BY rank""",
        (warm_at,),
    )
    return tuple(RankFacts(**row) for row in rows)


def _loading(database: Database, began: float, ended: float) -> LoadingFacts:
    (workers,) = database.rows(
        """
        WITH job AS (
            SELECT host, pid, any_value(parent_pid) AS parent, any_value(command) AS command, avg(cpu_cores) AS cores
            FROM process WHERE gpu_index IS NULL AND elapsed_seconds BETWEEN ? AND ? GROUP BY host, pid
        ), loaders AS (  -- forked from a training process, or spawned by it
            SELECT loader.*, count(*) OVER (PARTITION BY loader.host, loader.parent) AS beside FROM job AS loader
            JOIN job AS trainer ON loader.host = trainer.host AND loader.parent = trainer.pid
            WHERE loader.command = trainer.command OR loader.command LIKE '%multiprocessing%spawn%'
        )
        SELECT coalesce(max(beside), 0) AS count, max(cores) AS cores FROM loaders""",
        (began, ended),
    )
    third = (ended - began) / 3
    reads = [
        database.rows(
            "SELECT sum(risen) AS bytes FROM (SELECT max(disk_read_bytes) - min(disk_read_bytes) AS risen FROM host "
            "WHERE elapsed_seconds BETWEEN ? AND ? GROUP BY host)",
            (begin, end),
        )[0]["bytes"]
        for begin, end in ((began, ended), (began, began + third), (ended - third, ended))
    ]
    whole, first, last = reads
    return LoadingFacts(
        workers=workers["count"],
        worker_cores=workers["cores"],
        read_bytes_per_second=whole / (ended - began) if whole is not None and ended > began else None,
        cooled_ratio=first / max(last, 1.0) if first is not None and last is not None else None,
    )


def _memory(database: Database, warm_at: float, ended: float) -> tuple[MemoryCourse, ...]:
    times = (warm_at, ended)
    job = database.arrays(
        "SELECT elapsed_seconds, sum(job_memory_bytes) / 1048576 AS mb, min(memory_available_bytes) / 1048576 AS spare "
        "FROM host WHERE job_memory_bytes IS NOT NULL AND elapsed_seconds BETWEEN ? AND ? "
        "GROUP BY elapsed_seconds ORDER BY elapsed_seconds",
        times,
    )
    tensors = database.arrays(
        "SELECT elapsed_seconds, memory_allocated_mb AS mb FROM first_rank.training "
        "WHERE memory_allocated_mb IS NOT NULL AND elapsed_seconds BETWEEN ? AND ? ORDER BY elapsed_seconds",
        times,
    )
    (card,) = database.rows("SELECT max(memory_total_mb) AS mb FROM boards.gpu WHERE simulated IS NOT true")
    found = [MemoryCourse("The program's", job["elapsed_seconds"], job["mb"], _last(job["spare"]))]
    last = _last(tensors["mb"])
    left = card["mb"] - last if card["mb"] is not None and last is not None else None
    found.append(MemoryCourse("GPU", tensors["elapsed_seconds"], tensors["mb"], left))
    return tuple(course for course in found if len(course.seconds))


def _last(values: Floats) -> float | None:
    return float(values[-1]) if len(values) and not np.isnan(values[-1]) else None
