"""The stack in containers: its Compose file, and Docker to run it.

All containers use the network of the machine. So Prometheus finds exporters that listen on the loopback, nothing is
published past a firewall (as Docker's port mappings are), and the configuration is the same as without containers.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pulsetrain.deploy.stack.services import GPU_EXPORTERS, Service, arguments, grafana_environment
from pulsetrain.deploy.stack.settings import StackSettings
from pulsetrain.errors import PulsetrainError, Unavailable

KUBECONFIG = "/etc/kubeconfig"
PASSWORD = "/run/secrets/grafana-admin-password"  # noqa: S105 - the path of one
_DATA = {
    "prometheus": "/prometheus",
    "grafana": "/var/lib/grafana",
    "alertmanager": "/alertmanager",
    "pushgateway": "/pushgateway",
    "victoriametrics": "/victoria-metrics-data",
}
"""Where each image keeps what it must not forget."""
_MOUNTS = Path("/proc/self/mountinfo")
_FOLDER_LABEL, _SERVICE_LABEL = "com.docker.compose.project.working_dir", "com.docker.compose.service"
"""What Compose writes on each of its containers."""
_GRAFANA_USER = (472, 0)
"""The user of Grafana's image."""


def compose_file(settings: StackSettings) -> dict[str, Any]:
    """compose.yml, for the `docker compose` plugin and for docker-compose."""
    services = {service.name: _service(service, settings) for service in settings.services}
    volumes: dict[str, dict[str, str]] = {f"{name}-data": {} for name in services if name in _DATA}
    return {"services": services, "volumes": volumes}


def grafana_user() -> tuple[int, int]:
    """Who runs Grafana in its container, and owns the file of its password: this user, or the image's own for root."""
    return (os.getuid(), os.getgid()) if os.getuid() else _GRAFANA_USER


def _service(service: Service, settings: StackSettings) -> dict[str, Any]:
    name = service.name
    common = {
        "image": service.image,
        "network_mode": "host",
        "restart": "unless-stopped",
        "cap_drop": ["ALL"],
        "mem_limit": service.memory,
        "pids_limit": 512,
        "logging": {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}},
    }
    if name in GPU_EXPORTERS:
        return common | _gpu_exporter(name, settings)
    address = settings.url(name)
    common |= {
        "read_only": True,
        "security_opt": ["no-new-privileges:true"],
        "healthcheck": {
            "test": ["CMD", "wget", "-q", "-O", "/dev/null", f"{address}{service.ready}"],
            "interval": "30s",
            "timeout": "5s",
            "retries": 3,
            "start_period": "30s",
        },
    }
    if name == "grafana":
        return common | _grafana(settings)
    command = arguments(name, settings.listen(name), f"/etc/{name}", _DATA.get(name, ""))
    if name == "node-exporter":
        return common | {
            "command": [*command, "--path.rootfs=/host"],
            "pid": "host",
            "volumes": [f"/:/host:ro{',rslave' if _root_is_shared() else ''}"],
        }
    volumes = [f"{name}-data:{_DATA[name]}"]
    if name in ("prometheus", "alertmanager"):
        volumes.append(f"./{name}:/etc/{name}:ro")
    if name == "prometheus" and settings.kubeconfig:
        volumes.append(f"{settings.kubeconfig}:{KUBECONFIG}:ro")
    return common | {"command": command, "volumes": volumes}


def _root_is_shared() -> bool:
    """Whether a container can follow what is mounted later. In WSL and in containers it cannot, and must not ask to."""
    mounts = (line.split() for line in _MOUNTS.read_text().splitlines()) if _MOUNTS.exists() else ()
    return any(mount[4] == "/" and mount[6].startswith("shared:") for mount in mounts)


def _grafana(settings: StackSettings) -> dict[str, Any]:
    folder = "/etc/pulsetrain/grafana"
    user, group = grafana_user()
    environment = grafana_environment(
        settings.address_of("grafana"), settings.port("grafana"), f"{folder}/provisioning", f"{folder}/dashboards"
    )
    return {
        "user": f"{user}:{group}",
        "environment": {**environment, "GF_SECURITY_ADMIN_PASSWORD__FILE": PASSWORD},
        "tmpfs": ["/tmp"],
        "volumes": [
            f"grafana-data:{_DATA['grafana']}",
            f"./grafana/provisioning:{folder}/provisioning:ro",
            f"./grafana/dashboards:{folder}/dashboards:ro",
            f"./grafana/admin-password:{PASSWORD}:ro",
        ],
    }


def _gpu_exporter(name: str, settings: StackSettings) -> dict[str, Any]:
    """Their images hold nothing that could ask them for their health; `pulsetrain stack status` does."""
    gpus = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    given: dict[str, Any] = {
        "environment": {"NVIDIA_DRIVER_CAPABILITIES": "utility"},
        "deploy": {"resources": {"reservations": {"devices": [gpus]}}},
    }
    if name == "dcgm-exporter":
        listen = {"DCGM_EXPORTER_LISTEN": settings.listen(name)}
        # DCGM reads the profiling counters (DCGM_FI_PROF_*) with SYS_ADMIN alone, and its image is made for root with
        # Docker's usual capabilities: without those it may not even read its own files.
        return given | {"environment": given["environment"] | listen, "cap_add": ["SYS_ADMIN"], "cap_drop": []}
    return given | {"command": arguments(name, settings.listen(name), "", ""), "read_only": True}


class Docker:
    """Docker Compose on a folder with a compose.yml."""

    def __init__(self, folder: Path, project: str) -> None:
        self._folder = folder
        # Said outright: COMPOSE_PROJECT_NAME in the environment of the user would win over that in .env.
        self._compose = [*_compose_command(), "--project-name", project]
        _check_engine()

    def running(self) -> set[str]:
        """The services of this stack that run, by the folder that Compose notes at each container."""
        form = f'{{{{.Label "{_SERVICE_LABEL}"}}}}\t{{{{.Label "{_FOLDER_LABEL}"}}}}'
        command = ["docker", "ps", "--filter", f"label={_FOLDER_LABEL}", "--format", form]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = (line.partition("\t") for line in done.stdout.splitlines())
        return {service for service, _, folder in found if Path(folder).resolve() == self._folder.resolve()}

    def up(self, restart: Sequence[str]) -> None:
        """Start what does not run, and restart what reads a changed file only at its start."""
        self._do("up", "--detach", "--remove-orphans")
        if restart:
            self._do("restart", *restart)

    def down(self, volumes: bool) -> None:
        self._do("down", "--remove-orphans", *(["--volumes"] if volumes else []))

    def command(self, *arguments: str) -> str:
        """For a user to type."""
        return f"cd {shlex.quote(str(self._folder))} && {shlex.join([*self._compose, *arguments])}"

    def _do(self, *arguments: str) -> None:
        """Docker's own words, such as the progress of a download, go to the terminal."""
        done = subprocess.run([*self._compose, *arguments], cwd=self._folder, check=False)
        if done.returncode:
            raise PulsetrainError(
                f"Docker failed with code {done.returncode}; see its message above.",
                hint=f"To try it yourself: {self.command(*arguments)}",
            )


def _compose_command() -> list[str]:
    docker = shutil.which("docker")
    if docker is None:
        raise Unavailable(
            "Docker is not installed.", hint="Install it (apt install docker.io docker-compose), or use --native."
        )
    plugin = subprocess.run([docker, "compose", "version"], capture_output=True, check=False)
    if plugin.returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise Unavailable(
        "Docker is installed, but neither `docker compose` nor docker-compose is.",
        hint="Install one (apt install docker-compose, or docker-compose-plugin from Docker), or use --native.",
    )


def _check_engine() -> None:
    done = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if "permission denied" in done.stderr.lower():
        raise Unavailable(
            "permission denied: this user cannot use Docker.",
            hint="sudo usermod -aG docker $USER, then log in again; or use --native.",
        )
    raise Unavailable("Docker is not running.", hint="Start it (sudo systemctl start docker), or use --native.")
