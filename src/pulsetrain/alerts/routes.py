"""How soon and how often alerts of each severity are sent to people: by Alertmanager, and by pulsetrain itself."""

from typing import NamedTuple

from pulsetrain.rules.thresholds import Duration
from pulsetrain.snapshot import Severity


class Route(NamedTuple):
    """Times of one severity. Alerts of one run and host come in one message."""

    group_wait: Duration
    """How long the first alert waits in Alertmanager for others to come with it, and for those that silence it."""
    group_interval: Duration
    """At least so long lies between two messages about one run and host."""
    repeat_interval: Duration
    """An alert that keeps firing is sent again after so long."""
    live_wait: Duration
    """`group_wait` of pulsetrain itself: its engine has silenced what is to be silent before anything is said."""

    def as_alertmanager(self) -> dict[str, str]:
        return {name: value for name, value in self._asdict().items() if name != "live_wait"}


ROUTES: dict[Severity, Route] = {
    "critical": Route("10s", "1m", "4h", live_wait="0s"),
    "warning": Route("1m", "5m", "12h", live_wait="1m"),
    "info": Route("5m", "30m", "24h", live_wait="5m"),
}
"""Each has a receiver of its name in Alertmanager."""
