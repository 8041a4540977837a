"""What fires now, and what happened: the alerts and the latest events of all machines."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from pulsetrain.views.live.machines import MachineEvent, firing_alerts, latest_events
from pulsetrain.views.terminal.lines import Line, Span
from pulsetrain.views.terminal.panes import Pane, heading
from pulsetrain.views.terminal.state import Scene

SEVERITIES = {"info": "accent", "warning": "warn", "critical": "bad"}
MOST_SHOWN = 5


def event_panes(scene: Scene, number: int) -> list[Pane]:
    """Up to two panes, each there only if there is something in it."""
    alerts = firing_alerts(scene.machines, scene.state.moment)
    events = latest_events(scene.machines, scene.moment or 0.0)
    named = [("Alerts", alerts, _alert_line, 1), ("Events", events, _event_line, 4)]
    shown = [one for one in named if one[1]]
    return [_pane(scene, number + place, *one) for place, one in enumerate(shown)]


def _pane(
    scene: Scene, number: int, name: str, found: Sequence[MachineEvent], line: Callable[..., Line], rank: int
) -> Pane:
    def draw(width: int, height: int) -> list[Line]:
        title = heading(number, name, scene.state.pane == number)
        return [title, *(line(scene, one) for one in found[: height - 1])]

    return Pane(name, draw, least=2, wanted=1 + min(len(found), MOST_SHOWN), rank=rank)


def _event_line(scene: Scene, one: MachineEvent) -> Line:
    style = SEVERITIES[one.event.severity] if one.event.severity != "info" else ""
    return [_when_and_where(scene, one), Span(one.event.message, style)]


def _alert_line(scene: Scene, one: MachineEvent) -> Line:
    event = one.event
    advice = event.details.get("advice")
    return [
        _when_and_where(scene, one),
        Span(f"{event.details.get('rule')}  ", SEVERITIES[event.severity]),
        Span(event.message),
        Span(f"  {advice}" if advice else "", "dim"),
    ]


def _when_and_where(scene: Scene, one: MachineEvent) -> Span:
    clock = datetime.fromtimestamp(one.time, UTC).astimezone()
    named = len(scene.machines) > 1 and not one.event.message.startswith(one.machine)
    where = f"{one.machine}  " if named else ""
    return Span(f"  {clock:%H:%M:%S}  {where}", "dim")
