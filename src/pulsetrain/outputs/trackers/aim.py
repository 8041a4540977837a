"""Aim: a repository, which is the folder `.aim` in a folder of this machine.

Aim keeps one value of a metric for a step: a batch that is sent again changes nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pulsetrain.outputs.trackers.tracker import Ending, Memory, Row
from pulsetrain.runs.folder import Run


def open_tracker(place: str, memory: Memory) -> "AimTracker":
    return AimTracker(Path(place).expanduser(), memory)


class AimTracker:
    """A run of Aim, found again by its hash, or by the id of ours in its settings."""

    def __init__(self, folder: Path, memory: Memory) -> None:
        import aim

        self._aim: Any = aim
        folder.mkdir(parents=True, exist_ok=True)
        self._repo: Any = aim.Repo.from_path(str(folder), init=True)
        self._memory = memory
        self._run: Any = None

    def open(self, run: Run) -> None:
        known = self._memory.get("hash") or self._find(run)
        self._run = self._aim.Run(
            known,
            repo=self._repo,
            experiment=run.project or "pulsetrain",
            force_resume=known is not None,  # its lock is of a process that was killed: ours excludes another
            system_tracking_interval=None,
            capture_terminal_logs=False,
            log_system_params=False,
        )
        self._memory["hash"] = self._run.hash
        if known is None:
            self._run["pulsetrain"] = {"run": run.id, "start": run.start.isoformat()}

    def describe(self, run: Run) -> None:
        self._run["hparams"] = run.config
        self._run.name = run.name
        if run.note:
            self._run.description = run.note
        wanted = {f"{name}:{value}" for name, value in run.tags.items()}
        for tag in sorted(wanted - set(self._run.tags)):
            self._run.add_tag(tag)

    def send(self, rows: Sequence[Row], *, again: bool) -> None:
        for row in rows:
            # `track` notes the time at which it is called: what it calls takes that of the value.
            self._run._tracker._track(row.values, row.time, None, row.step)

    def finish(self, ending: Ending) -> None:
        for name, figure in ending.figures.items():
            self._run.track(figure, name=name, step=0)
        for name, word in ending.words.items():
            self._run["pulsetrain", name] = word
        if ending.run.status == "finished":
            self._run.report_successful_finish()

    def close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.close()
        self._repo.close()

    def _find(self, run: Run) -> str | None:
        """From the runs themselves: the index of a repository is made by `aim up`, and may be behind."""
        for known in self._repo.list_all_runs():
            meta = self._repo.request_tree("meta", known, read_only=True)
            if meta.get(("meta", "chunks", known, "attrs", "pulsetrain", "run")) == run.id:
                return str(known)
        return None
