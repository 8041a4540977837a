"""How Prometheus finds pulsetrain in a cluster, with our rules and dashboards.

PodMonitor and PrometheusRule are those of the Prometheus operator, ClusterPodMonitoring and ClusterRules those of
Google's managed Prometheus. Without either, there are the annotations of our pods and the config maps.
"""

from collections.abc import Iterator
from importlib import resources
from typing import Any

import yaml

from pulsetrain.alerts.prometheus import render_rules
from pulsetrain.deploy.kubernetes.objects import COMPONENT, PART_OF, Object, make_object
from pulsetrain.deploy.kubernetes.settings import KubernetesSettings

WATCHED = {
    "matchLabels": {PART_OF: "pulsetrain"},
    "matchExpressions": [{"key": COMPONENT, "operator": "In", "values": ["agent", "cache", "trainer"]}],
}
"""The pods with a port named `metrics`."""
RULES_FILE = "rules.yml"


def monitoring(settings: KubernetesSettings) -> Iterator[Object]:
    """Rules and dashboards as config maps: for Grafana's sidecar, or to be mounted."""
    yield make_object("ConfigMap", "pulsetrain-rules", "monitoring", data={RULES_FILE: _rules(settings)})
    for name, text in dashboards().items():
        yield make_object(
            "ConfigMap", name, "monitoring", more_labels={"grafana_dashboard": "1"}, data={f"{name}.json": text}
        )


def dashboards() -> dict[str, str]:
    """Those that `pulsetrain stack` has, by name."""
    folder = resources.files("pulsetrain.deploy.stack") / "grafana"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return {file.name.removesuffix(".json"): file.read_text() for file in files}


def operator_monitoring(settings: KubernetesSettings) -> Iterator[Object]:
    """For the Prometheus operator, and with it OpenShift."""
    api = "monitoring.coreos.com/v1"
    endpoint = {"port": "metrics", "interval": f"{settings.scrape_seconds}s", "honorLabels": True}
    for_all = {"namespaceSelector": {"any": True}, "selector": WATCHED}
    yield make_object(
        "PodMonitor", "pulsetrain", "monitoring", api=api, spec={**for_all, "podMetricsEndpoints": [endpoint]}
    )
    yield make_object("PrometheusRule", "pulsetrain", "monitoring", api=api, spec=_groups(settings))


def google_monitoring(settings: KubernetesSettings) -> Iterator[Object]:
    """For Google's managed Prometheus, which has the scraped pod in labels of its own unless it is asked not to."""
    api = "monitoring.googleapis.com/v1"
    endpoint = {"port": "metrics", "interval": f"{settings.scrape_seconds}s"}
    spec = {"selector": WATCHED, "endpoints": [endpoint], "targetLabels": {"metadata": ["node"]}}
    yield make_object("ClusterPodMonitoring", "pulsetrain", "monitoring", api=api, spec=spec)
    yield make_object("ClusterRules", "pulsetrain", "monitoring", api=api, spec=_groups(settings))


def _rules(settings: KubernetesSettings) -> str:
    return render_rules(settings.thresholds, grafana=settings.grafana_url)


def _groups(settings: KubernetesSettings) -> dict[str, Any]:
    groups: dict[str, Any] = yaml.safe_load(_rules(settings))
    return groups
