"""The processes of a machine: those on its GPUs, and those of the command that is watched."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pulsetrain.live import Live, SubjectState
from pulsetrain.snapshot import Subject
from pulsetrain.units import MIB
from pulsetrain.views.live.machines import WatchedMachine


class Process(NamedTuple):
    """A process on one GPU, or one of the command that uses none."""

    machine: WatchedMachine
    host: str
    key: tuple[str, str]
    pid: int
    parent: int | None
    gpu: int | None
    user: str
    memory: float | None
    """Bytes of the GPU."""
    sm: float | None
    cpu: float | None
    """Cores kept busy."""
    ram: float | None
    seconds: float | None
    """How long it has run."""
    run: str
    """The run it is of, as far as that is known."""
    container: str
    command: str

    @property
    def words(self) -> str:
        """What a search looks through, in lower case."""
        words = (self.machine.title, self.pid, self.user, self.run, self.container, self.command)
        return " ".join(map(str, words)).lower()


def processes_of(machine: WatchedMachine, live: Live, shows: Callable[[Subject], bool]) -> Iterator[Process]:
    """The processes on GPUs that `shows` accepts; one of the command that is on a GPU has two lines, here one."""
    states = list(live.table("process"))
    job = {state.subject.labels.get("pid"): state for state in states if "uuid" not in state.subject.labels}
    on_gpus = [state for state in states if "uuid" in state.subject.labels and shows(state.subject)]
    seen = {state.subject.labels.get("pid") for state in on_gpus}
    for state in (*on_gpus, *(state for pid, state in job.items() if pid not in seen)):
        yield _process(machine, live, state, job.get(state.subject.labels.get("pid")))


def _process(machine: WatchedMachine, live: Live, state: SubjectState, job: SubjectState | None) -> Process:
    labels = state.subject.labels
    started = _first_known("start_time_seconds", job, state)
    memory = state.number("gpu_memory_mb")
    parent, gpu = labels.get("parent_pid"), labels.get("gpu_index")
    return Process(
        machine,
        machine.title,
        (machine.title, state.subject.key),
        int(labels.get("pid") or 0),
        int(parent) if parent is not None else None,
        int(gpu) if gpu is not None else None,
        str(labels.get("user") or ""),
        None if memory is None else memory * MIB,
        state.number("sm_ratio"),
        _first_known("cpu_cores", job, state),
        _first_known("memory_bytes", job, state),
        None if started is None else max(0.0, live.time - started),
        str(labels.get("run") or (machine.run.name if machine.run and job else "")),
        str(labels.get("container") or ""),
        str(labels.get("command") or ""),
    )


def _first_known(field: str, *states: SubjectState | None) -> float | None:
    """A value that several lines of one process may have."""
    return next((value for state in states if state and (value := state.number(field)) is not None), None)
