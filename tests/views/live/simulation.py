"""A machine for the tests of live views: simulated GPUs at times that are given, so that every picture is the same."""

import math
from collections.abc import Sequence

from pulsetrain.runs.folder import RunFolder
from pulsetrain.sampler import Consumer
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject, Value
from pulsetrain.sources.simulated import Simulated
from pulsetrain.views.live.machines import WatchedMachine

START = 1794830400.0
"""2026-11-16 12:00:00 UTC."""


class Simulation:
    """A feed that gives a snapshot when it is told to."""

    live = True

    def __init__(
        self,
        spec: str = "8xH100",
        *,
        title: str = "gpu01",
        processes: int = 20,
        training: bool = False,
        start: float = START,
    ) -> None:
        self._start = start
        self.title = title
        self.pids = list(range(4200, 4200 + processes))
        self.lost: set[int] = set()
        self.stopped = False
        self._training = training
        self._seconds = 0.0
        self._source = Simulated(spec, clock=lambda: self._seconds)
        self._consumer: Consumer | None = None

    def start(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def stop(self) -> None:
        self.stopped = True

    def advance(self, seconds: int = 1, events: Sequence[Event] = ()) -> None:
        """Give a snapshot for each second; the last one has the events."""
        assert self._consumer
        for left in reversed(range(seconds)):
            self._seconds += 1.0
            samples = (*self._gpus(), self._host(), *self._training_samples())
            self._consumer(Snapshot(self._start + self._seconds, self._seconds, samples, () if left else tuple(events)))

    def _gpus(self) -> list[Sample]:
        gpus = list(self._source.read())
        shown = [
            Sample(gpu.subject, {"up": 0}) if gpu.subject.labels["gpu_index"] in self.lost else gpu for gpu in gpus
        ]
        return [*shown, *(self._process(number, pid, gpus) for number, pid in enumerate(self.pids))]

    def _process(self, number: int, pid: int, gpus: Sequence[Sample]) -> Sample:
        gpu = gpus[number % len(gpus)].subject
        subject = Subject(
            "process",
            f"{pid}@{gpu.key}",
            {
                "pid": pid,
                "parent_pid": self.pids[number - 1] if number % 4 else 1,
                "user": "ada" if number % 3 else "grace",
                "command": f"python train.py --rank {number}",
                "gpu_index": gpu.labels["gpu_index"],
                "uuid": gpu.key,
            },
        )
        values: dict[str, Value] = {
            "gpu_memory_mb": 1000.0 + 500 * number,
            "sm_ratio": 0.02 * number,
            "cpu_cores": 1.0 + 0.1 * number,
            "memory_bytes": 2.0e9 + 1e9 * number,
            "start_time_seconds": self._start - 1000.0 * number**2,
        }
        return Sample(subject, values)

    def _host(self) -> Sample:
        seconds = self._seconds
        values: dict[str, Value] = {
            "cpu_ratio": 0.4 + 0.2 * math.sin(seconds / 20),
            "cpu_cores": 64.0,
            "cpu_iowait_ratio": 0.01,
            "load_1m": 12.3,
            "memory_used_bytes": 2.1e11,
            "memory_available_bytes": 7.9e11,
            "memory_total_bytes": 1.0e12,
            "disk_read_bytes": 3e6 * seconds,
            "disk_written_bytes": 1e6 * seconds,
            "network_received_bytes": 2e6 * seconds,
            "network_sent_bytes": 1e5 * seconds,
            "gpu_driver_versions": {"580.95.05": 1},
            "cuda_versions": {"13.0": 1},
        }
        return Sample(Subject("host", ""), values)

    def _training_samples(self) -> list[Sample]:
        if not self._training:
            return []
        seconds = self._seconds
        training: dict[str, Value] = {
            "step": 10 * seconds,
            "total_steps": 10_000.0,
            "epoch": seconds / 100,
            "loss": 3 * math.exp(-seconds / 200) + 0.1 * math.sin(seconds),
            "learning_rate": 1e-3 * (1 - seconds / 1000),
            "gradient_norm": 1 + 0.3 * math.sin(seconds / 3),
            "throughput_samples_per_sec": 32_000 + 1000 * math.sin(seconds / 7),
            "step_seconds": 1.0,
            "data_wait_seconds": 0.2,
            "forward_seconds": 0.25,
            "backward_seconds": 0.4,
            "optimizer_seconds": 0.1,
            "other_seconds": 0.05,
            "step_counts": {"0.1": 10.0},
        }
        account: dict[str, Value] = {
            "energy_joules": {"gpu": 4000.0 * seconds, "cpu": 300.0 * seconds},
            "energy_projected_joules": 4.3e6,
            "carbon_grams": 0.1 * seconds,
            "carbon_projected_grams": 100.0,
            "cost": {"EUR": 0.001 * seconds},
            "cost_projected": {"EUR": 2.0},
            "gpu_seconds": 8 * seconds,
            "gpu_idle_seconds": 0.3 * seconds,
            "progress_ratio": seconds / 1000,
            "remaining_seconds": 1000 - seconds,
        }
        return [
            Sample(Subject("training", "rank 0", {"rank": 0}), training),
            Sample(Subject("account", ""), account),
        ]


def simulated_machine(feed: Simulation, seconds: int = 300, folder: RunFolder | None = None) -> WatchedMachine:
    """A machine that has been watched for so long."""
    machine = WatchedMachine(feed, folder, local=True)
    machine.start()
    feed.advance(seconds)
    return machine
