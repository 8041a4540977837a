"""Asking a provider over HTTP: short timeouts, one more try, and no answer believed before it is checked."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from pulsetrain import __version__
from pulsetrain.answers import EndlessAnswer, read_bounded
from pulsetrain.errors import in_words
from pulsetrain.intensity.slots import IntensityError

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
WHOLE_SECONDS = 20.0
"""For one try: an answer that trickles in is given up as well."""
RETRY_SECONDS = 0.5
PATIENCE_SECONDS = 2.0
"""The longest `Retry-After` that is waited for."""
MAX_BYTES = 8_000_000

Answer = TypeVar("Answer")


class _Passing(IntensityError):
    """Something that may be gone at a second try."""

    def __init__(self, message: str, *, status: int | None = None, wait_seconds: float = RETRY_SECONDS) -> None:
        super().__init__(message, status=status)
        self.wait_seconds = wait_seconds


def get(
    url: str,
    answer: type[Answer],
    *,
    params: Mapping[str, str] | None = None,
    secret: Mapping[str, str] | None = None,
    login: tuple[str, str] | None = None,
) -> Answer:
    """The answer as a checked document. `secret` headers and a login are never sent on to where a redirect points."""
    client = _client(secret or {}, login)
    with client:
        try:
            body = _ask(client, url, params)
        except _Passing as error:
            if error.wait_seconds > PATIENCE_SECONDS:
                raise
            time.sleep(error.wait_seconds)
            body = _ask(client, url, params)
    try:
        return msgspec.json.decode(body, type=answer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise IntensityError(f"{urlsplit(url).netloc} sent an unexpected response: {error}.") from None


def _client(secret: Mapping[str, str], login: tuple[str, str] | None) -> "httpx.Client":
    import httpx

    try:
        return httpx.Client(
            headers={"User-Agent": f"pulsetrain/{__version__}", "Accept": "application/json", **secret},
            auth=login,
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            follow_redirects=not secret and not login,
        )
    except (ImportError, OSError, ValueError) as error:  # what the variables for proxies and certificates can do
        raise IntensityError(f"the settings for proxies or certificates cannot be used: {error}.") from None


def _ask(client: "httpx.Client", url: str, params: Mapping[str, str] | None) -> bytes:
    import httpx

    host = urlsplit(url).netloc
    deadline = time.monotonic() + WHOLE_SECONDS
    try:
        with client.stream("GET", url, params=params) as response:
            body = read_bounded(response.iter_bytes(), MAX_BYTES, deadline)
    except EndlessAnswer:
        raise IntensityError(f"{host} sends an endless response.") from None
    except httpx.TimeoutException:
        raise _Passing(f"{host} does not respond in time.") from None
    except httpx.TransportError as error:
        raise _Passing(f"{host} cannot be reached: {in_words(error)}.") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise IntensityError(f"the request to {host} failed: {in_words(error)}.") from None
    if response.status_code == httpx.codes.OK:
        return body
    raise _refusal(response, host, _reason(body))


def _refusal(response: "httpx.Response", host: str, reason: str) -> IntensityError:
    status = response.status_code
    said = f"{host} answered {status} {response.reason_phrase}".rstrip() + (f": {reason}." if reason else ".")
    if response.is_redirect:
        return IntensityError(f"{said} A redirect is not followed with credentials.", status=status)
    if status == 429 or response.is_server_error:
        wait = response.headers.get("Retry-After", "")
        seconds = float(wait) if wait.isdecimal() else RETRY_SECONDS
        return _Passing(said, status=status, wait_seconds=seconds)
    return IntensityError(said, status=status)


def _reason(body: bytes) -> str:
    """What an answer says of its own failure; every provider says it in another place."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    while isinstance(said, dict):
        said = next((said[key] for key in ("message", "error", "detail") if said.get(key)), "")
    return str(said)[:200].rstrip(".")
