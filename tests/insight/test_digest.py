"""The digest of a run, and what groups of runs used together."""

import json
import os
from collections.abc import Callable

import pytest

from pulsetrain.insight.digest import DIGEST_JSON, HostUse, RunDigest, keep_digest, load_digest, whole_digest
from pulsetrain.insight.listing import list_runs
from pulsetrain.insight.report import make_report
from pulsetrain.insight.usage import usage_by
from pulsetrain.runs.folder import CountingOptions, Host, Run, RunFolder

MakeRun = Callable[..., RunFolder]

GPU = {"gpu_index": 0, "uuid": "GPU-0", "name": "NVIDIA L4", "up": 1, "power_draw_watts": 100.0}


@pytest.fixture
def folder(make_run: MakeRun) -> RunFolder:
    """A run of ten seconds on one GPU, idle in every second one."""
    return make_run(
        seconds=10.0,
        gpu=[{**GPU, "utilization_percent": 50.0 * (n % 2), "energy_joules": 100.0 * n} for n in range(11)],
        training=[{"step": n, "step_seconds": 0.5, "loss": 1 / n, "val_accuracy": n % 4} for n in range(1, 11)],
        account=CountingOptions(price="3.6 USD/GPUh", carbon_region="500"),
    )


def test_a_digest_says_what_the_report_says(folder: RunFolder) -> None:
    report = make_report(folder)
    digest = keep_digest(folder, report)
    assert digest.steps == 10 and digest.loss == digest.loss_best == 0.1 and digest.step_seconds == 0.5
    assert digest.loss_shape[0] == 1.0 and digest.loss_shape[-1] == 0.1
    assert digest.logged == {"val_accuracy": 2} and digest.best == {"val_accuracy": 3}
    assert digest.cost == pytest.approx(0.01) and digest.currency == "USD"
    assert report.energy.total and digest.joules == report.energy.total.joules
    assert report.carbon and digest.grams == report.carbon.grams
    use = digest.hosts["vm"]
    assert use.gpus == 1 and use.gpu_seconds == 10.0 and use.gpu_idle_seconds == pytest.approx(10 * 6 / 11)
    assert load_digest(folder, folder.load()) == digest


def test_a_list_reads_the_digest_and_no_series(folder: RunFolder) -> None:
    keep_digest(folder, make_report(folder))
    for file in folder.path.glob("vm/*.jsonl"):
        file.unlink()
    (listed,) = list_runs([(folder, folder.load())])
    assert listed.digest.steps == 10 and listed.value("best/val_accuracy") == 3 and listed.value("cost")


def test_a_run_in_progress_has_no_digest(folder: RunFolder) -> None:
    keep_digest(folder, make_report(folder))
    run = folder.load()
    run.status = "running"
    assert load_digest(folder, run) is None


def test_a_digest_of_several_hosts_is_made_again_when_one_has_written_since(folder: RunFolder) -> None:
    digest = keep_digest(folder, make_report(folder))
    run = folder.load()
    run.hosts["other"] = Host()
    assert load_digest(folder, run) == digest
    late = folder.path / "vm/events.jsonl"
    late.touch()
    os.utime(late, (2e9, 2e9))
    assert load_digest(folder, run) is None


@pytest.mark.parametrize("text", ["", "[]", '{"steps":"many"}', '{"hosts":{"vm":1}}'])
def test_a_damaged_digest_is_made_again(folder: RunFolder, text: str) -> None:
    (folder.path / DIGEST_JSON).write_text(text)
    digest = whole_digest(folder, folder.load())
    assert digest and digest.steps == 10
    assert json.loads((folder.path / DIGEST_JSON).read_text())["steps"] == 10


def _run(folder: RunFolder, **about: str) -> Run:
    run = folder.load()
    for name, value in about.items():
        setattr(run, name, value)
    return run


def test_usage_adds_up_by_user_and_divides_a_run_among_its_hosts(folder: RunFolder) -> None:
    big = RunDigest(
        cost=4.0,
        currency="USD",
        grams=100.0,
        goodput=0.5,
        hosts={
            "a": HostUse(gpus=3, gpu_seconds=3600.0, gpu_idle_seconds=360.0, joules=3e6),
            "b": HostUse(gpus=1, gpu_seconds=1200.0, joules=1e6),
        },
    )
    small = RunDigest(cost=1.0, currency="EUR", hosts={"a": HostUse(gpus=0, gpu_seconds=0.0, joules=1e6)})
    runs = [(_run(folder, user="ann"), big), (_run(folder, user="ann"), small), (_run(folder, user="bob"), small)]
    ann, bob = usage_by("user", runs)
    assert (ann.group, ann.runs, ann.gpu_seconds, ann.gpu_idle_seconds, ann.joules) == ("ann", 2, 4800.0, 360.0, 5e6)
    assert ann.cost == {"USD": 4.0, "EUR": 1.0} and ann.goodput == 0.5 and ann.grams == 100.0
    assert (bob.group, bob.gpu_seconds, bob.grams, bob.goodput) == ("bob", 0.0, None, None)
    a, b = usage_by("host", runs)
    assert (a.group, a.runs, a.cost["USD"], a.grams, a.joules) == ("a", 3, 3.0, 75.0, 5e6)
    assert (b.group, b.runs, b.cost, b.grams) == ("b", 1, {"USD": 1.0}, 25.0)
