"""How busy the parts of a GPU are (multiprocessors, tensor cores, memory), through GPM: Hopper and newer.

GPM needs no DCGM and does not take its exclusive lock.
"""

from collections.abc import Callable, Iterable
from ctypes import byref
from typing import Any

import pynvml

from pulsetrain.snapshot import Event, Sample, Subject, Value
from pulsetrain.sources.nvidia.library import Gpu, Library, NvmlSource, mig_instances
from pulsetrain.sources.nvidia.mig import subject

METRICS = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: "sm_active_ratio",
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: "sm_occupancy_ratio",
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor_active_ratio",
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram_active_ratio",
}


class NvidiaActivity(NvmlSource):
    """Means since the last reading, of each board, or of each MIG instance where the board is split."""

    name = "nvidia_activity"
    period = 1.0

    @staticmethod
    def supported(library: Library) -> bool:
        return any(gpu.lost or _has_gpm(gpu) for gpu in library.gpus)

    def prepare(self) -> None:
        self._meters: dict[Gpu, list[_Meter]] = {}

    def collect(self) -> Iterable[Sample | Event]:
        for gpu in self._library.gpus:
            if gpu.lost:
                self._meters.pop(gpu, None)  # what it counted before says nothing about after
                continue
            if gpu not in self._meters:
                self._meters[gpu] = _meters(gpu)
            for meter in self._meters[gpu]:
                values = meter.read()
                if values:
                    yield Sample(meter.subject, values)


class _Meter:
    """Two samples that take turns: a figure is what happened between them."""

    def __init__(self, subject: Subject, take: Callable[[Any], int]) -> None:
        self.subject = subject
        self._take = take
        self._samples = [pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()]
        self._has_first = False
        self._question = pynvml.c_nvmlGpmMetricsGet_t(
            version=pynvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(METRICS)
        )
        for position, number in enumerate(METRICS):
            self._question.metrics[position].metricId = number

    def read(self) -> dict[str, Value] | None:
        self._samples.reverse()
        if self._take(self._samples[1]) != pynvml.NVML_SUCCESS:
            self._has_first = False
            return None
        if not self._has_first:
            self._has_first = True
            return None
        self._question.sample1, self._question.sample2 = self._samples
        if pynvml.nvmlLib.nvmlGpmMetricsGet(byref(self._question)) != pynvml.NVML_SUCCESS:
            return None
        answers = zip(METRICS.values(), self._question.metrics, strict=False)
        return {field: round(a.value / 100, 4) for field, a in answers if a.nvmlReturn == pynvml.NVML_SUCCESS}


def _meters(gpu: Gpu) -> list[_Meter]:
    if not _has_gpm(gpu):
        return []
    instances = [
        _Meter(subject(gpu, handle), _instance_reader(gpu.handle, pynvml.nvmlDeviceGetGpuInstanceId(handle)))
        for handle in mig_instances(gpu)
    ]
    return instances or [_Meter(gpu.subject, _board_reader(gpu.handle))]


def _board_reader(handle: Any) -> Callable[[Any], int]:
    return lambda sample: int(pynvml.nvmlLib.nvmlGpmSampleGet(handle, sample))


def _instance_reader(handle: Any, instance: int) -> Callable[[Any], int]:
    return lambda sample: int(pynvml.nvmlLib.nvmlGpmMigSampleGet(handle, instance, sample))


def _has_gpm(gpu: Gpu) -> bool:
    support = gpu.ask(pynvml.nvmlGpmQueryDeviceSupport)
    return support is not None and bool(support.isSupportedDevice)
