"""What runs on a cluster of ours: agents, monitoring, cache and collector, applied and looked at."""

import secrets
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from pulsetrain.deploy.cloud.cluster_file import ClusterFile
from pulsetrain.deploy.cloud.kubectl import Kubectl
from pulsetrain.deploy.cloud.machines import GPUS
from pulsetrain.deploy.kubernetes import PARTS, KubernetesSettings, render
from pulsetrain.deploy.kubernetes.objects import TOKENS
from pulsetrain.errors import UsageError

OURS = "app.kubernetes.io/part-of=pulsetrain"


class ClusterPart(msgspec.Struct, frozen=True):
    """One of our DaemonSets or StatefulSets, and how many of its pods are ready."""

    kind: str
    name: str
    wanted: int
    ready: int


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes of one kind that are there now."""

    price_name: str
    spot: bool
    count: int


class ClusterInside(msgspec.Struct, frozen=True):
    """What is on a cluster now."""

    nodes: list[NodeGroup]
    workloads: list[ClusterPart]

    @property
    def ready(self) -> bool:
        return bool(self.workloads) and all(one.ready >= one.wanted for one in self.workloads)


def objects_of(file: ClusterFile, tokens: Mapping[str, str]) -> list[dict[str, Any]]:
    """All that is applied to a cluster of GKE."""
    asked = file.pulsetrain
    parts = asked.parts if asked.parts is not None else PARTS
    if "cache" in parts and asked.cache_image is None:
        raise UsageError(
            "[pulsetrain] has no cache_image.",
            hint='Name the image of the dataset cache, or leave it out: parts = ["agent", "monitoring", "collector"]',
        )
    settings = KubernetesSettings(
        image=asked.image,
        cache_image=asked.cache_image or asked.image,
        parts=parts,
        cache_upstream=asked.cache_upstream,
        cache_gigabytes=asked.cache_gigabytes,
        tokens=tokens,
    )
    return render("gke", settings)


def apply_workloads(kubectl: Kubectl, file: ClusterFile) -> list[str]:
    """Bring the cluster up to date. The tokens of the collector are made once, and are in the cluster alone."""
    known = kubectl.ask("get", "secret", TOKENS)
    tokens = {} if known else {name: secrets.token_urlsafe(24) for name in ("page", "collector")}
    return kubectl.apply(objects_of(file, tokens))


def look_inside(kubectl: Kubectl) -> ClusterInside:
    found = kubectl.ask("get", "daemonsets,statefulsets", f"--selector={OURS}") or {}
    workloads = [_workload(one) for one in found.get("items") or ()]
    nodes = kubectl.ask("get", "nodes") or {}
    counted = Counter(_node_kind(node) for node in nodes.get("items") or ())
    return ClusterInside([NodeGroup(name, spot, count) for (name, spot), count in counted.items()], workloads)


def _workload(one: dict[str, Any]) -> ClusterPart:
    status, spec = one.get("status") or {}, one.get("spec") or {}
    wanted = status.get("desiredNumberScheduled", spec.get("replicas", 1))
    ready = status.get("numberReady", status.get("readyReplicas", 0))
    return ClusterPart(str(one.get("kind")), str(one["metadata"]["name"]), int(wanted or 0), int(ready or 0))


def _node_kind(node: dict[str, Any]) -> tuple[str, bool]:
    """The name by which price lists know it, and whether it is a spot machine."""
    labels = node["metadata"].get("labels") or {}
    machine = str(labels.get("node.kubernetes.io/instance-type", "unknown"))
    accelerator = labels.get("cloud.google.com/gke-accelerator")
    gpu = next((one for one in GPUS.values() if one.accelerator == accelerator), None)
    count = int(((node.get("status") or {}).get("capacity") or {}).get("nvidia.com/gpu", 1))
    if gpu and gpu.attached:
        machine = f"{machine}+{f'{count}x' if count > 1 else ''}{gpu.name}"
    return machine, labels.get("cloud.google.com/gke-spot") == "true"


def release_disks(kubectl: Kubectl) -> None:
    """Remove the namespace, and with it volume claims: the disks behind those would outlive the cluster."""
    kubectl.do("delete", "namespace", kubectl.namespace, "--ignore-not-found", "--timeout=10m")
