"""The catalog: a table that is declared there, and nowhere else, is written, read, shown and documented."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pulsetrain import catalog

ROOT = Path(__file__).parents[1]
TABLE = """
    Table(
        "disk",
        "Disks",
        "one line for each disk and tick",
        labels=(
            LabelColumn("slot", "INTEGER", "Number of the disk.", "slot"),
            LabelColumn("serial", "VARCHAR", "The disk's own name."),
        ),
        key=("{serial}", "slot {slot}"),
        always=("temperature_celsius",),
    ),
"""
METRICS = """
    Metric("disk", "busy_ratio", "disk_busy_ratio", "gauge", "ratio", "Share of time in which the disk had work."),
    Metric("disk", "temperature_celsius", "disk_temperature_celsius", "gauge", "celsius", "How warm the disk is."),
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and its docs, with one more table in the catalog."""
    root = tmp_path_factory.mktemp("more")
    for part in ("src/pulsetrain", "docs"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file, place, more in (
        ("tables.py", "SAMPLE_TABLES: tuple[Table, ...] = (\n", TABLE),
        ("metrics.py", "METRICS: tuple[Metric, ...] = (\n", METRICS),
    ):
        path = root / "src/pulsetrain/catalog" / file
        text = path.read_text()
        assert text.count(place) == 1
        path.write_text(text.replace(place, place + more))
    return root


def run(package: Path, *arguments: str | Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(package / "src")}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def found(package: Path) -> dict[str, Any]:
    """What became of one sample of the new table, everywhere."""
    document: dict[str, Any] = json.loads(run(package, ROOT / "tests/new_table.py", package / "run"))
    return document


LABELS = {"slot": 3, "serial": "S1"}
SAMPLE = ["S1", LABELS, {"busy_ratio": 0.5}]


def test_a_new_table_has_its_own_file_in_the_run_folder(found: dict[str, Any]) -> None:
    line = json.loads(found["lines"])
    assert found["file"] == "disk_metrics_20261116_120000.jsonl"
    assert line == {
        "timestamp": "2026-11-16T12:00:01.000Z",
        "elapsed_seconds": 1.0,
        **LABELS,
        "temperature_celsius": None,
        "busy_ratio": 0.5,
    }


def test_a_new_table_is_sealed_and_a_table_of_the_database(found: dict[str, Any]) -> None:
    assert found["sealed"] == 2  # and that of the host
    assert found["rows"] == [[3, "S1", 0.5]]
    assert {"slot": "INTEGER", "serial": "VARCHAR", "temperature_celsius": "DOUBLE"}.items() <= found["types"].items()


@pytest.mark.parametrize("way", ["followed", "outlined", "replayed"])
def test_samples_of_a_new_table_come_back(found: dict[str, Any], way: str) -> None:
    assert found[way] == [SAMPLE]


def test_a_new_table_is_exported_and_back_filled(found: dict[str, Any]) -> None:
    exported = json.loads(found["exported"])
    assert exported == json.loads(found["lines"])
    assert found["backfilled"] == [["disk_busy_ratio", [["host", "vm"], ["slot", "3"]], [0.5]]]


def test_a_new_table_is_on_the_metrics_page_and_read_from_there(found: dict[str, Any]) -> None:
    assert found["page"] == ['disk_busy_ratio{host="vm",slot="3"} 0.5']
    assert found["scraped"] == [["slot 3", {"slot": 3}, {"busy_ratio": 0.5}]]


def test_live_views_forget_a_new_table_that_is_not_held(found: dict[str, Any]) -> None:
    assert found["held"] == 0


def test_a_new_table_is_documented(package: Path) -> None:
    run(package, package / "docs/generate.py")
    page = (package / "docs/metrics.md").read_text()
    assert "## Disks\n\n`disk_metrics_*.jsonl`: one line for each disk and tick.\n" in page
    assert "| `busy_ratio` | `disk_busy_ratio` |" in page


def test_a_subject_is_distinguished_by_the_first_of_its_keys_that_is_known() -> None:
    gpu = {"gpu_index": 3, "uuid": None, "name": "unknown"}
    assert catalog.subject("gpu", gpu).key == "index 3"
    assert catalog.subject("gpu", gpu | {"uuid": "GPU-1"}).key == "GPU-1"
    assert catalog.subject("process", {"pid": 7}).key == "7"
    assert catalog.subject("process", {"pid": 7, "uuid": "GPU-1"}).key == "7@GPU-1"
    assert catalog.HOST.key == ""


@pytest.mark.parametrize("table", catalog.SAMPLE_TABLES, ids=lambda table: table.name)
def test_every_table_has_metrics_and_keys_made_of_its_labels(table: catalog.Table) -> None:
    labels = {label.name: 1 for label in table.labels}
    assert catalog.metrics_of(table.name)
    assert all(form.format_map(labels) for form in table.key)
    assert set(table.always) <= {metric.field for metric in catalog.metrics_of(table.name)}


def test_every_metric_is_in_a_declared_table() -> None:
    assert {metric.table for metric in catalog.METRICS} == {table.name for table in catalog.SAMPLE_TABLES}
