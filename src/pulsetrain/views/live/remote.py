"""Another machine as a feed: what its pulsetrain serves at /metrics, read again and again."""

import math
import netrc
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from pulsetrain import __version__
from pulsetrain.answers import EndlessAnswer, read_bounded
from pulsetrain.errors import PulsetrainError, UsageError, in_words
from pulsetrain.snapshot import Event, Snapshot
from pulsetrain.untrusted import showable_lines
from pulsetrain.views.live.feeds import ThreadedFeed

if TYPE_CHECKING:
    import httpx

    from pulsetrain.outputs.scrape_reader import ScrapeReading

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
_LINE_BREAK = re.compile(r"(?<!\\)((?:\\\\)*)\\n")
"""In a label: an `n` behind a backslash that is not itself behind one."""


class RemoteFeed(ThreadedFeed):
    """Another machine, by what its pulsetrain shows at /metrics. While it is away, snapshots come without samples."""

    live = True

    def __init__(self, address: str, interval: float = 1.0) -> None:
        """`gpu01:9400`, or a URL. A login is in it (`https://user:password@gpu01:9400`), or in ~/.netrc."""
        super().__init__()
        parts = _parts(address)
        self._interval = interval
        self._login = login_of(parts)
        host = parts.netloc.rpartition("@")[2]
        self.title = host
        self._url = parts._replace(netloc=host, path=parts.path.rstrip("/") or "/metrics").geturl()
        self._away: str | None = None
        self._tries = 0

    def _snapshots(self) -> Iterator[Snapshot]:
        from pulsetrain.outputs.scrape_reader import ScrapeReader

        reader = ScrapeReader()
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

    def _shown(self, reading: "ScrapeReading", elapsed: float) -> Snapshot:
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
            yield Event("machine_away", f"{self.title} does not respond: {error.message}", "warning")

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


def _parts(address: str) -> SplitResult:
    """An address as a URL, with the port where one is missing."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    hint = "Use HOST:PORT, or a URL: https://gpu01:9400."
    try:
        port = parts.port
    except ValueError:
        raise UsageError(f"{_without_login(address)!r} has an invalid port.", hint=hint) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{_without_login(address)!r} is not a machine address.", hint=hint)
    return parts if port or "://" in address else parts._replace(netloc=f"{parts.netloc}:{PORT}")


def _without_login(address: str) -> str:
    return address.rpartition("@")[2]


def login_of(parts: SplitResult) -> tuple[str, str] | None:
    """User and password, from the address or from ~/.netrc."""
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
    """The text at an address. Nothing in it steers a terminal, whoever answered."""
    import httpx

    deadline = time.monotonic() + WHOLE_SECONDS
    try:
        with client.stream("GET", url) as response:
            body = read_bounded(response.iter_bytes(), MOST_BYTES, deadline)
    except EndlessAnswer:
        raise PulsetrainError("its response is too long.") from None
    except httpx.TimeoutException:
        raise PulsetrainError("it does not respond in time.") from None
    except httpx.TransportError as error:
        raise PulsetrainError(f"it cannot be reached: {in_words(error)}.") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise PulsetrainError(f"the request failed: {in_words(error)}.") from None
    if response.status_code != httpx.codes.OK:
        raise PulsetrainError(f"it answered {response.status_code} {response.reason_phrase}".rstrip() + ".")
    return showable_lines(_LINE_BREAK.sub(r"\1 ", body.decode(errors="replace")))
