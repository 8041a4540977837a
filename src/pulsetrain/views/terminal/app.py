"""The dashboard: keys and mouse change what is looked at, snapshots change what there is, and both draw a frame."""

import asyncio
import contextvars
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, TypeVar

import psutil
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home
from pulsetrain.views.live.machines import WatchedMachine, machines_of
from pulsetrain.views.live.overviews import RunOverview, RunOverviews
from pulsetrain.views.live.processes import Process
from pulsetrain.views.terminal.canvas import Canvas
from pulsetrain.views.terminal.dialogs import FilterInput, HelpDialog, SignalDialog
from pulsetrain.views.terminal.frame import VIEWS, frame, panes
from pulsetrain.views.terminal.gpus import gpu_rows
from pulsetrain.views.terminal.processes import SORTS, process_rows
from pulsetrain.views.terminal.runs import wanted_runs
from pulsetrain.views.terminal.save import save
from pulsetrain.views.terminal.state import WINDOWS, Scene, View

FRAME_SECONDS = 0.1
"""However fast snapshots come, frames are drawn no closer together."""
NOTICE_SECONDS = 4.0
RUNS_SECONDS = 3.0
"""How often run folders are looked at again."""

T = TypeVar("T")


class Dashboard(App[None]):
    """The app around the one screen. The machines of its scene have been started; it stops them."""

    CSS_PATH = "dashboard.tcss"
    ENABLE_COMMAND_PALETTE = False
    TITLE = "pulsetrain"

    def __init__(self, scene: Scene, home: Home, colors: dict[str, str]) -> None:
        super().__init__(ansi_color=True)
        self.board = DashboardScreen(scene, home, colors)

    def on_mount(self) -> None:
        self.push_screen(self.board)


class DashboardScreen(Screen[None]):
    """The one screen of the dashboard."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", show=False),
        Binding("question_mark,f1", "help", show=False),
        Binding("tab", "turn(1)", show=False),
        Binding("shift+tab", "turn(-1)", show=False),
        Binding("plus,equals_sign", "window(1)", show=False),
        Binding("minus", "window(-1)", show=False),
        Binding("space", "pause", show=False),
        Binding("left", "scrub(-1)", show=False),
        Binding("right", "scrub(1)", show=False),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("enter", "enter", show=False),
        Binding("escape", "back", show=False),
        Binding("slash", "filter", show=False),
        Binding("o", "sort_next", show=False),
        Binding("O", "reverse", show=False),
        Binding("t", "tree", show=False),
        Binding("k", "signal", show=False),
        Binding("s", "save", show=False),
        Binding("r", "reset", show=False),
        *(Binding(str(number), f"pane({number})", show=False) for number in range(1, 10)),
    ]

    def __init__(self, scene: Scene, home: Home, colors: dict[str, str]) -> None:
        super().__init__()
        self.scene = scene
        self._canvas = Canvas(colors)
        self._first = scene.machines
        """Those we began with; others belong to a run that was opened from the list."""
        self._overviews = RunOverviews(home)
        self._runs: list[RunOverview] | None = None
        self._drawn = 0.0
        self._due = False
        self._notices = 0

    def compose(self) -> ComposeResult:
        yield self._canvas

    def on_mount(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_context = contextvars.copy_context()  # Textual looks up its app there
        self._listen()
        self.set_interval(RUNS_SECONDS, self._refresh_runs)
        self._canvas.focus()

    def on_unmount(self) -> None:
        for machine in {*self.scene.machines, *self._first}:
            machine.changed = lambda: None
            machine.stop()

    def on_resize(self) -> None:
        self.draw()

    @property
    def text(self) -> list[str]:
        """What is on the screen."""
        return self._canvas.text

    def draw(self) -> None:
        """Now. At least one row and column, whatever the terminal says."""
        self._drawn = time.monotonic()
        self._due = False
        size = self.size
        if size.width and size.height:
            self._canvas.show(frame(self.scene, size.width, size.height, self._runs))

    def _change(self, **changed: object) -> None:
        """Change what is shown, and draw it at once."""
        self.scene.state = replace(self.scene.state, **changed)  # type: ignore[arg-type]
        self.draw()

    # Snapshots

    def _listen(self) -> None:
        """Draw when one of the machines on the screen has something new."""
        for machine in self.scene.machines:
            machine.changed = self._changed

    def _changed(self) -> None:
        """Called by the feed's thread."""
        self._loop.call_soon_threadsafe(self._draw_soon, context=self._thread_context)

    def _draw_soon(self) -> None:
        if self._due or not self.is_attached:
            return
        self._due = True
        wait = self._drawn + FRAME_SECONDS - time.monotonic()
        if wait > 0:
            self.set_timer(wait, self.draw)
        else:
            self.draw()

    async def _refresh_runs(self) -> None:
        """Whether runs have ended; and, when they are shown, which there are."""
        for machine in self.scene.machines:
            await asyncio.to_thread(machine.reload_run)
        if self.scene.state.view == "runs":
            await self._read_runs()

    async def _read_runs(self) -> None:
        self._runs = await asyncio.to_thread(self._overviews.read)
        self._draw_soon()

    # Keys and clicks

    async def action_quit(self) -> None:
        await self.app.action_quit()

    def action_help(self) -> None:
        self.app.push_screen(HelpDialog())

    async def action_view(self, view: View) -> None:
        self._change(view=view, pane=1, maximized=False)
        if view == "runs":
            await self._read_runs()

    async def action_turn(self, steps: int) -> None:
        views = list(VIEWS)
        await self.action_view(views[(views.index(self.scene.state.view) + steps) % len(views)])

    def action_pane(self, number: int) -> None:
        with self.scene.locked():
            count = len(panes(self.scene, self._runs))
        if number <= count:
            again = number == self.scene.state.pane
            self._change(pane=number, maximized=again and not self.scene.state.maximized)

    def action_window(self, steps: int) -> None:
        self.scene.state = self.scene.state.wider(steps)
        self.draw()

    def action_pause(self) -> None:
        self._change(moment=self.scene.now if self.scene.state.moment is None else None)

    def action_scrub(self, steps: int) -> None:
        self.scene.scrub(steps)
        self.draw()

    def action_move(self, steps: int) -> None:
        """The cursor of the pane that has it; of the processes, where no other pane has one."""
        state = self.scene.state
        if state.view == "runs":
            ids = [one.run.id for one in wanted_runs(self.scene, self._runs or [])]
            self._change(run=_moved(ids, state.run or (ids[0] if ids else None), steps))
        elif state.view == "machine" and state.pane == 1:
            with self.scene.locked():
                gpus = [row.key for row in gpu_rows(self.scene)]
            self._change(gpu=_moved(gpus, state.gpu, steps))
        elif state.view == "machine":
            self._change(pane=4, process=_moved([one.key for one in self._processes()], state.process, steps))

    def _processes(self) -> list[Process]:
        with self.scene.locked():
            return [row.process for row in process_rows(self.scene)]

    def on_mouse_scroll_down(self) -> None:
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-1)

    def action_gpu(self, machine: str, key: str) -> None:
        """A click on a GPU; a second one shows all again."""
        chosen = (machine, key)
        self._change(pane=1, gpu=None if self.scene.state.gpu == chosen else chosen)

    def action_process(self, machine: str, key: str) -> None:
        self._change(pane=4, process=(machine, key))

    def action_sort(self, column: str) -> None:
        self.scene.state = self.scene.state.sorted_by(column)
        self.draw()

    def action_sort_next(self) -> None:
        self.action_sort(SORTS[(SORTS.index(self.scene.state.sort) + 1) % len(SORTS)])

    def action_reverse(self) -> None:
        self.action_sort(self.scene.state.sort)

    def action_tree(self) -> None:
        self._change(tree=not self.scene.state.tree)

    def action_filter(self) -> None:
        self.app.push_screen(FilterInput(self.scene.state.filter_text, lambda typed: self._change(filter_text=typed)))

    async def action_enter(self) -> None:
        state = self.scene.state
        found = wanted_runs(self.scene, self._runs or [])
        if state.view == "runs" and found:
            await self.action_open(state.run or found[0].run.id)

    async def action_open(self, id: str) -> None:
        """Watch another run, beside the machines we began with."""
        folder = next(one.folder for one in self._runs or [] if one.run.id == id)
        shown = next((machine.folder for machine in self.scene.machines), None)
        if shown is None or shown.path != folder.path:
            try:
                opened = await asyncio.to_thread(machines_of, folder, self.scene.thresholds)
            except PulsetrainError as error:
                self.show_notice(error.message)
                return
            self._show(opened)
            for machine in opened:
                machine.start()
        over = not any(machine.feed.live for machine in self.scene.machines)
        self._change(view="run", run=id, pane=1, moment=None, window=WINDOWS[-1] if over else self.scene.state.window)

    def _show(self, machines: Sequence[WatchedMachine]) -> None:
        for machine in set(self.scene.machines) - set(self._first):
            machine.stop()
        self.scene.machines = machines
        self._listen()

    def action_back(self) -> None:
        """Undo one thing: the whole screen, the filter, the chosen GPU, the pause, the run that was opened."""
        state = self.scene.state
        if state.maximized:
            self._change(maximized=False)
        elif state.filter_text:
            self._change(filter_text="")
        elif state.gpu:
            self._change(gpu=None)
        elif state.moment is not None:
            self._change(moment=None)
        elif self.scene.machines is not self._first:
            self._show(self._first)
            self._change(view="runs")

    def action_signal(self) -> None:
        chosen = next((one for one in self._processes() if one.key == self.scene.state.process), None)
        if chosen is None:
            self.show_notice("select a process first: 4, then up and down")
        elif not chosen.machine.local:
            self.show_notice(f"{chosen.host} is not this machine")
        else:
            self.app.push_screen(SignalDialog(chosen), lambda number: self._send(chosen, number))

    def _send(self, process: Process, number: signal.Signals | None) -> None:
        if number is None:
            return
        try:
            if psutil.Process(process.pid).create_time() > (self.scene.now or 0.0):
                raise ProcessLookupError  # another process has its number by now
            os.kill(process.pid, number)
        except (ProcessLookupError, psutil.NoSuchProcess):
            self.show_notice(f"{process.pid} has ended")
        except PermissionError:
            self.show_notice(f"{process.pid} belongs to {process.user or 'someone else'}: not allowed")
        else:
            self.show_notice(f"sent {number.name} to {process.pid}")

    def action_save(self) -> None:
        try:
            self.show_notice(f"saved {save(self.scene, Path.cwd())}")
        except OSError as error:
            self.show_notice(f"could not be saved: {error.strerror}")

    def action_reset(self) -> None:
        for machine in self.scene.machines:
            machine.reset()
        self.scene.forget_curves()
        self.show_notice("history cleared")

    def show_notice(self, what: str) -> None:
        """Say something in the last line for a while."""
        self._notices += 1
        self.scene.notice = what
        self.draw()
        self.set_timer(NOTICE_SECONDS, lambda shown=self._notices: self._forget_notice(shown))

    def _forget_notice(self, notice: int) -> None:
        if notice == self._notices:
            self.scene.notice = ""
            self.draw()


def _moved(keys: Sequence[T], key: T | None, steps: int) -> T | None:
    """The key so many places further; the first one to begin with."""
    if not keys:
        return None
    if key not in keys:
        return keys[0]
    return keys[max(0, min(keys.index(key) + steps, len(keys) - 1))]
