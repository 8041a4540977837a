"""The energy account of a recorded run: its devices, and what they used in each part of it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

import numpy as np

from pulsetrain.insight.energy import gpus, host, portions
from pulsetrain.insight.energy.curve import EPOCH, Clock, Curve, total
from pulsetrain.insight.energy.figures import DeviceEnergy, Energy, Origin, Portion, RunEnergy
from pulsetrain.insight.energy.portions import Phase, Steps
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Run, RunFolder

Charge = Literal["all", "used"]

_ORIGINS: tuple[Origin, ...] = ("measured", "estimated", "assumed")


class EnergyAccount:
    """All devices of a run. The database sees this run alone."""

    def __init__(self, database: Database, run: Run, *, charge: Charge = "all") -> None:
        self._database = database
        self._run = run
        clocks = _clocks(database)
        devices = [*gpus.devices(database, run, clocks), *host.devices(database, run, clocks)]
        if charge == "used":
            _charge_used(database, [device.figure for device in devices if device.figure.device == "gpu"])
        self.devices = [device.figure for device in devices]
        main = _main_host(database, clocks)
        self.clock = clocks.get(main, EPOCH)
        self._curves = [
            device.curve.shifted(device.curve.clock.offsets[0] - self.clock.offsets[0])
            for device in devices
            if device.figure.charged and device.curve is not None
        ]
        self._steps: Steps | None = None

    @property
    def curve(self) -> Curve:
        """All charged devices together, over the elapsed time of the host with the first rank."""
        return total(self._curves, self.clock)

    def energy(self, *, pue: float = 1.0, others: Iterable[RunFolder] = ()) -> RunEnergy:
        """The whole account. `others` are runs that may have watched the same GPUs."""
        charged = [device for device in self.devices if device.charged]
        phases, epochs = self._phases(), self._epochs()
        training = next((phase for phase in phases if phase.name == portions.TRAINING), portions.NOTHING)

        def per(amount: float | None) -> float | None:
            return training.joules * pue / amount if amount else None

        return RunEnergy(
            total=_sum([device.total for device in charged], pue),
            devices=self.devices,
            pue=pue,
            phases=phases,
            epochs=epochs,
            joules_per_step=per(training.steps),
            joules_per_sample=per(training.samples),
            joules_per_token=per(training.tokens),
            also_counted_in=list(_also_counted(self._run, charged, others)),
        )

    def steps_energy(self, first: float, last: float) -> Portion | None:
        """What the steps with these numbers used; None where there are none."""
        timeline = portions.by_steps(*self._range(), self.steps, first, last)
        name = portions.steps_name(first, last)
        return next((part for part in timeline.portions(self._curves, self.steps) if part.name == name), None)

    @property
    def steps(self) -> Steps:
        if self._steps is None:
            self._steps = _steps(self._database)
        return self._steps

    def _phases(self) -> list[Portion]:
        named = _phases(self._database)
        if not self._curves or not (len(self.steps.begin) or named):
            return []
        return portions.by_phase(*self._range(), self.steps, named).portions(self._curves, self.steps)

    def _epochs(self) -> list[Portion]:
        timeline = portions.by_epoch(*self._range(), self.steps) if self._curves else None
        return timeline.portions(self._curves, self.steps) if timeline else []

    def _range(self) -> tuple[float, float]:
        """From the first reading of any device to the last."""
        if not self._curves:
            return 0.0, 0.0
        return (
            min(float(curve.times[0]) for curve in self._curves),
            max(float(curve.times[-1]) for curve in self._curves),
        )


def run_energy(
    database: Database,
    run: Run,
    *,
    pue: float = 1.0,
    charge: Charge = "all",
    others: Iterable[RunFolder] = (),
) -> RunEnergy:
    """The energy of the run that this database sees. With `charge="used"`, only of GPUs that its processes used."""
    return EnergyAccount(database, run, charge=charge).energy(pue=pue, others=others)


def steps_energy(database: Database, run: Run, first: float, last: float) -> Portion | None:
    """What a range of steps used, both ends included."""
    return EnergyAccount(database, run).steps_energy(first, last)


def total_curve(database: Database, run: Run, *, charge: Charge = "all") -> Curve:
    """Joules over time, all charged devices together."""
    return EnergyAccount(database, run, charge=charge).curve


# Clocks


def _clocks(database: Database) -> dict[str, Clock]:
    """How elapsed time and wall clock belong together, for each host."""
    names = database.rows("SELECT host FROM host UNION SELECT host FROM gpu ORDER BY host")
    return {row["host"]: _clock(database, row["host"]) for row in names}


def _clock(database: Database, name: str) -> Clock:
    for table in ("host", "gpu"):
        times = database.arrays(
            f"SELECT elapsed_seconds AS elapsed, epoch(timestamp) AS wall FROM {table} "
            "WHERE host = ? AND elapsed_seconds IS NOT NULL ORDER BY elapsed_seconds",
            [name],
        )
        if len(times["elapsed"]):
            return Clock.of(times["elapsed"], times["wall"])
    return EPOCH


def _main_host(database: Database, clocks: dict[str, Clock]) -> str:
    """The host whose elapsed time the run's figures are told in: that of the first rank, else the first."""
    rows = database.rows(
        "SELECT host FROM training WHERE step_seconds IS NOT NULL GROUP BY host ORDER BY min(rank), host LIMIT 1"
    )
    return rows[0]["host"] if rows else next(iter(clocks), "")


# Which GPUs


def _charge_used(database: Database, figures: Sequence[DeviceEnergy]) -> None:
    """Charge only GPUs on which a process of the command was seen, where that can be told."""
    rows = database.rows(
        "SELECT DISTINCT host, uuid, gpu_index FROM process AS user WHERE uuid IS NOT NULL AND EXISTS "
        "(FROM process AS own WHERE own.host = user.host AND own.pid = user.pid AND own.cpu_seconds IS NOT NULL)"
    )
    used = {(row["host"], row["uuid"]) for row in rows}
    for gpu in figures:
        if used:
            gpu.charged = (gpu.host, gpu.uuid) in used
        else:
            gpu.notes.append("Which GPUs the command used could not be told: all are charged.")


# The training loop


def _steps(database: Database) -> Steps:
    lines = database.arrays(
        "SELECT elapsed_seconds AS time, step_seconds AS seconds, step, epoch, samples, tokens, "
        "coalesce(rank, 0) AS rank FROM training WHERE step_seconds IS NOT NULL ORDER BY elapsed_seconds"
    )
    first = lines["rank"] == np.min(lines["rank"], initial=np.inf)
    end = lines["time"][first]
    return Steps(
        end - lines["seconds"][first],
        end,
        lines["step"][first],
        lines["epoch"][first],
        lines["time"],
        lines["samples"],
        lines["tokens"],
    )


def _phases(database: Database) -> list[Phase]:
    rows = database.rows(
        "SELECT phase, elapsed_seconds AS until, phase_seconds AS seconds FROM training "
        "WHERE phase_seconds IS NOT NULL AND coalesce(rank, 0) = "
        "(SELECT min(coalesce(rank, 0)) FROM training WHERE phase_seconds IS NOT NULL)"
    )
    return [Phase(row["phase"] or portions.OTHER, row["until"] - row["seconds"], row["until"]) for row in rows]


# Sums


def _sum(parts: Sequence[Energy | None], pue: float) -> Energy | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    errors = [part.error_joules for part in known]
    methods = dict.fromkeys(word for part in known for word in part.method.split(" + "))
    return Energy(
        joules=pue * sum(part.joules for part in known),
        error_joules=None if None in errors else pue * sum(error for error in errors if error is not None),
        origin=max((part.origin for part in known), key=_ORIGINS.index),
        method=" + ".join(methods),
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
            yield f"Run {other.id} watched {names} too, for {seconds:.0f} s of the same time: do not add the two up."


def _last_written(folder: RunFolder) -> datetime:
    """The end of a run that has not been told: it goes on, or its pulsetrain died."""
    latest = max((file.stat().st_mtime for file in folder.path.rglob("*") if file.is_file()), default=0.0)
    return datetime.fromtimestamp(latest, UTC)
