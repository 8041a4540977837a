"""MIG instances: parts of a board that work like boards of their own."""

from collections.abc import Iterable
from typing import Any

import pynvml

from pulsetrain import catalog
from pulsetrain.snapshot import Event, Sample, Subject, Value
from pulsetrain.sources.nvidia.library import Gpu, Library, NvmlSource, mig_instances
from pulsetrain.units import MIB


class NvidiaMig(NvmlSource):
    """Memory and size of each instance. Instances come and go without a reset, so they are looked up each time."""

    name = "nvidia_mig"
    period = 5.0

    @staticmethod
    def supported(library: Library) -> bool:
        modes = [gpu.ask(pynvml.nvmlDeviceGetMigMode) for gpu in library.gpus if not gpu.lost]
        return any(mode and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE for mode in modes)

    def collect(self) -> Iterable[Sample | Event]:
        for gpu in self._library.gpus:
            if gpu.lost:
                continue
            memory_shown = set()
            for handle in mig_instances(gpu):
                try:
                    about = subject(gpu, handle)
                    attributes = pynvml.nvmlDeviceGetAttributes_v2(handle)
                    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
                except pynvml.NVMLError:
                    continue  # the instance was destroyed since we listed it
                values: dict[str, Value] = {"multiprocessors": attributes.multiprocessorCount}
                # Compute instances of one GPU instance share its memory: shown once, so that sums come out right.
                if about.labels["gpu_instance"] not in memory_shown:
                    memory_shown.add(about.labels["gpu_instance"])
                    values["memory_used_mb"] = memory.used / MIB
                    values["memory_free_mb"] = memory.free / MIB
                    values["memory_total_mb"] = memory.total / MIB
                yield Sample(about, values)


def subject(gpu: Gpu, handle: Any) -> Subject:
    return catalog.subject(
        "mig",
        {
            "gpu_index": gpu.index,
            "uuid": gpu.uuid,
            "name": pynvml.nvmlDeviceGetName(handle),
            "mig_uuid": pynvml.nvmlDeviceGetUUID(handle),
            "gpu_instance": pynvml.nvmlDeviceGetGpuInstanceId(handle),
            "compute_instance": pynvml.nvmlDeviceGetComputeInstanceId(handle),
        },
    )
