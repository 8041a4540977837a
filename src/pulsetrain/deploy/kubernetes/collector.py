"""The web page of a cluster's runs, and the collector that trainings send them to: `pulsetrain serve --collector`."""

from collections.abc import Iterator

from pulsetrain.deploy.kubernetes.cache import volume_claim
from pulsetrain.deploy.kubernetes.objects import (
    TOKENS,
    Object,
    container_security,
    http_probe,
    labels,
    make_object,
    pod_security,
    resources,
    secret_variable,
    variables,
)
from pulsetrain.deploy.kubernetes.policies import network_policy
from pulsetrain.deploy.kubernetes.settings import KubernetesSettings

COLLECTOR = "pulsetrain-collector"
COLLECTOR_PORT = 8765
_HOME = "/var/lib/pulsetrain"


def collector_url(namespace: str) -> str:
    return f"http://{COLLECTOR}.{namespace}.svc:{COLLECTOR_PORT}"


def collector(settings: KubernetesSettings) -> Iterator[Object]:
    yield make_object("ServiceAccount", COLLECTOR, "collector", automountServiceAccountToken=False)
    if settings.tokens:
        yield make_object("Secret", TOKENS, "collector", type="Opaque", stringData=dict(settings.tokens))
    yield make_object(
        "Service",
        COLLECTOR,
        "collector",
        spec={
            "selector": labels("collector"),
            "ports": [{"name": "http", "port": COLLECTOR_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    )
    yield make_object("StatefulSet", COLLECTOR, "collector", api="apps/v1", spec=_spec(settings))
    yield network_policy("collector", ingress_port=COLLECTOR_PORT, clients=("trainer",))


def _spec(settings: KubernetesSettings) -> Object:
    return {
        "serviceName": COLLECTOR,
        "replicas": 1,
        "selector": {"matchLabels": labels("collector")},
        "template": {
            "metadata": {"labels": labels("collector")},
            "spec": {
                "serviceAccountName": COLLECTOR,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "securityContext": {**pod_security(), "fsGroupChangePolicy": "OnRootMismatch"},
                "terminationGracePeriodSeconds": 30,
                "containers": [_server(settings)],
                "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
            },
        },
        "volumeClaimTemplates": [
            volume_claim("data", "collector", settings.collector_gigabytes, settings.storage_class)
        ],
    }


def _server(settings: KubernetesSettings) -> Object:
    names = (COLLECTOR, f"{COLLECTOR}.{settings.namespace}", f"{COLLECTOR}.{settings.namespace}.svc")
    allowed = [word for name in names for word in ("--allow-host", name)]
    return {
        "name": "collector",
        "image": settings.image,
        "args": [
            *("serve", "--collector", "--no-machine", "--host", "0.0.0.0"),  # noqa: S104 - that of the pod
            *("--port", str(COLLECTOR_PORT), *allowed),
        ],
        "env": [
            *variables({"PULSETRAIN_HOME": _HOME}),
            secret_variable("PULSETRAIN_TOKEN", "page"),
            secret_variable("PULSETRAIN_COLLECTOR_TOKEN", "collector"),
        ],
        "ports": [{"name": "http", "containerPort": COLLECTOR_PORT, "protocol": "TCP"}],
        "securityContext": container_security(),
        "resources": resources("200m", "1Gi", most_cpu="2"),
        "startupProbe": http_probe("/healthz", "http", period=3, failures=20),
        "livenessProbe": http_probe("/healthz", "http", period=30, failures=5),
        "readinessProbe": http_probe("/healthz", "http"),
        "volumeMounts": [{"name": "data", "mountPath": _HOME}, {"name": "tmp", "mountPath": "/tmp"}],
    }
