"""The facts of one run on which judgments rest: its steady steps, and what the machine did meanwhile.

A comparison puts the facts of several runs side by side; one run alone can be judged by them too.
"""

import math
from dataclasses import dataclass

from pulsetrain.insight.energy.curve import EnergyCurve
from pulsetrain.insight.learning import LearningFacts, read_learning
from pulsetrain.insight.machine_series import MachineSeries, read_machine_series
from pulsetrain.insight.step_series import StepSeries, read_step_series
from pulsetrain.insight.steps import Floats, StepFacts
from pulsetrain.insight.stragglers import Stragglers, read_stragglers
from pulsetrain.insight.summary import Summary
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Run

TIMELINE_POINTS = 400


@dataclass(frozen=True)
class MachineFacts:
    """GPUs, CPUs and processes while the run trained, or in all its time if it did not. None where not known."""

    gpu_busy_share: float | None
    """Mean over all GPUs."""
    clock_hertz: float | None
    gpu_memory_rise_mb: float | None
    """How far the memory in use of any GPU rose in the run."""
    on_gpu: bool | None
    """Whether a process of the run was seen on a GPU."""
    cpu_cores: float | None
    """All there are, on all hosts."""
    cpu_share: float | None
    iowait_share: float | None
    job_cores: float | None
    """Kept busy by the processes of the run."""
    busiest_process_cores: float | None

    @property
    def others_cores(self) -> float | None:
        """Cores that other programs kept busy."""
        if self.cpu_share is None or self.job_cores is None or self.cpu_cores is None:
            return None
        return max(0.0, self.cpu_share * self.cpu_cores - self.job_cores)


@dataclass(frozen=True)
class GpuTimeline:
    """All GPUs of a run together, over its elapsed seconds."""

    seconds: Floats
    busy_percent: Floats
    """Mean over the GPUs."""
    watts: Floats
    """Sum over the GPUs."""
    memory_mb: Floats
    """The fullest GPU."""


@dataclass(frozen=True)
class Facts:
    """What one run did, beyond the figures of its report."""

    steps: StepFacts | None
    """None when no step was recorded."""
    series: StepSeries | None
    """All steps; None when none was recorded."""
    learning: LearningFacts
    machine: MachineFacts
    devices: MachineSeries
    stragglers: Stragglers | None
    """None for a run of one rank."""
    timeline: GpuTimeline
    energy: EnergyCurve
    """Joules of all charged devices over the elapsed time of the host with the first rank, without PUE."""


def read_facts(
    database: Database, run: Run, summary: Summary, steps: StepFacts | None, energy: EnergyCurve, thresholds: Thresholds
) -> Facts:
    """The facts of the one run that this database holds."""
    began, ended = (steps.began, steps.ended) if steps else (0.0, math.inf)
    return Facts(
        steps=steps,
        series=read_step_series(database, steps) if steps else None,
        learning=read_learning(database),
        machine=_machine(database, summary, began, ended),
        devices=read_machine_series(
            database,
            *(began, steps.ended if steps else summary.seconds),
            steps.warm_at if steps else 0.0,
            saturated_ratio=thresholds.cpu_saturated_ratio,
            iowait_ratio=thresholds.iowait_ratio,
        ),
        stragglers=read_stragglers(database, thresholds.straggler_ratio),
        timeline=_timeline(database, max(run.interval_seconds, summary.seconds / TIMELINE_POINTS)),
        energy=energy,
    )


def _machine(database: Database, summary: Summary, began: float, ended: float) -> MachineFacts:
    window = "elapsed_seconds BETWEEN ? AND ?"
    times = (began, ended)
    (gpus,) = database.rows(
        f"""
        SELECT avg(busy) / 100 AS busy, avg(clock) AS clock FROM (
            SELECT avg(utilization_percent) AS busy, avg(clock_sm_hertz) AS clock
            FROM boards.gpu WHERE {window} GROUP BY host, board
        )""",
        times,
    )
    (memory,) = database.rows("""
        SELECT max(rise) AS rise FROM (
            SELECT max(memory_used_mb) - min(memory_used_mb) AS rise
            FROM boards.gpu GROUP BY host, board
        )""")
    (host,) = database.rows(
        f"""
        SELECT avg(cpu) AS cpu, avg(iowait) AS iowait, sum(cores) AS cores FROM (
            SELECT avg(cpu_ratio) AS cpu, avg(cpu_iowait_ratio) AS iowait, avg(job_cpu_cores) AS cores
            FROM host WHERE {window} GROUP BY host
        )""",
        times,
    )
    (process,) = database.rows(
        f"""
        SELECT max(cores) AS cores FROM (
            SELECT avg(cpu_cores) AS cores FROM process WHERE {window} AND gpu_index IS NULL GROUP BY host, pid
        )""",
        times,
    )
    (on_gpu,) = database.rows("""
        SELECT bool_or((host, pid) IN (SELECT (host, pid) FROM process WHERE gpu_index IS NOT NULL)) AS seen
        FROM process WHERE cpu_seconds IS NOT NULL""")
    return MachineFacts(
        gpu_busy_share=gpus["busy"],
        clock_hertz=gpus["clock"],
        gpu_memory_rise_mb=memory["rise"],
        on_gpu=on_gpu["seen"],
        cpu_cores=summary.cpu_cores,
        cpu_share=host["cpu"],
        iowait_share=host["iowait"],
        job_cores=host["cores"],
        busiest_process_cores=process["cores"],
    )


def _timeline(database: Database, bucket_seconds: float) -> GpuTimeline:
    lines = database.arrays(
        """
        SELECT place, avg(busy) AS busy, sum(watts) AS watts, max(memory) AS memory FROM (
            SELECT round(elapsed_seconds / ?) AS place, avg(utilization_percent) AS busy,
                avg(power_draw_watts) AS watts, max(memory_used_mb) AS memory
            FROM boards.gpu WHERE up = 1 GROUP BY place, host, board
        ) GROUP BY place ORDER BY place""",
        (bucket_seconds,),
    )
    return GpuTimeline(lines["place"] * bucket_seconds, lines["busy"], lines["watts"], lines["memory"])
