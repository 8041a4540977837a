"""Batches of samples on their way to a server that keeps each with its time.

While the server is away, batches wait in a spool on disk; they are sent in the order of time when it is back.
What the server refuses is looked for by halves, reported and skipped, so that it holds up nothing else.
"""

import logging
import time
from collections.abc import Collection, Sequence
from typing import Protocol

from pulsetrain.outputs.points import Family
from pulsetrain.outputs.push.backoff import Backoff
from pulsetrain.outputs.push.http import PushError, Refused
from pulsetrain.outputs.push.outlet import PushLink
from pulsetrain.outputs.push.series import Batch, Halves, PushSeries, count, halves, milliseconds, until
from pulsetrain.outputs.push.spool import UNREADABLE
from pulsetrain.supervise import reason_of

log = logging.getLogger(__name__)

AWAY_BATCH_SECONDS = 60.0
"""For a server that is away, batches are larger, so that the spool has fewer files."""
CATCH_UP_SECONDS = 1.0
"""So long at a time the spool is sent; then new readings are taken in."""
MOST_REQUESTS = 100
"""So often the parts of a batch are tried; what is still refused then counts as refused whole."""
AHEAD_SECONDS = 300.0
"""A sample further in the server's future would make it refuse those that follow."""
PROMISE = "Readings are kept, and sent once it works again."


class Channel(Protocol):
    """How one kind of server is spoken to."""

    def send(self, series: Sequence[PushSeries]) -> None:
        """Raises Refused for samples that are not wanted, and another PushError for what may succeed later."""

    def halves(self, series: Sequence[PushSeries]) -> Halves | None:
        """Two parts of a batch that was refused; None when it cannot be parted."""


class Sender:
    """An outlet for families with their times: gathers series, sends them, keeps what cannot be sent."""

    def __init__(self, link: PushLink, channel: Channel) -> None:
        self._target = link.target
        self._client = link.client
        self._channel = channel
        self._spool = link.spool
        self._part = link.part
        self._batch_seconds = link.batch_seconds
        self._backoff = Backoff(link.target.name, PROMISE, link.part)
        self._batch = Batch()
        self._since = 0.0
        self._lost = 0
        self._refused = 0

    def start(self) -> None:
        """Greet the server with an empty batch: a wrong password shows at once, and its clock is known in time."""
        self._try([])

    def add(self, seconds: float, families: Collection[Family], *, late: bool = False) -> None:
        if not self._batch:
            self._since = time.monotonic()
        self._batch.add(milliseconds(seconds), families, late=late)

    def flush(self) -> None:
        """Send what is due."""
        enough = self._batch_seconds if self._backoff.ready else AWAY_BATCH_SECONDS
        if self._batch and time.monotonic() - self._since >= enough:
            self._deliver()
        self._catch_up(CATCH_UP_SECONDS)

    def finish(self, seconds: float) -> None:
        """Send all that is left, and that the series have ended; try no longer than this."""
        deadline = time.monotonic() + seconds
        self._batch.end()
        self._backoff.retry_now()
        self._deliver()
        while self._spool and time.monotonic() < deadline:
            time.sleep(min(0.5, seconds / 10))
            self._backoff.retry_now()
            self._catch_up(max(0.0, deadline - time.monotonic()))

    @property
    def left(self) -> str | None:
        """What could not be sent, in words."""
        unsent = self._spool.samples
        parts = [f"{unsent:,} samples could not be sent"] if unsent else []
        if lost := self._lost + self._spool.dropped_samples:
            parts.append(f"{lost:,} were lost while waiting")
        if self._refused:
            parts.append(f"{self._refused:,} were refused")
        if unsent and self._backoff.trouble:
            parts[0] += f" ({self._backoff.trouble.message.rstrip('.')})"
        return "; ".join(parts) or None

    def _deliver(self) -> None:
        series = self._batch.take()
        if series and (self._spool or not self._try(series)):
            self._keep(series)

    def _keep(self, series: Sequence[PushSeries]) -> None:
        dropped = self._spool.dropped_samples
        try:
            self._spool.put(series)
        except OSError as error:
            if not self._lost:
                log.warning("push to %s: readings cannot be kept: %s. They are lost.", self._target.name, error)
            self._lose(count(series), error)
        except Exception as error:  # noqa: BLE001 - one of them cannot be written
            parts = halves(series)
            if parts is None:
                self._note_refused(1, 1, reason_of(error))
            else:
                for part in parts:
                    self._keep(part)
        if full := self._spool.dropped_samples - dropped:
            if not dropped:
                log.warning("push to %s: the spool is full; the oldest samples are dropped", self._target.name)
            self._part.skip("what waited longest", PushError("the spool is full"), full, logged=True)

    def _lose(self, samples: int, error: Exception) -> None:
        self._lost += samples
        self._part.skip("samples that waited", error, samples, logged=True)

    def _catch_up(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._spool and self._backoff.ready and time.monotonic() < deadline:
            try:
                series = self._spool.first()
            except UNREADABLE as error:
                log.warning("push to %s: readings that were kept cannot be read: %s", self._target.name, error)
                self._lose(self._spool.first_samples, error)
                self._spool.remove_first()  # now: while the server is away, it would be lost once at each try
                continue
            if not self._try(series):
                return
            self._spool.remove_first()

    def _try(self, series: Sequence[PushSeries]) -> bool:
        """Whether this batch is done with."""
        if not self._backoff.ready:
            return False
        limit = milliseconds(time.time() + self._client.clock_ahead + AHEAD_SECONDS)
        wanted = until(series, limit)
        try:
            refused, reason = self._send(wanted)
        except PushError as error:
            self._backoff.failed(error)
            return False
        self._backoff.succeeded()
        self._note_refused(refused, count(series), reason)
        future = f"they are in the future by the clock of {self._target.host}: is this machine's clock right?"
        self._note_refused(count(series) - count(wanted), count(series), future)
        return True

    def _send(self, series: Sequence[PushSeries]) -> tuple[int, str]:
        """Send a batch, and parts of it when it is refused or cannot be sent: how many samples were, and why.

        When another failure comes in between, all of it is sent again later; what has arrived is not changed by that.
        """
        parts = [series]
        refused, reason, requests = 0, "", 0
        while parts:
            part = parts.pop()
            try:
                requests += 1
                self._channel.send(part)
            except Exception as error:
                if isinstance(error, PushError) and not isinstance(error, Refused):
                    raise
                smaller = self._channel.halves(part) if part and requests < MOST_REQUESTS else None
                if smaller:
                    parts += reversed(smaller)
                else:
                    refused, reason = refused + count(part), reason or reason_of(error)
        return refused, reason

    def _note_refused(self, samples: int, of: int, reason: str) -> None:
        if samples:
            if not self._refused:
                log.warning("push to %s: %s of %s samples are refused: %s", self._target.name, samples, of, reason)
            self._part.skip("samples", PushError(reason), samples, logged=True)
        self._refused += samples
