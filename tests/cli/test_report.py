"""`pulsetrain report`, and how a run is counted: carbon, cost, PUE, charged GPUs."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.intensity.servers import Server, uk_answer
from tests.waiting import eventually

from pulsetrain.insight.report import make_report
from pulsetrain.runs.folder import RunFolder

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def uk() -> Iterator[Server]:
    server = Server()
    server.answer = lambda question: uk_answer(question, lambda start: 250.0)
    yield server
    server.close()


def record(pulsetrain: Pulsetrain, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    done = pulsetrain("run", "--simulate", "2xL4", *options, "--", "sleep", "1.2", **variables)
    assert done.returncode == 0, done.stderr
    return done


def report(pulsetrain: Pulsetrain, *options: str, **variables: str) -> Any:
    done = pulsetrain("report", "--json", *options, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_carbon_and_cost_follow_from_the_energy(pulsetrain: Pulsetrain) -> None:
    ended = record(pulsetrain, "--carbon-region", "FR", "--price", "0.25 EUR/kWh")
    assert "CO2e" in ended.stderr and "EUR" in ended.stderr
    found = report(pulsetrain)
    kwh = found["energy"]["total"]["joules"] / 3.6e6
    assert found["carbon"]["grams"] == pytest.approx(44 * kwh)
    assert found["carbon"]["accounting"] == "lifecycle"
    assert found["cost"]["amount"] == pytest.approx(0.25 * kwh)


def test_what_is_said_at_the_report_holds_for_it_alone(pulsetrain: Pulsetrain) -> None:
    record(pulsetrain, "--carbon-region", "FR")
    once = report(pulsetrain, "--carbon-region", "1000", "--pue", "1.5")
    again = report(pulsetrain)
    assert once["energy"]["total"]["joules"] == pytest.approx(1.5 * again["energy"]["total"]["joules"])
    assert [found["carbon"]["grams_per_kwh"] for found in (once, again)] == pytest.approx([1000, 44])


def test_a_settings_file_decides_for_new_runs_but_not_against_what_a_run_was_recorded_with(
    pulsetrain: Pulsetrain, tmp_path: Path
) -> None:
    record(pulsetrain, "--carbon-region", "FR")
    (tmp_path / "pulsetrain.toml").write_text('carbon_region = "DE"\npue = 1.2\n')
    found = report(pulsetrain)
    assert (found["carbon"]["grams_per_kwh"], found["energy"]["pue"]) == (pytest.approx(44), 1.2)
    record(pulsetrain)
    assert report(pulsetrain)["carbon"]["grams_per_kwh"] == pytest.approx(342)


def test_without_a_region_or_a_price_nothing_is_guessed(pulsetrain: Pulsetrain) -> None:
    record(pulsetrain)
    found = report(pulsetrain)
    assert found["carbon"] is None and "--carbon-region" in found["carbon_missing"]
    assert found["cost"] is None and "--price" in found["cost_missing"]


def test_the_intensity_is_looked_up_during_the_run_and_kept_with_it(pulsetrain: Pulsetrain, uk: Server) -> None:
    record(pulsetrain, "--carbon-region", "South England", PULSETRAIN_CARBON_UK_URL=uk.url)
    asked = len(uk.asked)
    assert asked and all("regionid/12" in path for path in uk.paths)
    found = report(pulsetrain, PULSETRAIN_CARBON_UK_URL=uk.url)
    assert (found["carbon"]["region"], found["carbon"]["grams_per_kwh"]) == ("South England", pytest.approx(250))
    assert len(uk.asked) == asked  # the report asked nobody
    shutil.rmtree(Path(found["path"]).parents[1] / "cache")
    record_of_run = Path(found["path"], "carbon.json")
    record_of_run.unlink()
    report(pulsetrain, "--refresh-carbon", PULSETRAIN_CARBON_UK_URL=uk.url)
    assert len(uk.asked) > asked and record_of_run.exists()


def test_a_provider_that_is_away_costs_the_run_nothing_and_a_labeled_average_is_used(
    pulsetrain: Pulsetrain,
) -> None:
    ended = record(pulsetrain, "--carbon-region", "uk", PULSETRAIN_CARBON_UK_URL="http://127.0.0.1:9")
    assert "carbon intensity" in ended.stderr
    carbon = report(pulsetrain, PULSETRAIN_CARBON_UK_URL="http://127.0.0.1:9")["carbon"]
    assert (carbon["grams_per_kwh"], carbon["quality"]) == (pytest.approx(216), "annual")
    assert any("using the yearly average of" in note for note in carbon["notes"])


@pytest.mark.parametrize("wrong", [("--carbon-region", "Atlantis"), ("--price", "cheap"), ("--pue", "0.5")])
def test_a_wrong_region_price_or_pue_is_an_error_before_anything_starts(
    pulsetrain: Pulsetrain, home: Path, wrong: tuple[str, str]
) -> None:
    done = pulsetrain("run", *wrong, "--", "true")
    assert done.returncode == 2 and wrong[1] in done.stderr
    assert not home.exists()


@pytest.mark.parametrize(
    ("option", "named"),
    [("--carbon-region", ("South England", "gcp:europe-west4")), ("--price", ("gcp:g2-standard-4",))],
)
def test_an_empty_region_or_price_lists_what_there_is(
    pulsetrain: Pulsetrain, option: str, named: tuple[str, ...]
) -> None:
    listed = pulsetrain("report", option, "")
    assert listed.returncode == 0
    assert all(name in listed.stdout for name in named)


def test_the_files_of_a_report_lie_in_the_run_or_where_they_are_wanted(
    pulsetrain: Pulsetrain, home: Path, tmp_path: Path
) -> None:
    record(pulsetrain, "--name", "files", "--carbon-region", "250")
    assert pulsetrain("report", "--files").returncode == 0
    (folder,) = (home / "runs").glob("*/report")
    names = {"metrics.yml", "formatted_metrics.txt", "metrics_plot.png", "report.html"}
    assert {file.name for file in folder.iterdir()} == names
    assert yaml.safe_load((folder / "metrics.yml").read_text())["carbon"]["grams_per_kwh"] == pytest.approx(250)
    assert (folder / "metrics_plot.png").read_bytes().startswith(b"\x89PNG")
    pulsetrain("report", "--html", "--output", str(tmp_path / "elsewhere"))
    assert [file.name for file in (tmp_path / "elsewhere").iterdir()] == ["report.html"]


def test_a_run_in_progress_is_reported_so_far(
    pulsetrain: Pulsetrain, environment: dict[str, str], tmp_path: Path
) -> None:
    def reported() -> Any:
        done = pulsetrain("report", "--json")
        found = json.loads(done.stdout) if done.returncode == 0 else {"summary": {}}
        return found if found["summary"].get("gpus") else None

    command = [sys.executable, "-m", "pulsetrain", "run", "--simulate", "1xL4", "--", "sleep", "3600"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as running:
        try:
            found: Any = eventually(reported)
        finally:
            running.terminate()
    assert found["run"]["status"] == "running"
    assert found["summary"]["gpus"][0]["samples"] >= 1
    assert found["damaged_lines"] == 0


def test_mean_power_is_the_energy_by_time_whatever_the_ticks_happened_to_see(
    make_run: Callable[..., RunFolder],
) -> None:
    gpu = {"gpu_index": 0, "uuid": "GPU-1", "name": "Test", "up": 1, "power_draw_watts": 400.0}
    run = make_run(gpu=[gpu | {"energy_joules": 250.0 * second} for second in range(11)], host=[{}] * 11)
    assert make_report(run).summary.gpus[0].power_watts_mean == pytest.approx(250)
