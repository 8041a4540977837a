"""Panes above each other: each says how high it would like to be, and gets what the screen has."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pulsetrain.views.terminal.lines import Line, Span, fitted


class Pane(NamedTuple):
    """A part of a view."""

    name: str
    draw: Callable[[int, int], list[Line]]
    """Its lines, for a width and a height; at most as many as the height. Its heading is the first."""
    least: int
    """Lines below which it makes no sense."""
    wanted: int
    """Lines with which it shows all."""
    rank: int = 0
    """On a screen that is too low, the highest rank goes first."""
    most: float = 0
    """Lines beyond which it has no use for more, if it can use more than it wants."""


def heading(number: int, name: str, chosen: bool) -> Line:
    """How a pane is named, with the key that leads to it."""
    return [Span(f"{number} ", "key" if chosen else "dim", f"pane({number})"), Span(name, "title", f"pane({number})")]


def stack(panes: Sequence[Pane], width: int, height: int) -> list[Line]:
    """All panes that have room, in their order, with a blank line between them where there is one to spare."""
    heights = share(panes, height)
    shown = [(pane, lines) for pane, lines in zip(panes, heights, strict=True) if lines]
    spaced = sum(heights) + len(shown) - 1 <= height
    drawn: list[Line] = []
    for pane, lines in shown:
        if drawn and spaced:
            drawn.append([])
        drawn += pane.draw(width, lines)[:lines]
    return [fitted(line, width) for line in drawn[:height]]


def share(panes: Sequence[Pane], height: int) -> list[int]:
    """Lines for each pane: first what they need, then what they want, then the rest to those that grow."""
    heights = [0] * len(panes)
    left = height
    order = sorted(range(len(panes)), key=lambda index: panes[index].rank)
    for index in order:
        if panes[index].least <= left:
            heights[index] = panes[index].least
            left -= panes[index].least
    kept = [index for index in order if heights[index]]
    left -= max(0, min(left, len(kept) - 1))  # blank lines between them
    for index in kept:
        more = min(left, panes[index].wanted - heights[index])
        heights[index] += more
        left -= more
    growing = sorted((index for index in kept if panes[index].most), key=lambda index: panes[index].most)
    for number, index in enumerate(growing):
        more = int(max(0, min(left // (len(growing) - number), panes[index].most - heights[index])))
        heights[index] += more
        left -= more
    return heights
