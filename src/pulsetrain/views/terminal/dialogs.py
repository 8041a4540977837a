"""What comes up over the dashboard: the keys, a signal to be confirmed, the filter."""

import signal
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from pulsetrain.views.live.processes import Process

HELP = """\
tab             machine, run, all runs
1 to 9          go to a pane; press again for full screen
up down         choose a GPU, process or run; the mouse works too
enter           open the run under the cursor
escape          back: full screen, filter, chosen GPU, past time

+ -             longer or shorter window, up to the whole history
space           pause, and resume
left right      go back and forth in time

/               filter processes or runs
o O             sort by the next column; reverse the order
t               processes as a tree
k               send a signal to the process under the cursor

s               save this view to a JSON file
r               clear the history
q               quit"""
SIGNALS = [each for each in signal.Signals if each.name in ("SIGTERM", "SIGINT", "SIGKILL", "SIGSTOP", "SIGCONT")]
SIGNALS.sort(key=lambda each: each is not signal.SIGTERM)  # the one that lets a program clean up comes first


class Dialog(ModalScreen[signal.Signals | None]):
    """A box in the middle. Any way out closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", show=False)]


class HelpDialog(Dialog):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,enter,space", "dismiss", show=False)]

    def compose(self) -> ComposeResult:
        yield Static(Text(HELP))


class SignalDialog(Dialog):
    """Which signal, and whether really."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "dismiss", show=False),
        Binding("y", "send", show=False),
        Binding("left,up", "choose(-1)", show=False),
        Binding("right,down", "choose(1)", show=False),
    ]

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._chosen = 0

    def compose(self) -> ComposeResult:
        yield Static(self._text())

    def action_choose(self, steps: int) -> None:
        self._chosen = (self._chosen + steps) % len(SIGNALS)
        self.query_one(Static).update(self._text())

    def action_send(self) -> None:
        self.dismiss(SIGNALS[self._chosen])

    def _text(self) -> Text:
        process = self._process
        text = Text.assemble(("Send a signal to ", ""), (f"{process.pid} ", "bold"), (process.user, "dim"), "\n")
        text.append(f"{process.command}\n\n")
        for number, each in enumerate(SIGNALS):
            text.append(f" {each.name.removeprefix('SIG')} ", "reverse" if number == self._chosen else "")
            text.append(" ")
        text.append("\n\nleft right", "bold").append(" choose   ", "dim")
        text.append("y", "bold").append(" send   ", "dim").append("n", "bold").append(" do not", "dim")
        return text


class FilterInput(ModalScreen[None]):
    """One line at the bottom; what is typed counts at once."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "clear", show=False)]

    def __init__(self, wanted: str, changed: Callable[[str], None]) -> None:
        super().__init__()
        self._wanted = wanted
        self._changed = changed

    def compose(self) -> ComposeResult:
        yield Input(self._wanted, placeholder="filter: user, pid, command, run, container", select_on_focus=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._changed(event.value)

    def on_input_submitted(self) -> None:
        self.dismiss()

    def action_clear(self) -> None:
        self._changed("")
        self.dismiss()
