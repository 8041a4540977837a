"""Trackio: the database of a project on this machine. Each row has an id, and the database keeps an id once."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pulsetrain.outputs.trackers.tracker import Ending, Memory, Row, flat_config
from pulsetrain.runs.folder import Run


def open_tracker(place: str, memory: Memory) -> "TrackioTracker":
    return TrackioTracker(place, memory)


class TrackioTracker:
    """A run of Trackio, whose name is the id of ours."""

    def __init__(self, project: str, memory: Memory) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        self._storage: Any = SQLiteStorage
        self._project = project
        self._memory = memory
        self._run = ""

    def open(self, run: Run) -> None:
        self._run = self._memory.setdefault("run", run.id)

    def describe(self, run: Run) -> None:
        self._memory["config"] = {
            **flat_config(run.config),
            **run.tags,
            "_Username": run.user,
            "_Created": run.start.isoformat(),
            "_Group": run.project or None,
        }

    def send(self, rows: Sequence[Row], *, again: bool) -> None:
        training = [row for row in rows if not row.of_machine]
        machine = [row for row in rows if row.of_machine]
        if training:
            self._storage.bulk_log(
                self._project,
                self._run,
                [dict(row.values) for row in training],
                steps=[row.step for row in training],
                timestamps=[_time(row) for row in training],
                log_ids=[self._id(row) for row in training],
                config=self._memory.get("config"),
            )
        if machine:
            self._storage.bulk_log_system(
                self._project,
                self._run,
                [dict(row.values) for row in machine],
                timestamps=[_time(row) for row in machine],
                log_ids=[self._id(row) for row in machine],
            )

    def finish(self, ending: Ending) -> None:
        """The last row of the run: its figures, its verdict, and its settings once more."""
        self._memory["config"] = {**self._memory.get("config", {}), **ending.words}
        self._storage.bulk_log(
            self._project,
            self._run,
            [dict(ending.figures)],
            steps=[None],
            timestamps=[(ending.run.end or datetime.now(UTC)).isoformat()],
            log_ids=[f"{self._run}/end"],
            config=self._memory["config"],
        )

    def close(self) -> None:
        pass  # each call opens the database and closes it

    def _id(self, row: Row) -> str:
        return f"{self._run}/{row.number}"


def _time(row: Row) -> str:
    return datetime.fromtimestamp(row.time, UTC).isoformat()
