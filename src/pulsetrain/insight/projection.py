"""What a run in progress will have used by the end of its planned steps. Live views, reports and prices share this."""

import msgspec


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has used of all that can have a price."""

    seconds: float
    hosts: int = 1
    gpus: int = 0
    """Those that are charged to it."""
    joules: float | None = None
    """Of all charged devices, times PUE."""
    error_joules: float | None = None


class TrainingProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the training of a run has come."""

    steps: int
    """Done in this run."""
    last_step: float | None = None
    """The number of the latest: more than `steps` in a run that was resumed."""
    total_steps: float | None = None
    """Planned, where the program named it."""
    step_seconds: float | None = None
    """Expected of each step to come: the median of the latest, as a rule."""
    step_joules: float | None = None
    """The same of energy; without it, power stays as it was on average."""
    samples: float | None = None
    """Seen in this run."""

    @property
    def ratio(self) -> float | None:
        """Steps done, of those planned: 0 to 1."""
        return min(1.0, self.last_step / self.total_steps) if self.last_step is not None and self.total_steps else None

    @property
    def steps_left(self) -> float | None:
        """Steps to the end of the plan."""
        if self.last_step is None or not self.total_steps:
            return None
        return max(0.0, self.total_steps - self.last_step)

    @property
    def remaining_seconds(self) -> float | None:
        """Time to the end of the plan, at the current pace."""
        left = self.steps_left
        return None if left is None or self.step_seconds is None else left * self.step_seconds


def projected_use(use: Use, progress: TrainingProgress) -> Use | None:
    """What a run will have used when its planned steps are done; None where nothing is planned, or no step is left."""
    left, seconds = progress.steps_left, progress.remaining_seconds
    if not left or seconds is None:
        return None
    joules = _joules_to_come(use, progress.step_joules, left, seconds)
    total = use.joules + joules if use.joules is not None and joules is not None else None
    return Use(seconds=use.seconds + seconds, hosts=use.hosts, gpus=use.gpus, joules=total)


def _joules_to_come(use: Use, step_joules: float | None, steps: float, seconds: float) -> float | None:
    """Energy of so many steps in so much time: as each step takes, else at the mean power so far."""
    if step_joules is not None:
        return steps * step_joules
    return seconds * use.joules / use.seconds if use.joules is not None and use.seconds > 0 else None
