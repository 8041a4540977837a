"""Services that people get messages from, on this machine: an HTTP server for ntfy and webhooks, and an SMTP server."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string
from email.message import Message
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Post(NamedTuple):
    path: str
    body: dict[str, Any]


class Web:
    """Takes JSON. While it is `broken`, it answers 503."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.broken = False
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if not web.broken:
                    web.posts.append(Post(self.path, json.loads(body)))
                self.send_response(503 if web.broken else 200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"


class Mail:
    """Takes mail, as far as a client needs an SMTP server for it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        mail = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 here\r\n")
                while line := self.rfile.readline().decode().strip():
                    if line.upper() == "DATA":
                        self.wfile.write(b"354 go on\r\n")
                        lines = iter(lambda: self.rfile.readline().decode(), ".\r\n")
                        mail.messages.append(message_from_string("".join(lines), policy=default))
                    self.wfile.write(b"221 bye\r\n" if line.upper() == "QUIT" else b"250 well\r\n")
                    if line.upper() == "QUIT":
                        return

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        port = self.server.server_address[1]
        return f"mailto://127.0.0.1:{port}?from=run@example.org&to=me@example.org&smtp=127.0.0.1&mode=insecure"


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
