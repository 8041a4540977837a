"""One side of a comparison: a run's report, its steps without the warm-up, and what the machine did meanwhile."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pulsetrain.insight.compare.significance import Drawn, Floats, draw_mean, draw_quantile
from pulsetrain.insight.report import Report, make_report
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder

PARTS = {
    "data_wait": "waiting for data",
    "forward": "forward pass",
    "backward": "backward pass",
    "optimizer": "optimizer",
    "other": "other",
}
"""What a step is made of, in this order."""
WARM_UP_SHARE = 0.05
WARM_UP_STEPS = 10
LEAST_STEPS = 20
"""With fewer after the warm-up, nothing is left out, and nothing can be told from noise."""
LONGEST_LABEL = 20
TIMELINE_POINTS = 400

_FIRST_RANK = "coalesce(rank, 0) = (SELECT min(coalesce(rank, 0)) FROM training)"


@dataclass(frozen=True)
class Steps:
    """The steps of the first rank in order of time, without those in which the run warmed up."""

    seconds: Floats
    samples: Floats
    """Of each step; NaN where the loop did not tell."""
    tokens: Floats
    parts: dict[str, float | None]
    """Mean seconds of each of PARTS in a step; None where never seen."""
    warm_up: int
    """Steps left out at the start."""
    began: float
    ended: float
    """Elapsed seconds from the start of the first step to the end of the last, warm-up and all."""
    outside: float
    """Seconds of that time in no step."""

    @property
    def count(self) -> int:
        return len(self.seconds)

    @property
    def mean_seconds(self) -> float:
        return float(self.seconds.mean())

    @property
    def samples_per_step(self) -> float | None:
        return _per_step(self.samples)

    @property
    def sample_seconds(self) -> Floats:
        """Time for a sample, step by step, where the number of samples is known."""
        known = self.samples > 0
        return self.seconds[known] / self.samples[known]

    @property
    def sample_seconds_p50(self) -> float | None:
        times = self.sample_seconds
        return float(np.median(times)) if len(times) else None

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.seconds, share))

    def share(self, part: str) -> float | None:
        mean = self.parts[part]
        return None if mean is None else mean / self.mean_seconds

    def per_second(self, amounts: Floats) -> float | None:
        known = ~np.isnan(amounts)
        return float(amounts[known].sum() / self.seconds[known].sum()) if known.any() else None

    @cached_property
    def typical(self) -> Drawn | None:
        return draw_quantile(self.seconds, 0.5)

    @cached_property
    def slow(self) -> Drawn | None:
        return draw_quantile(self.seconds, 0.95)

    @cached_property
    def average(self) -> Drawn | None:
        return draw_mean(self.seconds)

    @cached_property
    def typical_sample(self) -> Drawn | None:
        return draw_quantile(self.sample_seconds, 0.5)

    @cached_property
    def average_sample(self) -> Drawn | None:
        return draw_mean(self.sample_seconds)


@dataclass(frozen=True)
class Machine:
    """GPUs, CPUs and processes while the run trained, or in all its time if it did not. None where not known."""

    gpu_busy_share: float | None
    """Mean over all GPUs."""
    gpus_idle: int
    """GPUs on which a kernel hardly ever ran."""
    clock_hertz: float | None
    gpu_memory_rise_mb: float | None
    """How far the memory in use of any GPU rose in the run."""
    on_gpu: bool | None
    """Whether a process of the run was seen on a GPU."""
    cpu_share: float | None
    iowait_share: float | None
    job_cores: float | None
    busiest_process_cores: float | None


@dataclass(frozen=True)
class Timeline:
    """All GPUs of a run together, over its elapsed seconds."""

    seconds: Floats
    busy_percent: Floats
    """Mean over the GPUs."""
    watts: Floats
    """Sum over the GPUs."""
    memory_mb: Floats
    """The fullest GPU."""


@dataclass(frozen=True)
class Side:
    """A run as a comparison sees it."""

    label: str
    report: Report
    steps: Steps | None
    """None when no step was recorded."""
    machine: Machine
    timeline: Timeline

    @property
    def simulated(self) -> bool:
        return any(gpu.simulated for gpu in self.report.summary.gpus)

    @property
    def seconds(self) -> float:
        run = self.report.run
        return (run.end - run.start).total_seconds() if run.end else self.report.summary.seconds

    @property
    def throttled_share(self) -> float | None:
        """Mean over the GPUs."""
        shares = [gpu.throttled_share for gpu in self.report.summary.gpus if gpu.throttled_share is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def others_cores(self) -> float | None:
        """Cores that other programs kept busy."""
        busy, job, cores = self.machine.cpu_share, self.machine.job_cores, self.report.summary.cpu_cores
        return None if busy is None or job is None or cores is None else max(0.0, busy * cores - job)

    @property
    def gpu_names(self) -> str:
        """`2x L4`, or `none`."""
        names = [gpu.name.removeprefix("NVIDIA ") for gpu in self.report.summary.gpus]
        return ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names)) or "none"


def load_sides(folders: Sequence[RunFolder]) -> list[Side]:
    """Read the runs of a comparison."""
    reports = [make_report(folder) for folder in folders]
    labels = _labels([report.run.name for report in reports])
    return [_side(*given) for given in zip(labels, folders, reports, strict=True)]


def _labels(names: Sequence[str]) -> list[str]:
    """The names of the runs, or numbers where names would be too long or mean several."""
    if len(set(names)) == len(names) and max(map(len, names)) <= LONGEST_LABEL:
        return list(names)
    return [f"run {number}" for number in range(1, len(names) + 1)]


def _side(label: str, folder: RunFolder, report: Report) -> Side:
    database = Database([folder])
    try:
        steps = _steps(database)
        began, ended = (steps.began, steps.ended) if steps else (0.0, math.inf)
        return Side(label, report, steps, _machine(database, began, ended), _timeline(database, report))
    finally:
        database.close()


def _steps(database: Database) -> Steps | None:
    parts = ", ".join(f"{part}_seconds" for part in PARTS)
    lines = database.arrays(
        f"SELECT elapsed_seconds, step_seconds, samples, tokens, {parts} FROM training "
        f"WHERE {_FIRST_RANK} AND step_seconds > 0 ORDER BY elapsed_seconds"
    )
    at, seconds = lines["elapsed_seconds"], lines["step_seconds"]
    if not len(seconds):
        return None
    warm_up = max(WARM_UP_STEPS, math.ceil(WARM_UP_SHARE * len(seconds)))
    if len(seconds) - warm_up < LEAST_STEPS:
        warm_up = 0
    return Steps(
        seconds=seconds[warm_up:],
        samples=lines["samples"][warm_up:],
        tokens=lines["tokens"][warm_up:],
        parts={part: _per_step(lines[f"{part}_seconds"][warm_up:]) for part in PARTS},
        warm_up=warm_up,
        began=float(at[0] - seconds[0]),
        ended=float(at[-1]),
        outside=max(0.0, float(at[-1] - at[0] - seconds[1:].sum())),
    )


def _per_step(amounts: Floats) -> float | None:
    """Mean over all steps; None where no step has it."""
    return None if np.isnan(amounts).all() else float(np.nansum(amounts) / len(amounts))


def _machine(database: Database, began: float, ended: float) -> Machine:
    window = "elapsed_seconds BETWEEN ? AND ?"
    times = (began, ended)
    (gpus,) = database.rows(
        f"""
        SELECT avg(busy) / 100 AS busy, coalesce(count_if(busy < 2), 0) AS idle, avg(clock) AS clock FROM (
            SELECT avg(utilization_percent) AS busy, avg(clock_sm_hertz) AS clock
            FROM gpu WHERE {window} GROUP BY host, coalesce(uuid, gpu_index::VARCHAR)
        )""",
        times,
    )
    (memory,) = database.rows("""
        SELECT max(rise) AS rise FROM (
            SELECT max(memory_used_mb) - min(memory_used_mb) AS rise
            FROM gpu GROUP BY host, coalesce(uuid, gpu_index::VARCHAR)
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
    return Machine(
        gpu_busy_share=gpus["busy"],
        gpus_idle=gpus["idle"],
        clock_hertz=gpus["clock"],
        gpu_memory_rise_mb=memory["rise"],
        on_gpu=on_gpu["seen"],
        cpu_share=host["cpu"],
        iowait_share=host["iowait"],
        job_cores=host["cores"],
        busiest_process_cores=process["cores"],
    )


def _timeline(database: Database, report: Report) -> Timeline:
    width = max(report.run.interval_seconds, report.summary.seconds / TIMELINE_POINTS)
    lines = database.arrays(
        """
        SELECT place, avg(busy) AS busy, sum(watts) AS watts, max(memory) AS memory FROM (
            SELECT round(elapsed_seconds / ?) AS place, avg(utilization_percent) AS busy,
                avg(power_draw_watts) AS watts, max(memory_used_mb) AS memory
            FROM gpu WHERE up = 1 GROUP BY place, host, coalesce(uuid, gpu_index::VARCHAR)
        ) GROUP BY place ORDER BY place""",
        (width,),
    )
    return Timeline(lines["place"] * width, lines["busy"], lines["watts"], lines["memory"])
