"""The addresses of a collector, with a token of its own.

PUT /collect/v1/RUN/WRITER/NAME takes a segment; POST /collect/v1/jobs says which run the hosts of a job write.
"""

import asyncio
import errno
import hmac
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import msgspec
from starlette.concurrency import run_in_threadpool

from pulsetrain.errors import PulsetrainError
from pulsetrain.transfer.assemble import NotFetched
from pulsetrain.transfer.receiving import OverQuota, Receiver
from pulsetrain.transfer.segments import MOST_SEGMENT_BYTES, BadSegment, is_word
from pulsetrain.transfer.store import COLLECTOR_PATH, JOBS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger(__name__)

BODY_SECONDS = 60.0
"""For a sender to bring a segment: one that trickles in is given up, and comes again."""
RETRY_SECONDS = "30"
STATUS = {"applied": HTTPStatus.CREATED, "known": HTTPStatus.OK, "waiting": HTTPStatus.ACCEPTED}
FULL = {errno.ENOSPC, errno.EDQUOT}


class JobQuestion(msgspec.Struct):
    """Which run a host is to write."""

    job: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    host: str
    run: str
    """The one it would begin."""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Collecting:
    """What `serve --collector` adds to the server."""

    def __init__(self, receiver: Receiver, token: str, how: str) -> None:
        self._receiver = receiver
        self._token = token.encode()
        self.how = how
        """Where senders get the token from, in words."""

    def close(self) -> None:
        self._receiver.close()

    def before(self, app: "ASGIApp") -> "ASGIApp":
        """An application that takes segments, and leaves all else to another one."""

        async def both(scope: "Scope", receive: "Receive", send: "Send") -> None:
            if scope["type"] == "http" and scope["path"].startswith(f"{COLLECTOR_PATH}/"):
                await self._answer(scope, receive, send)
            else:
                await app(scope, receive, send)

        return both

    async def _answer(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        try:
            parts = self._checked(scope)
            async with asyncio.timeout(BODY_SECONDS):
                data = await _body(receive)
            document: dict[str, str] = {}
            if len(parts) == 3:
                run, writer, name = parts
                status = STATUS[await run_in_threadpool(self._receiver.receive, run, writer, name, data)]
            else:
                status, document = HTTPStatus.OK, {"run": await run_in_threadpool(self._run_of, data)}
        except _Refused as error:
            status, document = error.status, {"error": str(error)}
        except TimeoutError:
            status, document = HTTPStatus.REQUEST_TIMEOUT, {"error": "the segment did not arrive in time."}
        except OSError as error:
            full = error.errno in FULL
            status = HTTPStatus.INSUFFICIENT_STORAGE if full else HTTPStatus.SERVICE_UNAVAILABLE
            document = {"error": f"the run cannot be written here: {error.strerror}."}
            log.warning("a segment could not be kept: %s", error.strerror)
        except PulsetrainError as error:
            status, document = _status(error), {"error": error.message}
        await _send(send, status, document)

    def _run_of(self, data: bytes) -> str:
        try:
            asked = msgspec.json.decode(data, type=JobQuestion)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise _Refused(HTTPStatus.BAD_REQUEST, "that is not a valid job query.") from None
        if not (is_word(asked.host) and is_word(asked.run)):
            raise _Refused(HTTPStatus.BAD_REQUEST, "that is not a valid host name or run id.")
        return self._receiver.jobs.run_of(asked.job, asked.host, asked.run)

    def _checked(self, scope: "Scope") -> list[str]:
        """What a request is about, from one who may ask: the parts of its address."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip().encode("utf-8", "replace") if scheme.lower() == "bearer" else b""
        if not hmac.compare_digest(given, self._token):
            raise _Refused(HTTPStatus.UNAUTHORIZED, "the collector token is missing or wrong.")
        parts: list[str] = scope["path"].removeprefix(f"{COLLECTOR_PATH}/").split("/")
        if len(parts) != 3 and parts != [JOBS]:
            raise _Refused(HTTPStatus.NOT_FOUND, "there is nothing at this address.")
        if scope["method"] != ("POST" if parts == [JOBS] else "PUT"):
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "send segments with PUT.")
        return parts


def _status(error: PulsetrainError) -> HTTPStatus:
    match error:
        case BadSegment():
            return HTTPStatus.BAD_REQUEST
        case OverQuota():
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        case NotFetched():
            return HTTPStatus.CONFLICT
        case _:
            return HTTPStatus.SERVICE_UNAVAILABLE


async def _body(receive: "Receive") -> bytes:
    """No more of it than a segment may have."""
    found = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(HTTPStatus.BAD_REQUEST, "the sender disconnected.")
        found += message.get("body", b"")
        if len(found) > MOST_SEGMENT_BYTES:
            raise _Refused(HTTPStatus.BAD_REQUEST, "the segment is too large.")
        if not message.get("more_body"):
            return bytes(found)


async def _send(send: "Send", status: HTTPStatus, document: dict[str, str]) -> None:
    body = msgspec.json.encode(document)
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Cache-Control": "no-store"}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INSUFFICIENT_STORAGE):
        headers["Retry-After"] = RETRY_SECONDS
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status.value, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
