"""The widget that paints lines. It paints again only those that have changed."""

from collections.abc import Sequence
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from pulsetrain.views.terminal.lines import Line, plain


class Canvas(Widget, can_focus=True):
    """A screen full of lines."""

    def __init__(self, palette: dict[str, str]) -> None:
        super().__init__()
        self._palette = {name: Style.parse(words) for name, words in palette.items()}
        self._lines: list[Line] = []
        self._style = lru_cache(maxsize=1024)(self._make_style)

    def show(self, lines: Sequence[Line]) -> None:
        """Put these lines on the screen."""
        before, self._lines = self._lines, list(lines)
        if len(before) != len(self._lines):
            self.refresh()
            return
        changed = [y for y, (old, new) in enumerate(zip(before, self._lines, strict=True)) if old != new]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    @property
    def text(self) -> list[str]:
        """What is on the screen, without colors."""
        return [plain(line) for line in self._lines]

    def render_line(self, y: int) -> Strip:
        if y >= len(self._lines):
            return Strip.blank(self.size.width)
        segments = [Segment(span.text, self._style(span.style, span.action)) for span in self._lines[y] if span.text]
        return Strip(segments).adjust_cell_length(self.size.width)

    def _make_style(self, name: str, action: str) -> Style:
        style = self._palette[name]
        return style + Style.from_meta({"@click": f"screen.{action}"}) if action else style
