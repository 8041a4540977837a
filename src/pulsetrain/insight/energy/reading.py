"""The energy of a recorded run, from its lines: its devices, and what they used in each part of it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from pulsetrain.insight.energy import gpus, host, portions
from pulsetrain.insight.energy.charging import Charge, GpuUsers
from pulsetrain.insight.energy.curve import EPOCH, EnergyCurve, total
from pulsetrain.insight.energy.figures import DeviceEnergy, Portion, RunEnergy, shares_by_origin, summed
from pulsetrain.insight.energy.portions import StepIntervals
from pulsetrain.insight.energy.same_machine import count_once
from pulsetrain.insight.host_clocks import main_host, read_clocks
from pulsetrain.insight.steps import RankTotals, StepFacts, read_phases
from pulsetrain.rules.thresholds import DEFAULTS
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Run, RunFolder

UNKNOWN_USE_NOTE = "Whether the run used it is unknown, so it is charged."


class RunMeters:
    """The energy of all devices of a run. The database sees this run alone."""

    def __init__(
        self,
        database: Database,
        run: Run,
        steps: StepFacts | None,
        *,
        charge: Charge | None = None,
        idle_percent: float = DEFAULTS.idle_percent,
    ) -> None:
        """Without a `charge`, all GPUs are charged, unless others were on them: then those that the run used."""
        self._database = database
        self._run = run
        self._steady = steps
        clocks = read_clocks(database)
        devices = [*gpus.devices(database, run, clocks, idle_percent), *host.devices(database, run, clocks)]
        _charge(_gpu_users(database), charge, [d.figure for d in devices if d.figure.device == "gpu"])
        self.devices = [device.figure for device in devices]
        main = main_host(database, clocks)
        self.clock = clocks.get(main, EPOCH)
        self.shifts = {name: float(clock.offsets[0] - self.clock.offsets[0]) for name, clock in clocks.items()}
        """What to add to the elapsed seconds of each host to get those of the curve."""
        if len(run.hosts) > 1:
            count_once(devices, run.hosts, self.shifts)
        self._curves = [
            device.curve.shifted(device.curve.clock.offsets[0] - self.clock.offsets[0])
            for device in devices
            if device.figure.charged and device.curve is not None
        ]
        self._steps = _step_intervals(database, steps.warm_up if steps else 0)

    @property
    def curve(self) -> EnergyCurve:
        """All charged devices together, over the elapsed time of the host with the first rank."""
        return total(self._curves, self.clock)

    def energy(self, *, pue: float = 1.0, others: Iterable[RunFolder] = ()) -> RunEnergy:
        """All figures of the run. `others` are runs that may have watched the same GPUs."""
        charged = [device for device in self.devices if device.charged]
        per_step = self._joules_per_step(pue)
        totals = self._steady.totals if self._steady else RankTotals()

        def per(amount: float | None) -> float | None:
            return per_step / amount if per_step is not None and amount else None

        return RunEnergy(
            total=summed((device.total for device in charged), factor=pue),
            origin_shares=shares_by_origin(device.total for device in charged),
            devices=self.devices,
            pue=pue,
            phases=self._phases(),
            epochs=self._epochs(),
            joules_per_step=per_step,
            joules_per_sample=per(totals.samples_per_step),
            joules_per_token=per(totals.tokens_per_step),
            also_counted_in=list(_also_counted(self._run, charged, others)),
        )

    def _joules_per_step(self, pue: float) -> float | None:
        """Of steady steps."""
        steps = self._steady
        if steps is None or not self._curves:
            return None
        curve = self.curve
        joules = float(curve.joules_between(steps.begins, steps.ends).sum())
        joules -= sum(float(curve.joules_between(phase.begin, phase.end)) for phase in steps.cut_out)
        return pue * joules / steps.count

    def _phases(self) -> list[Portion]:
        named = read_phases(self._database)
        if not self._curves or not (len(self._steps.begin) or named):
            return []
        return portions.by_phase(*self._range(), self._steps, named).portions(self._curves, self._steps)

    def _epochs(self) -> list[Portion]:
        timeline = portions.by_epoch(*self._range(), self._steps) if self._curves else None
        return timeline.portions(self._curves, self._steps) if timeline else []

    def _range(self) -> tuple[float, float]:
        """From the first reading of any device to the last."""
        if not self._curves:
            return 0.0, 0.0
        return (
            min(float(curve.times[0]) for curve in self._curves),
            max(float(curve.times[-1]) for curve in self._curves),
        )


# Which GPUs


def _gpu_users(database: Database) -> GpuUsers:
    users = GpuUsers()
    for row in database.rows(
        "SELECT host, max(job_processes) AS job_processes, arg_max(source_up, elapsed_seconds) AS source_up "
        "FROM host GROUP BY host"
    ):
        users.note_host(row["host"], row)
    for row in database.rows('SELECT DISTINCT host, uuid, pid, parent_pid, "user", command FROM process'):
        users.note_process(row["host"], row)
    return users


def _charge(users: GpuUsers, charge: Charge | None, figures: Sequence[DeviceEnergy]) -> None:
    """Say who was on each GPU, and which of them are charged to the run."""
    chosen = users.chosen(charge)
    for gpu in figures:
        use = users.use(gpu.host, gpu.uuid)
        gpu.used, gpu.others = use.own, list(use.others)
        if chosen == "used":
            gpu.charged = use.own is not False
            if use.own is None:
                gpu.notes.append(UNKNOWN_USE_NOTE)


# The training loop


def _step_intervals(database: Database, warm_up: int) -> StepIntervals:
    first = database.arrays(
        "SELECT elapsed_seconds AS time, step_seconds AS seconds, epoch FROM first_rank.training "
        "WHERE step_seconds > 0 ORDER BY elapsed_seconds"
    )
    every = database.arrays(
        "SELECT elapsed_seconds AS time, samples, tokens FROM training WHERE step_seconds > 0 ORDER BY elapsed_seconds"
    )
    return StepIntervals(
        begin=first["time"] - first["seconds"],
        end=first["time"],
        epoch=first["epoch"],
        amount_times=every["time"],
        samples=every["samples"],
        tokens=every["tokens"],
        warm_up=warm_up,
    )


# Other runs


def _also_counted(run: Run, charged: Sequence[DeviceEnergy], others: Iterable[RunFolder]) -> Iterable[str]:
    """A sentence for each other run that watched a charged GPU at the same time."""
    own = {device.uuid: device for device in charged if device.uuid and not device.uuid.startswith("SIM-")}
    start, end = run.start, run.end or datetime.now(UTC)
    for folder in others if own else ():
        other = folder.load()
        if other.start >= end:
            continue
        seconds = (min(end, other.end or _last_written(folder)) - max(start, other.start)).total_seconds()
        watched = {gpu.get("uuid") for machine in other.hosts.values() for gpu in machine.gpus}
        shared = [device for uuid, device in own.items() if uuid in watched]
        if shared and seconds > 0:
            names = ", ".join(f"GPU {device.gpu_index}" for device in shared)
            yield f"Run {other.id} also watched {names}, for {seconds:.0f} s of this run: do not add their energy up."


def _last_written(folder: RunFolder) -> datetime:
    """The end of a run that was not recorded: it is in progress, or its pulsetrain died."""
    latest = max((file.stat().st_mtime for file in folder.path.rglob("*") if file.is_file()), default=0.0)
    return datetime.fromtimestamp(latest, UTC)
