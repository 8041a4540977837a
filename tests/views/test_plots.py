"""Charts as pictures: they can be opened, hold every line, and never warn."""

import os
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from pulsetrain.views import plots
from pulsetrain.views.charts import Chart, Line


def chart(lines: int, kind: str = "lines") -> Chart:
    seconds = np.linspace(0, 600, 50)
    drawn = [
        Line(f"GPU {n}", seconds, 50 + n + np.sin(seconds / 60), seconds * 0, seconds * 0 + 99) for n in range(lines)
    ]
    return Chart("Power", "W", "GPUs", drawn, kind=kind)  # type: ignore[arg-type]


def png_size(picture: bytes) -> tuple[int, int]:
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


@pytest.mark.parametrize("gpus", [1, 8, 40])
def test_a_png_has_the_resolution_of_a_paper(gpus: int) -> None:
    width, height = png_size(plots.png([chart(gpus)] * 4, "resnet50", 600))
    assert width == 2000 and height > 1000


@pytest.mark.parametrize("name", ["訓練 ✨", "costs $5 and $6", "a_b^{c}", "", "\N{PILE OF POO}\\frac"])
def test_any_run_name_can_be_drawn(name: str) -> None:
    assert png_size(plots.png([chart(2)], name, 600))


@pytest.mark.parametrize(
    ("span", "unit"), [(5, "s"), (179, "s"), (180, "min"), (3 * 3600, "h"), (3 * 86400, "d"), (30 * 86400, "d")]
)
def test_time_is_shown_in_the_unit_that_fits(span: float, unit: str) -> None:
    assert f"time ({unit})" in plots.svg(chart(1), span)


@pytest.mark.parametrize("kind", ["lines", "stack", "steps"])
def test_an_svg_is_an_element_whose_text_is_text_and_whose_colors_are_the_pages(kind: str) -> None:
    drawing = plots.svg(chart(3, kind), 600)
    root = ET.fromstring(drawing)
    assert root.tag.endswith("svg") and "width" not in root.attrib and "viewBox" in root.attrib
    assert "time (min)" in "".join(root.itertext())
    assert set(re.findall(r"var\(--(line-\d)\)", drawing)) == {"line-0", "line-1", "line-2"}
    fixed = set(re.findall(r"#[0-9a-f]{6}\b", re.sub(r"(url|href=\")\(?#\w+", "", drawing)))
    assert fixed <= {"#000000"}  # of an empty marker's default


def test_one_chart_is_always_drawn_the_same() -> None:
    assert plots.svg(chart(2), 600) == plots.svg(chart(2), 600)


def test_a_line_of_nothing_and_a_flat_one_can_be_drawn() -> None:
    seconds = np.array([0.0, 1.0])
    nothing = Line("a", seconds, np.full(2, np.nan), np.full(2, np.nan), np.full(2, np.nan))
    for line in (nothing, Line("b", seconds, np.zeros(2))):
        assert plots.svg(Chart("Power", "W", "GPUs", [line]), 1).startswith("<svg")


@pytest.mark.parametrize("count", [1, 8, 9, 16, 64])
@pytest.mark.parametrize("dark", [False, True])
def test_every_line_has_a_color_of_its_own(count: int, dark: bool) -> None:
    assert len(set(plots.palette(count, dark))) == count


def test_a_home_that_cannot_be_written_is_not_a_problem(tmp_path: Path) -> None:
    program = (
        "import numpy as np; from pulsetrain.views import plots; from pulsetrain.views.charts import Chart, Line\n"
        "plots.png([Chart('Power', 'W', 'GPUs', [Line('a', np.arange(3.0), np.arange(3.0))])], 'name', 3)"
    )
    hidden = {"MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"HOME": "/proc/nowhere", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_text_reports_do_without_matplotlib_and_jinja() -> None:
    program = (
        "import sys, pulsetrain.views.report, pulsetrain.views.summary\n"
        "print(sorted({'matplotlib', 'jinja2', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
