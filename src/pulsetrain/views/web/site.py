"""What the server shows: runs by their ids, opened when somebody looks at them, and closed when nobody does."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pulsetrain.errors import PulsetrainError
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds
from pulsetrain.runs.folder import RUN_JSON, Home, Run, RunFolder
from pulsetrain.supervise import Supervisor
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.views.web.following import FollowedRun
from pulsetrain.views.web.run_list import ListFigures
from pulsetrain.views.web.streams import Streams

if TYPE_CHECKING:
    from pulsetrain.insight.report import Study
    from pulsetrain.views.web.fleet import Fleet

log = logging.getLogger(__name__)

MOST_OPEN_RUNS = 12
MOST_OPEN_BYTES = 1_000_000_000
"""Of readings in memory; beyond, the runs that nobody has asked for lately are closed."""
LOOK_SECONDS = 1.0
"""How often the folder of runs is looked through, at most."""
REPORT_SHARE = 20
"""The report of a run in progress is made again after this many times what it took."""
LEAST_REPORT_SECONDS = 5.0


class Site:
    """The runs of a home, or some of them, and the machines in view."""

    def __init__(
        self,
        home: Home,
        only: Sequence[RunFolder] = (),
        *,
        machines: Sequence[WatchedMachine] = (),
        fleet: "Fleet | None" = None,
        thresholds: Thresholds = DEFAULTS,
        report_share: float = REPORT_SHARE,
        allow_delete: bool = False,
    ) -> None:
        """`only` are the runs to show; by default all of the home."""
        self.allow_delete = allow_delete
        self.fleet = fleet
        self._report_share = report_share
        self.streams = Streams()
        self.list_figures = ListFigures()
        self.supervisor = Supervisor()
        self.thresholds = thresholds
        self.machines = list(machines)
        self._home = home
        self._only = {folder.path.name: folder for folder in only} if only else None
        self._lock = threading.Lock()
        self._folders: dict[str, RunFolder] = {}
        self._looked = -LOOK_SECONDS
        self._ended: dict[tuple[Path, float], Run] = {}
        self._open: OrderedDict[str, FollowedRun] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._studies: dict[str, tuple[float, float, str, Study]] = {}

    def folders(self) -> dict[str, RunFolder]:
        """All runs by the names of their folders, those of a later second first."""
        with self._lock:
            if self._only is not None:
                return dict(self._only)
            if time.monotonic() > self._looked + LOOK_SECONDS:
                found = {folder.path.name: folder for folder in self._home.folders()}
                self._folders = dict(reversed(found.items()))
                self._looked = time.monotonic()
            return self._folders

    def folder(self, id: str) -> RunFolder | None:
        """A run by its id. Nothing that is asked for becomes a path: an id is one of those in the list."""
        found = self.folders().get(id)
        if found is None and self._only is None:
            self._looked = -LOOK_SECONDS  # it may be new
            found = self.folders().get(id)
        return found

    def runs(self) -> list[tuple[str, Run]]:
        """All runs that can be read, those in progress first, then the newest."""
        found = []
        for id, folder in self.folders().items():
            run = self._run(folder)
            if run is not None:
                found.append((id, run))
        return sorted(found, key=lambda one: (one[1].status != "running", -one[1].start.timestamp()))

    def open(self, id: str) -> FollowedRun | None:
        """A run with its readings; None when there is no such run."""
        folder = self.folder(id)
        if folder is None:
            return None
        with self._lock:
            opening = self._opening.setdefault(id, threading.Lock())
        with opening:
            with self._lock:
                found = self._open.get(id)
                if found:
                    self._open.move_to_end(id)
            if found and found.is_current():
                return found
            opened = FollowedRun(folder, self.streams)
            opened.start()
            with self._lock:
                if found:
                    found.stop()
                self._open[id] = opened
                self._open.move_to_end(id)
                self._close_others(opened)
            return opened

    def study(self, id: str) -> "Study | None":
        """The report of a run and its facts; of one in progress, as it was not long ago."""
        from pulsetrain.insight.report import study
        from pulsetrain.runs.database import Database

        folder = self.folder(id)
        if folder is None:
            return None
        with self._lock:
            studying = self._opening.setdefault(f"{id} study", threading.Lock())
        with studying:
            known = self._studies.get(id)
            status = folder.load().status
            if known:
                made, took, was, found = known
                fresh = time.monotonic() < made + max(LEAST_REPORT_SECONDS, self._report_share * took)
                if was == status and (status != "running" or fresh):
                    return found
            began = time.monotonic()
            database = Database([folder])
            try:
                found = study(database, folder, thresholds=self.thresholds)
            finally:
                database.close()
            now = time.monotonic()
            self._studies[id] = (now, now - began, status, found)
            while len(self._studies) > MOST_OPEN_RUNS:
                self._studies.pop(next(iter(self._studies)))
            return found

    def remove(self, id: str) -> bool:
        """Delete a run that has ended, with all its files; False when there is no such run."""
        folder = self.folder(id)
        if folder is None:
            return False
        with self._lock:
            opening = self._opening.setdefault(id, threading.Lock())
        with opening:
            folder.must_have_ended()
            folder.remove()
            with self._lock:
                followed = self._open.pop(id, None)
                self._folders = {name: one for name, one in self._folders.items() if name != id}
                if self._only is not None:
                    self._only.pop(id, None)
        if followed:
            followed.stop()
        self._studies.pop(id, None)
        self.list_figures.forget(id)
        return True

    @property
    def open_bytes(self) -> int:
        """Readings in memory."""
        with self._lock:
            return sum(run.columns.nbytes for run in self._open.values())

    def close(self) -> None:
        self.streams.close()
        with self._lock:
            for run in self._open.values():
                run.stop()
            self._open.clear()
        for machine in self.machines:
            machine.stop()
        if self.fleet:
            self.fleet.close()

    def _run(self, folder: RunFolder) -> Run | None:
        """What run.json says; read once of a run that has ended."""
        try:
            changed = (folder.path / RUN_JSON).stat().st_mtime
            known = self._ended.get((folder.path, changed))
            if known:
                return known
            run = folder.load()
        except (PulsetrainError, OSError):
            return None
        if run.status != "running":
            self._ended[folder.path, changed] = run
        return run

    def _close_others(self, kept: FollowedRun) -> None:
        """Those that nobody looks at, the longest unasked first."""
        viewed = self.streams.topics
        for id, run in list(self._open.items()):
            total = sum(one.columns.nbytes for one in self._open.values())
            if len(self._open) <= MOST_OPEN_RUNS and total <= MOST_OPEN_BYTES:
                return
            if run is not kept and f"run:{id}" not in viewed:
                self._open.pop(id).stop()
