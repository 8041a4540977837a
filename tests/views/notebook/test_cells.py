"""Notebooks run by `jupyter nbconvert --execute` with a real kernel: what stays in them, what becomes of their runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.views.notebook.conftest import Executed

WIDGET, SVG, HTML, TEXT = "application/vnd.jupyter.widget-view+json", "image/svg+xml", "text/html", "text/plain"
TRAIN = "for step in range(30):\n    pulsetrain.log(step=step, loss=1 / (step + 1)); time.sleep(0.01)"
CELLS = {
    "load": "import sys, time, pulsetrain\nsys.modules['anywidget'] = None\n%load_ext pulsetrain",
    "good": f"""%%pulsetrain --name good --tag lr=0.1 --interval 0.2 --show
{TRAIN}
"the value\"""",
    "bad": "%%pulsetrain --name bad\nvalue = 1\nraise ValueError('mine')",
    "stopped": "%%pulsetrain --name stopped\nraise KeyboardInterrupt",
    "recorded": "del sys.modules['anywidget']\npulsetrain.show('good')",
    "nothing": "pulsetrain.show('nobody')",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(scope="module")
def notebook(folder: Path, execute: Callable[..., Executed]) -> Executed:
    return execute(folder, CELLS)


@pytest.fixture(scope="module")
def runs(notebook: Executed, folder: Path) -> dict[str, dict[str, Any]]:
    found = (json.loads(path.read_text()) for path in folder.glob("home/runs/*/run.json"))
    return {about["name"]: about for about in found}


def test_a_cell_is_a_run_of_its_own_with_its_value_and_a_table(
    notebook: Executed, runs: dict[str, dict[str, Any]]
) -> None:
    assert notebook.outputs("good", TEXT)[-1] == "'the value'"
    (summary,) = notebook.outputs("good", HTML)
    assert "<table" in summary and "finished" in summary
    assert runs["good"]["status"] == "finished"
    assert runs["good"]["tags"] == {"lr": "0.1"}


def test_without_anywidget_there_is_a_picture_and_the_command_that_installs_it(notebook: Executed) -> None:
    assert "pip install 'pulsetrain[notebook]'" in notebook.printed("good")
    assert notebook.outputs("good", WIDGET) == []
    (picture,) = notebook.outputs("good", SVG)
    assert picture.startswith("<svg") and "Loss" in picture and "Power (W)" in picture
    assert notebook.outputs("good", TEXT)[0].startswith("pulsetrain good: finished after")


def test_an_error_of_a_cell_comes_through_unchanged_and_its_run_failed(
    notebook: Executed, runs: dict[str, dict[str, Any]]
) -> None:
    error = notebook.error("bad")
    assert error and (error["ename"], error["evalue"]) == ("ValueError", "mine")
    assert not any("magic.py" in line for line in error["traceback"])
    assert (runs["bad"]["status"], runs["bad"]["exit_code"]) == ("failed", 1)
    assert "failed" in notebook.outputs("bad", HTML)[0]


def test_an_interrupted_cell_is_an_interrupted_run(notebook: Executed, runs: dict[str, dict[str, Any]]) -> None:
    error = notebook.error("stopped")
    assert error and error["ename"] == "KeyboardInterrupt"
    assert (runs["stopped"]["status"], runs["stopped"]["exit_code"]) == ("interrupted", 130)


def test_a_recorded_run_is_a_widget_with_a_picture_for_where_there_are_none(notebook: Executed) -> None:
    (output,) = notebook.cell("recorded")["outputs"]
    assert {WIDGET, SVG, TEXT} <= output["data"].keys()


def test_a_run_that_does_not_exist_is_not_an_error_of_the_cell(notebook: Executed) -> None:
    assert notebook.error("nothing") is None
    assert "there is no run 'nobody'" in notebook.outputs("nothing", TEXT)[0]
