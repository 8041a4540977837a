"""Steps that a program logs itself: where nothing else measures them, the time between two calls is that of a step."""

from __future__ import annotations

import time
from typing import Any

from pulsetrain.training import loop as loops


class LoggedSteps:
    """Adds `step_seconds` to what a program logs of its steps, unless hooks or callbacks measure them."""

    def __init__(self, since: float) -> None:
        """The first step begins at `since`, on the monotonic clock."""
        self._since = since
        self.last: int | float | None = None
        """Number of the last step that the program logged."""
        self._counts = False
        """Whether the program leaves the numbers of its steps to us."""
        self._measured = False
        """Whether something else measures steps."""

    def take(self, fields: dict[str, Any]) -> None:
        """Add what is missing to a report: it is a step if it has a new number, or a loss and never had a number."""
        if self._measured or self._is_measured():
            return
        last, step = self.last, fields.get("step")
        if step is None:
            if "loss" not in fields or not (last is None or self._counts):
                return
            self._counts = True
            fields["step"] = step = 1 if last is None else last + 1
        elif type(step) not in (int, float):
            step = _plain(step)
        if step is None or step == last:
            return
        now = time.monotonic()
        passed = step - last if last is not None and step > last else 1
        fields.setdefault("step_seconds", (now - self._since) / passed)
        self.last, self._since = step, now

    def _is_measured(self) -> bool:
        loop = loops.existing()
        if loop is not None:
            loop.catch_up()
            self._measured = loop.measures_steps
        return self._measured


def _plain(step: Any) -> int | None:
    """The number of a step that is a NumPy integer or the like; None for what a GPU would have to be asked for."""
    if str(getattr(step, "device", "cpu")) != "cpu":
        return None
    try:
        return int(step)
    except Exception:  # the value's own code runs here; the recorder says what is wrong with it
        return None
