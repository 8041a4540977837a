"""How soon and how often alerts of each severity are sent to people: by Alertmanager, and by pulsetrain itself."""

from typing import NamedTuple

from pulsetrain.rules.thresholds import Duration
from pulsetrain.snapshot import Severity


class Route(NamedTuple):
    """Times of one severity. Alerts of one run and host come in one message."""

    group_wait: Duration
    """How long the first alert waits for others to come with it."""
    group_interval: Duration
    """At least so long lies between two messages about one run and host."""
    repeat_interval: Duration
    """An alert that keeps firing is sent again after so long."""

    def as_alertmanager(self) -> dict[str, str]:
        return self._asdict()


ROUTES: dict[Severity, Route] = {
    "critical": Route("10s", "1m", "4h"),
    "warning": Route("1m", "5m", "12h"),
    "info": Route("5m", "30m", "24h"),
}
"""Each has a receiver of its name in Alertmanager."""
