"""What is said of a run when it ends: how, after how long, and how far it came."""

from pulsetrain.alerts.delivery import Message
from pulsetrain.snapshot import Snapshot, Value
from pulsetrain.units import JOULES_PER_KWH


class EndFigures:
    """The few figures of a run that a message tells, kept up from snapshots."""

    def __init__(self) -> None:
        self._training: dict[str, Value] = {}
        self._account: dict[str, Value] = {}
        self._seconds = 0.0

    def __call__(self, snapshot: Snapshot) -> None:
        self._seconds = max(self._seconds, snapshot.elapsed)
        for subject, values in snapshot.samples:
            if subject.table == "training" and "step" in values:
                self._training = values
            elif subject.table == "account":
                self._account = values

    def message(self, name: str, host: str, status: str, exit_code: int | None) -> Message:
        """How the run ended."""
        code = f" with exit code {exit_code}" if exit_code else ""
        lines = [f"After {_duration(self._seconds)} on {host}."]
        if figures := [*self._learned(), *self._used()]:
            lines.append(", ".join(figures) + ".")
        title = f"Run {name} {status}{code}"
        return Message(title, "\n".join(lines), "info" if status == "finished" else "critical")

    def _learned(self) -> list[str]:
        step, total, loss = (self._training.get(field) for field in ("step", "total_steps", "loss"))
        if not isinstance(step, int | float):
            return []
        of = f" of {total:.0f}" if isinstance(total, int | float) else ""
        return [f"step {step:.0f}{of}", *([f"loss {loss:.4g}"] if isinstance(loss, int | float) else [])]

    def _used(self) -> list[str]:
        joules, cost = self._account.get("energy_joules"), self._account.get("cost")
        found = []
        if isinstance(joules, dict) and joules:
            found.append(f"{sum(joules.values()) / JOULES_PER_KWH:.3g} kWh")
        if isinstance(cost, dict):
            found += [f"{amount:.2f} {currency}" for currency, amount in cost.items()]
        return found


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
