"""Tells people: gathers alerts into few messages, and sends them without ever holding up the run.

Alerts of a run come in one message, which waits a moment for others (`routes.py`), and the next one not too soon. A
service that is away is tried again with increasing delay; what waits is bounded.
"""

import contextlib
import logging
import math
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from pulsetrain.alerts.delivery import Delivery, Message, Outcome
from pulsetrain.alerts.routes import ROUTES
from pulsetrain.rules.alert import FIRING, GRAVITY, KINDS, gravest_first
from pulsetrain.rules.thresholds import duration_seconds
from pulsetrain.settings import Notify
from pulsetrain.snapshot import Event, Severity, Snapshot
from pulsetrain.supervise import Supervisor, Worker

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
DELIVERY_SECONDS = 30.0
"""A delivery that takes longer is given up."""
CLOSE_SECONDS = 10.0
"""How long the end of a run may wait for its last message."""
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 300.0
MOST_WAITING = 20
"""Messages that wait for a service that is away; the oldest go first."""
MOST_EVENTS = 500
MOST_IN_MESSAGE = 10
"""Alerts that a message names one by one."""

Send = Callable[[Delivery, float], list[Outcome]]
"""Delivers within this many seconds; returns the outcome for each URL."""


@dataclass
class _Letter:
    message: Message
    urls: list[str]
    """Those that have not got it yet."""


@dataclass
class _Service:
    """How one URL is doing."""

    retry_seconds: float = FIRST_RETRY_SECONDS
    next_try: float = 0.0
    away: bool = False


@dataclass
class Outbox:
    """Messages on their way: each goes to every URL once, whenever that takes it."""

    urls: Sequence[str]
    send: Send
    trouble: Callable[[str], None]
    """Called with what is wrong, and with an empty text when all is well again."""
    lost_messages: int = 0
    _letters: deque[_Letter] = field(default_factory=deque)
    _services: dict[str, _Service] = field(default_factory=dict)

    def put(self, message: Message) -> None:
        if len(self._letters) >= MOST_WAITING:
            self._letters.popleft()
            self.lost_messages += 1
        self._letters.append(_Letter(message, [*self.urls]))

    @property
    def waiting(self) -> int:
        return len(self._letters)

    def deliver(self, now: float, patience_seconds: float = DELIVERY_SECONDS, *, all_now: bool = False) -> None:
        """Send what can be sent. `all_now` does not spare services that were away a moment ago."""
        for letter in list(self._letters):
            ready = [url for url in letter.urls if all_now or self._service(url).next_try <= now]
            if ready:
                outcomes = self.send(Delivery(letter.message, ready), patience_seconds)
                for url, outcome in zip(ready, outcomes, strict=True):
                    self._note(letter, url, outcome, now)
            if not letter.urls:
                self._letters.remove(letter)

    def _service(self, url: str) -> _Service:
        return self._services.setdefault(url, _Service())

    def _note(self, letter: _Letter, url: str, outcome: Outcome, now: float) -> None:
        service = self._service(url)
        if outcome.delivered:
            letter.urls.remove(url)
            if service.away:
                self._services[url] = _Service()
                self.trouble("")
            return
        if outcome.hopeless:
            letter.urls.remove(url)
            self.lost_messages += 1
        name = outcome.service or f"URL {self.urls.index(url) + 1}"
        self.trouble(f"{name}: {outcome.reason}")
        service.away = True
        service.next_try = now + service.retry_seconds
        service.retry_seconds = min(2 * service.retry_seconds, LONGEST_RETRY_SECONDS)


class AlertGroup:
    """The alerts that the next message is about, and when it is due."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._news: dict[str, tuple[Event, float]] = {}
        """By the alert's key: the latest, and when the first came. One that ends before it is sent is said once."""
        self._severity: dict[str, Severity] = {}
        """Of the alerts that have been sent, or will be."""
        self._firing: dict[str, tuple[Event, float]] = {}
        """Those that fire, and when they were last sent."""
        self._sent: dict[Severity, float] = {}
        """When the last message was sent that has something of a severity."""

    def add(self, event: Event, now: float) -> None:
        key = str(event.details.get("alert"))
        if event.kind == FIRING:
            if GRAVITY[event.severity] > GRAVITY[self._notify.severity] or len(self._firing) >= MOST_EVENTS:
                return
            self._severity[key] = event.severity
            self._firing[key] = (event, now)
        else:
            known = self._firing.pop(key, None)
            if known is None:
                return
            if not self._notify.resolved:
                self._news.pop(key, None)
                self._severity.pop(key, None)
                return
        _, came = self._news.get(key, (None, now))
        self._news[key] = (event, came)

    def due(self, now: float) -> list[Event]:
        """What is to be sent now; nothing while there is time to wait for more."""
        self._repeat(now)
        waiting = [self._due_at(self._severity[key], came) for key, (_, came) in self._news.items()]
        return self.take(now) if now >= min(waiting, default=math.inf) else []

    def _repeat(self, now: float) -> None:
        """Say again what keeps firing, all of a severity together."""
        old = {
            event.severity
            for key, (event, told) in self._firing.items()
            if now - told >= duration_seconds(ROUTES[event.severity].repeat_interval) and key not in self._news
        }
        for event, _ in list(self._firing.values()):
            if event.severity in old:
                self.add(event, now)

    def _due_at(self, severity: Severity, came: float) -> float:
        """When an alert that came then is sent. Messages without anything as grave do not hold it up."""
        route = ROUTES[severity]
        as_grave = [sent for other, sent in self._sent.items() if GRAVITY[other] <= GRAVITY[severity]]
        next_message = max(as_grave, default=-math.inf) + duration_seconds(route.group_interval)
        return max(came + duration_seconds(route.live_wait), next_message)

    def take(self, now: float) -> list[Event]:
        """All that there is to say, at once."""
        found = gravest_first(event for event, _ in self._news.values())
        self._sent |= dict.fromkeys((self._severity[key] for key in self._news), now)
        for key in [key for key in self._severity if key not in self._firing]:
            del self._severity[key]
        self._news = {}
        return found


class Notifier:
    """A consumer of snapshots, from `start` to `close`. Its thread alone gathers and sends."""

    def __init__(
        self, notify: Notify, urls: Sequence[str], about: str, supervisor: Supervisor, send: Send | None = None
    ) -> None:
        """`about` says whose alerts these are: the name of the run and of the host."""
        self._notify = notify
        self._about = about
        self._part = supervisor.part("notify", stuck_after_seconds=2 * DELIVERY_SECONDS)
        self._delivering: subprocess.Popen[bytes] | None = None
        self._outbox = Outbox(urls, send or self._send, self._trouble)
        self._group = AlertGroup(notify)
        self._arrived: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._last: Message | None = None
        self._worker = Worker(
            self._part, self._round, every_seconds=LOOK_SECONDS, finish=self._finish, what="a message"
        )
        self._check = True

    def start(self) -> None:
        self._worker.start()

    def __call__(self, snapshot: Snapshot) -> None:
        self._arrived.extend(event for event in snapshot.events if event.kind in KINDS)

    def close(self, last: Message | None = None) -> None:
        """Send what is left, and a last message, for some seconds at most."""
        self._last = last
        if not self._worker.stop(CLOSE_SECONDS):
            with contextlib.suppress(AttributeError, OSError):
                self._delivering.kill()  # type: ignore[union-attr]
        unsent = self._outbox.waiting + self._outbox.lost_messages
        if unsent:
            log.warning("notify: %s message%s could not be sent.", unsent, "s" if unsent > 1 else "")

    # What the thread does

    def _round(self) -> None:
        if self._check:  # malformed URLs are reported at the start, not at two in the morning
            self._check = False
            for number, outcome in enumerate(self._outbox.send(Delivery(None, [*self._outbox.urls]), DELIVERY_SECONDS)):
                if outcome.hopeless:
                    self._trouble(f"URL {number + 1}: {outcome.reason}")
        now = time.monotonic()
        self._gather(now)
        if events := self._group.due(now):
            self._outbox.put(alert_message(events, self._about))
        self._outbox.deliver(now)

    def _finish(self) -> None:
        now = time.monotonic()
        self._gather(now)
        if events := self._group.take(now):
            self._outbox.put(alert_message(events, self._about))
        if self._last:
            self._outbox.put(self._last)
        self._outbox.deliver(now, CLOSE_SECONDS, all_now=True)

    def _gather(self, now: float) -> None:
        while self._arrived:
            self._group.add(self._arrived.popleft(), now)

    def _trouble(self, reason: str) -> None:
        if reason:
            self._part.fail(reason)
        else:
            self._part.recover()

    def _send(self, delivery: Delivery, seconds: float) -> list[Outcome]:
        """In a process of its own, with the URLs on its standard input."""
        # -P: the working folder may be anybody's, and its modules are none of ours.
        command = [sys.executable, "-P", "-m", "pulsetrain.alerts.delivery"]
        try:
            with subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is meant for the command
            ) as process:
                self._delivering = process
                try:
                    answer, _ = process.communicate(msgspec.json.encode(delivery), seconds)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                    return [Outcome("the service", reason="no answer in time")] * len(delivery.urls)
            return msgspec.json.decode(answer, type=list[Outcome])
        except (OSError, msgspec.DecodeError):
            return [Outcome("Apprise", reason="it exited without an answer")] * len(delivery.urls)
        finally:
            self._delivering = None


def alert_message(events: Sequence[Event], about: str) -> Message:
    """Alerts in words, the gravest first: what, how much, and what to do."""
    firing = [event for event in events if event.kind == FIRING]
    shown = [*firing, *(event for event in events if event.kind != FIRING)]
    names = list(dict.fromkeys(str(event.details.get("rule")) for event in firing or shown))
    what = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    lines = []
    for event in shown[:MOST_IN_MESSAGE]:
        lines.append(f"{event.severity}: {event.message}." if event.kind == FIRING else f"{event.message}.")
        if event.kind == FIRING and event.details.get("advice"):
            lines.append(f"    {event.details['advice']}")
    if len(shown) > MOST_IN_MESSAGE:
        lines.append(f"And {len(shown) - MOST_IN_MESSAGE} more: pulsetrain alerts")
    severity = firing[0].severity if firing else "info"
    return Message(f"{'' if firing else 'Resolved: '}{what} ({about})", "\n".join(lines), severity)
