"""Runs that are fetched from elsewhere, as series: /metrics of `pulsetrain fetch --follow`."""

import time

from pulsetrain.catalog import TABLES
from pulsetrain.errors import PulsetrainError
from pulsetrain.outputs import Origin
from pulsetrain.outputs.prometheus import Exporter
from pulsetrain.runs.folder import Run, RunFolder, host_name
from pulsetrain.runs.follow import Follow
from pulsetrain.snapshot import Sample, Snapshot
from pulsetrain.transfer.fetching import FetchedRun

BACK_SECONDS = 60.0
"""Of a run that is in progress already, so much of its past is read."""


class FetchedMetrics:
    """Shows what each look at a store has brought, until the runs end."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._followed: dict[tuple[str, str], tuple[Run, Follow]] = {}
        self._began = time.monotonic()
        exporter.start(Origin(host_name()))

    def take(self, found: list[FetchedRun], look_seconds: float) -> None:
        """After a look at the store, which took so long."""
        for run in found:
            if not run.refused:
                self._find(run.folder)
        for (id, host), (about, follow) in list(self._followed.items()):
            for snapshot in follow.read():
                self._exporter.follow(about, snapshot, host)
            if follow.ended:  # or nothing has come for long: it is followed again when something does
                follow.close()
                del self._followed[id, host]
        sample = Sample(TABLES["host"].subject({}), {"fetch_seconds": look_seconds})
        self._exporter(Snapshot(time.time(), time.monotonic() - self._began, (sample,)))

    def close(self) -> None:
        self._exporter.close()
        for _, follow in self._followed.values():
            follow.close()

    def _find(self, folder: RunFolder) -> None:
        """Follow the hosts of a run that are new."""
        try:
            run = folder.load()
        except PulsetrainError:
            return  # its description has not come yet
        for host in run.hosts:
            if run.status == "running" and (run.id, host) not in self._followed:
                start = time.time() - run.start.timestamp() - BACK_SECONDS
                self._followed[run.id, host] = (run, Follow(folder, host, start))
