"""A training on a cluster: image, job, log, live figures and the run at home; by the real kubectl."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.cloud.kube_api import KubeApi
from tests.servers import program
from tests.waiting import eventually

from pulsetrain.deploy.cloud.job_state import job_state
from pulsetrain.deploy.cloud.trainer_file import read_trainer_file
from pulsetrain.errors import UsageError

FILE = """
name = "cifar"
cluster = ""
image = "registry.example/me/cifar"
command = ["python", "train.py", "--epochs", "3"]
gpu_type = "L4"
spot = true
[build]
context = "."
"""
JOBS, PODS = "/apis/batch/v1/namespaces/pulsetrain/jobs", "/api/v1/namespaces/pulsetrain/pods"
METRICS = 'training_steps_total{run="r"} 120\ntraining_loss{run="r"} 0.25\ngpu_utilization_percent{gpu="0"} 90\n'
DOCKER = '#!/bin/sh\necho "$*" >> docker.log\n[ ! -e docker.fails ] || { echo "denied" >&2; exit 1; }\n'
KUBECTL = """#!/bin/sh
# The real kubectl; what is to be run beside the collector is run here.
case "$*" in
*" exec pulsetrain-collector-0 -- "*)
    while [ "$1" != -- ]; do shift; done
    shift 2
    PULSETRAIN_HOME="$COLLECTOR" exec {python} "$@" ;;
esac
exec {kubectl} "$@"
"""
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available."}
Submit = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[KubeApi]:
    program("kubectl")
    with KubeApi(tmp_path) as api:
        yield api


@pytest.fixture
def submit(kube: KubeApi, tmp_path: Path) -> Submit:
    (tmp_path / "trainer.toml").write_text(FILE)
    folder = tmp_path / "bin"
    folder.mkdir()
    shim = KUBECTL.format(python=sys.executable, kubectl=program("kubectl"))
    for name, text in (("docker", DOCKER), ("kubectl", shim)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PULSETRAIN_")},
        "PATH": f"{folder}:{os.environ['PATH']}",
        "KUBECONFIG": str(kube.kubeconfig(tmp_path / "kubeconfig")),
        "KUBECACHEDIR": str(tmp_path / "cache"),
        "PULSETRAIN_HOME": str(tmp_path / "home"),
        "COLLECTOR": str(tmp_path / "collector"),
    }

    def start(*words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "pulsetrain", "cloud", "submit", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )

    return start


def pod_in(kube: KubeApi, **status: Any) -> Callable[[str], None]:
    """A step of a story: the pod of the job is as this says."""

    def happen(job: str) -> None:
        about = {"name": f"{job}-x", "labels": {"pulsetrain.dev/job": job}}
        there = {"kind": "Pod", "apiVersion": "v1", "metadata": about, "spec": {"containers": [{"name": "trainer"}]}}
        kube.objects[f"{PODS}/{job}-x"] = there | {"status": status}

    return happen


def job_ends(kube: KubeApi, **condition: str) -> Callable[[str], None]:
    def happen(job: str) -> None:
        kube.objects[f"{JOBS}/{job}"]["status"] = {"conditions": [{"status": "True", **condition}]}

    return happen


def test_a_training_is_built_submitted_followed_and_its_run_comes_home(
    kube: KubeApi, submit: Submit, tmp_path: Path
) -> None:
    def train(job: str) -> None:
        pod_in(kube, phase="Running")(job)
        kube.logs[f"{job}-x"] = "epoch 1\nepoch 2\n"
        kube.raw[f"{PODS}/{job}-x:9400/proxy/metrics"] = METRICS
        run = tmp_path / f"collector/runs/20261118-120000-{job}-3f9c/vm"
        run.mkdir(parents=True)
        (run / "events.jsonl").write_text("{}\n")
        (run.parent / "run.json").write_text("{}")

    kube.story = [
        pod_in(kube, phase="Pending", conditions=[UNSCHEDULABLE]),
        train,
        job_ends(kube, type="Complete"),
    ]
    process = submit("--yes")
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    (job,) = [path.rpartition("/")[2] for path in kube.objects if path.startswith(JOBS)]
    tag = job.removeprefix("cifar-")
    image = f"registry.example/me/cifar:{tag}"
    assert (tmp_path / "docker.log").read_text().splitlines() == [f"build --tag {image} .", f"push {image}"]
    pod = kube.objects[f"{JOBS}/{job}"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == image
    assert container["command"][:2] == ["pulsetrain", "run"]
    assert container["command"][-5:] == ["--", "python", "train.py", "--epochs", "3"]
    assert pod["nodeSelector"]["cloud.google.com/gke-accelerator"] == "nvidia-l4"
    assert "no node has room for it: 0/1 nodes are available." in errors
    assert "goroutine" not in errors and "step 120, loss 0.25, GPU 90 %" in errors
    assert "epoch 1\nepoch 2\n" in out and f"{job} is done" in out
    home = tmp_path / f"home/runs/20261118-120000-{job}-3f9c"
    assert (home / "vm/events.jsonl").read_text() == "{}\n" and f"run: {home}" in out
    assert [folder.name for folder in home.parent.iterdir()] == [home.name]

    kube.story = []
    shutil.rmtree(home)
    again = submit("--follow", job)
    again.communicate()
    assert again.returncode == 0 and home.exists()


def test_ctrl_c_leaves_the_job_where_nobody_can_answer(kube: KubeApi, submit: Submit) -> None:
    kube.story = [pod_in(kube, phase="Pending", conditions=[UNSCHEDULABLE])]
    process = submit("--yes")
    assert process.stderr and "no node has room" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate()
    assert process.returncode == 130 and "Traceback" not in errors
    assert " keeps running. To follow it and fetch its run: pulsetrain cloud submit trainer.toml --follow cifar-" in out
    assert eventually(lambda: any(path.startswith(JOBS) for path in kube.objects))


def test_an_image_that_cannot_be_pushed_submits_nothing(kube: KubeApi, submit: Submit, tmp_path: Path) -> None:
    (tmp_path / "docker.fails").touch()
    process = submit("--yes")
    _, errors = process.communicate()
    assert process.returncode == 1 and kube.requests == []
    assert "error: docker build failed" in errors and "Nothing was submitted." in errors


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "labels": {}}, "status": status}


def ended(**state: Any) -> list[dict[str, Any]]:
    return [{"state": {"terminated": state}}]


FAILED = {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}}
LATE = {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}}
WAITS = pod(phase="Pending", conditions=[UNSCHEDULABLE])
NO_IMAGE = [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": 'pull "x": not found'}}}]


@pytest.mark.parametrize(
    ("job", "pods", "event", "stage", "words"),
    [
        (None, [], {}, "failed", "somebody deleted it"),
        ({}, [], {}, "waiting", "waiting for its pod"),
        ({}, [pod(phase="Pending", containerStatuses=NO_IMAGE)], {}, "stuck", "image cannot be pulled"),
        ({}, [WAITS], {"reason": "TriggeredScaleUp"}, "waiting", "a GPU node is being added"),
        ({}, [WAITS], {"reason": "FailedScaleUp", "message": "GCE quota exceeded"}, "waiting", "the quota is used up"),
        (
            {},
            [WAITS],
            {"reason": "FailedScaleUp", "message": "out of resources"},
            "waiting",
            "no such machine available",
        ),
        ({}, [WAITS], {"reason": "NotTriggerScaleUp", "message": "1 didn't match"}, "stuck", "no node fits it"),
        (FAILED, [pod(containerStatuses=ended(reason="OOMKilled", exitCode=137))], {}, "failed", "more memory"),
        (FAILED, [pod(containerStatuses=ended(reason="Error", exitCode=3))], {}, "failed", "exit code 3"),
        (LATE, [], {}, "failed", "deadline_seconds"),
        (FAILED, [], {}, "failed", "BackoffLimitExceeded"),
    ],
)
def test_what_a_job_waits_for_or_failed_of_is_said_in_words(
    job: dict[str, Any] | None, pods: list[dict[str, Any]], event: dict[str, str], stage: str, words: str
) -> None:
    state = job_state(job, pods, [event] if event else [])
    assert state.stage == stage and words in state.words


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("me/cifar", "me/cifar:1", "image has a tag"),
        ('name = "cifar"', 'name = "a-very-long-name-for-a-training"', "more than 24"),
        ("spot = true", "spot = 3", "spot"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_words(tmp_path: Path, old: str, new: str, text: str) -> None:
    file = tmp_path / "trainer.toml"
    file.write_text(FILE.replace(old, new))
    with pytest.raises(UsageError, match=text):
        read_trainer_file(file)
