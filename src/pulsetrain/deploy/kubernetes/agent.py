"""The agent of every node: `pulsetrain watch` as a DaemonSet, without privilege.

Two paths of the node are mounted, read-only: /sys, for its network cards and disks, and the folder of the kubelet's
socket that says which pod holds which GPU. Only root may use that socket, so a container of its own asks it, as root
without any capability, and hands a small file to the agent.
"""

from collections.abc import Iterator

from pulsetrain.deploy.kubernetes.objects import (
    METRICS_PORT,
    Object,
    container_security,
    field_variable,
    http_probe,
    labels,
    make_object,
    pod_security,
    resources,
    variables,
)
from pulsetrain.deploy.kubernetes.policies import network_policy
from pulsetrain.deploy.kubernetes.settings import KubernetesSettings

AGENT = "pulsetrain-agent"
POD_RESOURCES = "/var/lib/kubelet/pod-resources"
HOST_SYS = "/host/sys"
PODS_FOLDER = "/run/pulsetrain"
PODS_FILE = f"{PODS_FOLDER}/gpu-pods.json"
GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def agent(settings: KubernetesSettings) -> Iterator[Object]:
    yield make_object("ServiceAccount", AGENT, "agent", automountServiceAccountToken=False)
    yield make_object("DaemonSet", AGENT, "agent", api="apps/v1", spec=_spec(settings))
    yield network_policy("agent", ingress_port=METRICS_PORT, scraped=True)


def _spec(settings: KubernetesSettings) -> Object:
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)}
    return {
        "selector": {"matchLabels": labels("agent")},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
        "template": {
            "metadata": {"labels": labels("agent"), "annotations": annotations},
            "spec": {
                "serviceAccountName": AGENT,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "priorityClassName": "system-node-critical",
                "securityContext": pod_security(),
                "tolerations": [GPU_TAINT],
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "terminationGracePeriodSeconds": 10,
                "containers": [_watch(settings), _pods(settings)],
                "volumes": [
                    {"name": "sys", "hostPath": {"path": "/sys", "type": "Directory"}},
                    {"name": "pod-resources", "hostPath": {"path": POD_RESOURCES, "type": "Directory"}},
                    {"name": "pods", "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}},
                    {"name": "home", "emptyDir": {"sizeLimit": "64Mi"}},
                ],
            },
        },
    }


def _watch(settings: KubernetesSettings) -> Object:
    environment = {
        "PULSETRAIN_HOME": "/home/pulsetrain",
        "PULSETRAIN_SYS": HOST_SYS,
        "PULSETRAIN_GPU_PODS": PODS_FILE,
        "PULSETRAIN_PROMETHEUS_PORT": str(METRICS_PORT),
        "PULSETRAIN_PROMETHEUS_ADDRESS": "0.0.0.0",  # noqa: S104 - that of the pod; a policy says who may ask
        "PULSETRAIN_INTERVAL": f"{settings.interval_seconds:g}",
        "PULSETRAIN_NAMES": ",".join(settings.names),
        "PULSETRAIN_LOG_FORMAT": "json",
        # For the NVIDIA runtime: show the GPUs of the node, and of the driver only what reads them.
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "utility",
    }
    return {
        "name": "agent",
        "image": settings.image,
        "args": ["watch", "--quiet"],
        "env": [field_variable("PULSETRAIN_HOST", "spec.nodeName"), *variables(environment)],
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        "securityContext": container_security(),
        "resources": resources("100m", "384Mi", most_cpu="500m"),
        "startupProbe": http_probe("/", "metrics", period=3, failures=20),
        "livenessProbe": http_probe("/", "metrics", period=30, failures=5),
        "readinessProbe": http_probe("/healthz", "metrics"),
        "volumeMounts": [
            {"name": "sys", "mountPath": HOST_SYS, "readOnly": True},
            {"name": "pods", "mountPath": PODS_FOLDER, "readOnly": True},
            {"name": "home", "mountPath": "/home/pulsetrain"},
        ],
    }


def _pods(settings: KubernetesSettings) -> Object:
    """Root, because the socket is; with no capability left it may no more than open what root owns."""
    return {
        "name": "gpu-pods",
        "image": settings.image,
        "command": ["python", "-m", "pulsetrain.sources.gpu_pods"],
        "args": [f"{POD_RESOURCES}/kubelet.sock", PODS_FILE],
        "securityContext": container_security(runAsNonRoot=False, runAsUser=0, runAsGroup=0),
        "resources": resources("10m", "64Mi", most_cpu="100m"),
        "volumeMounts": [
            {"name": "pod-resources", "mountPath": POD_RESOURCES, "readOnly": True},
            {"name": "pods", "mountPath": PODS_FOLDER},
        ],
    }
