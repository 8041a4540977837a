"""Web servers on the loopback that speak as the providers of carbon intensity do."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

HALF_HOUR = timedelta(minutes=30)


class Question(NamedTuple):
    path: str
    params: dict[str, str]
    headers: dict[str, str]


class Reply(NamedTuple):
    body: Any
    """A document, or bytes as they are."""
    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


class Server:
    """Answers what `answer` says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.answer: Callable[[Question], Reply] = lambda question: Reply({"error": "nothing here"}, 404)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def paths(self) -> list[str]:
        return [question.path for question in self.asked]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                question = Question(url.path, dict(parse_qsl(url.query)), dict(self.headers.items()))
                server.asked.append(question)
                reply = server.answer(question)
                body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                try:
                    self.send_response(reply.status)
                    for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
                except ConnectionError:
                    pass  # who asked has gone

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def minute(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%MZ}"


def half_hours(start: datetime, end: datetime) -> Iterator[datetime]:
    """As the UK's API counts: it begins one slot early."""
    slot = start.replace(minute=start.minute // 30 * 30, second=0, microsecond=0) - HALF_HOUR
    while slot < end:
        yield slot
        slot += HALF_HOUR


def uk_slot(start: datetime, **intensity: float | None) -> dict[str, Any]:
    return {
        "from": minute(start),
        "to": minute(start + HALF_HOUR),
        "intensity": {**intensity, "index": "moderate"},
    }


def uk_answer(question: Question, grams: Callable[[datetime], float] = lambda start: 200.0) -> Reply:
    """What the UK's API says: actual values nationally for slots that have passed; `data` is an object for a region."""
    path = re.fullmatch(r"(/regional)?/intensity/([^/]+)/([^/]+)(/.*)?", question.path)
    assert path, question.path
    regional, first, last, _ = path.groups()
    start = datetime.fromisoformat(first)
    end = start + timedelta(hours=48) if last == "fw48h" else datetime.fromisoformat(last)
    if end - start > timedelta(days=14):
        return Reply({"error": {"code": "400 Bad Request", "message": "The range is limited to 14 days."}}, 400)
    now = datetime.now(UTC)
    slots = []
    for slot in half_hours(start, end):
        passed = slot + HALF_HOUR <= now
        if regional:
            slots.append(uk_slot(slot, forecast=grams(slot)))
        else:
            slots.append(uk_slot(slot, forecast=grams(slot) + 10, actual=grams(slot) if passed else None))
    if regional:
        return Reply({"data": {"regionid": 13, "dnoregion": "UKPN London", "shortname": "London", "data": slots}})
    return Reply({"data": slots})
