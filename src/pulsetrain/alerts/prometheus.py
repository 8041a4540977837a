"""The rules as files for Prometheus and Alertmanager. VictoriaMetrics' vmalert reads the same."""

from typing import Any

import yaml

from pulsetrain.alerts.inhibitions import INHIBITIONS
from pulsetrain.alerts.promql import promql
from pulsetrain.alerts.routes import ROUTES
from pulsetrain.rules.declared import RULES
from pulsetrain.rules.recording import RECORDING_RULES
from pulsetrain.rules.rule import CLEAR, Rule
from pulsetrain.rules.text import VALUE, Piece, number_text, pieces
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds

HEAD = "# Written by pulsetrain. Thresholds come from a file: see docs/alerts.md.\n"
TEMPLATES = "pulsetrain.tmpl"
"""The texts of messages, in a file beside the Alertmanager's configuration."""

_DASHBOARD = (
    "GRAFANA/d/pulsetrain-{{ if $labels.run }}run?var-run={{ $labels.run }}"
    "{{ else if $labels.host }}host?var-host={{ $labels.host }}{{ else }}fleet{{ end }}"
)
"""That of the run where the alert knows one, else that of the machine."""


_HUMANIZED = {
    "percent": 'humanizePercentage | reReplaceAll "%" " %"',
    "duration": "humanizeDuration",
    "si": "humanize",
}
"""What Prometheus calls the formats of a text's value."""


_OF_ALERTS = ("alertname", "alertstate", "severity", "topic")
"""Labels that the series of an alert has, and its expression has not."""


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines stay lines, and what is said twice is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text_node)


def render_rules(thresholds: Thresholds = DEFAULTS, grafana: str | None = None) -> str:
    """Recording and alerting rules as YAML. `grafana` is where people find it: alerts then link to a dashboard."""
    groups: dict[str, list[dict[str, Any]]] = {
        "pulsetrain-recording": [{"record": r.name, "expr": promql(r.expression)} for r in RECORDING_RULES]
    }
    for rule in RULES:
        if rule.wanted(thresholds):
            groups.setdefault(f"pulsetrain-{rule.topic}", []).append(_alert(rule, thresholds, grafana))
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
                **ROUTES["warning"].as_alertmanager(),
                "routes": [
                    {"receiver": severity, "matchers": [f'severity="{severity}"'], **route.as_alertmanager()}
                    for severity, route in ROUTES.items()
                ],
            },
            "inhibit_rules": [inhibition.as_alertmanager() for inhibition in INHIBITIONS],
            "receivers": [{"name": severity, **receiver} for severity in ROUTES],
        }
    )


def template(text: str, thresholds: Thresholds) -> str:
    """The text of a rule as a Prometheus template."""
    return "".join(piece.words + _placeholder(piece, thresholds) for piece in pieces(text))


def _placeholder(piece: Piece, thresholds: Thresholds) -> str:
    if piece.name is None:
        return ""
    if piece.name in Thresholds.__struct_fields__:
        return number_text(getattr(thresholds, piece.name))
    if piece.name != VALUE:
        return f"{{{{ $labels.{piece.name} }}}}"
    function = _HUMANIZED.get(piece.format) or (f'printf "%{piece.format}"' if piece.format else "")
    return f"{{{{ $value | {function} }}}}" if function else "{{ $value }}"


def _expression(rule: Rule, thresholds: Thresholds) -> str:
    """The rule's condition; with a margin, also what keeps an alert firing that Prometheus already has."""
    if not rule.margin:
        return promql(rule.when, thresholds)
    fires, stays = (promql(part, thresholds).replace("\n", " ") for part in (rule.when, rule.stays))
    firing = f'ALERTS{{alertname="{rule.name}", severity="{rule.severity}", alertstate="firing"}}'
    return f"({fires})\nor (({stays}) and ignoring ({', '.join(_OF_ALERTS)}) {firing})"


def _alert(rule: Rule, thresholds: Thresholds, grafana: str | None) -> dict[str, Any]:
    annotations = {
        "summary": template(rule.summary, thresholds),
        "description": template(rule.description, thresholds),
        "help": rule.advice,
    }
    if grafana:
        annotations["dashboard"] = _DASHBOARD.replace("GRAFANA", grafana.rstrip("/"))
    hold = rule.hold_in(thresholds)
    return {
        "alert": rule.name,
        "expr": _expression(rule, thresholds),
        **({"for": hold} if hold else {}),
        "keep_firing_for": CLEAR,
        "labels": {"severity": rule.severity, "topic": rule.topic},
        "annotations": annotations,
    }


def _yaml(document: dict[str, Any]) -> str:
    return HEAD + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
