"""One sample of a table `disk`, through all that knows tables: what became of it, as JSON.

    python tests/new_table.py FOLDER

`test_catalog.py` calls it with a copy of the package in which such a table is declared.
"""

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pulsetrain import catalog
from pulsetrain.live import HOLD_SECONDS, Live
from pulsetrain.outputs.backfill.columns import HostSeries
from pulsetrain.outputs.exposition import render
from pulsetrain.outputs.families import families
from pulsetrain.outputs.scrape_reader import ScrapeReader
from pulsetrain.runs.database import Database
from pulsetrain.runs.export import write_jsonl
from pulsetrain.runs.folder import Host, Run, RunFolder
from pulsetrain.runs.follow import Follow
from pulsetrain.runs.outline import outline
from pulsetrain.runs.replay import Replay
from pulsetrain.runs.seal import seal_all
from pulsetrain.runs.writer import Writer
from pulsetrain.snapshot import Sample, Snapshot

START = datetime(2026, 11, 16, 12, tzinfo=UTC)


def snapshot() -> Snapshot:
    disk = catalog.subject("disk", {"slot": 3, "serial": "S1"})
    samples = (Sample(catalog.HOST, {"load_1m": 1.0}), Sample(disk, {"busy_ratio": 0.5}))
    return Snapshot(START.timestamp() + 1, 1.0, samples)


def disks(samples: Iterable[Sample]) -> list[Any]:
    found = [sample for sample in samples if sample.subject.table == "disk"]
    return [(sample.subject.key, dict(sample.subject.labels), sample.values) for sample in found]


def in_snapshots(snapshots: Iterable[Snapshot]) -> list[Any]:
    return disks(sample for snapshot in snapshots for sample in snapshot.samples)


def in_a_run(folder: Path) -> dict[str, Any]:
    """What is written, and read again while the run goes on and after it was sealed."""
    run = RunFolder(folder)
    writer = Writer(run.host_folder("vm"), START)
    run.save(Run(id="r1", name="r1", start=START, status="finished", hosts={"vm": Host()}))
    writer(snapshot())
    writer.close()
    (file,) = run.files("disk")
    found: dict[str, Any] = {"file": file.name, "lines": file.read_text()}
    found["followed"] = in_snapshots(Follow(run, "vm").read())
    found["outlined"] = in_snapshots(outline(run, "vm", 2.0))
    found["sealed"] = seal_all(run)
    database = Database([run])
    found["rows"] = database.execute("SELECT slot, serial, busy_ratio FROM disk").fetchall()
    found["types"] = database.columns("disk")
    found["replayed"] = in_snapshots(Replay(database, "vm"))
    recorded = HostSeries(database, "vm", {"host": "vm"})
    columns = [column for window in recorded.windows for column in recorded.columns(window)]
    found["backfilled"] = [(c.name, c.labels, c.values.tolist()) for c in columns if c.name.startswith("disk_")]
    write_jsonl(database, "disk", folder / "disk.jsonl")
    found["exported"] = (folder / "disk.jsonl").read_text()
    return found


def in_live_views() -> dict[str, Any]:
    """What is shown, exported, and read from the exporter's page."""
    live = Live()
    live(snapshot())
    page = render(families(live, {"host": "vm"}), "text").decode()
    found: dict[str, Any] = {"page": [line for line in page.splitlines() if line.startswith("disk_")]}
    found["scraped"] = disks(ScrapeReader().read(page).samples)
    live(Snapshot(START.timestamp() + 60, HOLD_SECONDS + 60, ()))
    found["held"] = len(list(live.table("disk")))
    return found


if __name__ == "__main__":
    print(json.dumps(in_a_run(Path(sys.argv[1])) | in_live_views()))
