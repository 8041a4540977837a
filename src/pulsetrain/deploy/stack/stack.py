"""A folder with all that Prometheus, Grafana, Alertmanager and their exporters need to watch trainings."""

import errno
import os
import secrets
import socket
from collections.abc import Collection, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from pulsetrain.alerts.prometheus import TEMPLATES, render_alertmanager, render_rules
from pulsetrain.deploy.files import WriteResult, write_files
from pulsetrain.deploy.stack import compose
from pulsetrain.deploy.stack.scrape import prometheus_config, target_groups
from pulsetrain.deploy.stack.settings import StackSettings, StackState, find_state, new_state
from pulsetrain.errors import PulsetrainError, Unavailable, UsageError
from pulsetrain.runs.folder import host_name
from pulsetrain.settings import in_force, load_thresholds

PASSWORD_FILE = "grafana/admin-password"  # noqa: S105 - the name of a file
_HEAD = "# Written by `pulsetrain stack`. You can edit it: your version is kept, unless you use --force.\n"


class Stack:
    """The folder of a stack, and what it was asked to be."""

    def __init__(self, folder: Path) -> None:
        if os.name == "nt":
            raise Unavailable("a stack needs Linux.", hint="In Windows, use WSL.")
        self.folder = folder.absolute()
        self._state = find_state(self.folder) or new_state(self.folder)

    @property
    def settings(self) -> StackSettings:
        return self._state.settings

    @property
    def project(self) -> str:
        return self._state.project

    @property
    def password_file(self) -> Path:
        return self.folder / PASSWORD_FILE

    def configure(self, settings: StackSettings, *, force: bool = False) -> WriteResult:
        """Write the files, and keep the settings for the next time."""
        files = dict(render(settings, self._state.project))
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            written = write_files(self.folder, files, self._state.files, force=force)
            self._make_password(settings)
            self._state = StackState(self._state.project, settings, written.hashes, str(self.folder.resolve()))
            self._state.save(self.folder)
        except OSError as error:
            raise PulsetrainError(f"{error.filename or self.folder} cannot be written: {error.strerror}.") from None
        return written

    def _make_password(self, settings: StackSettings) -> None:
        """A password of its own for every stack, made once: Grafana takes it when it makes its database."""
        file = self.password_file
        if not file.exists():
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as stream:
                stream.write(secrets.token_urlsafe(18))
        if os.getuid() == 0 and not settings.native:
            os.chown(file, *compose.grafana_user())


def render(settings: StackSettings, project: str) -> Iterator[tuple[str, bytes]]:
    """The files of a stack, by their path in its folder."""
    kubeconfig = settings.kubeconfig if settings.native else compose.KUBECONFIG
    yield "prometheus/prometheus.yml", _yaml(prometheus_config(settings, settings.kubeconfig and kubeconfig))
    yield "prometheus/targets/hosts.yml", _yaml(target_groups(settings))
    thresholds = load_thresholds(Path(settings.thresholds)) if settings.thresholds else in_force().config.thresholds
    yield "prometheus/rules/pulsetrain.yml", _with_head(render_rules(thresholds, grafana=_grafana_url(settings)))
    yield "alertmanager/alertmanager.yml", _with_head(render_alertmanager(settings.webhook, settings.slack))
    package = resources.files("pulsetrain.deploy.stack")
    yield f"alertmanager/{TEMPLATES}", (package / "prometheus" / TEMPLATES).read_bytes()
    yield "grafana/provisioning/datasources/pulsetrain.yml", _yaml(_data_sources(settings))
    yield "grafana/provisioning/dashboards/pulsetrain.yml", _yaml(_DASHBOARDS)
    for file in sorted((package / "grafana").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".json"):
            yield f"grafana/dashboards/{file.name}", file.read_bytes()
    if not settings.native:
        yield "compose.yml", _yaml(compose.compose_file(settings))
        yield ".env", f"COMPOSE_PROJECT_NAME={project}\n".encode()


def check_ports(settings: StackSettings, ours: Collection[int]) -> None:
    """Raise when a server could not listen. `ours` are the ports that this stack holds itself."""
    taken = []
    for service in settings.services:
        port = settings.port(service.name)
        if port not in ours and not _is_free(settings.address_of(service.name), port):
            taken.append((service.name, port))
    if taken:
        name, port = taken[0]
        raise PulsetrainError(
            f"in use by another program: {', '.join(f'port {port} ({name})' for name, port in taken)}.",
            still="Nothing was started.",
            hint=f"Choose another (--port {name}={port + 10000}), or stop the program that uses it. "
            "Debian's packages start their own services: systemctl list-units 'prometheus*'",
        )


def _is_free(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise UsageError(f"cannot listen on {address}:{port}: {(error.strerror or str(error)).lower()}.") from None
    return True


_DASHBOARDS = {
    "apiVersion": 1,
    "providers": [
        {
            "name": "pulsetrain",
            "folder": "pulsetrain",
            "type": "file",
            "allowUiUpdates": True,
            "options": {"path": "$PULSETRAIN_DASHBOARDS"},
        }
    ],
}


def _data_sources(settings: StackSettings) -> dict[str, Any]:
    sources = [_data_source("Prometheus", "prometheus", settings, isDefault=True)]
    if settings.victoriametrics:
        sources.append(_data_source("VictoriaMetrics", "victoriametrics", settings))
    return {"apiVersion": 1, "datasources": sources}


def _data_source(title: str, name: str, settings: StackSettings, **more: bool) -> dict[str, Any]:
    return {
        "name": title,
        "uid": name,
        "type": "prometheus",
        "access": "proxy",
        "url": settings.url(name),
        **more,
        "jsonData": {"httpMethod": "POST", "timeInterval": "15s"},
    }


def _grafana_url(settings: StackSettings) -> str:
    """Where people find Grafana, for the links in alerts."""
    if settings.external_url:
        return settings.external_url
    if settings.open_to_all:
        return f"http://{host_name()}:{settings.port('grafana')}"
    return settings.url("grafana")


class _Dumper(yaml.SafeDumper):
    """A list that occurs in several places is written out in each."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _yaml(document: object) -> bytes:
    return _with_head(yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True))


def _with_head(text: str) -> bytes:
    return (_HEAD + text).encode()
