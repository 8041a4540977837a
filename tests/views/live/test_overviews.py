"""All runs in short, for lists."""

from collections.abc import Callable
from pathlib import Path

from pulsetrain.runs.folder import Home, RunFolder
from pulsetrain.views.live.overviews import RunOverviews

MakeRun = Callable[..., RunFolder]
GPU = {"gpu_index": 0, "uuid": "GPU-0", "up": 1}


def test_runs_come_newest_first_with_their_latest_use_and_energy(tmp_path: Path, make_run: MakeRun) -> None:
    first = make_run(
        "20261116-110000-first-aaaa",
        gpu=[{**GPU, "utilization_percent": percent} for percent in (10.0, 30.0)],
        account=[{"energy_joules": {"gpu": 5.0}}, {"energy_joules": {"gpu": 50.0, "cpu": 7.0}}],
    )
    second = make_run("20261116-120000-second-bbbb")
    newest, oldest = RunOverviews(Home(tmp_path)).read()
    assert (newest.folder.path, oldest.folder.path) == (second.path, first.path)
    assert (oldest.busy, oldest.joules) == ((10.0, 30.0), 57.0)
    assert (newest.busy, newest.joules) == ((), None)


def test_gpus_of_one_moment_are_averaged(tmp_path: Path, make_run: MakeRun) -> None:
    lines = [
        {**GPU, "uuid": f"GPU-{index}", "gpu_index": index, "utilization_percent": percent, "elapsed_seconds": 1.0}
        for index, percent in enumerate((20.0, 60.0))
    ]
    make_run(gpu=lines)
    (overview,) = RunOverviews(Home(tmp_path)).read()
    assert overview.busy == (40.0,)


def test_a_damaged_run_and_a_damaged_line_are_left_out(tmp_path: Path, make_run: MakeRun) -> None:
    damaged = make_run("20261116-110000-damaged-aaaa")
    (damaged.path / "run.json").write_text("{")
    whole = make_run("20261116-120000-whole-bbbb", gpu=[{**GPU, "utilization_percent": 10.0}])
    (file,) = whole.files("gpu")
    file.write_text("no line\n" + file.read_text())
    (overview,) = RunOverviews(Home(tmp_path)).read()
    assert (overview.run.id, overview.busy) == (whole.path.name, (10.0,))


def test_a_run_that_has_ended_is_read_once(tmp_path: Path, make_run: MakeRun) -> None:
    run = make_run(gpu=[{**GPU, "utilization_percent": 10.0}])
    overviews = RunOverviews(Home(tmp_path))
    (before,) = overviews.read()
    (run.path / "run.json").write_text("{")
    assert overviews.read() == [before]
