"""metrics_plot.png of a benchmark, drawn again and again while it runs."""

import threading
from collections.abc import Callable
from pathlib import Path

from pulsetrain.runs.folder import RunFolder
from pulsetrain.supervise import Supervisor
from pulsetrain.views.bench.files import write_present_plot

PERIOD_SECONDS = 5.0


class LivePlot:
    """Reads the run's files by a thread of its own, and draws what is there."""

    def __init__(self, folder: Path, present: Callable[[], RunFolder | None]) -> None:
        """`present` gives the run that is in progress now."""
        self._folder = folder
        self._present = present
        self._part = Supervisor().part("live plot")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plot", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(PERIOD_SECONDS):
            if run := self._present():
                with self._part.attempt("the plot of a run in progress"):  # the benchmark matters more
                    write_present_plot(run, self._folder)
