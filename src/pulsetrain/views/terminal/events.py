"""What happened: the latest events of all machines; and, once there is any, the verdict and the alerts."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pulsetrain.snapshot import Event
from pulsetrain.views.terminal.lines import Line, Span
from pulsetrain.views.terminal.look import Scene
from pulsetrain.views.terminal.panes import Pane, heading

SEVERITIES = {"warning": "warn", "error": "bad"}
FINDINGS = ("verdict", "alert")
"""Kinds of events that stand in a place of their own."""
MOST_SHOWN = 5

Told = tuple[float, str, Event]


def events(scene: Scene) -> list[Told]:
    """Up to the moment that is shown, the latest first."""
    moment = scene.moment or 0.0
    found = [
        (time, machine.title, event) for machine in scene.machines for time, event in machine.events if time <= moment
    ]
    return sorted(found, key=lambda one: one[0], reverse=True)


def event_panes(scene: Scene, number: int) -> list[Pane]:
    """Up to two panes, each there only if there is something in it."""
    found = events(scene)
    findings = [one for one in found if one[2].kind in FINDINGS]
    rest = [one for one in found if one[2].kind not in FINDINGS]
    named = [("Verdict and alerts", findings, 1), ("Events", rest, 4)]
    shown = [(name, some, rank) for name, some, rank in named if some]
    return [_pane(scene, number + place, *one) for place, one in enumerate(shown)]


def _pane(scene: Scene, number: int, name: str, found: Sequence[Told], rank: int) -> Pane:
    def draw(width: int, height: int) -> list[Line]:
        title = heading(number, name, scene.look.pane == number)
        return [title, *(_line(scene, *one) for one in found[: height - 1])]

    return Pane(name, draw, least=2, wanted=1 + min(len(found), MOST_SHOWN), rank=rank)


def _line(scene: Scene, time: float, host: str, event: Event) -> Line:
    clock = datetime.fromtimestamp(time, UTC).astimezone()
    where = f"{host}  " if len(scene.machines) > 1 and not event.message.startswith(host) else ""
    return [Span(f"  {clock:%H:%M:%S}  {where}", "dim"), Span(event.message, SEVERITIES.get(event.severity, ""))]
