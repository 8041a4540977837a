"""`pulsetrain.show()`: a run in the output of a cell, live, while a cell trains.

This runs in the kernel, beside a training: it starts the process that reads the run (`feed.py`), and a thread that
passes on what that says. Nothing here raises into the cell.
"""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any

from pulsetrain.training import api
from pulsetrain.training.notebooks import is_notebook

INSTALL = "pip install 'pulsetrain[notebook]'"
FIRST_SECONDS = 20.0
"""How long to wait for what is shown first, which takes a second or two; it may also come later."""
END_SECONDS = 60.0
"""How long to wait for the picture of a run that has ended, which takes a second or two."""

_live: list["RunPanel"] = []
"""Those whose run is in progress."""


def show(run: str | None = None, *, directory: str | None = None, widget: bool = True) -> None:
    """Show a run in a notebook: loss, step time, time ledger, utilization, memory and power, live while it lasts.

    `run` is an id, the unique start of one, a name, a path or `last`; by default the current run, or else the last one.
    With `widget=False`, or where anywidget is not installed, it is a picture that is drawn again every few seconds.
    When the run ends, a picture of it stays in the notebook. Outside of notebooks it is a line of text.
    """
    current = api.current_run()
    if run is None:
        run = current.folder if current else "last"
    mode = "text"
    if is_notebook():
        mode = "widget" if widget and _has_widgets() else "picture"
    try:
        panel = RunPanel(mode, [run, *([directory] if directory else [])])
    except OSError as error:
        api.tell(f"pulsetrain.show: the process that reads the run could not be started: {error}")
        return
    panel.start()
    if panel.in_progress and current:
        api.wait_at_finish(panel.wait)
    elif not panel.in_progress:
        panel.wait()


def _has_widgets() -> bool:
    try:
        import_module("anywidget")
    except ImportError:
        api.tell(f"pulsetrain.show: pictures only, because anywidget is missing. For live charts: {INSTALL}")
        return False
    return True


class RunPanel:
    """A run in the output of a cell: a widget or a picture while it lasts, and a picture when it has ended."""

    def __init__(self, mode: str, run: list[str]) -> None:
        """Starts the process that reads the run."""
        # -P: the working folder may be anybody's, and its modules are none of ours.
        command = [sys.executable, "-P", "-m", "pulsetrain.views.notebook.feed", mode, *run]
        # A session of its own: an interrupt is for the cell, and Jupyter sends it to the kernel's whole group.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._pass_on, name="notebook", daemon=True)
        self._first = threading.Event()
        self._mode = mode
        self._handle: Any = None
        self._widget: Any = None
        self._svg, self._text = "", "pulsetrain: reading the run"
        self.in_progress = False

    def start(self) -> None:
        """Make room for it in this cell, and wait for what is shown there first."""
        if self._mode != "text":
            self._handle = import_module("IPython.display").display(self, display_id=True)
        _live.append(self)
        self._thread.start()
        self._first.wait(FIRST_SECONDS)

    def wait(self) -> None:
        """Until the run has ended, and the picture of it is in the notebook."""
        self._thread.join(END_SECONDS)

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = self._widget._repr_mimebundle_() if self._widget else ({}, {})
        own = {"text/plain": self._text} | ({"image/svg+xml": self._svg} if self._svg else {})
        return {**data, **own}, metadata

    def _pass_on(self) -> None:
        """In a thread of its own, until the process ends. A notebook that does not take it is no reason to complain."""
        assert self._process.stdout and self._process.stdin
        with suppress(Exception):
            for line in self._process.stdout:
                kind, _, text = line.decode().partition(" ")
                self._take(kind, text)
        self._first.set()
        with suppress(Exception):
            self._process.stdin.close()  # it ends with that
            self._process.stdout.close()
            self._process.wait()
        _live.remove(self)

    def _take(self, kind: str, text: str) -> None:
        if kind == "begin":
            self.in_progress = json.loads(text)["in_progress"]
        elif kind == "tick":
            self._widget.tick = text
        elif kind == "state" and self._widget:
            self._widget.state = text
        elif kind == "state":
            self._widget = _make_widget(text)
            self._update()
        elif kind == "picture":
            self._take_picture(json.loads(text))
        else:
            problem = json.loads(text)
            self._text = f"pulsetrain.show: {problem['message']}"
            self._text += f"\n  hint: {problem['hint']}" if problem["hint"] else ""
            self._update()
        if kind in ("state", "picture"):
            self._first.set()

    def _take_picture(self, picture: dict[str, Any]) -> None:
        self._svg, self._text = picture["svg"], picture["text"]
        widget = self._widget
        if self.in_progress:
            self._widget = None  # a saved notebook has no kernel that a widget could ask
        self._update()
        if widget and not self._widget:
            widget.close()

    def _update(self) -> None:
        if self._handle:
            self._handle.update(self)
        else:
            api.tell(self._text)


_widget_class: Any = None


def _make_widget(state: str) -> Any:
    """A widget with the charts of the web page, all in one module: nothing is loaded from elsewhere."""
    global _widget_class  # noqa: PLW0603 - its base class is there only where anywidget is
    if _widget_class is None:
        from pulsetrain.views.notebook.module import widget_module

        text = import_module("traitlets").Unicode
        members = {"_esm": widget_module(), "state": text().tag(sync=True), "tick": text().tag(sync=True)}
        _widget_class = type("RunWidget", (import_module("anywidget").AnyWidget,), members)
    return _widget_class(state=state)
