"""The servers of the stack, each declared once: image, port, where it says that it is ready, its name in Debian."""

from collections.abc import Mapping
from typing import NamedTuple

METRICS_DAYS = 30
"""How long Prometheus keeps samples."""
ARCHIVE_YEARS = 10
"""How long VictoriaMetrics does."""


class Service(NamedTuple):
    name: str
    """In compose.yml, and of its folder, its volume and its scrape job."""
    image: str
    port: int
    ready: str
    """The path that answers 200 once it works."""
    memory: str
    """The most that its container may take."""
    program: str = ""
    """What it is called on a machine where it is installed; empty for what runs in a container alone."""
    package: str = ""
    """How to get that program."""
    asked_by_people: bool = True
    """Else only Prometheus asks it, and it stays on the loopback."""


SERVICES = {
    service.name: service
    for service in (
        Service(
            "prometheus",
            image="prom/prometheus:v3.13.3",
            port=9090,
            ready="/-/ready",
            memory="2g",
            program="prometheus",
            package="apt install prometheus",
        ),
        Service(
            "grafana",
            image="grafana/grafana:12.4.8",
            port=3000,
            ready="/api/health",
            memory="512m",
            program="grafana-server",
            package="from Grafana's own repository: https://grafana.com/docs/grafana/latest/setup-grafana/installation/",
        ),
        Service(
            "alertmanager",
            image="prom/alertmanager:v0.34.1",
            port=9093,
            ready="/-/ready",
            memory="256m",
            program="prometheus-alertmanager",
            package="apt install prometheus-alertmanager",
        ),
        Service(
            "pushgateway",
            image="prom/pushgateway:v1.11.3",
            port=9091,
            ready="/-/ready",
            memory="256m",
            program="prometheus-pushgateway",
            package="apt install prometheus-pushgateway",
        ),
        Service(
            "node-exporter",
            image="prom/node-exporter:v1.12.1",
            port=9100,
            ready="/",
            memory="128m",
            program="prometheus-node-exporter",
            package="apt install prometheus-node-exporter",
            asked_by_people=False,
        ),
        Service(
            "dcgm-exporter",
            image="nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless",
            port=9401,  # its own default, 9400, is that of pulsetrain
            ready="/health",
            memory="1g",
            asked_by_people=False,
        ),
        Service(
            "nvidia-smi-exporter",
            image="utkuozdemir/nvidia_gpu_exporter:1.15.1",
            port=9835,
            ready="/",
            memory="256m",
            asked_by_people=False,
        ),
        Service(
            "victoriametrics",
            image="victoriametrics/victoria-metrics:v1.148.0",
            port=8428,
            ready="/health",
            memory="1g",
            program="victoria-metrics",
            package="apt install victoria-metrics",
        ),
    )
}
GPU_EXPORTERS = ("dcgm-exporter", "nvidia-smi-exporter")


def arguments(name: str, listen: str, config: str, data: str) -> list[str]:
    """The command line of a server: the address it listens on, the folders of its configuration and of its data."""
    web = f"--web.listen-address={listen}"
    match name:
        case "prometheus":
            return [
                f"--config.file={config}/prometheus.yml",
                f"--storage.tsdb.path={data}",
                f"--storage.tsdb.retention.time={METRICS_DAYS}d",
                "--web.enable-remote-write-receiver",
                web,
            ]
        case "alertmanager":
            # Without an address for its peers it forms no cluster, which this one server does not need.
            return [
                f"--config.file={config}/alertmanager.yml",
                f"--storage.path={data}",
                "--cluster.listen-address=",
                web,
            ]
        case "pushgateway":
            return [f"--persistence.file={data}/metrics", web]
        case "victoriametrics":
            return [
                f"-storageDataPath={data}",
                f"-retentionPeriod={ARCHIVE_YEARS}y",
                "-dedup.minScrapeInterval=1ms",  # a push that lost its reply is sent again: each sample counts once
                f"-httpListenAddr={listen}",
            ]
        case "node-exporter" | "nvidia-smi-exporter":
            return [web]
    return []


def grafana_environment(address: str, port: int, provisioning: str, dashboards: str) -> Mapping[str, str]:
    """Settings of Grafana: no sign-up, nothing sent home, our dashboards."""
    return {
        "GF_SERVER_HTTP_ADDR": address,
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_PATHS_PROVISIONING": provisioning,
        "PULSETRAIN_DASHBOARDS": dashboards,
        "GF_USERS_ALLOW_SIGN_UP": "false",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",
    }
