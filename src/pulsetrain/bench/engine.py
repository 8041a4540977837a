"""The container engine: Docker, or what answers as Docker does, through the Docker SDK."""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs import liveness
from pulsetrain.runs.folder import host_name
from pulsetrain.training.masking import masked_message

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.types import DeviceRequest

log = logging.getLogger(__name__)

LABEL = "pulsetrain.bench"
"""On every container of ours: the host's folder of its run, whose lock tells whether somebody is there to end it."""
HOST_LABEL = "pulsetrain.host"
ANSWER_SECONDS = 60
NO_GPU = 3
GPU_TEST = "for f in /dev/nvidia[0-9]* /dev/dxg /dev/kfd; do if [ -e $f ]; then exit 0; fi; done; exit 3"
_CDI_PODMAN = (5, 4)
"""Podman takes CDI devices over Docker's API from here on; before, it starts containers without them, silently."""


class EngineError(PulsetrainError):
    """What the engine would not do, and why, as far as it says."""


def connect() -> "DockerClient":
    """The engine that DOCKER_HOST or the CLI's context names."""
    try:
        import docker
        from docker.errors import DockerException
    except ImportError:
        raise EngineError(
            "containers need the Docker SDK for Python.",
            still="Commands can be benchmarked without a container: pulsetrain bench -- CMD...",
            hint="pip install 'pulsetrain[docker]'",
        ) from None
    try:
        client = docker.from_env(timeout=ANSWER_SECONDS)
        client.ping()
    except (DockerException, OSError) as error:
        raise _unreachable(error) from None
    return client


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn what the SDK raises into an error that a user understands."""
    import requests
    from docker.errors import APIError, DockerException

    try:
        yield
    except APIError as error:
        raise _refused(what, str(error.explanation or error)) from None
    except (requests.RequestException, DockerException, OSError) as error:
        raise EngineError(f"{what}: the container engine does not respond ({_short(error)}).") from None


def is_podman(client: "DockerClient") -> bool:
    """By what it says of itself: its version number is like Docker's."""
    components = client.version().get("Components") or []
    return any("podman" in str(component.get("Name", "")).lower() for component in components)


def gpu_request(client: "DockerClient", gpus: str | None) -> "DeviceRequest":
    """What passes GPUs into a container: these, or all."""
    from docker.types import DeviceRequest

    chosen = [] if gpus in (None, "", "all") else str(gpus).split(",")
    if not is_podman(client):
        return DeviceRequest(**({"device_ids": chosen} if chosen else {"count": -1}), capabilities=[["gpu"]])
    version = tuple(int(part) for part in re.findall(r"\d+", client.version().get("Version", ""))[:2])
    if version < _CDI_PODMAN:
        raise EngineError(
            "this Podman would silently start the container without GPUs.",
            hint="Use Podman 5.4 or newer, or run without GPUs: --no-gpus",
        )
    return DeviceRequest(driver="cdi", device_ids=[f"nvidia.com/gpu={gpu}" for gpu in chosen or ["all"]])


def sees_gpu(container: "Container") -> bool | None:
    """Whether a running container has a GPU's device; None when it cannot be asked: it has no shell, or has ended."""
    from docker.errors import APIError

    try:
        code = container.exec_run(["sh", "-c", GPU_TEST]).exit_code
    except APIError:
        return None
    return {0: True, NO_GPU: False}.get(code)


def labels(host_folder: Path) -> dict[str, str]:
    return {LABEL: str(host_folder), HOST_LABEL: host_name()}


def remove_leftovers(client: "DockerClient") -> list[str]:
    """Remove containers of ours whose pulsetrain was killed; their names. One that may be in use stays."""
    removed = []
    with explained("containers left by an earlier benchmark cannot be listed"):
        for container in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
            folder = Path(container.labels.get(LABEL, ""))
            if container.labels.get(HOST_LABEL) == host_name() and _is_abandoned(folder):
                with _gone_already():
                    container.remove(force=True, v=True)
                removed.append(container.name)
    return removed


def _is_abandoned(folder: Path) -> bool:
    """Whether nobody holds the lock of its run. Where there is no lock any more, the run itself is gone."""
    held = liveness.is_held(folder)
    return held is False or (held is None and not folder.exists())


@contextlib.contextmanager
def _gone_already() -> Iterator[None]:
    from docker.errors import APIError

    try:
        yield
    except APIError as error:
        if error.status_code not in (404, 409):  # gone, or going
            raise


def remove(container: "Container") -> None:
    """Leave nothing of a container. An engine that has gone cannot be asked; the next benchmark looks again."""
    try:
        with explained("the container could not be removed"), _gone_already():
            container.remove(force=True, v=True)
    except EngineError as error:
        log.warning("%s", error.message)


def image_rows(client: "DockerClient") -> list[tuple[str, str, int]]:
    """Tag, id and size of each image that is here."""
    with explained("images cannot be listed"):
        return sorted(
            (tag, image.short_id.removeprefix("sha256:"), int(image.attrs.get("Size") or 0))
            for image in client.images.list()
            for tag in image.tags
        )


def find_image(client: "DockerClient", name: str, pulling: Callable[[], None]) -> tuple[Any, bool]:
    """The image, and whether it had to be pulled; `pulling` is called before that."""
    from docker.errors import ImageNotFound

    with explained(f"cannot get the image {name}"):
        try:
            return client.images.get(name), False
        except ImageNotFound:
            pulling()
        try:
            return client.images.pull(name, tag=None if _has_tag(name) else "latest"), True
        except ImageNotFound as error:
            raise _no_image(client, name, str(error.explanation)) from None


def _has_tag(name: str) -> bool:
    return "@" in name or ":" in name.rpartition("/")[2]


def _no_image(client: "DockerClient", name: str, said: str) -> EngineError:
    here = [tag for tag, _, _ in image_rows(client)]
    near = [tag for tag in here if name.partition(":")[0] in tag]
    hint = f"Did you mean {', '.join(near[:3])}? " if near else ""
    return EngineError(
        f"there is no image {name}: {_short(said)}.",
        hint=f"{hint}List local images: pulsetrain bench --benchmark-image ''",
    )


def _unreachable(error: Exception) -> EngineError:
    text = str(error)
    if "Permission denied" in text or "PermissionError" in text:
        return EngineError(
            "permission denied on the container engine's socket.",
            still="Commands can be benchmarked without a container: pulsetrain bench -- CMD...",
            hint="sudo usermod -aG docker $USER and log in again; or use rootless Docker or Podman.",
        )
    where = os.environ.get("DOCKER_HOST", "its usual socket")
    return EngineError(
        f"no container engine responds at {where}.",
        still="Commands can be benchmarked without a container: pulsetrain bench -- CMD...",
        hint="Start Docker, or for Podman: systemctl --user start podman.socket and set DOCKER_HOST to its socket.",
    )


def _refused(what: str, said: str) -> EngineError:
    if "could not select device driver" in said or "unknown or invalid runtime name: nvidia" in said:
        return EngineError(
            f"{what}: the engine cannot pass GPUs to it because it has no NVIDIA runtime.",
            hint="Install the NVIDIA Container Toolkit and restart the engine; or run it without GPUs: --no-gpus",
        )
    if "executable file not found" in said or "no command specified" in said:
        return EngineError(
            f"{what}: {_short(said)}.", hint="Give a command to run in it: pulsetrain bench IMAGE -- CMD..."
        )
    if "bind source path does not exist" in said or "invalid mount config" in said:
        return EngineError(f"{what}: {_short(said)}.", hint="A mounted folder must exist on the engine's host.")
    if "pull access denied" in said or "not found" in said or "no such host" in said or "lookup " in said:
        hint = "Check its name, or build it here (see containers/). pulsetrain bench --benchmark-image '' lists images."
        return EngineError(f"{what}: {_short(said)}.", hint=hint)
    return EngineError(f"{what}: {_short(said)}.")


def _short(error: object) -> str:
    """The first line of what an engine says, without its own decorations."""
    text = masked_message(str(error)).strip().splitlines()
    return (text[0] if text else "no reason given").strip(' "').rstrip(".")[:300]
