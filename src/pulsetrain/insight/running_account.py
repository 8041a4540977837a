"""What a run in progress has used so far, and will have used at its end: energy, emissions, money, time."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from pulsetrain.catalog import ACCOUNT
from pulsetrain.insight import carbon, cost
from pulsetrain.insight.energy.charging import Charge, GpuUsers
from pulsetrain.insight.energy.running import RunningGpu, RunningHost, known
from pulsetrain.insight.prices import Price
from pulsetrain.insight.projection import TrainingProgress, Use, projected_use
from pulsetrain.insight.warm_up import warm_up_steps
from pulsetrain.intensity import RunIntensity
from pulsetrain.rules.thresholds import DEFAULTS
from pulsetrain.snapshot import Sample, Snapshot, Subject, Value
from pulsetrain.sources.gpus import known_boards
from pulsetrain.units import JOULES_PER_KWH

PERIOD_SECONDS = 15.0
"""Between two whole entries: adding up 8 GPUs takes some milliseconds. Between them, energy alone is carried on."""
MOST_MARKS = 500
"""Moments at which the number of the step is remembered; when there are more, every second one is forgotten."""


class RunningAccount:
    """Hands snapshots on, each with an entry of the table `account`: all of it every few seconds, else energy alone.

    Energy moves with each reading, so that its rate is a power. What is not added up yet is by the devices' counters.
    """

    def __init__(
        self,
        *,
        price: Price | None = None,
        pue: float = 1.0,
        charge: Charge | None = None,
        idle_percent: float = DEFAULTS.idle_percent,
        started: float = 0.0,
        interval_seconds: float = 1.0,
        record: Callable[[], RunIntensity | None],
    ) -> None:
        """`record` gives the carbon intensities known by now; the rest is as in a report.

        `started` is when elapsed time began, on the monotonic clock, and `interval_seconds` the time between ticks.
        """
        self._price = price
        self._pue = pue
        self._charge = charge
        self._users = GpuUsers()
        self._new_gpu = partial(
            RunningGpu, started=started, interval_seconds=interval_seconds, idle_percent=idle_percent
        )
        self._record = record
        self._gpus: dict[Subject, RunningGpu] = {}
        self._host = RunningHost()
        self._paces: dict[int, _TrainingPace] = {}
        """By rank. All ranks do the same steps: the first one of this host counts."""
        self._grams: float | None = None
        self._accounted_joules = 0.0
        self._due = PERIOD_SECONDS
        self._shown_joules: dict[str, float] = {}
        """By device. It never falls: a sum may be a little less than what was carried on before it."""

    def set_price(self, price: Price) -> None:
        """From now on, also for what was used before."""
        self._price = price

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        for sample in snapshot.samples:
            self._take(sample, snapshot.elapsed)
        if snapshot.elapsed >= self._due or snapshot.last:
            self._due = snapshot.elapsed + PERIOD_SECONDS
            entry = self._entry(snapshot.time, snapshot.elapsed)
        elif self._shown_joules:
            entry = Sample(ACCOUNT, {"energy_joules": self._risen(self._joules_now())})
        else:
            return snapshot
        return snapshot._replace(samples=(*snapshot.samples, entry))

    def _joules_now(self) -> dict[str, float]:
        """Of each kind of device, without adding up."""
        charged = self._charged()
        gpus = {"gpu": sum(gpu.joules_now for gpu in charged.values())} if "gpu" in self._shown_joules else {}
        return gpus | self._host.joules_now

    def _risen(self, joules: Mapping[str, float]) -> dict[str, float]:
        """These, times PUE, and no less than what was shown before."""
        for device, used in joules.items():
            self._shown_joules[device] = max(self._shown_joules.get(device, 0.0), round(self._pue * used, 3))
        return {device: self._shown_joules[device] for device in joules}

    def _entry(self, time: float, elapsed: float) -> Sample:
        """The account up to now."""
        for gpu in self._gpus.values():
            gpu.settle()
        charged = self._charged()
        gpus = len(known_boards(charged))
        joules = {"gpu": sum(gpu.joules for gpu in charged.values())} if gpus else {}
        self._host.settle()
        joules |= self._host.joules
        values: dict[str, Value] = {"seconds": round(elapsed, 3)}
        if joules:
            values["energy_joules"] = self._risen(joules)
        if gpus:
            values["gpu_seconds"] = round(elapsed * gpus, 3)
            values["gpu_idle_seconds"] = round(sum(gpu.idle_seconds for gpu in charged.values()), 3)
        use = Use(seconds=elapsed, gpus=gpus, joules=self._pue * sum(joules.values()) if joules else None)
        intensity = self._intensity(time)
        progress = self._paces[min(self._paces)].progress() if self._paces else None
        values |= self._carbon(use, intensity)
        if progress:
            values |= _progress(progress, elapsed) | self._projected(use, progress, intensity)
        values |= self._cost(use, progress)
        return Sample(ACCOUNT, values)

    def _charged(self) -> "dict[Subject, RunningGpu]":
        """The GPUs that count, by what is known now of who is on them."""
        if self._users.chosen(self._charge) == "all":
            return self._gpus
        return {gpu: energy for gpu, energy in self._gpus.items() if self._users.use("", _uuid(gpu)).own is not False}

    def _take(self, sample: Sample, elapsed: float) -> None:
        table = sample.subject.table
        if table == "gpu":
            if sample.subject not in self._gpus:
                self._gpus[sample.subject] = self._new_gpu()
            self._gpus[sample.subject].add(sample.values, elapsed)
        elif table == "host":
            self._host.add(sample.values, elapsed)
            self._users.note_host("", sample.values)
        elif table == "process":
            self._users.note_process("", sample.subject.labels)
        elif table == "training":
            rank = int(sample.subject.labels.get("rank") or 0)
            self._paces.setdefault(rank, _TrainingPace()).add(sample.values, elapsed)

    def _intensity(self, time: float) -> float | None:
        """Grams per kilowatt-hour now."""
        record = self._record()
        return carbon.intensity_at(record, datetime.fromtimestamp(time, UTC)) if record else None

    def _carbon(self, use: Use, intensity: float | None) -> dict[str, Value]:
        """What has been used since the last entry, at the intensity of now."""
        if intensity is None or use.joules is None:
            return {}
        self._grams = (self._grams or 0.0) + _grams(use.joules - self._accounted_joules, intensity)
        self._accounted_joules = use.joules
        return {"carbon_grams": round(self._grams, 6), "carbon_grams_per_kwh": intensity}

    def _projected(self, use: Use, progress: TrainingProgress, intensity: float | None) -> dict[str, Value]:
        """Energy and emissions at the end of the planned steps; what is to come, at the intensity of now."""
        end = projected_use(use, progress)
        if end is None or end.joules is None or use.joules is None:
            return {}
        values: dict[str, Value] = {"energy_projected_joules": round(end.joules, 3)}
        if intensity is not None and self._grams is not None:
            values["carbon_projected_grams"] = round(self._grams + _grams(end.joules - use.joules, intensity), 6)
        return values

    def _cost(self, use: Use, progress: TrainingProgress | None) -> dict[str, Value]:
        found = cost.cost(self._price, use, progress) if self._price else None
        if found is None:
            return {}
        values: dict[str, Value] = {"cost": {found.currency: found.amount}}
        if found.projected is not None:
            values["cost_projected"] = {found.currency: found.projected}
        return values


class _TrainingPace:
    """How far the training has come, and how fast it goes."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, float]] = []
        self._total: float | None = None
        self._samples: float | None = None

    def add(self, values: Mapping[str, Value], elapsed: float) -> None:
        step, total, samples = (known(values.get(field)) for field in ("step", "total_steps", "samples"))
        self._total = total or self._total
        if samples is not None:
            self._samples = (self._samples or 0.0) + samples
        if step is None:
            return
        if self._marks and step < self._marks[-1][1]:
            self._marks.clear()  # another training began
        elif len(self._marks) >= MOST_MARKS:
            self._marks = self._marks[::2]
        self._marks.append((elapsed, step))

    def progress(self) -> TrainingProgress | None:
        if not self._marks:
            return None
        last = self._marks[-1][1]
        return TrainingProgress(
            steps=int(last),
            last_step=last,
            total_steps=self._total,
            step_seconds=self._step_seconds(),
            samples=self._samples,
        )

    def _step_seconds(self) -> float | None:
        """From one step to the next since the warm-up, validations and pauses included, as in a report."""
        (began, first), (now, last) = self._marks[0], self._marks[-1]
        warm = first + warm_up_steps(int(last - first))
        began, first = next((elapsed, step) for elapsed, step in self._marks if step >= warm)
        return (now - began) / (last - first) if last > first else None


def _uuid(gpu: Subject) -> str | None:
    uuid = gpu.labels.get("uuid")
    return str(uuid) if uuid else None


def _progress(progress: TrainingProgress, elapsed: float) -> dict[str, Value]:
    values: dict[str, Value] = {}
    if progress.ratio is not None:
        values["progress_ratio"] = round(progress.ratio, 6)
    if progress.remaining_seconds is not None:
        values["remaining_seconds"] = round(progress.remaining_seconds, 1)
        if progress.remaining_seconds > 0:
            values["projected_seconds"] = round(elapsed + progress.remaining_seconds, 1)
    return values


def _grams(joules: float, intensity: float) -> float:
    return joules / JOULES_PER_KWH * intensity
