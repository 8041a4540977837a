"""The widget: its module with a model of a notebook in a real browser, and all of it in a real JupyterLab."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
from tests.views.notebook.conftest import JupyterLab, opened, write_notebook
from tests.views.web.conftest import MakeRun, readings
from tests.waiting import eventually

from pulsetrain.runs.folder import Host
from pulsetrain.views.notebook.feed import WIDGET, NotebookFeed
from pulsetrain.views.notebook.module import widget_module

RENDER = """async ([source, state]) => {
  const { default: widget } = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  const values = { state }, heard = {};
  const model = {
    get: (name) => values[name],
    on: (event, act) => { heard[event] = act; },
    off: (event) => { delete heard[event]; },
  };
  window.put = (name, value) => { values[name] = value; heard[`change:${name}`](); };
  window.left = () => Object.keys(heard);
  document.body.style.color = "rgb(230, 230, 230)";
  window.stop = await widget.render({ model, el: document.body });
}"""
TRAIN = """import itertools, time
import pulsetrain
pulsetrain.init(interval=0.2)
pulsetrain.show()
for step in itertools.count():
    pulsetrain.log(step=step, loss=1 / (step + 1))
    time.sleep(0.05)
"""


def state_of(make_run: MakeRun, **about: Any) -> dict[str, Any]:
    """What the process beside the kernel says of a recorded run."""
    said: dict[str, str] = {}

    def send(kind: str, document: object) -> int:
        said[kind] = msgspec.json.encode(document).decode()
        return len(said[kind])

    gpus = [{"gpu_index": index, "name": "NVIDIA H100"} for index in range(2)]
    NotebookFeed(make_run(hosts={"vm": Host(gpus=gpus)}, seconds=120.0, **about, **readings()), WIDGET, send).run()
    found: dict[str, Any] = json.loads(said["state"])
    return found


def test_the_module_is_whole() -> None:
    module = widget_module()
    assert re.findall(r"^\s*(?:import|export) (?!default)", module, re.MULTILINE) == []
    assert re.findall(r"import\(|url\(|[\"'`]https?://", module) == []
    assert len(module) < 150_000


def test_the_widget_draws_a_run_and_what_is_added_to_it(browser: Any, make_run: MakeRun) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    state = state_of(make_run, name=hostile)
    assert [chart["key"] for chart in state["charts"]] == ["loss", "step_time", "utilization", "gpu_memory", "power"]
    assert len(json.dumps(state)) < 80_000
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.evaluate(RENDER, [widget_module(), json.dumps(state)])
    page.locator("figure[data-chart=loss] canvas").wait_for()
    assert hostile in page.locator(".head").inner_text()
    assert page.locator(".pulsetrain.dark").count() == 1
    assert "waiting for data" in page.locator(".ledger").inner_text()
    tick = {"elapsed_seconds": 130.0, "figures": [], "points": {"loss": [{"x": [125.0, 129.0], "last": [0.5, 0.125]}]}}
    page.evaluate("tick => put('tick', tick)", json.dumps(tick))
    assert page.locator("figure[data-chart=loss] .legend b").all_inner_texts() == ["0.125"]
    plot = page.locator("figure[data-chart=loss] .u-over").bounding_box()
    page.mouse.move(plot["x"] + 20, plot["y"] + 20)
    page.mouse.down()
    page.mouse.move(plot["x"] + 90, plot["y"] + 20, steps=4)
    page.mouse.up()
    assert " to " in page.locator(".state").inner_text()
    assert page.url == "about:blank"  # the address is the notebook's
    page.evaluate("stop()")
    assert page.evaluate("left()") == []
    assert complaints == []
    page.close()


def test_in_jupyterlab_the_loss_moves_while_a_cell_trains_and_a_picture_stays(
    browser: Any, jupyter: str, tmp_path: Path
) -> None:
    write_notebook(tmp_path / "resnet.ipynb", TRAIN, "pulsetrain.finish()")
    with JupyterLab(tmp_path, jupyter) as lab, opened(browser, lab, "resnet.ipynb") as notebook:
        page = notebook.page
        notebook.do("notebook:run-cell-and-select-next")
        page.locator("figure[data-chart=loss] canvas").wait_for()
        loss = page.locator("figure[data-chart=loss] .legend b").first
        seen = loss.inner_text()
        assert eventually(lambda: loss.inner_text() != seen)
        notebook.do("notebook:interrupt-kernel")
        page.locator(".jp-RenderedText", has_text="KeyboardInterrupt").wait_for()
        moved = loss.inner_text()  # the run goes on, and so do its charts
        length = page.locator(".head .soft").first.inner_text()
        assert eventually(lambda: page.locator(".head .soft").first.inner_text() != length)
        assert float(moved) < float(seen)
        notebook.do("notebook:run-cell-and-select-next")
        page.locator(".jp-RenderedSVG").wait_for()
        page.locator(".jp-RenderedHTMLCommon table", has_text="verdict").wait_for()
        assert page.locator(".pulsetrain").count() == 0
        assert notebook.complaints == []
        assert notebook.elsewhere == []
    (run,) = (json.loads(path.read_text()) for path in tmp_path.glob("home/runs/*/run.json"))
    assert (run["name"], run["status"]) == ("resnet", "finished")
