"""What started this command: Slurm, torchrun, mpirun, Ray, Kubernetes; and what each says of the job.

A launcher sets variables for the processes that it starts. When `pulsetrain run` is in front of the launcher
(`pulsetrain run -- torchrun ...`), only its command line tells.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pulsetrain.runs.folder import Launch

Environment = Mapping[str, str]

UNNAMED_TORCHRUN = "none"
"""What torchrun calls every job whose --rdzv-id was not given."""
_LOCAL_ADDRESSES = ("", "localhost", "127.0.0.1", "::1")


class Launcher(NamedTuple):
    """The variables by which a launcher is recognized. Of several names, the first that is set counts."""

    name: str
    marks: tuple[str, ...]
    """One of them is set for every process that it starts."""
    node_rank: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    world_size: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()


LAUNCHERS = (
    Launcher(
        "torchrun",
        marks=("TORCHELASTIC_RUN_ID",),
        node_rank=("GROUP_RANK",),
        nodes=("GROUP_WORLD_SIZE",),
        world_size=("WORLD_SIZE",),
        restarts=("TORCHELASTIC_RESTART_COUNT",),
    ),
    Launcher(
        "mpirun",
        marks=("OMPI_COMM_WORLD_RANK", "PMI_RANK"),
        world_size=("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    ),
    Launcher(
        "slurm",
        marks=("SLURM_JOB_ID",),
        node_rank=("SLURM_NODEID",),
        nodes=("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
        world_size=("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        restarts=("SLURM_RESTART_COUNT",),
    ),
    Launcher("ray", marks=("RAY_JOB_ID",), node_rank=("NODE_RANK",), world_size=("WORLD_SIZE",)),
    Launcher(
        "kubernetes",
        marks=("KUBERNETES_SERVICE_HOST",),
        node_rank=("PET_NODE_RANK", "JOB_COMPLETION_INDEX", "RANK"),
        nodes=("PET_NNODES",),
        world_size=("WORLD_SIZE",),
    ),
)
"""Those nearest to the command first: a torchrun inside a Slurm job knows more about the ranks."""


def recognize(environment: Environment, command: Sequence[str] = ()) -> Launch | None:
    """What is known of the launcher and its job; None where no launcher is seen."""
    found = [launcher for launcher in LAUNCHERS if any(environment.get(mark) for mark in launcher.marks)]
    started = _torchrun_started(command)
    if not found and started is None:
        return None

    def number(names: Callable[[Launcher], tuple[str, ...]]) -> int | None:
        values = (environment.get(name, "") for launcher in found for name in names(launcher))
        return next((int(value) for value in values if value.isdecimal()), None)

    known = Launch(
        launcher=found[0].name if found else "",
        job_id=job_id_of(environment) or "",
        node_rank=number(lambda launcher: launcher.node_rank),
        nodes=number(lambda launcher: launcher.nodes),
        world_size=number(lambda launcher: launcher.world_size),
        restarts=number(lambda launcher: launcher.restarts),
    )
    return _before(known, started) if started else known


def job_id_of(environment: Environment) -> str | None:
    """What a launcher calls the job, the same on all its hosts and for no other job."""
    if torchrun := environment.get("TORCHELASTIC_RUN_ID"):
        return torchrun if torchrun != UNNAMED_TORCHRUN else _unnamed_torchrun(environment)
    if slurm := environment.get("SLURM_JOB_ID"):
        step = environment.get("SLURM_STEP_ID", "")
        by_srun = step.isdecimal() and "SLURM_STEP_NUM_TASKS" in environment
        return f"{slurm}.{step}" if by_srun else slurm
    if mpirun := environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid"):
        return f"mpirun-{mpirun}"
    if ray := environment.get("RAY_JOB_ID"):
        return f"ray-{ray}"
    if "KUBERNETES_SERVICE_HOST" in environment:
        return _kubernetes_job(environment)
    return None


def _unnamed_torchrun(environment: Environment) -> str:
    address = environment.get("MASTER_ADDR", "")
    if address in (*_LOCAL_ADDRESSES, socket.gethostname()):
        return f"torchrun-{socket.gethostname()}-{os.getppid()}"
    return f"torchrun-{address}-{environment.get('MASTER_PORT', '')}"


def _kubernetes_job(environment: Environment) -> str | None:
    """The service of the first pod has a name that no other job has at the time. A pod alone has none."""
    if found := environment.get("PET_RDZV_ID") or environment.get("PET_RDZV_ENDPOINT"):
        return found
    for prefix in ("PET_", ""):
        address = environment.get(f"{prefix}MASTER_ADDR", "")
        if address not in _LOCAL_ADDRESSES:
            return f"{address}-{environment.get(f'{prefix}MASTER_PORT', '')}"
    return None


# A launcher that the command itself is


def _torchrun_started(command: Sequence[str]) -> Launch | None:
    """What the command line of a torchrun for several hosts says; None for any other command."""
    if not _is_torchrun(command):
        return None
    given = _options(command)
    nodes = given.get("nnodes", "1").rpartition(":")[2]
    if not nodes.isdecimal() or int(nodes) < 2:
        return None
    address = given.get("rdzv_endpoint") or given.get("master_addr", "")
    job_id = given.get("rdzv_id", "")
    if not job_id and address.partition(":")[0] not in _LOCAL_ADDRESSES:
        job_id = f"torchrun-{address}-{given.get('master_port', '')}".rstrip("-")
    node_rank, each = given.get("node_rank", ""), given.get("nproc_per_node", "")
    return Launch(
        launcher="torchrun",
        job_id=job_id,
        node_rank=int(node_rank) if node_rank.isdecimal() else None,
        nodes=int(nodes),
        world_size=int(nodes) * int(each) if each.isdecimal() else None,
    )


def _is_torchrun(command: Sequence[str]) -> bool:
    if not command:
        return False
    if Path(command[0]).name == "torchrun":
        return True
    modules = ("torch.distributed.run", "torch.distributed.launch")
    return any(before == "-m" and word in modules for before, word in pairwise(command))


def _options(command: Sequence[str]) -> dict[str, str]:
    """Options with their values, as `--name value` or `--name=value`; the first of a name counts."""
    found: dict[str, str] = {}
    for word, following in zip(command, (*command[1:], ""), strict=True):
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            found.setdefault(name.replace("-", "_"), value if given else following)
    return found


def _before(known: Launch, started: Launch) -> Launch:
    """What the command says, over what its own launcher says."""
    return Launch(
        launcher=f"{known.launcher} + {started.launcher}" if known.launcher else started.launcher,
        job_id=known.job_id or started.job_id,
        node_rank=known.node_rank if started.node_rank is None else started.node_rank,
        nodes=started.nodes,
        world_size=started.world_size,
        restarts=known.restarts,
    )
