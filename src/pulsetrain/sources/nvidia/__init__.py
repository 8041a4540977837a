"""NVIDIA GPUs, through NVML (package nvidia-ml-py, module pynvml). CUDA is never initialized.

Nine sources share one library: what is cheap is read on every tick (`nvidia`, `nvidia_activity`), what is slow or
seldom changes on a cadence of its own (`nvidia_driver`, `nvidia_health`, `nvidia_links`, `nvidia_mig`,
`nvidia_processes`). Two see to energy: `nvidia_power` for boards whose counter does not work, `nvidia_edges` for the
first and last moment of others.
"""

from pulsetrain.sources import Options, Source
from pulsetrain.sources.nvidia.activity import NvidiaActivity
from pulsetrain.sources.nvidia.driver import NvidiaDriver
from pulsetrain.sources.nvidia.health import NvidiaHealth, NvidiaLinks
from pulsetrain.sources.nvidia.library import Library
from pulsetrain.sources.nvidia.mig import NvidiaMig
from pulsetrain.sources.nvidia.power import CounterEdges, PolledPower
from pulsetrain.sources.nvidia.processes import NvidiaProcesses
from pulsetrain.sources.nvidia.tick import Nvidia


def open_sources(options: Options) -> list[Source]:
    library = Library(options.gpus)
    sources: list[Source] = [PolledPower(library), CounterEdges(library), Nvidia(library)]
    sources += [NvidiaDriver(library), NvidiaHealth(library), NvidiaLinks(library)]
    if NvidiaProcesses.supported(library):
        sources.append(NvidiaProcesses(library))
    if NvidiaActivity.supported(library):
        sources.append(NvidiaActivity(library))
    if NvidiaMig.supported(library):
        sources.append(NvidiaMig(library))
    return sources
