"""`pulsetrain compare`, as a user meets it."""

import json
import re
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pulsetrain.runs.description import Code
from pulsetrain.runs.folder import RunFolder

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def record(make_run: Callable[..., RunFolder], home: Path) -> Callable[..., RunFolder]:
    """A run of 100 steps, of so many milliseconds each, one of them spent on the optimizer."""

    def write(name: str, milliseconds: float, number: int = 0, **about: object) -> RunFolder:
        seconds = milliseconds / 1000
        parts = {"data_wait_seconds": seconds - 0.001, "optimizer_seconds": 0.001}
        training = [
            {"step": n, "step_seconds": seconds, "samples": 8, "elapsed_seconds": n * seconds, **parts}
            for n in range(1, 101)
        ]
        gpu = [
            {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4", "up": 1, "utilization_percent": 50.0}
            | {"power_draw_watts": 60.0, "memory_used_mb": 4096.0, "energy_joules": 60.0 * second}
            for second in range(10)
        ]
        id = f"20261116-12000{number}-run-000{number}"
        return make_run(id=id, home=home / "runs", name=name, training=training, gpu=gpu, **about)

    return write


def test_runs_stand_side_by_side_with_verdict_cause_and_differences(
    pulsetrain: Pulsetrain, record: Callable[..., RunFolder]
) -> None:
    for number, (name, milliseconds, lr, torch) in enumerate(
        (("base", 10.0, 0.1, "2.12.0"), ("slow", 11.5, 0.2, "2.13.0"))
    ):
        record(
            name,
            milliseconds,
            number,
            config={"lr": lr, "depth": 12},
            versions={"torch": torch, "numpy": "2.4"},
            code=Code(branch="main", commit="3f9c1b20d4e5a687", dirty=name == "slow"),
        )
    done = pulsetrain("compare", "base", "slow")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    verdict = lines.index("A step takes 15.0 % longer in slow than in base (95 % interval 15.0 to 15.0 %).")
    assert "1.50 ms waiting for data" in lines[verdict + 1]
    (head,) = [line for line in lines if re.fullmatch(r"\s+base\s+slow\s*", line)]
    assert lines.index(head) > verdict
    (row,) = [line for line in lines if line.startswith("  step time, median")]
    assert re.split(r"\s{2,}", row.strip()) == ["step time, median", "10.0 ms", "11.5 ms", "+15.0 %"]
    row = next(line for line in lines if line.startswith("  waiting for data"))  # of a step; the time ledger has it too
    assert "9.00 ms (90 %)" in row and "10.5 ms (91 %)" in row
    differs = {
        re.split(r"\s{2,}", line.strip())[0]: line
        for line in lines
        if re.match(r"  (lr|depth|torch|numpy|commit|branch) ", line)
    }
    assert differs.keys() == {"lr", "torch", "commit"}
    assert "2.12.0" in differs["torch"] and "2.13.0" in differs["torch"]
    assert "3f9c1b20d4 with changes" in differs["commit"]
    assert "repeat them before you trust a small difference" in done.stdout


class _Page(HTMLParser):
    """What a page would load from elsewhere, and how many charts it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.charts = 0
        self.loads: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.charts += tag == "svg"
        if tag in ("script", "link", "img", "iframe"):
            self.loads.append(tag)
        self.loads += [
            value or "" for name, value in attrs if name in ("src", "href") and not f"{value}".startswith("#")
        ]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_and_the_figure_are_whole_and_escape_the_names_of_runs(
    pulsetrain: Pulsetrain, record: Callable[..., RunFolder], tmp_path: Path
) -> None:
    record("<b>a & b", 10.0), record("模型 $x_1$", 20.0, number=1)
    done = pulsetrain("compare", "<b>a & b", "模型 $x_1$", "--html", "page.html", "--png", "figure.png")
    assert (done.returncode, done.stderr) == (0, "")
    assert "written: page.html" in done.stdout and "written: figure.png" in done.stdout
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    page = _Page()
    page.feed((tmp_path / "page.html").read_text())
    assert page.loads == [] and page.charts == 6
    assert "A step takes 2.0x as long in 模型 $x_1$ as in <b>a & b" in page.text


def test_five_runs_as_json(pulsetrain: Pulsetrain, record: Callable[..., RunFolder]) -> None:
    for number in range(5):
        record(f"run-{number}", 10.0 + number, number)
    done = pulsetrain("compare", *(f"run-{number}" for number in range(5)), "--json")
    document = json.loads(done.stdout)
    assert [run["label"] for run in document["runs"]] == [f"run-{number}" for number in range(5)]
    (median,) = [figure for figure in document["figures"] if figure["key"] == "step_seconds_p50"]
    assert median["changes"] == [None, *(pytest.approx(number / 10) for number in range(1, 5))]
    assert len(document["verdicts"]) == len(document["explanations"]) == 4


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("base",), 2, "a comparison needs at least two runs"),
        (("base", "nothing"), 2, "there is no run 'nothing'"),
        (("base", "base", "--png", "missing/figure.png"), 1, "missing/figure.png cannot be written"),
    ],
)
def test_what_cannot_be_compared_or_written_is_a_clear_error(
    pulsetrain: Pulsetrain, record: Callable[..., RunFolder], arguments: tuple[str, ...], code: int, words: str
) -> None:
    record("base", 10.0)
    done = pulsetrain("compare", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr and "Traceback" not in done.stderr
