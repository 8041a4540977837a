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

from pulsetrain.deploy.services import GPU_EXPORTERS, Service, arguments, grafana_environment
from pulsetrain.deploy.settings import Settings
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
_GRAFANA_USER = (472, 0)
"""The user of Grafana's image."""


def compose_file(settings: Settings) -> dict[str, Any]:
    """compose.yml, for the `docker compose` plugin and for docker-compose."""
    services = {service.name: _service(service, settings) for service in settings.services}
    volumes: dict[str, dict[str, str]] = {f"{name}-data": {} for name in services if name in _DATA}
    return {"services": services, "volumes": volumes}


def grafana_user() -> tuple[int, int]:
    """Who runs Grafana in its container, and owns the file of its password: this user, or the image's own for root."""
    return (os.getuid(), os.getgid()) if os.getuid() else _GRAFANA_USER


def _service(service: Service, settings: Settings) -> dict[str, Any]:
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
    file = Path("/proc/self/mountinfo")
    mounts = (line.split() for line in file.read_text().splitlines()) if file.exists() else ()
    return any(mount[4] == "/" and mount[6].startswith("shared:") for mount in mounts)


def _grafana(settings: Settings) -> dict[str, Any]:
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


def _gpu_exporter(name: str, settings: Settings) -> dict[str, Any]:
    """Their images hold nothing that could ask them for their health; `pulsetrain stack status` does."""
    gpus = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    given: dict[str, Any] = {
        "environment": {"NVIDIA_DRIVER_CAPABILITIES": "utility"},
        "deploy": {"resources": {"reservations": {"devices": [gpus]}}},
    }
    if name == "dcgm-exporter":
        listen = {"DCGM_EXPORTER_LISTEN": settings.listen(name)}
        # DCGM reads the profiling counters (DCGM_FI_PROF_*) with this alone.
        return given | {"environment": given["environment"] | listen, "cap_add": ["SYS_ADMIN"]}
    return given | {"command": arguments(name, settings.listen(name), "", ""), "read_only": True}


class Docker:
    """Docker Compose on a folder with a compose.yml."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._compose = _compose_command()
        _check_engine()

    def running(self) -> set[str]:
        """The services of this stack that run."""
        if not (self._folder / "compose.yml").exists():
            return set()
        done = self._call("ps", "--services", "--filter", "status=running", capture=True)
        return set(done.stdout.split()) if done.returncode == 0 else set()

    def up(self, restart: Sequence[str]) -> None:
        """Start what does not run, and start those anew that read a changed file only then."""
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
        done = self._call(*arguments)
        if done.returncode:
            raise PulsetrainError(
                f"Docker failed with code {done.returncode}; its reason stands above.",
                hint=f"To try it yourself: {self.command(*arguments)}",
            )

    def _call(self, *arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._compose, *arguments], cwd=self._folder, capture_output=capture, text=True, check=False
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
        "Docker is here, but neither `docker compose` nor docker-compose.",
        hint="Install one (apt install docker-compose, or docker-compose-plugin from Docker), or use --native.",
    )


def _check_engine() -> None:
    done = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if "permission denied" in done.stderr.lower():
        raise Unavailable(
            "Docker refuses this user.", hint="sudo usermod -aG docker $USER, then log in again; or use --native."
        )
    raise Unavailable("Docker does not run here.", hint="Start it (sudo systemctl start docker), or use --native.")
