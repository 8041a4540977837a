"""Which driver the GPUs have, and which CUDA it supports."""

from collections.abc import Iterable

import pynvml

from pulsetrain.catalog import HOST
from pulsetrain.snapshot import Event, Sample, Value
from pulsetrain.sources.nvidia.library import NvmlSource


class NvidiaDriver(NvmlSource):
    """Asked once for each start of the library: a driver changes only while nothing uses it."""

    name = "nvidia_driver"
    period = 10.0

    def prepare(self) -> None:
        self._versions: dict[str, Value] = {}
        try:
            self._versions["gpu_driver_versions"] = {pynvml.nvmlSystemGetDriverVersion(): 1}
            thousands, rest = divmod(pynvml.nvmlSystemGetCudaDriverVersion_v2(), 1000)
            self._versions["cuda_versions"] = {f"{thousands}.{rest // 10}": 1}
        except pynvml.NVMLError:  # what it does not say is left out
            pass

    def collect(self) -> Iterable[Sample | Event]:
        yield Sample(HOST, dict(self._versions))
