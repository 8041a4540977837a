"""`python -m benchmarks [NAME...] [--quick] [--json FILE]`, from the top of the repository. Needs gcc, no GPU."""

import argparse
import json
import tempfile
from importlib import import_module
from pathlib import Path

from benchmarks.processes import Machine
from benchmarks.results import Report, as_json, table

NAMES = ("tick", "latency", "startup", "log", "loop", "watch", "week", "energy", "reader", "backfill", "scrape", "top")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=import_module("benchmarks").__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(NAMES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    reports: list[Report] = []
    with tempfile.TemporaryDirectory(prefix="pulsetrain-bench-") as folder:
        machine = Machine(Path(folder))
        for name in options.names or NAMES:
            report: Report = import_module(f"benchmarks.{name}").run(machine, options.quick)
            print(table(report.results), *report.notes, sep="\n", end="\n\n", flush=True)
            reports.append(report)
    if options.json:
        options.json.write_text(json.dumps(as_json(reports, options.quick), indent=2) + "\n")


if __name__ == "__main__":
    main()
