"""trainer.toml: a training that is to run on a cluster."""

from datetime import datetime
from pathlib import Path

import msgspec

from pulsetrain.deploy.cloud.cluster_file import read_toml
from pulsetrain.deploy.cloud.machines import GPUS
from pulsetrain.deploy.kubernetes import TrainerJobSpec
from pulsetrain.errors import UsageError

_NAME_LENGTH = 24
"""Of a training: its job has the time behind it, and may have 40."""


class BuildFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [build]: how to make the image. Paths are seen from the file."""

    context: str = "."
    dockerfile: str | None = None


class TrainerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """trainer.toml."""

    name: str
    image: str
    """Where to push it, without a tag; or, without [build], the image to run."""
    command: tuple[str, ...]
    cluster: str | None = "cluster.toml"
    """The file of the cluster, seen from this one; "" for kubectl's current one."""
    build: BuildFile | None = None
    nodes: int = 1
    gpus: int = 1
    gpu_type: str | None = None
    spot: bool = False
    backoff_limit: int = 4
    deadline_seconds: int | None = None
    environment: dict[str, str] = {}
    cpu: str = "2"
    memory: str = "8Gi"
    disk: str = "10Gi"
    queue: str | None = None
    service_account: str | None = None
    checkpoints_claim: str | None = None
    runs_claim: str | None = None
    run_options: tuple[str, ...] = ()


def read_trainer_file(file: Path) -> TrainerFile:
    found = read_toml(file, TrainerFile, "name, image and command")
    if len(found.name) > _NAME_LENGTH:
        raise UsageError(f"{file}: the name {found.name!r} has more than {_NAME_LENGTH} characters.")
    if found.build and ":" in found.image.rpartition("/")[2]:
        raise UsageError(
            f"{file}: image has a tag.", hint="With [build], each submission gets a tag of its own: leave it out."
        )
    return found


def job_spec(trainer: TrainerFile, now: datetime) -> TrainerJobSpec:
    """The job of one submission: its name, which is that of the run too, and its tag are the time of it."""
    stamp = now.strftime("%Y%m%d-%H%M%S")
    gpu = GPUS.get((trainer.gpu_type or "").upper())
    return TrainerJobSpec(
        name=f"{trainer.name}-{stamp}",
        image=f"{trainer.image}:{stamp}" if trainer.build else trainer.image,
        command=trainer.command,
        nodes=trainer.nodes,
        gpus=trainer.gpus,
        gpu_type=gpu.accelerator if gpu else trainer.gpu_type,
        spot=trainer.spot,
        backoff_limit=trainer.backoff_limit,
        deadline_seconds=trainer.deadline_seconds,
        environment=trainer.environment,
        cpu=trainer.cpu,
        memory=trainer.memory,
        disk=trainer.disk,
        queue=trainer.queue,
        service_account=trainer.service_account,
        checkpoints_claim=trainer.checkpoints_claim,
        runs_claim=trainer.runs_claim,
        run_options=trainer.run_options,
    )


def image_commands(trainer: TrainerFile, image: str, folder: Path) -> list[list[str]]:
    """How the image is built and pushed; nothing where it is there already."""
    if trainer.build is None:
        return []
    context = folder / trainer.build.context
    if not context.is_dir():
        raise UsageError(f"there is no folder {context} to build the image from.")
    file = ["--file", str(folder / trainer.build.dockerfile)] if trainer.build.dockerfile else []
    return [["docker", "build", "--tag", image, *file, str(context)], ["docker", "push", image]]
