"""Reading a week of eight GPUs, with a line a second of each; and one segment of its lines, beside pandas."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.processes import Machine, ask, here, spread
from benchmarks.results import Limit, Report, Result
from pulsetrain.runs.folder import Run, RunFolder
from pulsetrain.runs.writer import SEGMENT_BYTES, Writer
from pulsetrain.snapshot import Sample, Snapshot
from pulsetrain.sources.simulated import Simulated

TICKS, QUICK_TICKS = 604_800, 60_480
START = datetime(2026, 11, 16, tzinfo=UTC)
MEAN_POWER = "SELECT gpu_index, avg(power_draw_watts) AS watts FROM gpu GROUP BY gpu_index ORDER BY gpu_index"


def run(machine: Machine, quick: bool) -> Report:
    lines, week = machine.folder / "lines", machine.folder / "week"
    recorded = record(lines, SEGMENT_BYTES // (10 if quick else 1))
    sealing_ms = make_week(lines, week, recorded, QUICK_TICKS if quick else TICKS)
    rounds = 3 if quick else 5
    contestants, notes = here(("week", "lines", "pandas"), {"pandas": "pandas"})
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name in contestants:
            folder = week if name == "week" else lines
            answers[name].append(ask("benchmarks.reader", name, str(folder), environment=os.environ))
    size = sum(file.stat().st_size for file in week.rglob("*.*") if file.is_file())
    megabytes = sum(file.stat().st_size for file in lines.rglob("*.jsonl")) / 2**20
    rows = int(answers["week"][0]["rows"])

    def result(name: str, what: str, key: str, target: Limit | None = None, peer: str | None = None) -> Result:
        figures = [answer[key] for answer in answers[name]]
        beside = min(answer[key] for answer in answers[peer]) if peer else None
        return Result("reader", what, min(figures), "ms", peer, beside, target, spread(figures))

    results = [
        result("week", f"open {rows:,} rows, and count them", "open_ms", Limit(1000)),
        result("week", "1,000 points of the power of 8 GPUs, first", "first_ms"),
        result("week", "1,000 points of the power of 8 GPUs, again", "again_ms", Limit(150)),
        result("week", "1,000 points of an hour of it", "hour_ms"),
        result("week", "mean power of each GPU, in SQL", "mean_ms"),
        *(
            [result("lines", f"the same from {megabytes:.0f} MiB of lines", "mean_ms", Limit(1, "ratio"), "pandas")]
            if "pandas" in contestants
            else []
        ),
        Result("reader", f"sealing {megabytes:.0f} MiB of lines, in the background", sealing_ms, "ms"),
        Result("reader", "the week on disk", size / 2**20, "MiB"),
    ]
    return Report(results, notes)


def record(folder: Path, size: int) -> int:
    """Lines of simulated GPUs, as the writer writes them, until there are so many bytes. Returns the ticks."""
    tick = 0
    source = Simulated("8xH100", clock=lambda: float(tick))
    writer = Writer(folder / "vm", START, segment_bytes=2 * size)
    file = folder / f"vm/gpu_metrics_{START:%Y%m%d_%H%M%S}.jsonl"
    while not file.exists() or file.stat().st_size < size:
        for _ in range(100):
            samples = tuple(item for item in source.read() if isinstance(item, Sample))
            writer(Snapshot(START.timestamp() + tick, float(tick), samples))
            tick += 1
        writer.flush()
    writer.close()
    RunFolder(folder).save(Run(id="lines", name="lines", start=START, status="finished"))
    return tick


def make_week(lines: Path, week: Path, recorded: int, ticks: int) -> float:
    """A run of so many ticks: the recorded lines sealed again and again, each time later, and once as they are.

    Returns how many milliseconds it took to seal them.
    """
    import duckdb

    from pulsetrain.runs.seal import seal_all

    sealed = week.with_name("sealed")
    shutil.copytree(lines, sealed)
    shutil.copytree(lines, week)
    begin = time.perf_counter()
    seal_all(RunFolder(sealed))
    took = time.perf_counter() - begin
    (segment,) = sealed.rglob("*.parquet")
    with duckdb.connect() as connection:
        for later in range(recorded, ticks, recorded):
            shifted = f"""
                SELECT * REPLACE (timestamp + INTERVAL ({later}) SECOND AS timestamp,
                    elapsed_seconds + {later} AS elapsed_seconds, energy_joules + {later} * 500 AS energy_joules)
                FROM '{segment}' WHERE elapsed_seconds + {later} < {ticks}"""
            target = week / f"vm/gpu_metrics_{later:08}_000000.parquet"
            connection.execute(
                f"COPY ({shifted}) TO '{target}' (FORMAT parquet, COMPRESSION lz4_raw, PARQUET_VERSION v2)"
            )
    return 1000 * took


def main(name: str, folder: Path) -> dict[str, float]:
    return {"week": _week, "lines": _lines, "pandas": _pandas}[name](folder)


def _week(folder: Path) -> dict[str, float]:
    from pulsetrain.runs.database import Database
    from pulsetrain.runs.series import series

    begin = time.perf_counter()
    database = Database([RunFolder(folder)])
    rows = database.count("gpu")
    opened = time.perf_counter() - begin
    metric = "gpu.power_draw_watts"
    first = _milliseconds(lambda: series(database, None, metric))
    again = min(_milliseconds(lambda: series(database, None, metric)) for _ in range(5))
    hour = min(_milliseconds(lambda: series(database, None, metric, 30_000.0, 33_600.0)) for _ in range(5))
    mean = min(_milliseconds(lambda: database.rows(MEAN_POWER)) for _ in range(5))
    return {
        "rows": rows, "open_ms": 1000 * opened, "first_ms": first, "again_ms": again, "hour_ms": hour, "mean_ms": mean
    }  # fmt: skip


def _lines(folder: Path) -> dict[str, float]:
    from pulsetrain.runs.database import Database

    return {"mean_ms": _milliseconds(lambda: Database([RunFolder(folder)]).rows(MEAN_POWER))}


def _pandas(folder: Path) -> dict[str, float]:
    import pandas  # type: ignore[import-untyped]

    def mean() -> object:
        lines = pandas.concat(pandas.read_json(file, lines=True) for file in folder.glob("*/gpu_metrics_*.jsonl"))
        return lines.groupby("gpu_index")["power_draw_watts"].mean()

    return {"mean_ms": _milliseconds(mean)}


def _milliseconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - begin)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
