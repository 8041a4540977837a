"""A training that a test has run, and what was recorded of it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Line = dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """What a script told in the last line that it printed, as JSON, and what was recorded of it."""

    told: Any
    lines: list[Line]
    output: str
    home: Path
    """Where pulsetrain kept the run."""

    @property
    def about(self) -> dict[str, Any]:
        return run_json(self.home)

    @property
    def steps(self) -> list[Line]:
        return [line for line in self.lines if "step_seconds" in line]

    def values(self, field: str) -> list[Any]:
        """Of all steps."""
        return [line.get(field) for line in self.steps]

    def reported(self, field: str) -> list[Any]:
        """Of all lines that have it."""
        return [line[field] for line in self.lines if line.get(field) is not None]

    def part(self, name: str) -> "Trained":
        """What lies between `pulsetrain.set_training(name)` and the next such call."""
        lines = sorted(self.lines, key=lambda line: float(line["elapsed_seconds"]))  # steps are written a little late
        names = [line.get("training") if line.get("event") == "set_training" else None for line in lines]
        begin = names.index(name) + 1
        end = next((place for place in range(begin, len(names)) if names[place]), len(names))
        return Trained(self.told[name], lines[begin:end], self.output, self.home)


def run_json(home: Path) -> dict[str, Any]:
    """Of the only run in a home."""
    (file,) = home.glob("runs/*/run.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


Train = Callable[..., Trained]
