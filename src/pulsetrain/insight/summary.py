"""A run in a few figures, added up sample by sample: live while it runs, or afterwards from its files."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pulsetrain.runs.folder import RunFolder
from pulsetrain.runs.reader import Lines
from pulsetrain.snapshot import Snapshot
from pulsetrain.sources.throttle import THROTTLING
from pulsetrain.sources.training import Steps


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
    energy_joules: float | None
    energy_source: str
    """counter: the board's own; power: its power added up over time; none: it tells neither."""
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
    gpu_energy_joules: float | None
    cpu_energy_joules: float | None
    cpu_ratio_mean: float | None
    cpu_ratio_peak: float | None
    cpu_cores: float | None
    memory_used_bytes_peak: float | None
    memory_total_bytes: float | None
    job_cpu_seconds: float | None
    job_memory_bytes_peak: float | None
    job_processes_peak: float | None
    pulsetrain_cpu_seconds: float | None


class _Series:
    """Mean, peak and last value of one field."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.peak: float | None = None
        self.last: float | None = None

    def add(self, value: float | None) -> None:
        if value is None:
            return
        self.count += 1
        self.total += value
        self.last = value
        if self.peak is None or value > self.peak:
            self.peak = value

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


class _Counter:
    """How far a counter rose, and in what time. One that falls was reset and starts anew from 0."""

    def __init__(self) -> None:
        self.rise: float | None = None
        self._last: float | None = None
        self._first_at = self._last_at = 0.0

    def add(self, value: float | None, elapsed: float) -> None:
        if value is None:
            return
        if self._last is None:
            self.rise = 0.0
            self._first_at = elapsed
        else:
            self.rise = (self.rise or 0.0) + (value - self._last if value >= self._last else value)
        self._last, self._last_at = value, elapsed

    @property
    def per_second(self) -> float | None:
        seconds = self._last_at - self._first_at
        return self.rise / seconds if self.rise is not None and seconds > 0 else None


class _Gpu:
    def __init__(self, host: str, labels: Mapping[str, Any]) -> None:
        self.host = host
        self.labels = labels
        self.samples = 0
        self.lost = 0
        self.utilization, self.memory, self.memory_total = _Series(), _Series(), _Series()
        self.power, self.temperature, self.throttled = _Series(), _Series(), _Series()
        self.counter = _Counter()
        self.power_joules = 0.0
        self._power_since: tuple[float, float] | None = None

    def add(self, values: Mapping[str, Any], elapsed: float) -> None:
        if "up" not in values:  # a line with slow values alone
            return
        self.samples += 1
        if values["up"] == 0:
            self.lost += 1
        self.utilization.add(values.get("utilization_percent"))
        self.memory.add(values.get("memory_used_mb"))
        self.memory_total.add(values.get("memory_total_mb"))
        self.temperature.add(values.get("temperature_celsius"))
        self.counter.add(values.get("energy_joules"), elapsed)
        reasons = values.get("throttle_reasons")
        if reasons is not None:
            self.throttled.add(float(any(word in THROTTLING for word in reasons)))
        watts = values.get("power_draw_watts")
        self.power.add(watts)
        if self._power_since is not None:  # the last power holds until the next one is known
            since, held = self._power_since
            self.power_joules += held * (elapsed - since)
        self._power_since = (elapsed, watts) if watts is not None else None

    def result(self) -> GpuSummary:
        power = self.power.mean
        if self.counter.rise:
            energy, source = self.counter.rise, "counter"
            power = self.counter.per_second  # readings of instant power may miss what lies between them
        elif self.power.count:
            energy, source = self.power_joules, "power"
        else:
            energy, source = None, "none"
        return GpuSummary(
            host=self.host,
            gpu_index=self.labels.get("gpu_index"),
            uuid=self.labels.get("uuid"),
            name=self.labels.get("name", ""),
            simulated=bool(self.labels.get("simulated")),
            samples=self.samples,
            utilization_percent_mean=self.utilization.mean,
            utilization_percent_peak=self.utilization.peak,
            memory_mb_peak=self.memory.peak,
            memory_total_mb=self.memory_total.peak,
            power_watts_mean=power,
            power_watts_peak=self.power.peak,
            temperature_celsius_peak=self.temperature.peak,
            energy_joules=energy,
            energy_source=source,
            throttled_share=self.throttled.mean,
            lost_samples=self.lost,
        )


class Totals:
    """Adds samples up. Memory does not grow with the length of the run."""

    def __init__(self, host: str = "", steps: Steps | None = None) -> None:
        self._host = host
        self._steps = steps or Steps()
        self._gpus: dict[tuple[str, object], _Gpu] = {}
        self._cpu, self._cpu_cores = _Series(), _Series()
        self._memory, self._memory_total = _Series(), _Series()
        self._job_memory, self._job_processes = _Series(), _Series()
        self._job_cpu, self._own_cpu = _Series(), _Series()
        self._cpu_energy = _Counter()
        self._seconds = 0.0

    def __call__(self, snapshot: Snapshot) -> None:
        """Take a snapshot in, as a consumer of the sampler."""
        for sample in snapshot.samples:
            if sample.subject.table == "gpu":
                self.add_gpu(self._host, sample.subject.labels, sample.values, snapshot.elapsed)
            elif sample.subject.table == "host":
                self.add_host(sample.values, snapshot.elapsed)

    def add_gpu(self, host: str, labels: Mapping[str, Any], values: Mapping[str, Any], elapsed: float) -> None:
        key = (host, labels.get("uuid") or labels.get("gpu_index"))
        if key not in self._gpus:
            self._gpus[key] = _Gpu(host, labels)
        self._gpus[key].add(values, elapsed)

    def add_training(self, line: Mapping[str, Any]) -> None:
        self._steps.add(line)

    def add_host(self, values: Mapping[str, Any], elapsed: float) -> None:
        self._seconds = max(self._seconds, elapsed)
        self._cpu.add(values.get("cpu_ratio"))
        self._cpu_cores.add(values.get("cpu_cores"))
        self._memory.add(values.get("memory_used_bytes"))
        self._memory_total.add(values.get("memory_total_bytes"))
        self._job_memory.add(values.get("job_memory_bytes"))
        self._job_processes.add(values.get("job_processes"))
        self._job_cpu.add(values.get("job_cpu_seconds"))
        self._cpu_energy.add(values.get("cpu_energy_joules"), elapsed)
        self._own_cpu.add(values.get("pulsetrain_cpu_seconds"))

    def result(self) -> Summary:
        gpus = sorted((gpu.result() for gpu in self._gpus.values()), key=lambda gpu: (gpu.host, gpu.gpu_index or 0))
        return Summary(
            seconds=self._seconds,
            training=_training(self._steps),
            gpus=gpus,
            gpu_energy_joules=_sum(gpu.energy_joules for gpu in gpus),
            cpu_energy_joules=self._cpu_energy.rise,
            cpu_ratio_mean=self._cpu.mean,
            cpu_ratio_peak=self._cpu.peak,
            cpu_cores=self._cpu_cores.last,
            memory_used_bytes_peak=self._memory.peak,
            memory_total_bytes=self._memory_total.last,
            job_cpu_seconds=self._job_cpu.last,
            job_memory_bytes_peak=self._job_memory.peak,
            job_processes_peak=self._job_processes.peak,
            pulsetrain_cpu_seconds=self._own_cpu.last,
        )


def summarise(run: RunFolder) -> tuple[Summary, int]:
    """The summary of a recorded run, and how many damaged lines were left out."""
    totals = Totals()
    gpu, host, training = Lines(run, "gpu"), Lines(run, "host"), Lines(run, "training")
    for name, line in gpu:
        totals.add_gpu(name, line, line, line.get("elapsed_seconds", 0.0))
    for _, line in host:
        totals.add_host(line, line.get("elapsed_seconds", 0.0))
    for _, line in training:
        if "event" not in line:
            totals.add_training(line)
    return totals.result(), gpu.damaged + host.damaged + training.damaged


def _training(steps: Steps) -> TrainingSummary | None:
    if not steps.count and steps.last_step is None and steps.last_loss is None:
        return None
    seconds = steps.sums.get("step_seconds", 0.0)

    def per_second(field: str) -> float | None:
        return steps.sums[field] / seconds if field in steps.sums and seconds > 0 else None

    return TrainingSummary(
        steps=steps.count,
        last_step=steps.last_step,
        total_steps=steps.total_steps,
        epoch=steps.epoch,
        ranks=len(steps.ranks),
        loss_first=steps.first_loss,
        loss_last=steps.last_loss,
        nonfinite_losses=steps.nonfinite_losses,
        step_seconds_p50=steps.quantile(0.5),
        step_seconds_p95=steps.quantile(0.95),
        data_wait_share=per_second("data_wait_seconds"),
        forward_share=per_second("forward_seconds"),
        backward_share=per_second("backward_seconds"),
        optimizer_share=per_second("optimizer_seconds"),
        other_share=per_second("other_seconds"),
        samples_per_second=per_second("samples"),
        tokens_per_second=per_second("tokens"),
        mfu_ratio=steps.mfu_sum / steps.mfu_count if steps.mfu_count else None,
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
