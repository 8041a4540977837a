"""Puts what is found out about a run into its run.json: by the machine, by git, and by its training processes."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pulsetrain.provenance.collector import FoundProvenance, ProvenanceCollector
from pulsetrain.provenance.files import FileChecker
from pulsetrain.provenance.metadata import this_cloud
from pulsetrain.provenance.spot import SpotNotice
from pulsetrain.runs.description import NotedFile
from pulsetrain.runs.folder import DIFF_FILE, PACKAGES_FILE, CountingOptions, Host, Run
from pulsetrain.runs.provenance import ProvenanceNotes, SaidNote, merged_config
from pulsetrain.sources import Source
from pulsetrain.supervise import Supervisor

MOST_FILES = 200
"""Files of a training in run.json: the first and the newest."""
MOST_ENTRIES = 200
"""Versions, and figures of a training."""


class RunDescription:
    """Fills in `run` and `host`, and calls `changed` when they are to be saved; `accounted` for a price or region."""

    def __init__(
        self,
        folder: Path,
        run: Run,
        host: Host,
        *,
        command: Sequence[str],
        writes_run: bool,
        private: bool,
        supervisor: Supervisor,
        changed: Callable[[], None],
        accounted: Callable[[CountingOptions], None],
    ) -> None:
        """Where another host has begun the run (`writes_run` is False), only what this host is gets described."""
        self._folder = folder
        self._run = run
        self._host = host
        self._writes_run = writes_run
        self._changed = changed
        self._accounted = accounted
        self._given_config = run.config
        self._noted_files: list[NotedFile] = []
        self._filling = threading.Lock()
        self._checker = FileChecker(self._fill_files, supervisor)
        self._asked = msgspec.structs.replace(run.account)
        """What the user said about price and carbon, and nobody changes."""
        cloud = this_cloud()
        self.sources: list[Source] = [SpotNotice(cloud)] if cloud else []
        if writes_run:
            self.sources.append(ProvenanceNotes(folder, self._note))
        self._collector = ProvenanceCollector(
            command, self._found, cloud=cloud, private=private or not writes_run, supervisor=supervisor
        )

    def start(self) -> None:
        self._collector.start()

    def stop(self) -> None:
        self._collector.stop()
        self._checker.stop()

    def boards_known(self) -> None:
        """Some machines have a price only together with their GPUs."""
        self._set_account()

    def _found(self, found: FoundProvenance) -> None:
        self._host.cpu_model, self._host.place = found.cpu_model, msgspec.structs.replace(found.place)
        if self._writes_run:
            self._run.environment = found.environment
            if found.driver:
                self._run.versions = {"nvidia_driver": found.driver} | self._run.versions
            if found.repository:
                self._run.code = found.repository.code
                if found.repository.diff:
                    self._run.code.diff = self._written(DIFF_FILE, found.repository.diff)
            self._set_account()
        self._changed()

    def _written(self, name: str, data: bytes) -> str:
        """The name of a file beside run.json, once it is there; empty where the disk is full or away."""
        try:
            (self._folder / name).write_bytes(data)
        except OSError:
            return ""
        return name

    def _set_account(self) -> None:
        """Price and region of the place, where the user named none."""
        place = self._host.place
        if not self._writes_run or place is None or not place.cloud:
            return
        from pulsetrain.provenance.accounting import account_of  # and with it price lists and intensities

        known = account_of(place, [str(gpu.get("name", "")) for gpu in self._host.gpus])
        for name in ("price", "carbon_region"):
            value = getattr(known, name)
            if value and not getattr(self._asked, name) and not getattr(self._run.account, name):
                setattr(self._run.account, name, value)
                self._run.account_sources = self._run.account_sources | {name: place.told_by}
                self._accounted(CountingOptions(**{name: value}))

    def _note(self, notes: Mapping[str, Sequence[SaidNote]]) -> None:
        """What training processes know."""
        run = self._run
        run.config, run.config_sources = merged_config(self._given_config, notes.get("config", ()))
        for note in notes.get("versions", ()):
            run.versions = _bounded({**{name: str(value) for name, value in note.values.items()}, **run.versions})
        for note in notes.get("training", ()):
            run.training = _bounded({**run.training, **note.values})
        for note in notes.get("packages", ())[-1:]:
            lines = sorted(f"{name}=={version}" for name, version in note.values.items())
            run.packages = self._written(PACKAGES_FILE, "\n".join([*lines, ""]).encode())
        self._noted_files = _files(notes.get("file", ()))
        self._fill_files()

    def _fill_files(self) -> None:
        with self._filling:  # the checker may be done before what it was asked with is in place
            self._run.files = self._checker.filled(self._noted_files)
        self._changed()


def _bounded(values: dict[str, Any]) -> dict[str, Any]:
    return dict(list(values.items())[:MOST_ENTRIES])


def _files(notes: Sequence[SaidNote]) -> list[NotedFile]:
    """The newest of each path; of too many, the first few and the newest."""
    found: dict[str, NotedFile] = {}
    for note in notes:
        try:
            file = msgspec.convert(note.values, NotedFile)
        except msgspec.ValidationError:
            continue
        found.pop(file.path, None)
        found[file.path] = file
    files = list(found.values())
    return files if len(files) <= MOST_FILES else [*files[:10], *files[10 - MOST_FILES :]]
