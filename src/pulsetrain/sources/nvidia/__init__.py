"""NVIDIA GPUs, through NVML (package nvidia-ml-py, module pynvml). CUDA is never initialised.

Eight sources share one library: what is cheap is read on every tick (`nvidia`, `nvidia_activity`), what is slow or
seldom changes on a cadence of its own (`nvidia_health`, `nvidia_links`, `nvidia_mig`, `nvidia_processes`). Two see to
energy: `nvidia_power` for boards whose counter does not work, `nvidia_edges` for the first and last moment of others.
"""

from pulsetrain.sources import Options, Source
from pulsetrain.sources.nvidia.activity import Activity
from pulsetrain.sources.nvidia.fast import Nvidia
from pulsetrain.sources.nvidia.health import Health, Links
from pulsetrain.sources.nvidia.library import Library
from pulsetrain.sources.nvidia.mig import Mig
from pulsetrain.sources.nvidia.power import CounterEdges, PolledPower
from pulsetrain.sources.nvidia.processes import Processes


def open_sources(options: Options) -> list[Source]:
    library = Library(options.gpus)
    sources: list[Source] = [PolledPower(library), CounterEdges(library), Nvidia(library)]
    sources += [Health(library), Links(library), Processes(library)]
    if Activity.supported(library):
        sources.append(Activity(library))
    if Mig.supported(library):
        sources.append(Mig(library))
    return sources
