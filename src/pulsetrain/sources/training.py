"""The training loop, from the files that the recorders inside the training processes write.

Every process has its own file; they are followed as they grow. A half line waits for its rest.
"""

import bisect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pulsetrain.catalog import METRICS
from pulsetrain.snapshot import Event, Sample, Severity, Subject, Value

MOST_BYTES = 4 * 2**20
"""Read of one file at one tick; a loop that reports faster than this can be read shows a little late."""
TEXT_FIELDS = frozenset({"timestamp", "phase", "training"})
AMOUNTS = frozenset(metric.field for metric in METRICS if metric.table == "training" and metric.kind == "amount")


class Training:
    """Follows the training files in one host's folder of a run."""

    name = "training"
    period = 0.5

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[str, _Tail] = {}
        self.steps = Steps()

    def read(self) -> Iterator[Sample | Event]:
        ranks: dict[int, dict[str, Value]] = {}
        for name in self._names():
            if name not in self._tails:
                self._tails[name] = _Tail(self._folder / name)
            tail = self._tails[name]
            for line in tail.lines():
                if "event" in line:
                    yield from tail.event(line)
                else:
                    self.steps.add(line)
                    _merge(ranks.setdefault(int(line.get("rank") or 0), {}), line)
        for rank, values in ranks.items():
            yield Sample(Subject("training", f"rank {rank}", {"rank": rank}), values)

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()

    def _names(self) -> list[str]:
        return sorted(path.name for path in self._folder.glob("training_metrics_*.jsonl"))


def _merge(values: dict[str, Value], line: Mapping[str, Any]) -> None:
    """The last of everything, and the sum of what is an amount."""
    for field, value in line.items():
        if value is None or field in ("timestamp", "elapsed_seconds", "rank", "nonfinite"):
            continue
        before = values.get(field)
        if field in AMOUNTS and isinstance(before, int | float) and isinstance(value, int | float):
            values[field] = before + value
        else:
            values[field] = value


class _Tail:
    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self._decoder = msgspec.json.Decoder(dict[str, Any])

    def lines(self) -> Iterator[dict[str, Any]]:
        data = self._rest + self._file.read(MOST_BYTES)
        *whole, self._rest = data.split(b"\n")
        for line in whole:
            try:
                yield self._decoder.decode(line)
            except msgspec.DecodeError:
                continue  # cut off by a kill; the reader of the run counts it

    def event(self, line: Mapping[str, Any]) -> Iterator[Event]:
        if line["event"] == "training_process":
            return  # the head of a file
        severity: Severity = line["severity"] if line.get("severity") in ("info", "warning", "error") else "info"
        known = {"timestamp", "elapsed_seconds", "event", "severity", "message"}
        details = {key: value for key, value in line.items() if key not in known}
        yield Event(str(line["event"]), str(line.get("message", "")), severity, details)

    def close(self) -> None:
        self._file.close()


class Steps:
    """What the step lines of a run add up to, in memory that does not grow with it."""

    _BOUNDS = tuple(1e-6 * 1.02**power for power in range(1250))
    """Step times are counted in classes two per cent wide, from a microsecond to half a day."""

    def __init__(self) -> None:
        self.count = 0
        self.first_loss: float | None = None
        self.last_loss: float | None = None
        self.nonfinite_losses = 0
        self.last_step: float | None = None
        self.total_steps: float | None = None
        self.epoch: float | None = None
        self.ranks: set[int] = set()
        self.sums: dict[str, float] = {}
        self.mfu_sum, self.mfu_count = 0.0, 0
        self._classes: dict[int, int] = {}

    def add(self, line: Mapping[str, Any]) -> None:
        """Take in a line; only those about a step count, and of several ranks the first alone."""
        rank = int(line.get("rank") or 0)
        self.ranks.add(rank)
        if rank != min(self.ranks):
            return
        self._loss(line)
        self.epoch = line.get("epoch") or self.epoch
        self.total_steps = line.get("total_steps") or self.total_steps
        if line.get("step") is not None:
            self.last_step = max(self.last_step or 0, line["step"])
        seconds = line.get("step_seconds")
        if seconds is None:
            return
        self.count += 1
        place = bisect.bisect_left(self._BOUNDS, seconds)
        self._classes[place] = self._classes.get(place, 0) + 1
        for field in AMOUNTS:
            if line.get(field) is not None:
                self.sums[field] = self.sums.get(field, 0.0) + line[field]
        if line.get("mfu_ratio") is not None:
            self.mfu_sum += line["mfu_ratio"]
            self.mfu_count += 1

    def quantile(self, share: float) -> float | None:
        """Step time that this share of the steps stayed within, to two per cent."""
        wanted = share * self.count
        seen = 0
        for place in sorted(self._classes):
            seen += self._classes[place]
            if seen >= wanted:
                return self._BOUNDS[min(place, len(self._BOUNDS) - 1)]
        return None

    def _loss(self, line: Mapping[str, Any]) -> None:
        loss = line.get("loss")
        if loss is not None:
            self.first_loss = loss if self.first_loss is None else self.first_loss
            self.last_loss = loss
        elif "loss" in (line.get("nonfinite") or {}):
            self.nonfinite_losses += 1
