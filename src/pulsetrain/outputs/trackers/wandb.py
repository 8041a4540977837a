"""Weights & Biases, online or offline as wandb's own settings say.

W&B takes the rows of a run in order and numbers them by `_step`: ours have their own numbers there, so that it is known
after a restart which of them have arrived. The step of the training is `step`, which its charts are drawn over.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pulsetrain.errors import PulsetrainError
from pulsetrain.outputs.trackers.tracker import Ending, Memory, Row
from pulsetrain.runs.folder import Run
from pulsetrain.wandb_files import wandb_records

TAG_CHARACTERS = 64


def open_tracker(place: str, memory: Memory) -> "WandbTracker":
    return WandbTracker(place, memory)


class WandbTracker:
    """A run of W&B, whose id is that of ours."""

    def __init__(self, place: str, memory: Memory) -> None:
        import wandb

        self._wandb: Any = wandb
        *entity, self._project = place.split("/", 1)
        self._entity = entity[0] if entity else None
        self._memory = memory
        self._run: Any = None

    def open(self, run: Run) -> None:
        known = self._memory.setdefault("run_id", run.id)
        settings = self._wandb.Settings(
            silent=True,
            console="off",
            disable_git=True,
            save_code=False,
            x_disable_stats=True,
            x_disable_machine_info=True,
            init_timeout=30,
        )
        self._run = self._wandb.init(
            project=self._project,
            entity=self._entity,
            id=known,
            name=run.name,
            group=run.project or None,
            notes=run.note or None,
            resume="allow",
            dir=os.environ.get("WANDB_DIR"),
            settings=settings,
        )
        self._run.define_metric("*", step_metric="step")
        self._run.define_metric("system/*", step_metric="elapsed_seconds")
        folders = self._memory.setdefault("folders", [])
        if self._run.offline and self._run.dir not in folders:
            folders.append(self._run.dir)

    def describe(self, run: Run) -> None:
        self._run.config.update({**run.config, "pulsetrain": {"run": run.id}}, allow_val_change=True)
        self._run.tags = tuple(f"{name}:{value}"[:TAG_CHARACTERS] for name, value in run.tags.items())

    def send(self, rows: Sequence[Row], *, again: bool) -> None:
        last = self._last_row() if again else 0
        missing = [row for row in rows if row.number > last]
        for row in missing:
            axis = "elapsed_seconds" if row.of_machine else "step"
            self._run.log({**row.values, axis: row.step, "_timestamp": row.time}, step=row.number, commit=True)
        if missing and self._run.step <= missing[-1].number:  # wandb's own process answers when it has taken them all
            raise PulsetrainError("wandb did not accept all rows.")

    def finish(self, ending: Ending) -> None:
        self._run.summary.update({**ending.figures, **ending.words})
        for file in ending.files:
            kept = shutil.copy(file, self._run.dir)  # from elsewhere it would be a link, to a file that is gone soon
            self._run.save(kept, base_path=self._run.dir, policy="now")
        exit_code = ending.run.exit_code if ending.run.exit_code is not None else int(ending.run.status != "finished")
        self._run.finish(exit_code=exit_code)
        self._run = None

    def close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.finish()

    def _last_row(self) -> int:
        """The number of the last row that W&B has: its server says so, or the files of offline runs do."""
        if not self._run.offline:
            return int(self._run.step) - 1
        files = [file for folder in self._memory["folders"] for file in Path(folder).parent.glob("*.wandb")]
        return max((_last_row(file) for file in files), default=0)


def _last_row(file: Path) -> int:
    from wandb.proto import wandb_internal_pb2

    last = 0
    for data in wandb_records(file):
        record: Any = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        last = max(last, int(record.history.step.num))
    return last
