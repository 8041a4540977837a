"""Trainings in several processes under `pulsetrain run`: each process is the rank that it says it is."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.training.trained import Train, Trained

from pulsetrain.insight.steps import read_steps
from pulsetrain.insight.summary import summarize
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder
from pulsetrain.training.ranks import ProcessRank, Rank, launched

STEPS = 12


@contextmanager
def database_of(trained: Trained) -> Iterator[Database]:
    (run,) = (trained.home / "runs").iterdir()
    database = Database([RunFolder(run)])
    yield database
    database.close()


def recorded_losses(database: Database) -> dict[int, list[float]]:
    rows = database.rows("SELECT rank, loss FROM training WHERE step_seconds IS NOT NULL ORDER BY rank, step")
    ranks = {row["rank"] for row in rows}
    return {rank: [row["loss"] for row in rows if row["rank"] == rank] for rank in ranks}


@pytest.mark.parametrize("way", ["spawned", "late", "lightning"])
def test_each_rank_has_its_own_losses_and_the_summary_is_that_of_the_first(train: Train, way: str) -> None:
    trained = train("ranks.py", way)
    with database_of(trained) as database:
        found = recorded_losses(database)
        summary: Any = summarize(database, read_steps(database))
        before = (
            database.rows("SELECT rank, before_group FROM training WHERE before_group IS NOT NULL")
            if way == "late"
            else []
        )
    assert found.keys() == {0, 1}
    for rank in (0, 1):
        assert found[rank] == pytest.approx(trained.told[rank])
    assert all(row["rank"] == row["before_group"] for row in before)
    assert len(before) == (2 if way == "late" else 0)
    assert (summary.training.ranks, summary.training.steps) == (2, STEPS)
    assert summary.training.loss_first == pytest.approx(trained.told[0][0])
    assert summary.training.loss_last == pytest.approx(trained.told[0][-1])


def test_processes_that_train_without_a_group_are_distinguished(train: Train) -> None:
    trained = train("ranks.py", "hogwild")
    with database_of(trained) as database:
        found = recorded_losses(database)
    assert found.keys() == {0, 1}
    in_order = [found[0], found[1]] if found[0][0] < found[1][0] else [found[1], found[0]]
    for rank in (0, 1):
        assert in_order[rank] == pytest.approx(trained.told[rank])


@pytest.mark.parametrize(
    ("environ", "number", "world_size"),
    [
        ({}, 0, 1),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, 3, 4),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "8"}, 2, 8),
        ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}, 1, 2),
        ({"LOCAL_RANK": "1", "NODE_RANK": "2", "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "12"}, 9, 12),
        ({"LOCAL_RANK": "1", "NODE_RANK": "2", "WORLD_SIZE": "12"}, 0, 12),
    ],
)
def test_before_there_is_a_group_the_launcher_names_the_rank(
    environ: dict[str, str], number: int, world_size: int
) -> None:
    assert launched(environ) == Rank(number, world_size, of_group=False)


HOLD = """
import sys
from pulsetrain.training.ranks import ProcessRank
ours = ProcessRank(sys.argv[1])
print(ours.now(trains=True).number, flush=True)
sys.stdin.read()
"""


def test_a_process_that_trains_after_another_has_ended_gets_its_rank(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout and other.stdin
    assert other.stdout.readline() == "0\n"
    beside, after = ProcessRank(str(tmp_path)), ProcessRank(str(tmp_path))
    assert beside.now(trains=False).number == 0  # it only reports, as a worker of a data loader may
    assert beside.now(trains=True).number == 1
    other.communicate()
    assert beside.now(trains=True).number == 1
    assert after.now(trains=True).number == 0
    assert not os.environ.get("RANK")
    beside.close()
    after.close()
