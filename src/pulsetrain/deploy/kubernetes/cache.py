"""The dataset cache as a server of the cluster: `pulsetrain cache serve` with a disk of its own."""

from collections.abc import Iterator

from pulsetrain.deploy.kubernetes.objects import (
    METRICS_PORT,
    Object,
    container_security,
    http_probe,
    labels,
    make_object,
    pod_security,
    resources,
    variables,
)
from pulsetrain.deploy.kubernetes.policies import DNS, network_policy
from pulsetrain.deploy.kubernetes.settings import KubernetesSettings

CACHE = "pulsetrain-cache"
CACHE_PORT = 8080
_DATA = "/var/cache/pulsetrain"


def cache(settings: KubernetesSettings) -> Iterator[Object]:
    yield make_object("ServiceAccount", CACHE, "cache", automountServiceAccountToken=False)
    yield make_object(
        "Service",
        CACHE,
        "cache",
        spec={
            "selector": labels("cache"),
            "ports": [{"name": "http", "port": CACHE_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    )
    yield make_object("StatefulSet", CACHE, "cache", api="apps/v1", spec=_spec(settings))
    # Upstreams are anywhere, on the ports of the web; who they are is in nginx' configuration.
    web: Object = {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 443, "protocol": "TCP"}]}
    yield network_policy(
        "cache",
        ingress_port=CACHE_PORT,
        scraped=True,
        scrape_port=METRICS_PORT,
        clients=("trainer",),
        egress=(DNS, web),
    )


def _spec(settings: KubernetesSettings) -> Object:
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)}
    return {
        "serviceName": CACHE,
        "replicas": 1,
        "selector": {"matchLabels": labels("cache")},
        "template": {
            "metadata": {"labels": labels("cache"), "annotations": annotations},
            "spec": {
                "serviceAccountName": CACHE,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "securityContext": {**pod_security(), "fsGroupChangePolicy": "OnRootMismatch"},
                "terminationGracePeriodSeconds": 30,
                "containers": [_server(settings)],
                "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
            },
        },
        "volumeClaimTemplates": [volume_claim("data", "cache", settings.cache_gigabytes, settings.storage_class)],
    }


def _server(settings: KubernetesSettings) -> Object:
    allowed = [word for network in settings.cache_clients for word in ("--allow", network)]
    # A tenth of the disk is left for what is being fetched, and for the file system itself.
    size = max(1, settings.cache_gigabytes * 9 // 10)
    return {
        "name": "cache",
        "image": settings.cache_image,
        "args": [
            *("cache", "serve", settings.cache_upstream, "--cache-dir", _DATA, "--size", str(size)),
            *("--host", "0.0.0.0", "--port", str(CACHE_PORT), *allowed),  # noqa: S104 - that of the pod
            *("--prometheus-address", "0.0.0.0", "--prometheus-port", str(METRICS_PORT)),  # noqa: S104
        ],
        "env": variables({"PULSETRAIN_HOME": "/tmp/pulsetrain", "PULSETRAIN_HOST": CACHE}),
        "ports": [
            {"name": "http", "containerPort": CACHE_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "securityContext": container_security(),
        "resources": resources("500m", "1Gi", most_cpu="4"),
        "startupProbe": http_probe("/healthz", "http", period=3, failures=20),
        "livenessProbe": http_probe("/healthz", "http", period=30, failures=5),
        "readinessProbe": http_probe("/healthz", "http"),
        "volumeMounts": [{"name": "data", "mountPath": _DATA}, {"name": "tmp", "mountPath": "/tmp"}],
    }


def volume_claim(name: str, component: str, gigabytes: int, storage_class: str | None) -> Object:
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": f"{gigabytes}Gi"}},
    }
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {"metadata": {"name": name, "labels": labels(component)}, "spec": spec}
