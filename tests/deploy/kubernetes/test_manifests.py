"""What is applied to a cluster: valid, the same as the files for Kustomize, and without any privilege."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import validate
from tests.servers import program

from pulsetrain import deploy
from pulsetrain.deploy.kubernetes import (
    OVERLAYS,
    PARTS,
    KubernetesSettings,
    TrainerJobSpec,
    as_yaml,
    render,
    trainer_job,
)
from pulsetrain.errors import UsageError

DEPLOY = Path(deploy.__file__).parent
HOST_PATHS = {"/sys", "/var/lib/kubelet/pod-resources"}
OPERATORS = ("monitoring.coreos.com", "monitoring.googleapis.com", "security.openshift.io", "jobset.x-k8s.io")
"""Whose objects no schema is at hand for."""
KUBERNETES = ("1.30", "1.37")
FULL = KubernetesSettings(
    namespace="ml-watch",
    cache_upstream="https://data.example/shards",
    cache_gigabytes=7,
    cache_clients=("10.8.0.0/14",),
    storage_class="fast",
    tokens={"page": "p" * 20, "collector": "c" * 20},
    names=("native", "dcgm"),
)
TRAINERS = {
    "one": TrainerJobSpec(name="resnet", image="eu.gcr.io/me/trainer:1", command=("python", "train.py")),
    "cpu": TrainerJobSpec(name="small", image="trainer", command=("python", "train.py"), gpus=0, send_to=""),
    "many": TrainerJobSpec(
        name="large",
        image="trainer@sha256:" + "0" * 64,
        command=("torchrun", "train.py", "--epochs", "2"),
        namespace="ml",
        nodes=4,
        gpus=8,
        gpu_type="nvidia-h100-80gb",
        spot=True,
        backoff_limit=2,
        deadline_seconds=3600,
        environment={"SHARDS": "imagenet-{000000..000146}.tar"},
        memory="64.5Gi",
        queue="research",
        service_account="trainer",
        checkpoints_claim="checkpoints",
        runs_claim="runs",
        run_options=("--project", "vision"),
    ),
}
Manifest = dict[str, Any]


def kustomized(overlay: str) -> list[Manifest]:
    command = [program("kubectl"), "kustomize", str(DEPLOY / "kubernetes/overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader))


def as_read(objects: list[dict[str, object]]) -> list[Manifest]:
    """As a cluster gets them."""
    read: list[Manifest] = json.loads(json.dumps(objects))
    return read


def rendered(overlay: str, settings: KubernetesSettings) -> list[Manifest]:
    return as_read(render(overlay, settings))


def everything() -> Iterator[tuple[str, list[Manifest]]]:
    for overlay in OVERLAYS:
        for title, settings in (("default", KubernetesSettings()), ("full", FULL)):
            yield f"{overlay}-{title}", rendered(overlay, settings)
    for title, spec in TRAINERS.items():
        yield f"trainer-{title}", as_read(trainer_job(spec))


ALL = dict(everything())
each = pytest.mark.parametrize("objects", ALL.values(), ids=ALL)


def by_name(objects: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def pods(value: object) -> Iterator[Manifest]:
    """The specification of every pod that an object makes, at whatever depth."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for inner in value.values():
            yield from pods(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pods(inner)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_makes_of_the_files_what_python_renders(overlay: str) -> None:
    assert by_name(kustomized(overlay)) == by_name(rendered(overlay, KubernetesSettings()))


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_valid_for_old_and_new_clusters(version: str) -> None:
    different = {json.dumps(one): one for objects in ALL.values() for one in objects if one["kind"] != "ConfigMap"}
    for one in different.values():
        if not one["apiVersion"].startswith(OPERATORS):
            validate(one, version, strict=True)


def test_yaml_of_the_objects_is_read_as_the_same_objects() -> None:
    for objects in (ALL["plain-full"], ALL["trainer-many"]):
        assert list(yaml.load_all(as_yaml(objects), yaml.CSafeLoader)) == objects


@each
def test_every_object_is_labeled_as_ours_and_small_enough_to_be_applied(objects: list[Manifest]) -> None:
    for one in objects:
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "pulsetrain"
        assert len(json.dumps(one)) < 262_144  # what `kubectl apply` keeps of an object in its annotation


@each
def test_no_pod_has_a_privilege(objects: list[Manifest]) -> None:
    for pod in pods(objects):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & {key for key, value in pod.items() if value}
        security = pod["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        paths = {volume["hostPath"]["path"]: volume["name"] for volume in pod["volumes"] if "hostPath" in volume}
        assert set(paths) <= HOST_PATHS
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert all(mount["readOnly"] for mount in container["volumeMounts"] if mount["name"] in paths.values())
            _check_container(container)


def _check_container(container: Manifest) -> None:
    own = container["securityContext"]
    assert own["allowPrivilegeEscalation"] is False and "privileged" not in own
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["readOnlyRootFilesystem"] or container["name"] == "trainer"
    assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
    if own.get("runAsUser") == 0:  # the kubelet's socket is root's, and this container does nothing but ask it
        assert container["name"] == "gpu-pods" and "ports" not in container
        assert {mount["name"] for mount in container["volumeMounts"]} == {"pod-resources", "pods"}
    else:
        assert own.get("runAsNonRoot", True) and "runAsUser" not in own
        assert "pod-resources" not in {mount["name"] for mount in container["volumeMounts"]}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_server_has_probes_and_a_policy_of_who_may_ask_it(overlay: str) -> None:
    objects = rendered(overlay, FULL)
    policies = {one["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: one["spec"]
                for one in objects if one["kind"] == "NetworkPolicy"}  # fmt: skip
    servers = [one for one in objects if one["kind"] in ("DaemonSet", "StatefulSet")]
    assert policies.keys() == {one["metadata"]["labels"]["app.kubernetes.io/component"] for one in servers}
    for policy in policies.values():
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        assert all(rule["from"] and rule["ports"] for rule in policy["ingress"])
    assert policies["agent"]["egress"] == policies["collector"]["egress"] == []
    for pod in pods(servers):
        served = pod["containers"][0]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= served.keys()
        assert pod["automountServiceAccountToken"] is False


def test_parts_that_are_not_wanted_are_left_out() -> None:
    only = {part: rendered("plain", KubernetesSettings(parts=(part,))) for part in PARTS}
    components = {part: {one["metadata"]["labels"]["app.kubernetes.io/component"] for one in made}
                  for part, made in only.items()}  # fmt: skip
    assert components == {part: {part, "namespace"} for part in PARTS}


def test_a_training_on_one_node_is_a_job_around_pulsetrain_run() -> None:
    (job,) = ALL["trainer-one"]
    assert (job["kind"], job["spec"]["backoffLimit"]) == ("Job", 4)
    (pod,) = pods(job)
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    command = container["command"]
    assert command[:2] == ["pulsetrain", "run"] and command[-3:] == ["--", "python", "train.py"]
    assert "http://pulsetrain-collector.pulsetrain.svc:8765" in command
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_a_training_on_many_nodes_is_a_job_set_whose_nodes_find_each_other() -> None:
    (job_set,) = ALL["trainer-many"]
    assert job_set["kind"] == "JobSet" and job_set["spec"]["failurePolicy"] == {"maxRestarts": 2}
    assert job_set["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    job = job_set["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (4, 4, "Indexed")
    (pod,) = pods(job_set)
    assert pod["nodeSelector"]["cloud.google.com/gke-accelerator"] == "nvidia-h100-80gb"
    (container,) = pod["containers"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert environment["PET_MASTER_ADDR"] == "large-node-0-0.large"
    assert (environment["PET_NNODES"], environment["PET_NPROC_PER_NODE"]) == ("4", "8")
    shared = next(volume for volume in pod["volumes"] if volume["name"] == "shm")
    assert shared["emptyDir"]["sizeLimit"] == "32.25Gi"


def test_a_job_on_cpus_that_sends_nothing_asks_for_neither() -> None:
    (pod,) = pods(ALL["trainer-cpu"])
    assert "--to" not in pod["containers"][0]["command"]
    assert "nvidia.com/gpu" not in pod["containers"][0]["resources"]["limits"] and "tolerations" not in pod


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": "Not_A_Name"},
        {"parts": ("agents",)},
        {"cache_upstream": "https://u:p@x/"},
        {"cache_upstream": "https://x/;include"},
        {"cache_upstream": "ftp://x"},
        {"cache_clients": ("10.0.0.0/33",)},
        {"cache_gigabytes": 0},
        {"tokens": {"admin": "x"}},
        {"image": "Bad Image"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        KubernetesSettings(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "x" * 41},
        {"name": "-x"},
        {"command": ()},
        {"nodes": 0},
        {"gpus": -1},
        {"user": 0},
        {"memory": "lots"},
        {"gpu_type": "nvidia l4"},
        {"environment": {"A-B": "1"}},
        {"runs_claim": "Runs"},
    ],
)
def test_a_job_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        TrainerJobSpec(**{"name": "x", "image": "x", "command": ("x",)} | wrong)


def test_an_unknown_overlay_names_those_that_exist() -> None:
    with pytest.raises(UsageError, match="Did you mean openshift"):
        render("open-shift", KubernetesSettings())
