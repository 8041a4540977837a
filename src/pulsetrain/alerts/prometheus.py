"""The rules as files for Prometheus and Alertmanager. VictoriaMetrics' vmalert reads the same."""

from collections.abc import Iterator
from string import Template
from typing import Any

import yaml

from pulsetrain import catalog
from pulsetrain.alerts.recording import RECORDINGS, of_runs
from pulsetrain.alerts.rules import ALERTS, Alert, Condition
from pulsetrain.alerts.thresholds import Thresholds

HEAD = "# Written by pulsetrain. Thresholds come from a file: see docs/alerts.md.\n"
TEMPLATES = "pulsetrain.tmpl"
"""The texts of messages; stands beside the Alertmanager's configuration."""

ROUTES = {
    "critical": {"group_wait": "10s", "group_interval": "1m", "repeat_interval": "4h"},
    "warning": {"group_wait": "1m", "group_interval": "5m", "repeat_interval": "12h"},
    "info": {"group_wait": "5m", "group_interval": "30m", "repeat_interval": "24h"},
}
"""How soon and how often each severity is told. Each has a receiver of its name."""

_SUBJECT = ["host", "run", "gpu", "uuid", "rank"]
INHIBITIONS: tuple[dict[str, list[str]], ...] = (
    {  # the graver of two alerts of one name
        "source_matchers": ['severity="critical"'],
        "target_matchers": ['severity=~"warning|info"'],
        "equal": ["alertname", *_SUBJECT],
    },
    {  # what is said of a GPU by its run, and by the agent of its machine
        "source_matchers": ['uuid!=""', 'run!=""'],
        "target_matchers": ['uuid!=""', 'run=""'],
        "equal": ["alertname", "severity", "host", "uuid"],
    },
    {  # a GPU that is gone; what the driver said of it (XID) is why
        "source_matchers": ['alertname="GpuLost"'],
        "target_matchers": ['alertname!~"GpuLost|GpuXidError"'],
        "equal": ["host", "uuid"],
    },
    {  # idle is underused
        "source_matchers": ['alertname="GpuIdle"'],
        "target_matchers": ['alertname="GpuUnderused"'],
        "equal": ["host", "run", "uuid"],
    },
    {  # a run that stands still neither uses its GPUs nor learns
        "source_matchers": ['alertname="TrainingStalled"'],
        "target_matchers": ['alertname=~"GpuIdle|GpuUnderused|TrainingSlowed|LossNotDecreasing"'],
        "equal": ["run"],
    },
    {
        "source_matchers": ['alertname="CostAboveLimit"'],
        "target_matchers": ['alertname="CostProjectedAboveLimit"'],
        "equal": ["run", "currency"],
    },
)
"""Who silences whom, when both are about the same."""

_DASHBOARD = (
    "GRAFANA/d/pulsetrain-{{ if $labels.run }}run?var-run={{ $labels.run }}"
    "{{ else if $labels.host }}host?var-host={{ $labels.host }}{{ else }}fleet{{ end }}"
)
"""That of the run where the alert knows one, else that of the machine."""


class _Text(Template):
    """PromQL and Prometheus templates use $ and braces themselves."""

    delimiter = "@"


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines stay lines, and what is said twice is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text_node)


def render_rules(thresholds: Thresholds | None = None, grafana: str | None = None) -> str:
    """Recording and alerting rules as YAML. `grafana` is where people find it: alerts then link to a dashboard."""
    thresholds = thresholds or Thresholds()
    groups: dict[str, list[dict[str, Any]]] = {
        "pulsetrain-recording": [{"record": r.name, "expr": r.expression} for r in RECORDINGS]
    }
    for alert in wanted(thresholds):
        groups.setdefault(f"pulsetrain-{alert.topic}", []).append(_rule(alert, thresholds, grafana))
    return _yaml({"groups": [{"name": name, "rules": rules} for name, rules in groups.items()]})


def render_alertmanager(webhook: str | None = None, slack: str | None = None) -> str:
    """Alertmanager's configuration as YAML: all severities go to a webhook, a Slack webhook, or to nobody yet."""
    receiver: dict[str, Any] = {}
    if webhook:
        receiver["webhook_configs"] = [{"url": webhook, "send_resolved": True}]
    if slack:
        title, text = '{{ template "pulsetrain.title" . }}', '{{ template "pulsetrain.text" . }}'
        receiver["slack_configs"] = [{"api_url": slack, "send_resolved": True, "title": title, "text": text}]
    return _yaml(
        {
            "templates": [TEMPLATES],
            "route": {
                "receiver": "warning",
                "group_by": ["run", "host"],
                **ROUTES["warning"],
                "routes": [
                    {"receiver": severity, "matchers": [f'severity="{severity}"'], **times}
                    for severity, times in ROUTES.items()
                ],
            },
            "inhibit_rules": list(INHIBITIONS),
            "receivers": [{"name": severity, **receiver} for severity in ROUTES],
        }
    )


def wanted(thresholds: Thresholds) -> Iterator[Alert]:
    """The alerts that are not switched off and whose limits are set."""
    for alert in ALERTS:
        limits = _names(alert)
        if alert.name not in thresholds.off and all(getattr(thresholds, name) is not None for name in limits):
            yield alert


def expression(alert: Alert, thresholds: Thresholds) -> str:
    """When the alert fires, as PromQL."""
    if isinstance(alert.when, str):
        return _filled(alert.when, thresholds)
    return "\nand ".join(_promql(condition, thresholds) for condition in alert.when)


def _promql(condition: Condition, thresholds: Thresholds) -> str:
    metric = catalog.metric(condition.table, condition.field)
    series = metric.name
    if condition.over:
        function = "increase" if metric.kind in ("counter", "amount") else "avg_over_time"
        series = f"{function}({series}[{condition.over}])"
    if condition.in_run:
        series = of_runs(series)
    if condition.highest_of_run:
        series = f"max by (run) ({series})"
    limit = condition.threshold
    return f"{series} {condition.comparison} {_number(getattr(thresholds, limit) if isinstance(limit, str) else limit)}"


def _rule(alert: Alert, thresholds: Thresholds, grafana: str | None) -> dict[str, Any]:
    annotations = {
        "summary": _filled(alert.summary, thresholds),
        "description": _filled(alert.description, thresholds),
        "help": alert.help,
    }
    if grafana:
        annotations["dashboard"] = _DASHBOARD.replace("GRAFANA", grafana.rstrip("/"))
    hold = thresholds.hold.get(alert.name, alert.hold)
    return {
        "alert": alert.name,
        "expr": expression(alert, thresholds),
        **({"for": hold} if hold else {}),
        "labels": {"severity": alert.severity, "topic": alert.topic},
        "annotations": annotations,
    }


def _names(alert: Alert) -> list[str]:
    """The thresholds that an alert needs."""
    if isinstance(alert.when, str):
        return _Text(alert.when).get_identifiers()
    return [condition.threshold for condition in alert.when if isinstance(condition.threshold, str)]


def _filled(text: str, thresholds: Thresholds) -> str:
    names = _Text(text).get_identifiers()
    return _Text(text).substitute({name: _number(getattr(thresholds, name)) for name in names})


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"


def _yaml(document: dict[str, Any]) -> str:
    return HEAD + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
