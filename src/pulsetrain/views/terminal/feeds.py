"""Where the dashboard's snapshots come from: this machine, the files of a run, another machine. Each has its feed."""

import contextlib
import math
import netrc
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from pulsetrain import __version__
from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.runs.folder import Run, RunFolder, host_name
from pulsetrain.runs.follow import Follow
from pulsetrain.runs.outline import outline, recent
from pulsetrain.sampler import Consumer
from pulsetrain.snapshot import Event, Severity, Snapshot

if TYPE_CHECKING:
    import httpx

    from pulsetrain.outputs.scrape_reader import Reading

LOOK_SECONDS = 0.25
"""How often the files of a run are looked at."""
RETRY_SECONDS = 1.0
"""The same while they cannot be read."""
PORT = 9400
"""Of a pulsetrain on another machine, when none is said."""
CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0
WHOLE_SECONDS = 10.0
"""For one answer: one that trickles in is given up as well."""
MOST_BYTES = 32_000_000
LONGEST_RETRY_SECONDS = 10.0
"""A machine that is away is asked at least so often."""
MOST_DOUBLINGS = 10
"""Of the time between two tries."""
SAME_SECONDS = 0.05
"""Readings that are closer together are one and the same."""


class Feed(Protocol):
    """Snapshots of one machine, in order of time."""

    title: str
    live: bool
    """False when it shows what is over."""

    def start(self, consumer: Consumer) -> None:
        """Give each snapshot to the consumer, from a thread of its own."""

    def stop(self) -> None:
        """Give no more."""


class Sampling(Protocol):
    """What reads this machine: a session of the command line."""

    def add(self, consumer: Consumer) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class OwnMachine:
    """This machine, read by ourselves."""

    live = True

    def __init__(self, session: Sampling, title: str | None = None) -> None:
        self.title = title or host_name()
        self._session = session

    def start(self, consumer: Consumer) -> None:
        self._session.add(consumer)
        self._session.start()

    def stop(self) -> None:
        self._session.stop()


class _Threaded:
    """A feed that makes its snapshots in a thread of its own, which may wait for a disk or a network."""

    title = ""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def start(self, consumer: Consumer) -> None:
        threading.Thread(target=self._run, args=(consumer,), name=f"feed-{self.title}", daemon=True).start()

    def stop(self) -> None:
        """Returns at once, whatever the thread is waiting for."""
        self._stop.set()

    def _run(self, consumer: Consumer) -> None:
        try:
            self._give(consumer)
        except (OSError, PulsetrainError) as error:
            consumer(_told("feed_failed", f"{self.title} cannot be shown: {error}", "error")._replace(last=True))

    def _give(self, consumer: Consumer) -> None:
        for snapshot in self._snapshots():
            if self._stop.is_set():
                return
            consumer(snapshot)

    def _snapshots(self) -> Iterator[Snapshot]:
        raise NotImplementedError


class FollowedRun(_Threaded):
    """One host of a run, by its files: what it has recorded so far at once, and then what is added to them.

    Of a run that has ended, it is all of it.
    """

    def __init__(self, folder: RunFolder, host: str | None = None) -> None:
        """`host` is one of the run's; this machine, or else the first, when not said."""
        super().__init__()
        self._folder = folder
        run = folder.load()
        self._host = host or _host(run)
        self.live = run.status == "running"
        self.title = f"{run.name} on {self._host}"

    def _snapshots(self) -> Iterator[Snapshot]:
        newest: Snapshot | None = None
        told = ""
        while not self._stop.is_set():
            try:
                for snapshot in self._from(newest):
                    told = ""
                    if newest and snapshot.last and not (snapshot.samples or snapshot.events):
                        newest = newest._replace(samples=(), events=(), last=True)  # the end has no time of its own
                    else:
                        newest = snapshot
                    yield newest
                return
            except OSError as error:  # a shared folder may go away, and come back
                if told != str(error):
                    told = str(error)
                    elapsed = newest.elapsed if newest else 0.0
                    yield _told("run_unreadable", f"{self.title} cannot be read: {error}", "warning", elapsed)
                self._stop.wait(RETRY_SECONDS)

    def _from(self, newest: Snapshot | None) -> Iterator[Snapshot]:
        """What came after the last one that was shown; all, when none was."""
        if newest:
            start = math.nextafter(newest.elapsed, math.inf)
        else:
            start = recent(self._folder, self._host)
            yield from outline(self._folder, self._host, start)
        with contextlib.closing(Follow(self._folder, self._host, start)) as follow:
            yield from follow.read()
            while not (follow.ended or self._stop.is_set()):
                yield from follow.read()
                self._stop.wait(LOOK_SECONDS)


class ReplayedRun(_Threaded):
    """One host of a run, as if it were happening: at the pace that it had, or faster."""

    live = False

    def __init__(self, folder: RunFolder, host: str | None = None, *, speed: float = 1.0, start: float = 0.0) -> None:
        super().__init__()
        self._folder = folder
        run = folder.load()
        self._host = host or _host(run)
        self._speed = speed
        self._start = start
        pace = "" if math.isinf(speed) else f", {speed:g}x"
        self.title = f"{run.name} on {self._host} (replay{pace})"

    def _give(self, consumer: Consumer) -> None:
        from pulsetrain.runs.database import Database
        from pulsetrain.runs.replay import Replay

        with contextlib.closing(Database([self._folder])) as database:
            Replay(database, self._host, speed=self._speed, start=self._start).run([consumer], self._stop)


class RemoteMachine(_Threaded):
    """Another machine, by what its pulsetrain shows at /metrics. While it is away, snapshots come without samples."""

    live = True

    def __init__(self, address: str, interval: float = 1.0) -> None:
        """`gpu01:9400`, or a URL. A login is in it (`https://user:password@gpu01:9400`), or in ~/.netrc."""
        super().__init__()
        parts = _parts(address)
        self._interval = interval
        self._login = _login(parts)
        host = parts.netloc.rpartition("@")[2]
        self.title = host
        self._url = parts._replace(netloc=host, path=parts.path.rstrip("/") or "/metrics").geturl()
        self._away: str | None = None
        self._tries = 0

    def _snapshots(self) -> Iterator[Snapshot]:
        from pulsetrain.outputs.scrape_reader import Reader

        reader = Reader()
        began = time.monotonic()
        newest = -math.inf
        page = ""
        with self._client() as client:
            while not self._stop.is_set():
                asked = time.monotonic()
                before = page
                try:
                    page = _ask(client, self._url)
                    reading = reader.read(page) if page != before else None
                except PulsetrainError as error:
                    page = ""
                    newest = time.monotonic() - began
                    yield Snapshot(time.time(), newest, (), tuple(self._gone(error)))
                    self._stop.wait(self._patience())
                    continue
                if reading is not None:
                    elapsed = asked - began - reading.age_seconds
                    if elapsed > newest + SAME_SECONDS or self._away is not None:
                        newest = max(newest, elapsed)
                        yield self._shown(reading, newest)
                self._stop.wait(max(0.0, asked + self._interval - time.monotonic()))

    def _shown(self, reading: "Reading", elapsed: float) -> Snapshot:
        events = reading.events
        if self._away is not None:
            events = (Event("machine_back", f"{self.title} is back", "info"), *events)
            self._away, self._tries = None, 0
        return Snapshot(time.time() - reading.age_seconds, elapsed, reading.samples, events)

    def _gone(self, error: PulsetrainError) -> Iterator[Event]:
        """Told once, and again when there is another reason."""
        self._tries = min(self._tries + 1, MOST_DOUBLINGS)
        if self._away != error.message:
            self._away = error.message
            yield Event("machine_away", f"{self.title} is away: {error.message}", "warning")

    def _patience(self) -> float:
        return float(min(self._interval * 2**self._tries, max(self._interval, LONGEST_RETRY_SECONDS)))

    def _client(self) -> "httpx.Client":
        import httpx

        try:
            return httpx.Client(
                headers={"User-Agent": f"pulsetrain/{__version__}"},
                auth=self._login,
                timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            )
        except (ImportError, ValueError) as error:  # what the variables for proxies can do
            raise UsageError(f"the settings for a proxy cannot be used: {error}.") from None


def _told(kind: str, message: str, severity: Severity, elapsed: float = 0.0) -> Snapshot:
    """A snapshot that says something and shows nothing."""
    return Snapshot(time.time(), elapsed, (), (Event(kind, message, severity),))


def _host(run: Run) -> str:
    """The host of a run to show: this one, or else its first."""
    if not run.hosts:
        raise UsageError(f"{run.id} names no host: there is nothing to show.")
    return host_name() if host_name() in run.hosts else next(iter(run.hosts))


def _parts(address: str) -> SplitResult:
    """An address as a URL, with the port where one is missing."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    hint = "Say HOST:PORT, or a URL: https://gpu01:9400."
    try:
        port = parts.port
    except ValueError:
        raise UsageError(f"{_without_login(address)!r} has no port that can be.", hint=hint) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{_without_login(address)!r} is no machine.", hint=hint)
    return parts if port or "://" in address else parts._replace(netloc=f"{parts.netloc}:{PORT}")


def _without_login(address: str) -> str:
    return address.rpartition("@")[2]


def _login(parts: SplitResult) -> tuple[str, str] | None:
    if parts.username is not None:
        return unquote(parts.username), unquote(parts.password or "")
    try:
        known = netrc.netrc().authenticators(parts.hostname or "")
    except FileNotFoundError:
        return None
    except (OSError, netrc.NetrcParseError) as error:
        raise UsageError(f"~/.netrc cannot be read: {error}.") from None
    return (known[0], known[2] or "") if known else None


def _ask(client: "httpx.Client", url: str) -> str:
    """The text at an address."""
    import httpx

    deadline = time.monotonic() + WHOLE_SECONDS
    body = bytearray()
    try:
        with client.stream("GET", url) as response:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MOST_BYTES or time.monotonic() > deadline:
                    raise PulsetrainError("its answer has no end.")
    except httpx.TimeoutException:
        raise PulsetrainError("it does not answer in time.") from None
    except httpx.TransportError as error:
        raise PulsetrainError(f"it cannot be reached: {error}.") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise PulsetrainError(f"it cannot be asked: {error}.") from None
    if response.status_code != httpx.codes.OK:
        raise PulsetrainError(f"it answered {response.status_code} {response.reason_phrase}".rstrip() + ".")
    return body.decode(errors="replace")
