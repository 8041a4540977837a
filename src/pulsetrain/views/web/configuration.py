"""What a run was started with: all that run.json says of it, also fields that this page has never heard of."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from pulsetrain.runs.folder import Run
from pulsetrain.untrusted import showable_document
from pulsetrain.views.text import bytes_text

Facts = list[tuple[str, str]]

_ELSEWHERE = frozenset(
    {"schema", "name", "start", "end", "seconds", "status", "exit_code", "simulated", "lost_samples"}
)
"""In the head of the page, and in its record."""
_OWN = frozenset({"pid", "pid_start", "boot_id", "started", "attempts"})
"""Of a host: how pulsetrain finds out whether the run is alive."""
MOST_FACTS = 500
"""Of one section: a program can log settings without end."""


def configuration(run: Run) -> list[tuple[str, Facts]]:
    """Sections of names and values. A setting within a setting has a dotted name: `model.depth`."""
    about = showable_document(msgspec.to_builtins(run))
    hosts = about.pop("hosts")
    said = {name: value for name, value in about.items() if name not in _ELSEWHERE}
    command = [("command", shlex.join(said.pop("command")))] if said.get("command") else []
    sections: dict[str, Facts] = {"Run": command}
    for name, value in said.items():
        if isinstance(value, Mapping):
            sections[name.replace("_", " ").capitalize()] = list(_facts(value))
        else:
            sections["Run"] += _facts({name.replace("_", " "): value})
    for name, host in hosts.items():
        sections[f"Host {name}"] = list(_facts({key: value for key, value in host.items() if key not in _OWN}))
    return [(title, facts[:MOST_FACTS]) for title, facts in sections.items() if facts]


def _facts(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _facts(value, f"{prefix}{name}.")
        elif value not in (None, "", []):
            yield prefix + str(name), bytes_text(value) if name == "memory_bytes" else _text(value)


def _counted(values: list[Any]) -> dict[str, int]:
    """Eight GPUs of one name are said once; numbers, such as the sizes of layers, one by one."""
    texts = [_text(one) for one in values]
    if values and all(isinstance(one, Mapping) for one in values):
        return dict(Counter(texts))
    return {", ".join(texts): 1}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return str(value.get("name") or ", ".join(f"{name} {_text(one)}" for name, one in value.items()))
    if isinstance(value, list):
        return ", ".join(f"{count} x {text}" if count > 1 else text for text, count in _counted(value).items())
    return f"{value:g}" if isinstance(value, float) else str(value)
