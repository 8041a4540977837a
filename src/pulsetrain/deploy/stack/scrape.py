"""The configuration of Prometheus: what it scrapes, which rules it keeps, whom it tells."""

import re
from pathlib import Path
from typing import Any

import yaml

from pulsetrain.deploy.stack.settings import EXPORTER_PORT, LOOPBACK, StackSettings, parse_target
from pulsetrain.errors import UsageError
from pulsetrain.runs.folder import host_name

LATE_SAMPLES = "1w"
"""How far behind the newest a pushed sample may be: a run whose server was away catches up."""


def prometheus_config(settings: StackSettings, kubeconfig: str | None) -> dict[str, Any]:
    """prometheus.yml. Paths in it are relative to its folder; `kubeconfig` is where the server finds that file."""
    jobs = [_exporters(), *(_own(service.name, settings) for service in settings.services)]
    if settings.kubernetes:
        jobs.append(_pods(kubeconfig))
    config: dict[str, Any] = {
        "global": {"scrape_interval": "15s", "scrape_timeout": "10s", "evaluation_interval": "15s"},
        "storage": {"tsdb": {"out_of_order_time_window": LATE_SAMPLES}},
        "rule_files": ["rules/*.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [settings.reach("alertmanager")]}]}]},
        "scrape_configs": jobs,
    }
    if settings.victoriametrics:
        config["remote_write"] = [{"url": f"{settings.url('victoriametrics')}/api/v1/write"}]
    return config


def target_groups(settings: StackSettings) -> list[dict[str, Any]]:
    """targets/hosts.yml: the machines with an exporter of ours, in the form of Prometheus' file discovery."""
    groups: list[dict[str, Any]] = []
    if settings.local:
        # An address of the loopback says nothing of the machine, so its name is given.
        groups.append({"targets": [f"{LOOPBACK}:{EXPORTER_PORT}"], "labels": {"host": host_name()}})
    if settings.targets:
        groups.append({"targets": [parse_target(target) for target in settings.targets]})
    if settings.targets_file:
        groups += _groups_in(Path(settings.targets_file))
    return groups


def _groups_in(file: Path) -> list[dict[str, Any]]:
    """Targets from a user's file: one in a line, or groups with labels as Prometheus' file discovery has them."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if re.search(r"^\s*(-|\[\s*\{)", text, re.MULTILINE):
        try:
            groups = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsageError(f"{file} is not valid YAML: {error}.") from None
        return [_group(group, file) for group in groups]
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    targets = [parse_target(line) for line in lines if line]
    return [{"targets": targets}] if targets else []


def _group(group: object, file: Path) -> dict[str, Any]:
    match group:
        case {"targets": [*targets], **rest} if rest.keys() <= {"labels"}:
            return {"targets": [parse_target(str(target)) for target in targets], "labels": rest.get("labels", {})}
    raise UsageError(
        f"{file}: {group!r} is not a group of targets.",
        hint="One host:port in a line, or a list of groups with `targets` and `labels`.",
    )


def _exporters() -> dict[str, Any]:
    """Exporters say themselves which host and run a series is of. The target's label is for `up`, which they do not."""
    return {
        "job_name": "pulsetrain",
        "honor_labels": True,
        "file_sd_configs": [{"files": ["targets/*.yml"]}],
        "relabel_configs": [
            {"source_labels": ["host", "__address__"], "regex": r";(.+):\d+", "target_label": "host"},
        ],
    }


def _own(name: str, settings: StackSettings) -> dict[str, Any]:
    """A server of the stack itself. Series in the Pushgateway have the labels of those who pushed them.

    Their job is `exported_job` too, as it is without `honor_labels`: dashboards of other tools ask for that.
    """
    job: dict[str, Any] = {"job_name": name}
    if name == "pushgateway":
        job["honor_labels"] = True
        job["metric_relabel_configs"] = [{"source_labels": ["job"], "target_label": "exported_job"}]
    return job | {"static_configs": [{"targets": [settings.reach(name)], "labels": {"host": host_name()}}]}


def _pods(kubeconfig: str | None) -> dict[str, Any]:
    """Pods with the annotation prometheus.io/scrape; port, path and scheme may be given in the same way."""
    discovery = {"role": "pod"} | ({"kubeconfig_file": kubeconfig} if kubeconfig else {})
    pod = "__meta_kubernetes_pod"
    annotation = f"{pod}_annotation_prometheus_io"
    return {
        "job_name": "kubernetes-pods",
        "honor_labels": True,  # an agent tells of other pods than its own
        "kubernetes_sd_configs": [discovery],
        "relabel_configs": [
            {"source_labels": [f"{annotation}_scrape"], "regex": "true", "action": "keep"},
            {"source_labels": [f"{pod}_phase"], "regex": "Pending|Succeeded|Failed", "action": "drop"},
            {"source_labels": [f"{annotation}_scheme"], "regex": "(https?)", "target_label": "__scheme__"},
            {"source_labels": [f"{annotation}_path"], "regex": "(.+)", "target_label": "__metrics_path__"},
            {
                "source_labels": ["__address__", f"{annotation}_port"],
                "regex": r"(.+?)(?::\d+)?;(\d+)",
                "replacement": "$1:$2",
                "target_label": "__address__",
            },
            {"source_labels": [f"{pod}_node_name"], "target_label": "host"},
            {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
            {"source_labels": [f"{pod}_name"], "target_label": "pod"},
        ],
    }
