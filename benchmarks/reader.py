"""Reading a week of eight GPUs, with a line a second of each; and one segment of its lines, beside pandas."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.processes import Machine, here, in_rounds, spread
from benchmarks.results import Limit, Report, Result, beside
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
    contestants, notes = here(("week", "lines", "pandas"), {"pandas": "pandas"})
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}

    def measure(name: str) -> float:
        folder = week if name == "week" else lines
        answers[name].append(machine.ask("benchmarks.reader", name, str(folder), environment=os.environ))
        return answers[name][-1]["mean_ms"]

    means = in_rounds(contestants, 3 if quick else 5, measure, needed=("week", "lines"))
    size = sum(file.stat().st_size for file in week.rglob("*.*") if file.is_file())
    megabytes = sum(file.stat().st_size for file in lines.rglob("*.jsonl")) / 2**20
    rows = int(answers["week"][0]["rows"])

    def result(name: str, what: str, key: str, target: Limit | None = None) -> Result:
        figures = [answer[key] for answer in answers[name]]
        return Result("reader", what, min(figures), "ms", target=target, spread=spread(figures))

    pandas = {name: min(figures) for name, figures in means.figures.items() if name == "pandas"}
    results = [
        result("week", f"open {rows:,} rows, and count them", "open_ms", Limit(1000)),
        result("week", "the charts of 8 GPUs in a report, first", "first_ms"),
        result("week", "the charts of 8 GPUs in a report, again", "again_ms"),
        result("week", "mean power of each GPU, in SQL", "mean_ms"),
        *beside(
            result("lines", f"the same from {megabytes:.0f} MiB of lines", "mean_ms"),
            pandas,
            means.failed,
            {"pandas": Limit(1, "ratio")},
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

    sealed = week.with_name(f"{week.name}-sealed")
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
    from pulsetrain.views.charts import gpu_charts

    begin = time.perf_counter()
    database = Database([RunFolder(folder)])
    rows = database.count("gpu")
    opened = time.perf_counter() - begin
    first = _milliseconds(lambda: gpu_charts(database))
    again = min(_milliseconds(lambda: gpu_charts(database)) for _ in range(5))
    mean = min(_milliseconds(lambda: database.rows(MEAN_POWER)) for _ in range(5))
    return {
        "rows": rows, "open_ms": 1000 * opened, "first_ms": first, "again_ms": again, "mean_ms": mean
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
