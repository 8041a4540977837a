"""Sending a recorded day of eight GPUs to a server, beside a script that sends its lines as text."""

import gzip
import json
import os
import resource
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from benchmarks.processes import Machine, Rounds, in_rounds, spread
from benchmarks.reader import START, make_week, record
from benchmarks.results import Limit, Report, Result, beside
from pulsetrain.runs.folder import Host, Run, RunFolder
from pulsetrain.runs.writer import SEGMENT_BYTES

TICKS, QUICK_TICKS = 86_400, 14_400
MOST_MICROSECONDS = 2.5
"""A sample: 400,000 a second."""
TEXT_SAMPLES = 10_000
"""Of one request of the script's."""
RUN = "day"

Figures = dict[str, float]


def run(machine: Machine, quick: bool) -> Report:
    from tests.servers import Prometheus, VictoriaMetrics

    missing = [name for name in ("victoria-metrics", "prometheus") if shutil.which(name) is None]
    if missing:
        return Report([], [f"backfill: {name} is not installed" for name in missing])
    lines, day, short = (machine.folder / name for name in ("backfill-lines", "backfill-day", "backfill-short"))
    recorded = record(lines, SEGMENT_BYTES // 4)
    for folder, ticks in ((day, QUICK_TICKS if quick else TICKS), (short, recorded)):
        make_week(lines, folder, recorded, ticks)
        RunFolder(folder).save(Run(id=RUN, name=RUN, start=START, status="finished", hosts={"vm": Host()}))
    with VictoriaMetrics(machine.folder / "victoria") as victoria, Prometheus(machine.folder / "prom") as prometheus:
        ways = {
            "victoriametrics": (day, f"victoriametrics:{victoria.url}"),
            "short": (short, f"victoriametrics:{victoria.url}"),
            "text": (lines, victoria.url),
            "remote-write": (short, f"remote-write:{victoria.url}/api/v1/write"),
            "prometheus": (short, f"remote-write:{prometheus.url}/api/v1/write"),
        }
        answers: dict[str, list[Figures]] = {way: [] for way in ways}

        def measure(way: str) -> float:
            what = "text" if way == "text" else "ours"
            folder, url = ways[way]
            answers[way].append(machine.ask("benchmarks.backfill", what, str(folder), url, environment=os.environ))
            return answers[way][-1]["sample_us"]

        samples = in_rounds(ways, 2 if quick else 3, measure, needed=ways.keys() - {"text"})
    return Report(_results(answers, samples), [_note(answers["victoriametrics"])])


def _results(answers: dict[str, list[Figures]], samples: Rounds) -> list[Result]:
    def least(way: str, key: str) -> float:
        return min(answer[key] for answer in answers[way])

    def result(way: str, what: str) -> Result:
        figures = samples.figures[way]
        return Result("backfill", what, min(figures), "us", spread=spread(figures))

    text = {way: min(figures) for way, figures in samples.figures.items() if way == "text"}
    growth = least("victoriametrics", "rss_mb") - least("short", "rss_mb")
    into_victoria = replace(result("victoriametrics", "a sample into VictoriaMetrics"), target=Limit(MOST_MICROSECONDS))
    return [
        into_victoria,
        *beside(replace(into_victoria, target=None), text, samples.failed),
        *beside(result("remote-write", "a sample into VictoriaMetrics, by remote write"), text, samples.failed),
        result("prometheus", "a sample into Prometheus, by remote write"),
        Result("backfill", "memory at most", least("victoriametrics", "rss_mb"), "MB"),
        Result("backfill", "more than for half an hour of it", growth, "MB", target=Limit(100)),
    ]


def _note(answers: list[Figures]) -> str:
    best = min(answers, key=lambda answer: answer["sample_us"])
    return (
        f"backfill: {best['samples']:,.0f} samples at {1e6 / best['sample_us']:,.0f} a second; "
        f"to find them all again took {best['check_seconds']:.1f} s"
    )


def main(what: str, folder: Path, url: str) -> Figures:
    figures = {"ours": _ours, "text": _text}[what](folder, url)
    return {**figures, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _ours(folder: Path, url: str) -> Figures:
    from pulsetrain.outputs.backfill.run import backfill
    from pulsetrain.outputs.push.target import parse_target
    from pulsetrain.runs.database import Database

    moments: list[float] = []
    begin = time.perf_counter()
    run = RunFolder(folder)
    outcome = backfill(
        Database([run]), run.load(), parse_target(url, {}), lambda *_: moments.append(time.perf_counter())
    )
    sent, end = moments[-1], time.perf_counter()
    assert outcome.unchecked is None
    return {
        "samples": outcome.samples,
        "sample_us": 1e6 * (sent - begin) / outcome.samples,
        "check_seconds": end - sent,
    }


def _text(folder: Path, url: str) -> Figures:
    """What one writes first: a text line for each value, as /api/v1/import/prometheus takes it."""
    begin = time.perf_counter()
    (file,) = folder.rglob("gpu_metrics_*.jsonl")
    count = 0
    with file.open() as lines:
        values = (text for line in lines for text in _text_lines(json.loads(line)))
        while batch := list(islice(values, TEXT_SAMPLES)):
            body = gzip.compress("".join(batch).encode(), 1)
            headers = {"Content-Encoding": "gzip"}
            request = urllib.request.Request(f"{url}/api/v1/import/prometheus", body, headers)
            urllib.request.urlopen(request).close()
            count += len(batch)
    return {"samples": count, "sample_us": 1e6 * (time.perf_counter() - begin) / count}


def _text_lines(line: dict[str, object]) -> Iterator[str]:
    milliseconds = round(1000 * datetime.fromisoformat(str(line["timestamp"])).timestamp())
    labels = f'{{gpu="{line["gpu_index"]}",host="vm",run="text",uuid="{line["uuid"]}"}}'
    for field, value in line.items():
        if isinstance(value, int | float) and field not in ("gpu_index", "simulated", "elapsed_seconds"):
            yield f"gpu_{field}{labels} {value} {milliseconds}\n"


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])))
