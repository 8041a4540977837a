"""What objects of Kubernetes have in common: labels, and how little a container of ours may do."""

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

Object = dict[str, object]
"""One object of Kubernetes, as its YAML has it."""

PART_OF = "app.kubernetes.io/part-of"
NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
USER = 10001
"""Who runs in our images."""
METRICS_PORT = 9400


def labels(component: str, **more: str) -> dict[str, str]:
    return {PART_OF: "pulsetrain", NAME: f"pulsetrain-{component}", COMPONENT: component, **more}


def make_object(
    kind: str,
    name: str,
    component: str,
    *,
    api: str = "v1",
    namespace: str | None = None,
    more_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **content: object,
) -> Object:
    """An object with our labels; `content` is what is beside its metadata."""
    metadata: dict[str, object] = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    metadata["labels"] = {**labels(component), **(more_labels or {})}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **content}


def container_security(*, read_only: bool = True, **more: object) -> dict[str, object]:
    """No privilege at all."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": read_only,
        **more,
    }


def pod_security(user: int = USER) -> dict[str, object]:
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def resources(cpu: str, memory: str, *, most_cpu: str | None = None, **more: str) -> dict[str, object]:
    """What a container gets, and the most that it may take. Memory cannot be taken back: both are the same."""
    return {
        "requests": {"cpu": cpu, "memory": memory, **more},
        "limits": {"cpu": most_cpu or cpu, "memory": memory, **more},
    }


def variables(given: Mapping[str, str]) -> list[dict[str, object]]:
    return [{"name": name, "value": value} for name, value in given.items()]


def field_variable(name: str, path: str) -> dict[str, object]:
    """A variable that tells the pod about itself."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def secret_variable(name: str, key: str) -> dict[str, object]:
    """From the tokens of the namespace, where there are some."""
    return {
        "name": name,
        "valueFrom": {"secretKeyRef": {"name": TOKENS, "key": key, "optional": True}},
    }


TOKENS = "pulsetrain-tokens"
"""The secret with the tokens of page and collector."""


def http_probe(path: str, port: str, *, period: int = 10, failures: int = 3) -> dict[str, object]:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stay lines, and what is said twice is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text_node)


def as_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """The objects as documents for `kubectl apply --server-side -f -`."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
