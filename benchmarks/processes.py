"""Fresh processes on a machine with simulated boards, and what the kernel says of them."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.nvml.scenario import Scenario

ROOT = Path(__file__).parent.parent


class Failed(Exception):
    """A process that was to be measured gave no figure; the text says why."""


class Machine:
    """A folder for one benchmark, and the simulated NVML; processes of this machine load it. Needs no GPU."""

    def __init__(self, folder: Path, library: Path, most_seconds: float) -> None:
        """No process may take longer than `most_seconds` for one measurement."""
        folder.mkdir()
        self.folder = folder
        self.most_seconds = most_seconds
        self.library = library
        self._scenarios = 0

    def environment(self, scenario: Scenario) -> dict[str, str]:
        """Variables for a process that is to see the boards of this scenario, and our run folders kept apart."""
        self._scenarios += 1
        return {
            **os.environ,
            **scenario.environment(self.library, self.folder / f"{self._scenarios}.scenario"),
            "PULSETRAIN_HOME": str(self.folder / "home"),
        }

    def ask(
        self, module: str, *arguments: str, environment: Mapping[str, str], most_seconds: float | None = None
    ) -> Any:
        """Run a module of ours in a process of its own; the JSON that it prints."""
        command = [sys.executable, "-m", module, *arguments]
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            most_seconds = most_seconds or self.most_seconds
            try:
                printed, errors = process.communicate(timeout=most_seconds)
            except subprocess.TimeoutExpired:
                raise Failed(f"no answer in {most_seconds:g} s") from None
            finally:
                _end_all(process)
        if process.returncode:
            raise Failed(f"{_last_line(errors)} (exit code {process.returncode})")
        return json.loads(printed)


def _end_all(process: "subprocess.Popen[bytes]") -> None:
    """The process and all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").split("\n")
    return next((line.strip()[:100] for line in reversed(lines) if line.strip()), "no word")


def here(names: Iterable[str], modules: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Those whose module, where they need one, can be imported; and a note about each of the others."""
    missing = [name for name in names if name in modules and not importlib.util.find_spec(modules[name])]
    return [name for name in names if name not in missing], [f"{name} is not installed" for name in missing]


@dataclass
class Rounds:
    """What was measured again and again."""

    figures: dict[str, list[float]]
    """Of each contestant that always answered."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why the others have none."""


def in_rounds(names: Iterable[str], rounds: int, measure: Callable[[str], float], needed: Container[str]) -> Rounds:
    """Measure all of them again and again in turn, so that a busy moment of the machine hits them alike.

    One that fails is not asked again; if it is `needed`, the benchmark fails.
    """
    found = Rounds({name: [] for name in names})
    for _ in range(rounds):
        for name in [*found.figures]:
            try:
                found.figures[name].append(measure(name))
            except Failed as failure:
                if name in needed:
                    raise
                found.failed[name] = str(failure)
                del found.figures[name]
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
