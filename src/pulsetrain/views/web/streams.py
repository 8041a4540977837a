"""Server-sent events: each message is encoded once, and every viewer gets the same bytes.

Messages have ids. A browser that comes back names the last it has seen, and gets what it missed; if that is no longer
known, because it is long ago or the server was restarted, it is told to read all again.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import NamedTuple

import msgspec

KEPT_MESSAGES = 600
"""For viewers that come back."""
WAITING_MESSAGES = 120
"""A viewer that is further behind has to read all again."""
PING_SECONDS = 15.0
RETRY_MILLISECONDS = 2000
RESET = b"event: reset\ndata: {}\n\n"
PING = b": still here\n\n"


class _Message(NamedTuple):
    number: int
    topic: str
    encoded: bytes


class Streams:
    """All viewers. It belongs to the thread of the server's event loop; `publish` may be called from any."""

    def __init__(self) -> None:
        self._server = secrets.token_hex(4)
        self._number = 0
        self._kept: deque[_Message] = deque(maxlen=KEPT_MESSAGES)
        self._viewers: dict[asyncio.Queue[bytes | None], frozenset[str]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    @property
    def topics(self) -> frozenset[str]:
        """All that somebody looks at."""
        return frozenset().union(*self._viewers.values())

    def publish(self, topic: str, kind: str, document: object) -> None:
        """Send a message to all who look at this topic."""
        if self._loop is None:
            return
        data = msgspec.json.encode(document)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._send, topic, kind, data)

    def close(self) -> None:
        """End all streams; they would keep the server from ending."""
        self._closed = True
        for queue in self._viewers:
            self._put(queue, None)

    async def view(self, topics: Collection[str], last_id: str | None) -> AsyncIterator[bytes]:
        """What a viewer gets, without end."""
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_MESSAGES)
        wanted = frozenset(topics)
        self._viewers[queue] = wanted
        try:
            begin = f"retry: {RETRY_MILLISECONDS}\nid: {self._server}-{self._number}\nevent: hello\ndata: {{}}\n\n"
            yield begin.encode()
            for missed in self._missed(wanted, last_id):
                yield missed
            while not self._closed:
                try:
                    async with asyncio.timeout(PING_SECONDS):
                        message = await queue.get()
                except TimeoutError:
                    message = PING
                if message is None:
                    return
                yield message
        finally:
            del self._viewers[queue]

    def _missed(self, topics: frozenset[str], last_id: str | None) -> list[bytes]:
        if not last_id:
            return []
        server, _, number = last_id.partition("-")
        oldest = self._kept[0].number if self._kept else self._number + 1
        if server != self._server or not number.isascii() or not number.isdigit() or int(number) + 1 < oldest:
            return [RESET]
        return [message.encoded for message in self._kept if message.number > int(number) and message.topic in topics]

    def _send(self, topic: str, kind: str, data: bytes) -> None:
        self._number += 1
        encoded = b"id: %s-%d\nevent: %s\ndata: %s\n\n" % (self._server.encode(), self._number, kind.encode(), data)
        self._kept.append(_Message(self._number, topic, encoded))
        for queue, topics in self._viewers.items():
            if topic in topics:
                self._put(queue, encoded)

    def _put(self, queue: "asyncio.Queue[bytes | None]", message: bytes | None) -> None:
        if queue.full():
            while not queue.empty():
                queue.get_nowait()
            queue.put_nowait(RESET)
            if message is not None:
                return
        queue.put_nowait(message)
