"""The process beside a notebook's kernel: it reads a run, and writes what the notebook shows of it to standard output.

So the kernel, in which a training may be running, only passes on what it gets. Each line is a kind and a text:

    begin JSON     whether the run is in progress
    state JSON     all that the charts show
    tick JSON      what came since
    picture JSON   the same as SVG and as plain text; with widgets, only of the run as it ended
    problem JSON   why there is nothing to show

Started as `python -m pulsetrain.views.notebook.feed MODE RUN [DIRECTORY]`; it ends with the run, or with the kernel.
"""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

import msgspec
import numpy as np

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Home, RunFolder
from pulsetrain.supervise import reason_of
from pulsetrain.views.text import duration
from pulsetrain.views.web import api
from pulsetrain.views.web.reporting import report_document
from pulsetrain.views.web.site import Site
from pulsetrain.views.web.streams import Streams

WIDGET, PICTURE, TEXT = "widget", "picture", "text"
"""How the notebook shows a run."""

SHOWN = ("loss", "step_time", "step_seconds", "utilization", "gpu_memory", "power")
WITHOUT_GPUS = ("cpu", "job_cpu", "memory")
POINTS = 300
"""Of a line in a state."""
TICK_POINTS = 10
"""Of a line in a tick: a training may do a thousand steps a second. The next state has what was left out."""
STATE_SECONDS = 20.0
FIRST_STATE_SECONDS = 3.0
"""At first, when much is new, states follow each other sooner."""
PICTURE_SECONDS = 5.0
BYTES_PER_SECOND = 4000
"""States and pictures are sent so seldom that they do not take more."""
REPORT_SHARE = 3.0
"""As the web page has it, but sooner: a process of low priority is slow where a training takes all cores."""
BAND_PARTS = 120

Send = Callable[[str, object], int]
"""Takes the kind of a message and its document, and returns how many bytes it has."""


class NotebookFeed:
    """What one notebook shows of one run."""

    def __init__(self, folder: RunFolder, mode: str, send: Send) -> None:
        self._folder = folder
        self._id = folder.path.name
        self._mode = mode
        self._send = send
        self._news = threading.Event()
        """Something came that is not in a tick."""
        self._site = Site(Home(folder.path.parent), only=[folder], report_share=REPORT_SHARE)
        self._site.streams = _Relay(f"run:{self._id}", self._heard)
        self._shown: list[str] = []
        """The charts of the state that was sent last."""

    def run(self) -> None:
        """Until the run has ended."""
        in_progress = self._folder.load().status == "running"
        self._send("begin", {"in_progress": in_progress})
        least_seconds = FIRST_STATE_SECONDS
        while in_progress and self._mode != TEXT:
            state = self._state()
            if self._mode == WIDGET:
                pause_seconds = max(least_seconds, self._send("state", state) / BYTES_PER_SECOND)
                least_seconds = min(STATE_SECONDS, 2 * least_seconds)
                self._shown = [chart["key"] for chart in state["charts"]]
            else:
                pause_seconds = max(PICTURE_SECONDS, self._send("picture", self._picture(state)) / BYTES_PER_SECOND)
            in_progress = state["in_progress"]
            if in_progress:
                self._news.wait(pause_seconds)
                self._news.clear()
        state = self._state()
        if self._mode == WIDGET:
            self._send("state", state)
        self._send("picture", self._picture(state))
        self._site.close()

    def _heard(self, kind: str, document: Any) -> None:
        """A message for those who look at the run, as the web page gets it."""
        if kind != "tick":
            self._news.set()
        elif self._mode == WIDGET and self._shown:
            points = {key: [_few(line) for line in lines] for key, lines in document["points"].items()}
            shown = {key: lines for key, lines in points.items() if key in self._shown}
            self._send("tick", {name: document[name] for name in ("elapsed_seconds", "figures")} | {"points": shown})

    def _state(self) -> api.Document:
        about = api.run_document(self._site, self._id)
        charts = chosen(about["charts"])
        keys = [chart["key"] for chart in charts]
        series = api.series_document(self._site, self._id, keys, None, None, POINTS, 0.0)
        report = report_document(self._site, self._id)
        catalog = api.catalog_document()
        return {
            "run": about["run"],
            "elapsed_seconds": max(about["elapsed_seconds"], report["seconds"]),
            "in_progress": about["in_progress"],
            "figures": about["figures"] or report["figures"],
            "charts": charts,
            "lines": series["charts"],
            "ledger": report["ledger"],
            "band": {name: _coarser(shares) for name, shares in report["band"].items()},
            "verdict": (report["verdict"] or {}).get("headline") if not about["in_progress"] else None,
            "colors": catalog["colors"],
            "time_classes": catalog["time_classes"],
        }

    def _picture(self, state: api.Document) -> api.Document:
        """The run as a picture and as text."""
        run, took = state["run"], duration(state["elapsed_seconds"])
        title = f"{run['name']}: {run['outcome']} after {took}"
        figures = ", ".join(f"{figure['name']} {figure['value']}" for figure in state["figures"])
        return {"svg": self._drawing(f"{title}\n{figures}"), "text": f"pulsetrain {title}\n{figures}".rstrip()}

    def _drawing(self, title: str) -> str:
        if self._mode == TEXT:
            return ""
        from pulsetrain.views.notebook.picture import run_picture

        study = self._site.study(self._id)
        assert study, "it was there for the state"
        with closing(Database([self._folder])) as database:
            return run_picture(study, database, title)


class _Relay(Streams):
    """Gives the messages about one run to us, and to no browser."""

    def __init__(self, topic: str, heard: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._topic = topic
        self._heard = heard

    @property
    def topics(self) -> frozenset[str]:
        return frozenset((self._topic,))

    def publish(self, topic: str, kind: str, document: object) -> None:
        self._heard(kind, document)


def chosen(charts: Sequence[api.Document]) -> list[api.Document]:
    """Those of a run's charts that a notebook shows. Without GPUs, the machine's own take their place."""
    wanted = SHOWN if any(chart["group"] == "GPUs" for chart in charts) else (*SHOWN, *WITHOUT_GPUS)
    return sorted((chart for chart in charts if chart["key"] in wanted), key=lambda chart: wanted.index(chart["key"]))


def _few(line: dict[str, list[float]]) -> dict[str, list[float]]:
    """Some of the points of a line, the last among them."""
    count = len(line["x"])
    if count <= TICK_POINTS:
        return line
    places = np.linspace(count - 1, 0, TICK_POINTS).astype(int)[::-1].tolist()
    return {name: [values[place] for place in places] for name, values in line.items()}


def _coarser(shares: list[float]) -> list[float]:
    means: list[float] = np.round(np.reshape(shares, (BAND_PARTS, -1)).mean(axis=1), 3).tolist()
    return means


def main(arguments: Sequence[str]) -> None:
    mode, name, *directory = arguments
    writing = threading.Lock()

    def send(kind: str, document: object) -> int:
        line = kind.encode() + b" " + msgspec.json.encode(document) + b"\n"
        with writing:
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except OSError:
                os._exit(0)  # the kernel is gone
        return len(line)

    with suppress(OSError, AttributeError):
        os.nice(10)  # the training comes first
    threading.Thread(target=_end_with_kernel, daemon=True).start()
    try:
        NotebookFeed(Home.find(*directory).resolve(name), mode, send).run()
    except PulsetrainError as error:
        send("problem", {"message": error.message, "hint": error.hint})
    except Exception as error:  # noqa: BLE001 - nobody else would say why there is nothing to see
        send("problem", {"message": f"the run cannot be shown: {reason_of(error)}", "hint": ""})


def _end_with_kernel() -> None:
    """The kernel says nothing, and closes our standard input when it ends, however it does."""
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
