"""Run folders of strangers: whatever their files say, it reaches no terminal as a command, and ends in no traceback."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.cli.conftest import Pulsetrain

from pulsetrain.runs.folder import Host, RunFolder
from pulsetrain.runs.seal import seal_all

MakeRun = Callable[..., RunFolder]

EVIL = "evil\x1b]0;pwned\x07\x1b[2J\x9b31m\u202etxt\r"
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ID = "20261116-120000-evil-0000"
END = datetime(2026, 11, 16, 13, tzinfo=UTC)


def lines(count: int = 40) -> dict[str, list[dict[str, object]]]:
    gpu: dict[str, object] = {
        "gpu_index": 0,
        "uuid": f"GPU-{EVIL}",
        "name": f"NVIDIA {EVIL}",
        "up": 1,
        "simulated": False,
    }
    readings = {"utilization_percent": 50.0, "power_draw_watts": 100.0, "throttle_reasons": [EVIL, "sw_power_cap"]}
    process = {"pid": 7, "user": EVIL, "command": EVIL, "container": EVIL, "gpu_index": 0, "gpu_memory_mb": 100.0}
    step = {"rank": 0, "loss": 1.0, "step_seconds": 1.0, "samples": 8, EVIL: 2.0, "note": EVIL, "training": EVIL}
    event: dict[str, object] = {
        "kind": EVIL,
        "message": f"message {EVIL}",
        "severity": "critical",
        "phase": EVIL,
        EVIL: EVIL,
    }
    return {
        "gpu": [gpu | readings] * count,
        "host": [{"cpu_ratio": 0.5, "cpu_cores": 4.0, "memory_total_bytes": 1e9, "network_interface": EVIL}] * count,
        "process": [process | {"uuid": gpu["uuid"]}] * count,
        "training": [step | {"step": n, "phase": EVIL, "phase_seconds": 1.0} for n in range(count)],
        "events": [event, {"kind": "counter_reset", "message": EVIL}],
    }


@pytest.fixture
def evil(make_run: MakeRun, home: Path) -> RunFolder:
    gpus = [{"index": 0, "uuid": EVIL, "name": f"NVIDIA {EVIL}"}]
    host = Host(gpus=gpus, system=EVIL, python=EVIL, unavailable={"rapl": EVIL, EVIL: EVIL}, troubled=[EVIL])
    make = {"name": EVIL, "command": ["python", EVIL], "directory": f"/{EVIL}", "tags": {EVIL: EVIL}, **lines()}
    folder = make_run(ID, home=home / "runs", end=END, hosts={"vm": host}, **make)
    (folder.path / f"host{EVIL}").mkdir()
    (folder.path / f"host{EVIL}" / "host.json").write_text("{}")
    record = {"provider": {"spec": "DE", "source": EVIL, "region": EVIL, "grams_per_kwh": 300.0}, "problem": EVIL}
    (folder.path / "carbon.json").write_text(json.dumps(record))
    return folder


COMMANDS = {
    "runs": ["runs"],
    "report": ["report", ID, "--carbon-region", "DE", "--price", "0.30 EUR/kWh"],
    "report as Markdown": ["report", ID, "--markdown"],
    "compare": ["compare", ID, ID],
    "top": ["top", ID, "--once"],
    "top, replayed": ["top", ID, "--once", "--speed", "1000"],
    "replay": ["replay", ID, "--speed", "inf"],
    "query": ["query", "select * from training limit 1"],
    "query of runs": ["query", "select * from runs"],
    "query of events": ["query", "select * from events"],
    "export": ["export", ID, "--output", "out", "--format", "csv"],
    "remove": ["runs", "remove", ID, "--yes"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_what_steers_a_terminal_is_not_shown(pulsetrain: Pulsetrain, evil: RunFolder, command: list[str]) -> None:
    done = pulsetrain(*command)
    assert done.returncode == 0, done.stderr
    assert STEERING.findall(done.stdout + done.stderr) == []


@pytest.mark.parametrize("name", ["report", "compare", "top", "replay"])
def test_nor_is_it_shown_of_sealed_files(pulsetrain: Pulsetrain, evil: RunFolder, name: str) -> None:
    assert seal_all(evil) > 0
    done = pulsetrain(*COMMANDS[name])
    assert done.returncode == 0, done.stderr
    assert STEERING.findall(done.stdout + done.stderr) == []


def test_scripts_get_what_was_recorded(pulsetrain: Pulsetrain, evil: RunFolder) -> None:
    done = pulsetrain("query", "select name from gpu limit 1", "--json")
    assert json.loads(done.stdout) == [{"name": f"NVIDIA {EVIL}"}]


def test_the_name_of_a_folder_steers_no_terminal(pulsetrain: Pulsetrain, make_run: MakeRun, home: Path) -> None:
    folder = make_run(f"20261116-{EVIL}", home=home / "runs", end=END, **lines(2))
    for command in (["report", str(folder.path)], ["runs", "seal", "last"], ["runs", "remove", "last", "--yes"]):
        done = pulsetrain(*command)
        assert done.returncode == 0, done.stderr
        assert STEERING.findall(done.stdout + done.stderr) == []
    done = pulsetrain("report", str(folder.path))
    assert done.returncode == 2
    assert STEERING.findall(done.stderr) == []


MARKUP = "</title></svg><script>alert(1)</script><img src=x onerror=alert(2)>\"' onload=alert(3) $\\frac{$ {{7*7}}"


def test_pages_hold_the_text_of_strangers_as_text(pulsetrain: Pulsetrain, make_run: MakeRun, home: Path) -> None:
    runs = []
    for name in ("one", "two"):
        told = {
            table: [
                json.loads(json.dumps(line).replace(json.dumps(EVIL)[1:-1], json.dumps(MARKUP)[1:-1])) for line in all
            ]
            for table, all in lines().items()
        }
        host = Host(gpus=[{"name": MARKUP}], system=MARKUP, unavailable={"rapl": MARKUP}, troubled=[MARKUP])
        make = {"name": name + MARKUP, "command": ["python", MARKUP], "tags": {MARKUP: MARKUP}, **told}
        runs.append(make_run(f"20261116-120000-{name}-0000", home=home / "runs", end=END, hosts={"vm": host}, **make))
        record = {"provider": {"spec": "DE", "source": MARKUP, "region": MARKUP, "accounting": "lifecycle"}}
        (runs[-1].path / "carbon.json").write_text(json.dumps(record))
    written = [
        pulsetrain("report", str(runs[0].path), "--files", "--output", "out", "--carbon-region", "DE"),
        pulsetrain("compare", "20261116-120000-one-0000", "20261116-120000-two-0000", "--html", "out/compare.html"),
    ]
    assert [(done.returncode, done.stderr) for done in written] == [(0, ""), (0, "")]
    for page in ("report.html", "compare.html"):
        text = (home.parent / "out" / page).read_text()
        assert "alert(1)" in text  # as text
        found = Elements(text)
        assert found.attributes.isdisjoint({"onerror", "onload"}) and found.tags.isdisjoint({"script", "img"})


class Elements(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
