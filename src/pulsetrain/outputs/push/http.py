"""Talking to a server that takes samples: login, TLS, and what its answer means for the samples."""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import httpx

from pulsetrain import __version__
from pulsetrain.answers import EndlessAnswer, read_bounded
from pulsetrain.errors import PulsetrainError, UsageError, in_words
from pulsetrain.outputs.push.target import PushTarget

CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
WHOLE_SECONDS = 20.0
"""For one answer: one that trickles in is given up as well."""
MOST_BYTES = 8_000_000
MOST_WORDS = 300
"""Of what a server says, so much is shown."""
LONGEST_WAIT_SECONDS = 300.0
"""A server may ask for patience, but not for more than this."""

_NONE: Mapping[str, str] = {}


class PushError(PulsetrainError):
    """A request that did not succeed. It may later: the samples are kept."""

    def __init__(self, message: str, *, hint: str | None = None, wait_seconds: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.wait_seconds = wait_seconds
        """How long the server asks us to wait."""


class Rejected(PushError):
    """The server will not let us in, or there is nothing at this address: somebody has to put it right."""


class Refused(PushError):
    """The server does not want these samples, and will not another time."""


class Client:
    """Connections to one server."""

    def __init__(self, target: PushTarget) -> None:
        self.host = target.host
        self._authorization = target.authorization
        self.clock_ahead = 0.0
        """Seconds by which the server's clock is ahead of ours, as of its last answer."""
        try:
            self._http = httpx.Client(
                headers={"User-Agent": f"pulsetrain/{__version__}", **target.headers},
                verify=target.tls(),
                timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
                follow_redirects=False,  # credentials are for this server alone
            )
        except (ImportError, OSError, ValueError) as error:  # what the variables for proxies and certificates can do
            raise UsageError(f"push {target.name}: the settings for TLS or a proxy cannot be used: {error}.") from None

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        return self.request("POST", url, body, headers)

    def request(self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] = _NONE) -> bytes:
        """The answer. Raises what kind of failure it was."""
        deadline = time.monotonic() + WHOLE_SECONDS
        try:
            login = self._authorization()
            headers = {**headers, **({"Authorization": login} if login else {})}
            with self._http.stream(method, url, content=body, headers=headers) as answer:
                content = read_bounded(answer.iter_bytes(), MOST_BYTES, deadline)
        except EndlessAnswer:
            raise PushError(f"{self.host} sends an endless response.") from None
        except UsageError as error:  # a file with a secret is gone
            raise Rejected(error.message) from None
        except httpx.TimeoutException:
            raise PushError(f"{self.host} does not respond in time.") from None
        except httpx.TransportError as error:
            raise PushError(f"{self.host} cannot be reached: {in_words(error)}.") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Rejected(f"{self.host} cannot be queried: {in_words(error)}.") from None
        self._note_clock(answer.headers.get("Date", ""))
        if not answer.is_success:
            raise _failure(answer, content, self.host)
        return content

    def close(self) -> None:
        self._http.close()

    def _note_clock(self, date: str) -> None:
        told = _moment(date)
        if told is not None:
            self.clock_ahead = told - time.time()


def _failure(answer: httpx.Response, content: bytes, host: str) -> PushError:
    status = answer.status_code
    words = " ".join(content.decode(errors="replace").split())[:MOST_WORDS].rstrip(".")
    said = f"{host} answered {status} {answer.reason_phrase}".rstrip() + (f": {words}." if words else ".")
    if status in (401, 403):
        return Rejected(said, hint="Check username, password or token: docs/push.md says where they are read from.")
    if status in (400, 413, 422):
        return Refused(said)
    if status in (408, 425, 429) or answer.is_server_error:
        return PushError(said, wait_seconds=_wait(answer.headers.get("Retry-After", "")))
    return Rejected(said, hint="Check the address.")


def _wait(header: str) -> float:
    """What `Retry-After` asks for: seconds, or a moment."""
    if header.isdecimal():
        seconds = float(header)
    else:
        moment = _moment(header)
        seconds = 0.0 if moment is None else moment - time.time()
    return min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)


def _moment(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
