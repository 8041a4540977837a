"""The classes of the older tools, with their names and signatures."""

from __future__ import annotations

import glob
import json
import logging
import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pulsetrain.training import api, callbacks, process, transformers
from pulsetrain.training import loop as loops
from pulsetrain.training.guard import guarded

LAST_BYTES = 16 * 2**10
"""Read of the end of a file of GPU readings: enough for a line of each of many GPUs."""

logger = logging.getLogger("pulsetrain")


class GPUMonitor:
    """Watches a GPU, and this process, between `start` and `stop`, or in a with statement.

    Under `pulsetrain run` all GPUs of the run are watched already, and this only reads what there is.
    """

    def __init__(self, gpu_index: int = 0, sample_interval: float = 1.0) -> None:
        self.gpu_index = gpu_index
        self.sample_interval = sample_interval
        self._run: api.CurrentRun | None = None
        self._started = False
        """Whether the watching process is ours to stop."""

    def __enter__(self) -> GPUMonitor:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """A second start changes nothing."""
        if self._run is None:
            recorder = process.current()
            self._started = recorder is None or recorder.closed
            self._run = api.init(interval=self.sample_interval, gpus=str(self.gpu_index), quiet=True)

    def stop(self) -> None:
        """The last readings can still be had afterwards."""
        if self._started:
            self._started = False
            api.finish()

    def get_current_metrics(self) -> dict[str, Any]:
        """The last reading of the GPU, up to some seconds old, as its line in the run; empty before the first."""
        if self._run is None:
            return {}
        files = sorted(glob.glob(os.path.join(self._run.folder, "*", "gpu_metrics_*.jsonl")), key=os.path.getmtime)
        for line in reversed(_last_lines(files[-1]) if files else []):
            try:
                reading = json.loads(line)
            except ValueError:
                continue  # not yet written to its end, or the middle of one
            if isinstance(reading, dict) and reading.get("gpu_index") == self.gpu_index:
                return reading
        return {}


def _last_lines(path: str) -> list[bytes]:
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_BYTES))
        return file.read().splitlines()


class TrainingMonitorCallback:
    """Called by a training loop at its begin, each step and its end. Without a monitor it records the loop alone."""

    def __init__(self, gpu_monitor: GPUMonitor | None = None) -> None:
        self.gpu_monitor = gpu_monitor

    @guarded
    def on_train_begin(self) -> None:
        if self.gpu_monitor is not None:
            self.gpu_monitor.start()
        callbacks.begin_training(0, None)

    @guarded
    def on_step_begin(self) -> None:
        """There for the older programs: a step begins where the one before ended."""

    @guarded
    def on_step_end(
        self,
        step: int | None = None,
        epoch: float | None = None,
        loss: Any = None,
        lr: Any = None,
        grad_norm: Any = None,
        throughput: float | None = None,
    ) -> None:
        """`throughput` is in samples per second. What is left out is taken from the torch hooks, where they are."""
        loop = loops.current()
        if loop is not None:
            fields = {
                "epoch": epoch,
                "loss": loss,
                "learning_rate": lr,
                "gradient_norm": grad_norm,
                "throughput_samples_per_sec": throughput,
            }
            known = {name: value for name, value in fields.items() if value is not None}
            loop.handle(loop.updates.step_done, step, known)

    @guarded
    def on_train_end(self) -> None:
        callbacks.end_training()
        if self.gpu_monitor is not None:
            self.gpu_monitor.stop()


class _GPUMonitoring(transformers.TransformersEvents):
    """For the Trainer of transformers: records its training, and logs the GPU every `log_interval` steps."""

    def __init__(self, gpu_monitor: GPUMonitor | None = None, log_interval: int = 10) -> None:
        super().__init__()
        self.gpu_monitor = gpu_monitor
        self.log_interval = log_interval

    @guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.gpu_monitor is not None:
            self.gpu_monitor.start()
        super().on_train_begin(args, state, control, **kwargs)

    @guarded
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_step_end(args, state, control, **kwargs)
        if self.gpu_monitor is not None and state.global_step % self.log_interval == 0:
            reading = self.gpu_monitor.get_current_metrics()
            figures = ("utilization_percent", "memory_used_mb", "temperature_celsius", "power_draw_watts")
            known = ["%s %g" % (name, reading[name]) for name in figures if reading.get(name) is not None]
            if known:
                logger.info("step %d: GPU %d: %s", state.global_step, self.gpu_monitor.gpu_index, ", ".join(known))

    @guarded
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_train_end(args, state, control, **kwargs)
        if self.gpu_monitor is not None:
            self.gpu_monitor.stop()


def __getattr__(name: str) -> Any:
    """`GPUMonitoringCallback`, made when it is first asked for: where transformers is, its base class is from there."""
    if name != "GPUMonitoringCallback":
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    there = find_spec("transformers") is not None
    bases = (import_module("transformers.trainer_callback").TrainerCallback,) if there else ()
    made = type(name, (_GPUMonitoring, *bases), {"__module__": __name__, "__doc__": _GPUMonitoring.__doc__})
    globals()[name] = made
    return made
