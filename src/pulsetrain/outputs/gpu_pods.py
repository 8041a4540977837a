"""The pods that hold GPUs, as labels of the GPUs' series."""

from collections.abc import Mapping

from pulsetrain import catalog
from pulsetrain.live import Live

GPU_PODS = catalog.metric("host", "gpu_pods").name
_NAMES = ("uuid", "namespace", "pod", "container")


def pod_of(holder: str) -> dict[str, str]:
    """The labels in `UUID/namespace/pod/container`."""
    return dict(zip(_NAMES, holder.split("/"), strict=False))


def pods_of_gpus(live: Live) -> Mapping[str, Mapping[str, str]]:
    """Namespace, pod and container by the UUID of a GPU or an instance. One that several share has none."""
    held = live.host.values.get("gpu_pods")
    found: dict[str, dict[str, str]] = {}
    shared: set[str] = set()
    for holder in held if isinstance(held, dict) else ():
        labels = pod_of(holder)
        uuid = labels.pop("uuid")
        if uuid in found:
            shared.add(uuid)
        found[uuid] = labels
    return {uuid: labels for uuid, labels in found.items() if uuid not in shared}
