"""A frame as text: for `--once`, and for the time that it takes to import Textual."""

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from pulsetrain.views.json import snapshot_json
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.views.terminal.frame import frame
from pulsetrain.views.terminal.lines import Span, plain
from pulsetrain.views.terminal.palette import sgr
from pulsetrain.views.terminal.state import Scene

WAIT_SECONDS = 10.0
QUIET_SECONDS = 0.4
"""A feed that brings nothing for so long has brought all of the past, and is waiting for the next reading."""
FIRST_SECONDS = 0.1
"""So long the first frame waits for something to show."""
SIZE = (120, 40)
"""Where there is no terminal that has one."""
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[H", "\x1b[?1049l\x1b[?25h"
"""To the terminal's second screen, and back."""


def print_once(scene: Scene, colors: dict[str, str]) -> None:
    """Wait until all machines have brought what they know, and print what a screen would show."""
    _settle(scene.machines)
    for machine in scene.machines:
        machine.stop()
    terminal = sys.stdout.isatty()
    width, height = shutil.get_terminal_size(SIZE) if terminal else SIZE
    lines = frame(scene, width, height)[:-1]  # the last one names keys
    last = max((number for number, line in enumerate(lines) if plain(line).strip()), default=0)
    for line in lines[: last + 1]:
        words = "".join(_colored(span, colors) for span in line) if terminal else plain(line)
        sys.stdout.write(words.rstrip() + "\n")


def print_json(machines: Sequence[WatchedMachine]) -> None:
    """The present state of each machine as a line of JSON, as `watch --json` has it."""
    _settle(machines)
    for machine in machines:
        machine.stop()
        sys.stdout.write(snapshot_json(machine.history.live, machine.title, machine.verdict) + "\n")


def paint_first(scene: Scene, colors: dict[str, str], stream: TextIO) -> None:
    """Show the first frame on the terminal's second screen, where Textual takes over."""
    deadline = time.monotonic() + FIRST_SECONDS
    while time.monotonic() < deadline and not any(machine.snapshots for machine in scene.machines):
        time.sleep(FIRST_SECONDS / 20)
    size = shutil.get_terminal_size(SIZE)
    lines = frame(scene, size.columns, size.lines)
    stream.write(ENTER + "\r\n".join("".join(_colored(span, colors) for span in line) for line in lines))
    stream.flush()


def _settle(machines: Sequence[WatchedMachine]) -> None:
    """Until none brings anything new. Rates need two readings; of what is over there may be one alone."""
    deadline = time.monotonic() + WAIT_SECONDS
    before: list[int] = []
    while time.monotonic() < deadline:
        time.sleep(QUIET_SECONDS)
        counts = [machine.snapshots for machine in machines]
        enough = all(machine.snapshots >= (2 if machine.feed.live else 1) for machine in machines)
        all_read = all(reader.read_once.is_set() for machine in machines for reader in machine.readers)
        if enough and all_read and counts == before:
            return
        before = counts


def _colored(span: Span, colors: dict[str, str]) -> str:
    codes = sgr(colors[span.style])
    return f"\x1b[{codes}m{span.text}\x1b[0m" if codes and span.text else span.text
