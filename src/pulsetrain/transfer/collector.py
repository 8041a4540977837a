"""A collector: `pulsetrain serve --collector` on another machine, over HTTPS."""

import os
import time
from typing import NoReturn
from urllib.parse import urlsplit

import httpx
import msgspec

from pulsetrain import __version__
from pulsetrain.answers import EndlessAnswer, read_bounded
from pulsetrain.errors import UsageError, in_words
from pulsetrain.transfer.segments import is_word
from pulsetrain.transfer.store import COLLECTOR_PATH, COLLECTOR_VARIABLE, JOBS, StoreError, StoreRejected

EVERY_SECONDS = 1.5
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
JOIN_SECONDS = 5.0
"""A run waits so long for its beginning."""
MOST_ANSWER_BYTES = 64 * 2**10
LONGEST_WAIT_SECONDS = 300.0


def open_store(url: str, *, to_read: bool = False) -> "CollectorStore":
    if to_read:
        raise UsageError(
            "runs cannot be fetched from a collector: it assembles them itself.",
            hint="They are on the machine that runs `pulsetrain serve --collector`, and on its web page.",
        )
    parts = urlsplit(url)
    if not parts.hostname or parts.username or parts.password or parts.query:
        raise UsageError(
            "a collector's address must be https://HOST:PORT, without a login.",
            hint=f"Put the token in {COLLECTOR_VARIABLE}.",
        )
    return CollectorStore(url.rstrip("/"), os.environ.get(COLLECTOR_VARIABLE, ""))


class CollectorStore:
    """Brings segments to a collector."""

    every_seconds = EVERY_SECONDS

    def __init__(self, url: str, token: str) -> None:
        if not token:
            raise UsageError(
                f"a collector needs a token: {COLLECTOR_VARIABLE} is not set.",
                hint="`pulsetrain serve --collector` prints where its token is.",
            )
        self._url = url
        self._host = urlsplit(url).netloc
        try:
            self._http = httpx.Client(
                headers={"User-Agent": f"pulsetrain/{__version__}", "Authorization": f"Bearer {token}"},
                verify=url.startswith("https:"),  # else the authorities would be read for nothing
                follow_redirects=False,  # the token is for this server alone
            )
        except (ImportError, OSError, ValueError) as error:  # what the variables for proxies and certificates can do
            raise UsageError(f"the settings for TLS or a proxy cannot be used: {error}.") from None

    def put(self, path: str, data: bytes) -> None:
        self._request("PUT", path, data, ANSWER_SECONDS)

    def join(self, job: str, host: str, run: str) -> str:
        asked = msgspec.json.encode({"job": job, "host": host, "run": run})
        found = _said(self._request("POST", JOBS, asked, JOIN_SECONDS), "run")
        if not is_word(found):
            raise StoreError(f"the collector {self._host} did not say which run the job belongs to.")
        return found

    def _request(self, method: str, path: str, data: bytes, seconds: float) -> bytes:
        """What it answers."""
        url, deadline = f"{self._url}{COLLECTOR_PATH}/{path}", time.monotonic() + seconds
        timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
        try:
            with self._http.stream(method, url, content=data, timeout=timeout) as response:
                body = read_bounded(response.iter_bytes(), MOST_ANSWER_BYTES, deadline)
        except (httpx.HTTPError, httpx.InvalidURL, EndlessAnswer) as error:
            reason = in_words(error) or type(error).__name__
            raise StoreError(f"the collector {self._host} does not answer: {reason}.") from None
        if not response.is_success:
            self._raise(response, body)
        return body

    def list(self, folder: str, after: str = "") -> list[str]:
        raise StoreRejected("segments cannot be read back from a collector.")

    def get(self, path: str) -> bytes:
        raise StoreRejected("segments cannot be read back from a collector.")

    def close(self) -> None:
        self._http.close()

    def _raise(self, response: httpx.Response, body: bytes) -> NoReturn:
        said = _said(body, "error") or f"HTTP status {response.status_code}."
        message = f"the collector {self._host} refuses the run: {said}"
        match response.status_code:
            case 401 | 403:
                raise StoreRejected(message, hint=f"Set {COLLECTOR_VARIABLE} to the collector's token.")
            case 404 | 405 if not _said(body, "error"):
                raise StoreRejected(message, hint="Is it `pulsetrain serve --collector`?")
            case 400 | 404 | 405 | 409 | 413:
                raise StoreRejected(message)
            case _:
                raise StoreError(message, wait_seconds=_wait(response))


def _said(body: bytes, what: str) -> str:
    try:
        document = msgspec.json.decode(body, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return document.get(what, "")[:300]


def _wait(response: httpx.Response) -> float:
    try:
        return min(max(0.0, float(response.headers.get("Retry-After", "0"))), LONGEST_WAIT_SECONDS)
    except ValueError:
        return 0.0
