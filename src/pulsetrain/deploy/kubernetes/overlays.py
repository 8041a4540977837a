"""What each kind of cluster has: the objects of all, and those of its own."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pulsetrain.deploy.kubernetes.agent import agent
from pulsetrain.deploy.kubernetes.cache import cache
from pulsetrain.deploy.kubernetes.collector import collector
from pulsetrain.deploy.kubernetes.monitoring import google_monitoring, monitoring, operator_monitoring
from pulsetrain.deploy.kubernetes.objects import Object, make_object
from pulsetrain.deploy.kubernetes.openshift import host_mounts
from pulsetrain.deploy.kubernetes.settings import KubernetesSettings
from pulsetrain.errors import UsageError, did_you_mean

Maker = Callable[[KubernetesSettings], Iterator[Object]]

BASE: Mapping[str, Maker] = MappingProxyType(
    {"agent": agent, "monitoring": monitoring, "cache": cache, "collector": collector}
)
"""What every cluster has, by part."""
CLUSTER_WIDE = frozenset({"Namespace", "SecurityContextConstraints", "ClusterRole", "ClusterRoleBinding"})
CLUSTER_WIDE |= {"ClusterPodMonitoring", "ClusterRules"}
"""Kinds that are in no namespace."""


class Overlay(NamedTuple):
    """What a kind of cluster has beside the base, by part."""

    about: str
    adds: Mapping[str, Maker]


OVERLAYS: Mapping[str, Overlay] = MappingProxyType(
    {
        "gke": Overlay("Google Kubernetes Engine, with its managed Prometheus", {"monitoring": google_monitoring}),
        "plain": Overlay("any Kubernetes, with the Prometheus operator", {"monitoring": operator_monitoring}),
        "openshift": Overlay(
            "OpenShift, with monitoring of user workloads", {"monitoring": operator_monitoring, "agent": host_mounts}
        ),
    }
)


def render(overlay: str, settings: KubernetesSettings) -> list[Object]:
    """All objects of pulsetrain for a kind of cluster, in the order in which they are applied."""
    if overlay not in OVERLAYS:
        near = did_you_mean(overlay, OVERLAYS)
        raise UsageError(f"there is no overlay {overlay!r}.", hint=f"{near}Available: {', '.join(OVERLAYS)}.")
    makers = [*BASE.items(), *OVERLAYS[overlay].adds.items()]
    wanted = [made(make, settings) for part, make in makers if part in settings.parts]
    return [namespace(settings), *(one for objects in wanted for one in objects)]


def made(make: Maker, settings: KubernetesSettings) -> list[Object]:
    """The objects of a maker, in their namespace."""
    return [_placed(one, settings.namespace) for one in make(settings)]


def namespace(settings: KubernetesSettings) -> Object:
    """The agent mounts two paths of the node, which the stricter levels of pod security refuse."""
    levels = {
        "pod-security.kubernetes.io/enforce": "privileged",
        "pod-security.kubernetes.io/warn": "baseline",
    }
    return make_object("Namespace", settings.namespace, "namespace", more_labels=levels)


def _placed(one: Object, namespace: str) -> Object:
    if one["kind"] in CLUSTER_WIDE:
        return one
    metadata = one["metadata"]
    assert isinstance(metadata, dict)
    return one | {"metadata": {"name": metadata["name"], "namespace": namespace, **metadata}}
