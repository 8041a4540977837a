"""`python -m benchmarks [NAME...] [--quick] [--json FILE] [--record]`, from the top of the repository. Needs no GPU."""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path
from types import FrameType

from tests.nvml.build import build

from benchmarks.processes import Failed, Machine
from benchmarks.record import Record
from benchmarks.results import Report, Result, as_json, table

NAMES = (
    *("tick", "latency", "alerts", "startup", "log", "loop", "watch", "week"),
    *("energy", "reader", "backfill", "scrape", "top", "verdict", "web", "fleet", "transfer"),
)
MOST_SECONDS, QUICK_MOST_SECONDS = 300.0, 60.0
"""For one measurement of one contestant: one that hangs costs this, and becomes a row that says so."""
BENCHMARK_SECONDS = 7200
"""For a benchmark as a whole."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=import_module("benchmarks").__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(NAMES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--record", action="store_true", help="write the results to benchmarks/RESULTS.md too")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    record = Record(options.names or NAMES, options.quick)
    with tempfile.TemporaryDirectory(prefix="pulsetrain-bench-", ignore_cleanup_errors=True) as folder:
        library = build(Path(folder) / "nvml").parent
        for name in options.names or NAMES:
            most_seconds = QUICK_MOST_SECONDS if options.quick else MOST_SECONDS
            machine = Machine(Path(folder) / name, library, most_seconds)
            report = _run(name, machine, options.quick)
            shutil.rmtree(machine.folder, ignore_errors=True)
            print(table(report.results), *report.notes, sep="\n", end="\n\n", flush=True)
            record.add(name, report)
            if options.record:
                record.write()
    if options.json:
        document = {**record.about(), **as_json([*record.reports.values()])}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if record.failed else 0


def _run(name: str, machine: Machine, quick: bool) -> Report:
    """One benchmark. One that fails is a report that says so: the others are run all the same."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(BENCHMARK_SECONDS)
    try:
        report: Report = import_module(f"benchmarks.{name}").run(machine, quick)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is said, and the next one runs
        traceback.print_exc()
        reason = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
        return Report([Result(name, "did not run to its end", None, "", failure=reason.splitlines()[0][:200])])
    finally:
        signal.alarm(0)
    return report


def _too_long(number: int, frame: FrameType | None) -> None:
    raise Failed(f"not done after {BENCHMARK_SECONDS} s")


if __name__ == "__main__":
    sys.exit(main())
