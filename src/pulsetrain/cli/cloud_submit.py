"""`pulsetrain cloud submit`: a training on a cluster, followed from here."""

import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pulsetrain.cli import cloud_plan as plan_options
from pulsetrain.errors import PulsetrainError

if TYPE_CHECKING:
    from pulsetrain.deploy.cloud.job_state import JobState
    from pulsetrain.deploy.cloud.kubectl import Kubectl
    from pulsetrain.deploy.cloud.trainer_file import TrainerFile

POLL_SECONDS = 2.0
LIVE_SECONDS = 30.0


@click.command(short_help="Train on a cluster: build, push, run, follow, fetch the run.")
@click.argument("file", metavar="[trainer.toml]", default="trainer.toml", type=click.Path(path_type=Path))
@click.option("--follow", "job", metavar="JOB", help="Follow a job that was already submitted.")
@click.option("--detach", is_flag=True, help="Submit the job without following it.")
@plan_options.dry_run
@plan_options.yes
def submit(file: Path, job: str | None, detach: bool, dry_run: bool, yes: bool) -> int:
    """Run a training as a job on the cluster, under `pulsetrain run`, and follow it.

    The image is built, tagged and pushed. The log and live figures are shown here. When the job ends, its run is
    fetched. Ctrl-C asks whether the job should continue. Exits with 1 when the training failed.
    """
    from pulsetrain.deploy.cloud.submit import kind_of, make_image, submit_job
    from pulsetrain.deploy.cloud.trainer_file import image_commands, job_spec, read_trainer_file

    trainer = read_trainer_file(file)
    kubectl = _kubectl(trainer, file.parent)
    kind = kind_of(trainer.nodes)
    if job is None:
        spec = job_spec(trainer, datetime.now(UTC))
        commands = image_commands(trainer, spec.image, file.parent)
        plan_options.show_plan(f"The job {spec.name}", _facts(trainer), [*commands, kubectl.apply_command()])
        if not plan_options.confirmed("Submit it? The nodes it needs cost money.", dry=dry_run, assume_yes=yes):
            return 0
        make_image(commands)
        submit_job(kubectl, spec)
        job = spec.name
        click.echo(f"submitted {job}")
    if detach:
        click.echo(f"  to follow it: pulsetrain cloud submit {file} --follow {job}")
        return 0
    return _follow(kubectl, kind, job, file)


def _kubectl(trainer: "TrainerFile", folder: Path) -> "Kubectl":
    from pulsetrain.deploy.cloud.cluster_file import read_cluster_file
    from pulsetrain.deploy.cloud.gcloud import Gcloud
    from pulsetrain.deploy.cloud.kubectl import Kubectl, kubeconfig_file
    from pulsetrain.deploy.kubernetes import KubernetesSettings

    namespace = KubernetesSettings().namespace
    if not trainer.cluster:
        return Kubectl(None, namespace)
    cluster = read_cluster_file(folder / trainer.cluster)
    config = kubeconfig_file(cluster.project or Gcloud().project, cluster.zone, cluster.name)
    if not config.exists():
        raise PulsetrainError(
            f"this machine has no credentials for the cluster {cluster.name} yet.",
            hint=f"Run pulsetrain cloud cluster init {folder / trainer.cluster}; an existing cluster is kept.",
        )
    return Kubectl(config, namespace)


def _facts(trainer: "TrainerFile") -> list[tuple[str, str]]:
    gpus = f"{trainer.gpus} x {trainer.gpu_type or 'GPU'}" if trainer.gpus else "no GPU"
    nodes = f"{trainer.nodes} nodes, each " if trainer.nodes > 1 else ""
    again = f"up to {trainer.backoff_limit} if it fails"
    return [
        ("command", f"pulsetrain run -- {' '.join(trainer.command)}"),
        ("needs", f"{nodes}{gpus}, {trainer.cpu} CPUs, {trainer.memory} memory{', spot' if trainer.spot else ''}"),
        ("retries", again),
        ("cost", "its nodes, while it runs; see pulsetrain cloud cluster status"),
    ]


def _follow(kubectl: "Kubectl", kind: str, job: str, file: Path) -> int:
    from pulsetrain.deploy.cloud.submit import delete_job

    try:
        state = _until_ended(kubectl, kind, job)
    except KeyboardInterrupt:
        later = f"pulsetrain cloud submit {file} --follow {job}"
        if not sys.stdin.isatty() or click.confirm("\nKeep the job running?", default=True):
            click.echo(f"{job} keeps running. To follow it and fetch its run: {later}")
        else:
            delete_job(kubectl, kind, job)
            click.echo(f"{job} was deleted; the collector has the part of the run that was sent.")
        return 130
    if state.stage == "stuck":
        raise PulsetrainError(
            f"{job} cannot start: {state.words}",
            still="The job still exists and is waiting.",
            hint=f"Fix the cause, or delete the job: {' '.join(kubectl.command('delete', kind, job))}",
        )
    _fetch(kubectl, job)
    if state.stage == "failed":
        raise PulsetrainError(f"{job} failed: {state.words}.")
    click.echo(f"{job} is done")
    return 0


def _until_ended(kubectl: "Kubectl", kind: str, job: str) -> "JobState":
    """Say what it waits for, then pass its log on, until it has ended or cannot start."""
    from pulsetrain.deploy.cloud.submit import look_at_job

    said, followed, stuck = "", set(), 0
    while True:
        state = look_at_job(kubectl, kind, job)
        stuck = stuck + 1 if state.stage == "stuck" else 0
        if state.stage in ("done", "failed") or stuck > 2:  # what is stuck may come loose: an image that is pushed late
            if state.pod and state.pod not in followed:
                _pass_log_on(kubectl, state.pod)
            return state
        if state.stage == "running" and state.pod and state.pod not in followed:
            followed.add(state.pod)
            _pass_log_on(kubectl, state.pod)
            continue
        if state.stage != "running" and state.words != said:
            said = state.words
            plan_options.told(f"{job}: {said}")
        time.sleep(POLL_SECONDS)


def _pass_log_on(kubectl: "Kubectl", pod: str) -> None:
    """Its log to our output, and every half minute what it measures to our errors, until it ends."""
    from pulsetrain.deploy.cloud.submit import live_words, logs_command

    sys.stdout.flush()
    process = subprocess.Popen(logs_command(kubectl, pod))
    try:
        while True:
            words = live_words(kubectl, pod)
            if words:
                plan_options.told(f"{pod}: {words}")
            try:
                process.wait(LIVE_SECONDS)
                return
            except subprocess.TimeoutExpired:
                continue
    finally:
        process.terminate()
        process.wait()


def _fetch(kubectl: "Kubectl", job: str) -> None:
    from pulsetrain.deploy.cloud.submit import bring_home
    from pulsetrain.runs.folder import Home

    try:
        runs = bring_home(kubectl, job, Home.find())
    except PulsetrainError as error:
        click.echo(f"warning: the run was not fetched: {error}", err=True)
        return
    for run in runs:
        click.echo(f"run: {run}\n  pulsetrain report {run.name}")
    if not runs:
        click.echo("warning: the collector has no run for this job", err=True)
