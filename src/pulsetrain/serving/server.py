"""A small HTTP server for answers that are ready: GET and HEAD, keep-alive, TLS, basic auth.

One thread with an event loop serves all clients, so that many at once, or slow ones, cost little.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple, TypeVarTuple
from urllib.parse import urlsplit

from pulsetrain.serving.limits import BACKLOG, IDLE_SECONDS, MOST_CONNECTIONS, MOST_REQUEST_BYTES, REQUEST_SECONDS
from pulsetrain.serving.listening import listen, url_of
from pulsetrain.serving.web_config import CHALLENGE, WebConfig

log = logging.getLogger(__name__)

Arguments = TypeVarTuple("Arguments")


class HttpRequest(NamedTuple):
    """What a client asks for."""

    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str]
    """By names in lower case."""


class HttpResponse(NamedTuple):
    """A whole answer."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


def plain(status: HTTPStatus, **headers: str) -> HttpResponse:
    """An answer that only says how it went."""
    text = f"{status.value} {status.phrase}\n"
    return HttpResponse(
        status, text.encode(), headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


class HttpServer:
    """Holds its port from the beginning, and answers from `start` on: whoever comes earlier waits.

    `answer` is called by the server's thread, for every request that may pass.
    """

    def __init__(
        self,
        address: str,
        port: int,
        answer: Callable[[HttpRequest], HttpResponse],
        protection: WebConfig | None = None,
    ) -> None:
        self._socket = listen(address, port)
        self._answer = answer
        self._tls, self._may_pass = protection or WebConfig()
        self._connections: dict[asyncio.StreamWriter, bool] = {}
        """Whether each is being answered; in the order in which they were last answered."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="http-server", daemon=True)

    @property
    def url(self) -> str:
        return url_of(self._socket, encrypted=self._tls is not None)

    def start(self) -> None:
        self._thread.start()

    def call(self, function: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Have the server's thread call a function, between two answers."""
        with contextlib.suppress(RuntimeError):  # it has been closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """Stop listening and end the thread; clients that still read are cut off."""
        if self._thread.is_alive():
            self.call(self._loop.stop)
            self._thread.join(REQUEST_SECONDS)
        elif not self._loop.is_closed():  # it was never started
            self._loop.close()
        self._socket.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        serving = asyncio.start_server(
            self._serve, sock=self._socket, ssl=self._tls, limit=MOST_REQUEST_BYTES, backlog=BACKLOG
        )
        starting = self._loop.create_task(serving)
        self._loop.run_forever()
        starting.cancel()
        for writer in self._connections:
            writer.transport.abort()
        self._loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(self._loop), return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self._connections[writer] = False
        if len(self._connections) > MOST_CONNECTIONS:
            self._close_longest_idle()
        try:
            await self._requests(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()  # the client is gone, or too slow, or says too much
        finally:
            self._connections.pop(writer, None)
            writer.close()

    def _close_longest_idle(self) -> None:
        idle = (writer for writer, answering in self._connections.items() if not answering)
        if (longest := next(idle, None)) is not None:
            longest.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        patience = REQUEST_SECONDS
        while True:
            async with asyncio.timeout(patience):
                head = await reader.readuntil(b"\r\n\r\n")
            del self._connections[writer]  # to the end of the row
            self._connections[writer] = True
            request = _parse(head)
            response = plain(HTTPStatus.BAD_REQUEST) if request is None else await self._respond(request)
            again = request is not None and _keeps_alive(head, request)
            with_body = request is None or request.method != "HEAD"
            writer.write(_encode(response, again=again, with_body=with_body))
            async with asyncio.timeout(REQUEST_SECONDS):
                await writer.drain()
            if not again:
                return
            self._connections[writer] = False
            patience = IDLE_SECONDS

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        if self._may_pass and not await self._may_pass(request.headers.get("authorization", "")):
            return plain(HTTPStatus.UNAUTHORIZED, WWW_Authenticate=CHALLENGE)
        if request.method not in ("GET", "HEAD"):
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, Allow="GET, HEAD")
        return self._answer(request)


def _parse(head: bytes) -> HttpRequest | None:
    """None when it is not an HTTP/1 request."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            return None
        known = headers.get(name.lower())
        headers[name.lower()] = value.strip() if known is None else f"{known},{value.strip()}"
    try:
        return HttpRequest(words[0], urlsplit(words[1]).path, headers)
    except ValueError:
        return None


def _keeps_alive(head: bytes, request: HttpRequest) -> bool:
    """HTTP/1.1 does, unless told not to. What has a body is not read on: its end would have to be found."""
    if "content-length" in request.headers or "transfer-encoding" in request.headers:
        return False
    connection = request.headers.get("connection", "").lower()
    return connection != "close" if head.split(b"\r\n", 1)[0].endswith(b"/1.1") else connection == "keep-alive"


def _encode(response: HttpResponse, *, again: bool, with_body: bool) -> bytes:
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Connection": "keep-alive" if again else "close",
        **response.headers,
    }
    lines = [f"HTTP/1.1 {response.status.value} {response.status.phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head + response.body if with_body else head
