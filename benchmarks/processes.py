"""Fresh processes on a machine with simulated boards, and what the kernel says of them."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.nvml.build import build
from tests.nvml.scenario import Scenario

ROOT = Path(__file__).parent.parent


class Machine:
    """A folder with the simulated NVML; processes of this machine load it. Needs gcc, no GPU."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._library = build(folder / "nvml").parent
        self._scenarios = 0

    def environment(self, scenario: Scenario) -> dict[str, str]:
        """Variables for a process that is to see the boards of this scenario, and our run folders kept apart."""
        self._scenarios += 1
        return {
            **os.environ,
            **scenario.environment(self._library, self.folder / f"{self._scenarios}.scenario"),
            "PULSETRAIN_HOME": str(self.folder / "home"),
        }


def ask(module: str, *arguments: str, environment: Mapping[str, str]) -> Any:
    """Run a module of this package in a process of its own; the JSON that it prints."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=dict(environment), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def here(names: Iterable[str], modules: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Those whose module, where they need one, can be imported; and a note about each of the others."""
    missing = [name for name in names if name in modules and not importlib.util.find_spec(modules[name])]
    return [name for name in names if name not in missing], [f"{name} is not installed" for name in missing]


def in_rounds(names: Iterable[str], rounds: int, measure: Callable[[str], float]) -> dict[str, list[float]]:
    """Measure all of them again and again in turn, so that a busy moment of the machine hits them alike."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, figures in found.items():
            figures.append(measure(name))
    return found


def spread(figures: Sequence[float]) -> float | None:
    """How far apart they lie, of the lowest."""
    return (max(figures) - min(figures)) / min(figures) if len(figures) > 1 else None


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, to the nanosecond."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def memory_kb(pid: int) -> dict[str, int]:
    """Rss, Pss and the rest of a process, in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines)}


def end(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(timeout=20)
