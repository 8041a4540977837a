"""The processes of a machine, each once."""

from tests.views.live.simulation import Simulation

from pulsetrain.live import Live
from pulsetrain.snapshot import Sample, Snapshot, Subject
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.views.live.processes import Process, processes_of

ON_GPU = Sample(
    Subject("process", "7@GPU-1", {"pid": 7, "gpu_index": 1, "uuid": "GPU-1", "user": "ada", "command": "train.py"}),
    {"gpu_memory_mb": 512.0, "sm_ratio": 0.5},
)
OF_COMMAND = Sample(Subject("process", "7", {"pid": 7, "user": "ada", "command": "train.py"}), {"cpu_cores": 1.5})
LOADER = Sample(Subject("process", "8", {"pid": 8, "parent_pid": 7, "command": "loader"}), {"memory_bytes": 1e6})


def found(*samples: Sample, shown: bool = True) -> list[Process]:
    live = Live()
    live(Snapshot(1.8e9, 0.0, samples))
    return list(processes_of(WatchedMachine(Simulation(title="gpu01")), live, lambda subject: shown))


def test_a_process_of_the_command_that_is_on_a_gpu_is_one_process() -> None:
    (process,) = found(ON_GPU, OF_COMMAND)
    assert (process.pid, process.gpu, process.memory, process.sm, process.cpu) == (7, 1, 512 * 2**20, 0.5, 1.5)
    assert process.key == ("gpu01", "7@GPU-1")


def test_a_process_of_the_command_that_uses_no_gpu_is_there_too() -> None:
    on_gpu, loader = found(ON_GPU, OF_COMMAND, LOADER)
    assert (on_gpu.pid, loader.pid) == (7, 8)
    assert (loader.gpu, loader.memory, loader.ram, loader.parent) == (None, None, 1e6, 7)


def test_a_process_on_a_gpu_that_is_not_shown_is_left_out() -> None:
    assert found(ON_GPU, shown=False) == []


def test_a_process_is_found_by_what_it_is_called_and_whose_it_is() -> None:
    (process,) = found(ON_GPU)
    assert "ada" in process.words
    assert "train.py" in process.words
    assert "gpu01" in process.words
