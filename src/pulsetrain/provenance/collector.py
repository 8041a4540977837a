"""Finds out what a run was while its command already runs: in a thread that nobody waits for but the end of the run."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pulsetrain.provenance.environment import allowed
from pulsetrain.provenance.git import Repository, repository_at
from pulsetrain.provenance.metadata import Cloud
from pulsetrain.provenance.places import cpu_model, nvidia_driver, place_of
from pulsetrain.runs.description import Place
from pulsetrain.supervise import Supervisor, Worker
from pulsetrain.training.masking import storable

END_SECONDS = 3.0
"""How long the end of a run waits for it."""
LONGEST = 200
NEVER_AGAIN = 1e9


class FoundProvenance(msgspec.Struct, kw_only=True):
    """What was found out so far."""

    cpu_model: str = ""
    place: Place = msgspec.field(default_factory=Place)
    environment: dict[str, str] = {}
    driver: str = ""
    """The version of NVIDIA's."""
    repository: Repository | None = None


class ProvenanceCollector:
    """Asks the machine, the cloud and git, in this order, and hands on what each says as soon as it is known."""

    def __init__(
        self,
        command: Sequence[str],
        found: Callable[[FoundProvenance], None],
        *,
        cloud: Cloud | None,
        private: bool,
        supervisor: Supervisor,
    ) -> None:
        """`private` leaves out the environment and the code."""
        self._folder = folder_of(command)
        self._found = found
        self._cloud = cloud
        self._private = private
        self._part = supervisor.part("provenance")
        self._worker = Worker(self._part, self._collect, every_seconds=NEVER_AGAIN, what="what the run was")

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        self._worker.stop(END_SECONDS)

    def _collect(self) -> None:
        known = FoundProvenance(cpu_model=storable(cpu_model()), place=place_of(os.environ), driver=nvidia_driver())
        if not self._private:
            known.environment = allowed(os.environ)
        self._found(known)
        if self._cloud:
            with self._part.attempt("the cloud's metadata"):
                known.place = _told(known.place, self._cloud.place())
                self._found(known)
        if not self._private:
            with self._part.attempt("the git repository"):
                known.repository = repository_at(self._folder)
                self._found(known)


def folder_of(command: Sequence[str]) -> Path:
    """Where the code of a command is: the folder of its script, else the working folder."""
    for word in command:
        script = Path(word)
        if script.suffix in (".py", ".sh", ".ipynb") and script.is_file():
            return script.resolve().parent
    return Path()


def _told(known: Place, told: Place) -> Place:
    """What the cloud says, over what the environment says. It is text from elsewhere."""
    said = {
        field: storable(value)[:LONGEST] if isinstance(value, str) else value
        for field in told.__struct_fields__
        if (value := getattr(told, field)) not in ("", {}, None)
    }
    return msgspec.structs.replace(known, **said)
