"""A web server on the loopback that takes what is pushed to it, and answers as a test wants."""

import gzip
import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.servers import free_port


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(gzip.decompress(self.body))


class Reply(NamedTuple):
    status: int = 200
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()


class Collector:
    """Answers what `answer` says, and keeps what it took. It can be stopped and started again at the same address."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.taken: list[Request] = []
        """Requests that were answered with success, in order."""
        self.asked: list[Request] = []
        self.answer: Callable[[Request], Reply] = lambda request: Reply()
        self._tls = tls
        self._port = free_port()
        self.url = f"{'https' if tls else 'http'}://localhost:{self._port}"
        self._http: ThreadingHTTPServer | None = None

    def start(self) -> None:
        self._http = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        self._http.daemon_threads = True
        if self._tls:
            self._http.socket = self._tls.wrap_socket(self._http.socket, server_side=True)
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._http:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = Request(self.command, self.path, dict(self.headers.items()), body)
                collector.asked.append(request)
                reply = collector.answer(request)
                if reply.status == 200:
                    collector.taken.append(request)
                self.send_response_only(reply.status)
                for name, value in (("Content-Length", str(len(reply.body))), *reply.headers):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
