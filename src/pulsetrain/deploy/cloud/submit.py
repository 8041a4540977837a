"""A training on a cluster: its image made, its job applied, followed, and its run brought home."""

import re
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from pulsetrain.deploy.cloud.job_state import JobState, job_state
from pulsetrain.deploy.cloud.kubectl import Kubectl, KubernetesError, error_of
from pulsetrain.deploy.cloud.tools import attach_tool, run_tool, shown
from pulsetrain.deploy.kubernetes import TrainerJobSpec, trainer_job
from pulsetrain.deploy.kubernetes.collector import COLLECTOR
from pulsetrain.deploy.kubernetes.objects import METRICS_PORT
from pulsetrain.deploy.kubernetes.trainer import JOB
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home

_SEND = """
import os, pathlib, sys, tarfile
runs = pathlib.Path(os.environ["PULSETRAIN_HOME"], "runs")
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
    for run in sorted(runs.glob("*-" + sys.argv[1] + "-*")):
        archive.add(run, run.name)
"""
"""Run beside the collector: every run of a job, as an archive."""
_METRICS = ("training_steps_total", "training_loss", "gpu_utilization_percent")


def make_image(commands: Sequence[Sequence[str]]) -> None:
    """Build and push, at this terminal."""
    for command in commands:
        if attach_tool(command):
            host = command[-1].partition("/")[0]
            login = f" Is docker signed in there? gcloud auth configure-docker {host}" if command[1] == "push" else ""
            raise PulsetrainError(
                f"docker {command[1]} failed; see its message above.",
                still="Nothing was submitted.",
                hint=f"To try it yourself: {shown(command)}.{login}",
            )


def submit_job(kubectl: Kubectl, spec: TrainerJobSpec) -> None:
    kubectl.apply(trainer_job(spec))


def kind_of(spec_nodes: int) -> str:
    return "jobset" if spec_nodes > 1 else "job"


def look_at_job(kubectl: Kubectl, kind: str, name: str) -> JobState:
    """Where it is now."""
    job = kubectl.ask("get", kind, name)
    pods = (kubectl.ask("get", "pods", f"--selector={JOB}={name}") or {}).get("items") or []
    events = []
    if any((pod.get("status") or {}).get("phase") == "Pending" for pod in pods):
        found = kubectl.ask("get", "events") or {}
        names = {pod["metadata"]["name"] for pod in pods}
        events = [one for one in found.get("items") or () if (one.get("involvedObject") or {}).get("name") in names]
    return job_state(job, pods, events)


def logs_command(kubectl: Kubectl, pod: str) -> list[str]:
    return kubectl.command("logs", "--follow", pod)


def live_words(kubectl: Kubectl, pod: str) -> str | None:
    """Step, loss and GPU of a pod now, from the exporter of its `pulsetrain run`; None while that is silent."""
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}:{METRICS_PORT}/proxy/metrics"
    done = run_tool(kubectl.command("get", "--raw", path))
    if done.code:
        return None
    found: dict[str, list[float]] = {}
    for name, value in re.findall(r"^(\w+)(?:\{[^}]*\})? ([-+.\deE]+)", done.stdout, re.MULTILINE):
        found.setdefault(name, []).append(float(value))
    steps, losses, loads = (found.get(name) for name in _METRICS)
    words = [f"step {max(steps):.0f}"] if steps else []
    words += [f"loss {losses[0]:.4g}"] if losses else []
    words += [f"GPU {sum(loads) / len(loads):.0f} %"] if loads else []
    return ", ".join(words) or None


def delete_job(kubectl: Kubectl, kind: str, name: str) -> None:
    kubectl.do("delete", kind, name, "--ignore-not-found", "--wait=false")


def bring_home(kubectl: Kubectl, name: str, home: Home) -> list[Path]:
    """The run folders of a job, copied from the collector. One that is here already is left as it is."""
    command = kubectl.command("exec", f"{COLLECTOR}-0", "--", "python", "-c", _SEND, name)
    with tempfile.TemporaryFile() as archive:
        done = run_tool(command, into=archive)
        if done.code:
            raise error_of(done)
        archive.seek(0)
        return _unpack(archive, home)


def _unpack(archive: IO[bytes], home: Home) -> list[Path]:
    """Plain files below one folder each, and nothing else: what comes from elsewhere is a stranger's."""
    home.path.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".incoming-", dir=home.path))
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                content = tar.extractfile(member) if member.isfile() else None
                if content is None or path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
                    continue
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    shutil.copyfileobj(content, file)
        brought = []
        for run in sorted(folder.iterdir()):
            if not (home.path / run.name).exists():
                run.rename(home.path / run.name)
            brought.append(home.path / run.name)
        return brought
    except tarfile.TarError as error:
        raise KubernetesError(f"the run did not arrive completely: {error}.", hint="Try again with --follow.") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
