"""Where a process runs, as far as its environment and its files say: scheduler, platform, container, processor."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pulsetrain.runs.description import Place
from pulsetrain.training.masking import masked, storable

LONGEST = 200
_PLATFORMS: dict[str, tuple[str, dict[str, str]]] = {
    "slurm": (
        "SLURM_JOB_ID",
        {
            "job_id": "SLURM_JOB_ID",
            "job_name": "SLURM_JOB_NAME",
            "cluster": "SLURM_CLUSTER_NAME",
            "partition": "SLURM_JOB_PARTITION",
            "account": "SLURM_JOB_ACCOUNT",
            "nodes": "SLURM_JOB_NODELIST",
        },
    ),
    "kubernetes": (
        "KUBERNETES_SERVICE_HOST",
        {"pod": "POD_NAME", "namespace": "POD_NAMESPACE", "node": "NODE_NAME", "job": "JOB_NAME"},
    ),
    "kubeflow": ("KUBEFLOW_TRAINER_SERVER_URL", {"job": "TRAINJOB_NAME"}),
    "skypilot": ("SKYPILOT_TASK_ID", {"task": "SKYPILOT_TASK_ID", "node_rank": "SKYPILOT_NODE_RANK"}),
    "dstack": (
        "DSTACK_RUN_NAME",
        {"run": "DSTACK_RUN_NAME", "repo": "DSTACK_REPO_ID", "nodes": "DSTACK_NODES_NUM", "gpus": "DSTACK_GPUS_NUM"},
    ),
    "ray": ("RAY_JOB_ID", {"job": "RAY_JOB_ID", "cluster": "RAY_CLUSTER_NAME"}),
    "colab": ("COLAB_RELEASE_TAG", {"release": "COLAB_RELEASE_TAG", "accelerator": "COLAB_GPU"}),
}
"""The variable by which each is recognized, and what is recorded of it."""
_CLOUDS = {"gcp": "gcp", "aws": "aws", "azure": "azure"}
"""As SkyPilot names them, and as we do."""
_NAMESPACE = "var/run/secrets/kubernetes.io/serviceaccount/namespace"
_CONTAINER_ID = re.compile(r"\b([0-9a-f]{64})\b")


def place_of(environment: Mapping[str, str], root: Path = Path("/")) -> Place:
    """What is known without asking anybody."""
    place = Place(container=_container(environment, root))
    for name, (mark, details) in _PLATFORMS.items():
        if environment.get(mark):
            found = {
                key: _short(environment[variable]) for key, variable in details.items() if environment.get(variable)
            }
            place.platforms[name] = found
    if "kubernetes" in place.platforms:
        _add_pod(place.platforms["kubernetes"], environment, root)
    if "skypilot" in place.platforms:
        _add_cluster(place, environment.get("SKYPILOT_CLUSTER_INFO", ""))
    return place


def cpu_model(root: Path = Path("/")) -> str:
    """The processor's name; empty where the system does not say it."""
    text = _text(root / "proc/cpuinfo", 2**16)
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return " ".join(found[1].split())[:LONGEST] if found else ""


def nvidia_driver(root: Path = Path("/")) -> str:
    """The version of NVIDIA's kernel module; empty where it is not loaded."""
    return storable(_text(root / "sys/module/nvidia/version", 100).strip())


def _add_pod(pod: dict[str, str], environment: Mapping[str, str], root: Path) -> None:
    if namespace := _text(root / _NAMESPACE, 300).strip():
        pod.setdefault("namespace", _short(namespace))
    if name := environment.get("HOSTNAME"):
        pod.setdefault("pod", _short(name))


def _add_cluster(place: Place, info: str) -> None:
    """SkyPilot says which cloud it took the machine from."""
    try:
        cluster = json.loads(info or "{}")
    except ValueError:
        return
    said = {key: value for key, value in cluster.items() if isinstance(value, str)} if isinstance(cluster, dict) else {}
    if name := said.get("cluster_name"):
        place.platforms["skypilot"]["cluster"] = _short(name)
    cloud = _CLOUDS.get(said.get("cloud", "").lower(), "")
    if cloud:
        place.cloud, place.told_by = cloud, "SkyPilot"
        place.region, place.zone = _short(said.get("region", "")), _short(said.get("zone", ""))


def _container(environment: Mapping[str, str], root: Path) -> str:
    """An image where it is known, else the kind of container and its id."""
    for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if environment.get(name):
            return _short(environment[name])
    podman = root / "run/.containerenv"
    if podman.exists():
        image = re.search(r'^image="(.+)"$', _text(podman, 2**14), re.MULTILINE)
        return _short(image[1]) if image else "podman"
    if (root / ".dockerenv").exists():
        found = _CONTAINER_ID.search(_text(root / "proc/self/mountinfo", 2**18))
        return f"docker {found[1][:12]}" if found else "docker"
    return ""


def _short(text: str) -> str:
    return storable(masked(text))[:LONGEST]


def _text(path: Path, most: int) -> str:
    """The beginning of a file; empty where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""
