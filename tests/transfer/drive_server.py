"""A server that speaks as much of Google Drive v3 as there is in use: list with pages, create, resumable upload, media.

Failures are asked for: the next requests of a kind are answered with these statuses.
"""

import json
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

REASONS = {403: "userRateLimitExceeded", 429: "rateLimitExceeded", 401: "authError", 500: "backendError"}


class Drive:
    """What is in the Drive, and what is about to fail."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, Any]] = {}
        self.uploads: dict[str, tuple[dict[str, Any], bytearray]] = {}
        self.failures: list[tuple[str, int, str]] = []
        """What the path begins with, the status, and the reason; each is used once."""
        self.requests: list[str] = []
        self.page_size = 1000
        self.lock = threading.Lock()

    def fail(self, path: str, *statuses: int, reason: str = "") -> None:
        self.failures += [(path, status, reason or REASONS[status]) for status in statuses]

    def add(self, about: dict[str, Any], data: bytes = b"") -> str:
        id = uuid.uuid4().hex
        time = datetime(2026, 11, 16, tzinfo=UTC) + timedelta(seconds=len(self.files))
        created = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.files[id] = {"mimeType": "", "createdTime": created, **about, "id": id, "data": data}
        return id

    def find(self, query: str) -> list[dict[str, Any]]:
        parent = re.search(r"'([^']+)' in parents", query)
        name = re.search(r"name = '((?:[^'\\]|\\.)*)'", query)
        kind = re.search(r"mimeType = '([^']+)'", query)
        since = re.search(r"createdTime > '([^']+)'", query)
        found = [
            file
            for file in self.files.values()
            if (not parent or parent[1] in file["parents"])
            and (not name or file["name"] == name[1])
            and (not kind or file["mimeType"] == kind[1])
            and (not since or datetime.fromisoformat(file["createdTime"]) > datetime.fromisoformat(since[1]))
        ]
        return sorted(found, key=lambda file: str(file["createdTime"]))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    drive: Drive

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self.drive.lock:
            self.drive.requests.append(f"{self.command} {parts.path}")
            for failure in self.drive.failures:
                if f"{self.command} {parts.path}".startswith(failure[0]):
                    self.drive.failures.remove(failure)
                    error = {"code": failure[1], "message": failure[2], "errors": [{"reason": failure[2]}]}
                    self._answer(failure[1], {"error": error})
                    return
            self._respond(parts.path, query, body)

    do_GET = do_POST = do_PUT = _handle

    def _respond(self, path: str, query: dict[str, str], body: bytes) -> None:
        drive = self.drive
        if path == "/drive/v3/files" and self.command == "GET":
            found = drive.find(query["q"])
            begin = int(query.get("pageToken", 0))
            size = min(drive.page_size, int(query["pageSize"]))
            page: dict[str, Any] = {
                "files": [{name: file[name] for name in ("id", "name", "createdTime")} for file in found][
                    begin : begin + size
                ]
            }
            if begin + size < len(found):
                page["nextPageToken"] = str(begin + size)
            self._answer(200, page)
        elif path == "/drive/v3/files":
            self._answer(200, {"id": drive.add(json.loads(body))})
        elif path.startswith("/drive/v3/files/") and query.get("alt") == "media":
            self._send(200, drive.files[path.rpartition("/")[2]]["data"], {"Content-Type": "application/octet-stream"})
        elif path == "/upload/drive/v3/files" and self.command == "PUT":
            self._continue(query["upload_id"], body)
        elif query.get("uploadType") == "resumable":
            upload = uuid.uuid4().hex
            drive.uploads[upload] = (json.loads(body), bytearray())
            host = self.headers["Host"]
            self._send(200, b"", {"Location": f"http://{host}/upload/drive/v3/files?upload_id={upload}"})
        elif query.get("uploadType") == "multipart":
            message = BytesParser().parsebytes(f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode() + body)
            about, media = (part.get_payload(decode=True) for part in message.walk() if not part.is_multipart())
            assert isinstance(about, bytes)
            assert isinstance(media, bytes)
            self._answer(200, {"id": drive.add(json.loads(about), media)})
        else:
            self._answer(404, {})

    def _continue(self, upload: str, body: bytes) -> None:
        about, data = self.drive.uploads[upload]
        place = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", self.headers["Content-Range"])
        assert place
        if place[1] is not None and int(place[1]) == len(data):
            data += body
        if len(data) == int(place[2]):
            self._answer(200, {"id": self.drive.add(about, bytes(data))})
        else:
            self._send(308, b"", {"Range": f"bytes=0-{len(data) - 1}"} if data else {})

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        self._send(status, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(drive: Drive) -> Iterator[str]:
    """The address of the Drive."""
    handler = type("Handler", (_Handler,), {"drive": drive})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
