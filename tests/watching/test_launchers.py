"""Who started a command, which processes share a run, and what a Slurm job is told."""

import os
import socket
from pathlib import Path

import pytest

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Launch
from pulsetrain.watching.launchers import job_id_of, recognize
from pulsetrain.watching.slurm import MOST_CHARACTERS, set_comment


def test_a_launchers_job_id_is_the_same_for_all_its_processes() -> None:
    assert job_id_of({"SLURM_JOB_ID": "4711"}) == "4711"
    assert job_id_of({"TORCHELASTIC_RUN_ID": "mine", "SLURM_JOB_ID": "4711"}) == "mine"
    assert job_id_of({}) is None


def test_two_jobs_of_torchrun_without_a_name_do_not_share_a_run() -> None:
    local = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    assert job_id_of(local) == f"torchrun-{socket.gethostname()}-{os.getppid()}"
    node = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
    assert job_id_of(node) == "torchrun-node1-29500"


def test_two_steps_of_a_slurm_job_are_two_runs() -> None:
    steps = [{"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": step, "SLURM_STEP_NUM_TASKS": "8"} for step in ("0", "1")]
    assert [job_id_of(step) for step in steps] == ["4711.0", "4711.1"]


@pytest.mark.parametrize(
    ("variables", "launch"),
    [
        (
            {"TORCHELASTIC_RUN_ID": "j", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "16"}
            | {"TORCHELASTIC_RESTART_COUNT": "3"},
            Launch(launcher="torchrun", job_id="j", node_rank=1, nodes=2, world_size=16, restarts=3),
        ),
        (
            {"SLURM_JOB_ID": "7", "SLURM_NODEID": "3", "SLURM_JOB_NUM_NODES": "4", "SLURM_NTASKS": "32"},
            Launch(launcher="slurm", job_id="7", node_rank=3, nodes=4, world_size=32),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_NAMESPACE": "prterun-node0-77@1"},
            Launch(launcher="mpirun", job_id="mpirun-prterun-node0-77@1", world_size=8),
        ),
        (
            {"RAY_JOB_ID": "01000000", "NODE_RANK": "1", "WORLD_SIZE": "4"},
            Launch(launcher="ray", job_id="ray-01000000", node_rank=1, world_size=4),
        ),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "PET_NODE_RANK": "2", "PET_NNODES": "4"}
            | {"PET_MASTER_ADDR": "bert-node-0-0.bert", "PET_MASTER_PORT": "29400"},
            Launch(launcher="kubernetes", job_id="bert-node-0-0.bert-29400", node_rank=2, nodes=4),
        ),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Launch(launcher="kubernetes")),
        ({"HOME": "/root"}, None),
    ],
)
def test_a_launcher_is_recognized_by_its_variables(variables: dict[str, str], launch: Launch | None) -> None:
    assert recognize(variables) == launch


def test_a_torchrun_behind_pulsetrain_is_recognized_by_its_command_line() -> None:
    command = ["torchrun", "--nnodes=2", "--nproc-per-node", "8", "--node-rank", "1", "--rdzv-endpoint=node0:29500"]
    found = recognize({}, [*command, "train.py", "--nnodes", "9"])
    expected = Launch(launcher="torchrun", job_id="torchrun-node0:29500", node_rank=1, nodes=2, world_size=16)
    assert found == expected
    assert recognize({}, ["python", "-m", "torch.distributed.run", *command[1:]]) == expected
    assert recognize({}, ["torchrun", "--nproc-per-node", "8", "train.py"]) is None
    in_slurm = recognize({"SLURM_JOB_ID": "7"}, command)
    assert in_slurm and (in_slurm.launcher, in_slurm.job_id) == ("slurm + torchrun", "7")


def test_a_slurm_job_gets_one_short_line_as_its_comment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "scontrol"
    stand_in.write_text('#!/bin/sh\nfor word; do echo "$word"; done > "$0.txt"\n[ "$2" = JobId=7 ] || exit 1\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    set_comment({"SLURM_JOB_ID": "7"}, "finished after 2 h;\n5.1 kWh ± 3 %; " + "x" * 400)
    update, job, comment = (tmp_path / "scontrol.txt").read_text().splitlines()
    assert (update, job) == ("update", "JobId=7")
    assert comment.startswith("Comment=finished after 2 h; 5.1 kWh +- 3 %; xxx")
    assert len(comment) == len("Comment=") + MOST_CHARACTERS
    with pytest.raises(PulsetrainError, match="exit code 1"):
        set_comment({"SLURM_JOB_ID": "8"}, "fine")
