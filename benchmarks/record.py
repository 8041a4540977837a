"""benchmarks/RESULTS.md: what one run of the benchmarks found, where, when, and how busy the machine was."""

import os
import platform
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.results import Report, packages, table

FILE = Path(__file__).with_name("RESULTS.md")


class Record:
    """A run of some benchmarks, from when it is made."""

    def __init__(self, names: Sequence[str], quick: bool) -> None:
        self.reports: dict[str, Report] = {}
        self._names = names
        self._quick = quick
        self._start = datetime.now(UTC)
        self._commit = _commit()
        self._began = time.monotonic()
        self._loads = [os.getloadavg()[0]]

    def add(self, name: str, report: Report) -> None:
        self.reports[name] = report
        self._loads.append(os.getloadavg()[0])

    @property
    def failed(self) -> bool:
        """Whether a benchmark did not run to its end. That a peer failed is a result."""
        return any(row.failure and row.peer is None for report in self.reports.values() for row in report.results)

    def about(self) -> dict[str, Any]:
        """When, where, and how busy the machine was before the first and after each one."""
        return {
            "start": self._start.isoformat(timespec="seconds"),
            "minutes": round((time.monotonic() - self._began) / 60, 1),
            "quick": self._quick,
            "commit": self._commit,
            "machine": {
                "processor": _processor(),
                "cores": os.cpu_count(),
                "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
                "system": platform.platform(),
                "python": platform.python_version(),
            },
            "load_1m": [round(load, 2) for load in self._loads],
        }

    def write(self) -> None:
        FILE.write_text(self._text())

    def _text(self) -> str:
        about = self.about()
        machine = about["machine"]
        versions = ", ".join(f"{name} {version}" for name, version in packages().items() if version)
        done = f"{len(self.reports)} of {len(self._names)}"
        kind = "a quick one: few rounds, short runs" if self._quick else "with all rounds"
        lines = [
            "# Results",
            "",
            "Written by `python -m benchmarks --record`; [the benchmarks](README.md) say how to read it.",
            "",
            f"- {about['start']}, {about['minutes']:g} minutes, {done} benchmarks, {kind}; commit {about['commit']}",
            f"- {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']:g} GiB; {machine['system']},"
            f" Python {machine['python']}",
            f"- load (1 minute) before the first and after each: {', '.join(f'{load:g}' for load in about['load_1m'])}",
            f"- {versions}",
        ]
        for name, report in self.reports.items():
            body = "\n".join([*([table(report.results)] if report.results else []), *report.notes])
            lines += ["", f"## {name}", "", "```text", body, "```"]
        return "\n".join(lines) + "\n"


def _commit() -> str:
    """The commit that was measured; with a mark, if files were changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(command, cwd=FILE.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    names = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]  # fmt: skip
    return names[0] if names else platform.processor()
