"""The report as one HTML file: whole, safe, and readable without network and scripts."""

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from pulsetrain.insight.report import Report, study
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder
from pulsetrain.views.charts import Chart, Line, run_charts
from pulsetrain.views.report.html import report_html

MakeRun = Callable[..., RunFolder]
EMPTY_ELEMENTS = {"meta", "br", "path", "rect", "use", "line"}


class Page(HTMLParser):
    """Every tag must be closed in order; ids, text and attributes are kept."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.links: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href") and value]
        if tag not in EMPTY_ELEMENTS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY_ELEMENTS:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY_ELEMENTS:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def gpu_chart(lines: int) -> Chart:
    seconds = np.arange(100.0)
    return Chart("Power", "W", "GPUs", [Line(f"GPU {n}", seconds, seconds + n) for n in range(lines)])


@pytest.fixture
def recorded_run(make_run: MakeRun) -> RunFolder:
    """Two GPUs and a training loop with all its parts."""
    board = {"name": "NVIDIA L4", "up": 1, "utilization_percent": 90, "power_draw_watts": 70, "temperature_celsius": 60}
    parts = {"step_seconds": 0.1, "forward_seconds": 0.04, "backward_seconds": 0.05, "other_seconds": 0.01}
    return make_run(
        gpu=[
            board
            | {"gpu_index": index, "uuid": f"GPU-{index}", "elapsed_seconds": float(second), "memory_used_mb": 2048}
            for second in range(20)
            for index in (0, 1)
        ],
        training=[
            parts | {"step": n, "elapsed_seconds": 0.1 * n, "loss": 1 / n, "learning_rate": 1e-3, "samples": 32}
            for n in range(1, 200)
        ],
    )


def test_a_page_holds_figures_tables_and_charts(full_report: Report, recorded_run: RunFolder) -> None:
    database = Database([recorded_run])
    found = replace(study(database, recorded_run), report=full_report)
    page = Page(report_html(full_report, run_charts(found, database)))
    for words in (
        "resnet50 finished after 2 h 00 min",
        "Samples per second 128 7,000 steps, 2 ranks",
        "GPU utilization 90 % mean of 2",
        "Energy 225 Wh ± 2.3 %, 90 % measured, 10 % estimated",
        "Emissions (CO2e) 48.4 g ± 2.3 %, South England",
        "Cost 0.0675 EUR ± 2.4 %, 0.135 EUR at the end",
        "lost for 40 of 7200 readings",
        "XID 79, GPU has fallen off the bus",
    ):
        assert words in page.text
    captions = ["Utilization (%)", "Power (W)", "Temperature (°C)", "Memory in use (GiB)", "Loss", "Learning rate"]
    captions += ["Step time (ms)", "Throughput (samples/s)", "Cumulative energy (Wh)", "Carbon intensity (g/kWh)"]
    captions += ["Where the time went (%)"]
    assert page.tags.count("svg") == len(captions)
    assert all(caption in page.text for caption in captions)


def test_a_page_needs_nothing_from_elsewhere(full_report: Report) -> None:
    html = report_html(full_report, [gpu_chart(2), gpu_chart(2)])
    page = Page(html)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert all(link.startswith("#") for link in page.links)
    assert "@import" not in html and not re.search(r"url\((?!#)", html)
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, never fetched


def test_text_of_users_cannot_become_markup(full_report: Report) -> None:
    evil = "<script>alert('1')</script>\" onload=\"x"
    full_report.run.name = evil
    full_report.run.command = [evil]
    full_report.events[1]["message"] = evil
    full_report.energy.phases[2].name = evil
    chart = gpu_chart(2)
    html = report_html(
        full_report, [Chart("Power", "W", "GPUs", [Line(evil, line.seconds, line.values) for line in chart.lines])]
    )
    page = Page(html)
    assert "script" not in page.tags
    assert page.text.count("alert('1')") >= 5


def test_what_a_page_refers_to_is_there_once(full_report: Report) -> None:
    html = report_html(full_report, [gpu_chart(12)] * 4)
    page = Page(html)
    used = set(re.findall(r"url\(#([\w-]+)\)", html)) | {link[1:] for link in page.links}
    assert used <= set(page.ids)
    defined = set(re.findall(r"(--[\w-]+):", html))
    assert set(re.findall(r"var\((--[\w-]+)\)", html)) <= defined


def test_many_gpus_have_colors_of_their_own_in_light_and_dark(full_report: Report) -> None:
    html = report_html(full_report, [gpu_chart(16)])
    assert len(re.findall(r"--line-15: #[0-9a-f]{6};", html)) == 2
    assert html.count('<section class="many">') == 1
    assert Page(html).tags.count("i") == 16  # swatches of the legend


def test_charts_of_the_same_lines_share_a_legend(full_report: Report) -> None:
    page = Page(report_html(full_report, [gpu_chart(3), gpu_chart(3)]))
    assert page.tags.count("i") == 3
    other = Chart("Step time", "ms", "GPUs", gpu_chart(2).lines, kind="stack")
    assert Page(report_html(full_report, [gpu_chart(3), other])).tags.count("i") == 5


def test_a_run_of_which_nothing_is_known_has_a_page_too(bare_report: Report) -> None:
    page = Page(report_html(bare_report, []))
    assert "true finished after 1.0 s" in page.text
    assert "svg" not in page.tags
    assert "None" not in page.text and "nan" not in page.text


def test_a_page_of_eight_gpus_is_small_enough_to_mail(full_report: Report) -> None:
    seconds = np.linspace(0, 1e5, 300)
    rng = np.random.default_rng(1)
    lines = [Line(f"GPU {n}", seconds, rng.uniform(0, 100, 300)) for n in range(8)]
    assert len(report_html(full_report, [Chart("Power", "W", "GPUs", lines)] * 4)) < 400_000
