"""Questions to a Prometheus-compatible server. It may be anybody's: its answers are bounded, timed out, and data."""

import math
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from pulsetrain import __version__
from pulsetrain.answers import EndlessAnswer, read_bounded
from pulsetrain.errors import PulsetrainError, UsageError, in_words
from pulsetrain.untrusted import showable
from pulsetrain.views.live.remote import login_of

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0
WHOLE_SECONDS = 10.0
MOST_BYTES = 16_000_000
MOST_SERIES = 5000
LONGEST_LABEL = 200
LONGEST_ERROR = 200


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[_Series] = []


class _Answer(msgspec.Struct):
    status: str
    data: _Data = msgspec.field(default_factory=_Data)
    error: str = ""


class PromSeries(msgspec.Struct, frozen=True):
    """A series of an answer: its labels, and its value or its values over time. None is a number."""

    labels: Mapping[str, str]
    values: list[tuple[float, float]]

    @property
    def value(self) -> float:
        return self.values[-1][1]


class PromServer:
    """A server by its address. A login is in it, or in ~/.netrc."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        hint = "Give a URL: --from http://victoria:8428."
        try:
            wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
        except ValueError:
            wrong = True
        if wrong:
            raise UsageError(f"{address.rpartition('@')[2]!r} is not a server address.", hint=hint)
        host = parts.netloc.rpartition("@")[2]
        self.title = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        """Its address, without a login."""
        self._login = login_of(parts)
        self._client: httpx.Client | None = None
        self._lock = threading.Lock()

    def now(self, expression: str) -> list[PromSeries]:
        """The series of an expression at this moment."""
        return self._ask("query", query=expression)

    def between(self, expression: str, start: float, end: float, step: float) -> list[PromSeries]:
        """The series of an expression between two moments, with a value every so many seconds."""
        return self._ask("query_range", query=expression, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step:.3f}")

    def close(self) -> None:
        with self._lock:
            if self._client:
                self._client.close()
                self._client = None

    def _ask(self, what: str, **parameters: str) -> list[PromSeries]:
        import httpx

        deadline = time.monotonic() + WHOLE_SECONDS
        try:
            with self._opened().stream("GET", f"{self.title}/api/v1/{what}", params=parameters) as response:
                body = read_bounded(response.iter_bytes(), MOST_BYTES, deadline)
        except EndlessAnswer:
            raise PulsetrainError(f"{self.title}: its response is too long.") from None
        except httpx.TimeoutException:
            raise PulsetrainError(f"{self.title} does not respond in time.") from None
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:
            raise PulsetrainError(f"{self.title} cannot be reached: {in_words(error)}.") from None
        if response.status_code in (401, 403):
            raise PulsetrainError(f"{self.title} requires a login.", hint="Put it in the address or in ~/.netrc.")
        return _decoded(self.title, body)

    def _opened(self) -> "httpx.Client":
        import httpx

        with self._lock:
            if self._client is None:
                self._client = httpx.Client(
                    headers={"User-Agent": f"pulsetrain/{__version__}"},
                    auth=self._login,
                    timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
                )
            return self._client


def quoted_label(text: str) -> str:
    """A string in PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _decoded(title: str, body: bytes) -> list[PromSeries]:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise PulsetrainError(f"{title} is not a Prometheus-compatible server.") from None
    if answer.status != "success":
        raise PulsetrainError(f"{title} refused a query: {showable(answer.error)[:LONGEST_ERROR]}.")
    found = [_series(series) for series in answer.data.result[:MOST_SERIES]]
    return [series for series in found if series.values]


def _series(series: _Series) -> PromSeries:
    labels = {name: showable(text)[:LONGEST_LABEL] for name, text in series.metric.items()}
    given: list[Any] = [series.value] if series.value else series.values
    values = [(moment, _number(text)) for moment, text in given]
    return PromSeries(labels, [(moment, value) for moment, value in values if math.isfinite(moment + value)])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
