"""Fetched runs at home: alive while segments come, as series for Prometheus; and notebooks of Colab."""

import os
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.transfer.sending import RUN
from tests.waiting import eventually

from pulsetrain.outputs.prometheus import Exporter
from pulsetrain.runs.folder import Home, Host, Run, RunFolder, host_name
from pulsetrain.training import colab
from pulsetrain.transfer.fetching import Fetcher
from pulsetrain.transfer.folder import FolderStore
from pulsetrain.transfer.shipper import Shipment
from pulsetrain.watching.fetched import FetchedMetrics


def begun(folder: Path) -> RunFolder:
    """A run in progress, of this moment."""
    run = RunFolder(folder / RUN)
    run.host_folder(host_name()).mkdir(parents=True)
    run.save(Run(id=RUN, name="test", start=datetime.now(UTC), hosts={host_name(): Host()}))
    return run


def write(run: RunFolder, second: int, celsius: float) -> None:
    stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    with (run.host_folder(host_name()) / "gpu_metrics_1.jsonl").open("a") as file:
        file.write(
            f'{{"timestamp":"{stamp}","elapsed_seconds":{second}.0,"gpu_index":0,"temperature_celsius":{celsius}}}\n'
        )


def test_a_fetched_run_is_served_under_the_name_of_its_machine_until_it_ends(tmp_path: Path) -> None:
    there = begun(tmp_path / "there")
    store = FolderStore(tmp_path / "store")
    shipment = Shipment(there, store, "there")
    fetcher = Fetcher(store, Home(tmp_path / "home"))
    exporter = Exporter("127.0.0.1", 0)
    metrics = FetchedMetrics(exporter)

    def scraped() -> str:
        with urllib.request.urlopen(f"{exporter.url}/metrics") as response:
            return str(response.read().decode())

    def look() -> None:
        shipment.cut()
        shipment.send()
        metrics.take(fetcher.look(), fetcher.seconds)

    for second in range(3):  # what one look brings is complete with the next
        write(there, second, 50.0 + second)
        look()
    try:
        assert RunFolder(tmp_path / "home" / RUN).load().status == "running"
        labels = f'host="{host_name()}",run="{RUN}"'
        assert eventually(lambda: f'gpu_temperature_celsius{{gpu="0",{labels}}}' in scraped().replace("uuid=", ""))
        assert "pulsetrain_fetch_seconds{" in scraped()
        assert 'pulsetrain_data_age_seconds{data="machine",' in scraped()
        about = there.load()
        about.status, about.end = "finished", datetime.now(UTC)
        there.save(about)

        def ended() -> bool:
            look()
            return "gpu_temperature_celsius" not in scraped()

        assert eventually(ended)
    finally:
        metrics.close()
        shipment.close()
        fetcher.close()


def test_what_is_old_does_not_seem_to_live_when_it_is_fetched(tmp_path: Path) -> None:
    there = begun(tmp_path / "there")
    shipment = Shipment(there, FolderStore(tmp_path / "store"), "there")
    write(there, 1, 50.0)
    hour_ago = time.time() - 3600
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: hour_ago)
        shipment.cut()
    shipment.send()
    shipment.close()
    fetcher = Fetcher(FolderStore(tmp_path / "store"), Home(tmp_path / "home"))
    fetcher.look()
    fetcher.close()
    assert RunFolder(tmp_path / "home" / RUN).load().status == "died"


NOTEBOOK = """
import sys, pulsetrain.colab
from pulsetrain.training import colab
colab.place_of.__defaults__ = (sys.argv[1],)
run = pulsetrain.colab.init("notebook", simulate="1xL4", quiet=True)
pulsetrain.log(step=1, loss=1.0)
pulsetrain.finish()
"""


def test_a_notebook_of_colab_leaves_its_run_in_the_mounted_drive(tmp_path: Path) -> None:
    (tmp_path / "drive/MyDrive").mkdir(parents=True)
    environment = {
        **os.environ,
        "PULSETRAIN_HOME": str(tmp_path / "there"),
        "COLAB_RELEASE_TAG": "release-colab_20261101",
        "COLAB_GPU": "1",
    }
    command = [sys.executable, "-c", NOTEBOOK, str(tmp_path / "drive")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    place = tmp_path / "drive/MyDrive/pulsetrain"
    command = [sys.executable, "-m", "pulsetrain", "fetch", str(place), "--dir", str(tmp_path / "home")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    (run,) = Home(tmp_path / "home").runs()
    about = run.load()
    assert about.tags["runtime"] == "colab"
    assert about.tags["colab_release"] == "release-colab_20261101"
    assert about.status == "finished"
    assert run.files("training")


def test_a_drive_that_is_not_mounted_is_reported_with_the_line_that_mounts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLAB_GPU", "1")
    with pytest.warns(UserWarning, match=r"drive\.mount"):
        assert colab.place_of("drive:MyDrive/runs", str(tmp_path)) == "drive:MyDrive/runs"
    monkeypatch.delenv("COLAB_GPU")
    assert colab.place_of("s3://bucket") == "s3://bucket"
