"""How long `pulsetrain --help` takes, which stands for every command that has nothing to read, and what it imports."""

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.processes import Failed, Machine, here, in_rounds, spread
from benchmarks.results import Limit, Report, Result, beside

OURS = "pulsetrain --help"
COMMANDS = {
    OURS: ["-m", "pulsetrain", "--help"],
    "python -c pass": ["-c", "pass"],
    "nvitop --version": ["-m", "nvitop", "--version"],
}
HEAVY = ("psutil", "pynvml", "numpy", "duckdb", "rich", "textual")
"""What showing help has no use for."""
MOST_SECONDS = 60.0


def run(machine: Machine, quick: bool) -> Report:
    contestants, notes = here(COMMANDS, {"nvitop --version": "nvitop"})
    _wall_ms(OURS)  # compiles what was never imported before
    wall = in_rounds(contestants, 5 if quick else 10, _wall_ms, needed=(OURS,))
    medians = {name: median(figures) for name, figures in wall.figures.items()}
    ours = Result("startup", OURS, medians.pop(OURS), "ms", spread=spread(wall.figures[OURS]))
    results = beside(ours, medians, wall.failed, {"python -c pass": Limit(150)})
    results += _import(5 if quick else 15)
    imported = [module for module in HEAVY if module in _imports()]
    results.append(Result("startup", "heavy modules imported by --help", len(imported), "", target=Limit(0)))
    return Report(results, [*notes, *(f"--help imports {module}" for module in imported)])


def _import(rounds: int) -> list[Result]:
    """What a training process pays for us before its first report."""
    code = """
import os, time
def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before, begin = resident_bytes(), time.perf_counter()
import pulsetrain
pulsetrain.log
print((time.perf_counter() - begin) * 1000, (resident_bytes() - before) / 1e6)
"""
    command = [sys.executable, "-c", code]
    found = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() for _ in range(rounds)]
    milliseconds, megabytes = ([float(answer[column]) for answer in found] for column in (0, 1))
    return [
        Result(
            "startup", "import pulsetrain", median(milliseconds), "ms", target=Limit(25), spread=spread(milliseconds)
        ),
        Result("startup", "memory of it", median(megabytes), "MB", target=Limit(5)),
    ]


def _wall_ms(name: str) -> float:
    begin = time.perf_counter()
    _call(COMMANDS[name])
    return (time.perf_counter() - begin) * 1000


def _imports() -> set[str]:
    """The top modules that --help imports."""
    lines = _call(["-X", "importtime", *COMMANDS[OURS]]).splitlines()
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines if line.startswith("import time:")}


def _call(arguments: list[str]) -> str:
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=Path(sys.prefix), timeout=MOST_SECONDS
        )
    except subprocess.SubprocessError as error:
        raise Failed(str(error)) from None
    return done.stderr
