"""Google's own client against a local Drive: pages, duplicates, uploads in pieces, rate limits, an expired sign-in."""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.transfer.drive_server import Drive, serving
from tests.transfer.sending import LINES, RUN, WRITER, line, segments

from pulsetrain.runs.folder import Home
from pulsetrain.transfer import drive as drive_module
from pulsetrain.transfer.drive import DriveStore
from pulsetrain.transfer.fetching import Fetcher
from pulsetrain.transfer.store import StoreError, StoreRejected

FILES = "/drive/v3/files"
UPLOAD = "/upload/drive/v3/files"


@pytest.fixture
def drive() -> Drive:
    return Drive()


@pytest.fixture
def store(clients: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch) -> Iterator[DriveStore]:
    from googleapiclient import http
    from googleapiclient.discovery import build_from_document

    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)  # of the client's own delays between retries
    (described,) = clients.glob("googleapiclient/discovery_cache/documents/drive.v3.json")
    with serving(drive) as url:
        document = json.loads(described.read_text()) | {"rootUrl": f"{url}/", "baseUrl": f"{url}/drive/v3/"}
        service = build_from_document(document, http=http.build_http())
        with closing(DriveStore(service, "pulsetrain/runs")) as store:
            yield store


def send(store: DriveStore, contents: list[bytes]) -> None:
    for name, data in segments(contents):
        store.put(f"{RUN}/{WRITER}/{name}", data)


def test_a_run_goes_through_the_drive_page_by_page(tmp_path: Path, drive: Drive, store: DriveStore) -> None:
    drive.page_size = 2
    sent = [line(number) for number in range(7)]
    send(store, sent[:5])
    fetcher = Fetcher(store, Home(tmp_path))
    assert fetcher.look()[0].segments == 5
    send(store, sent)  # again, and two more
    drive.add({**next(file for file in drive.files.values() if file["name"].startswith("00000007"))}, b"torn")
    before = len(drive.requests)
    assert fetcher.look()[0].segments == 2
    assert not any("/media" in request for request in drive.requests[before:])
    assert (tmp_path / RUN / LINES).read_bytes() == b"".join(sent)
    assert sum(file["name"].startswith("00000003") for file in drive.files.values()) == 1


def test_what_fails_for_a_moment_is_tried_again_by_the_client_itself(drive: Drive, store: DriveStore) -> None:
    drive.fail(f"GET {FILES}", 403, 429, 500)
    drive.fail(f"POST {UPLOAD}", 500, 429)
    send(store, [line(0)])
    assert drive.failures == []
    assert store.list(f"{RUN}/{WRITER}") == [segments([line(0)])[0][0]]


def test_a_large_segment_is_uploaded_in_pieces_and_continues_after_an_error(drive: Drive, store: DriveStore) -> None:
    noise = random.Random(1).randbytes(600_000).hex().encode() + b"\n"
    ((name, data),) = segments([noise])
    assert len(data) > 2 * drive_module.RESUMABLE_BYTES
    drive.fail(f"PUT {UPLOAD}", 500)
    store.put(f"{RUN}/{WRITER}/{name}", data)
    assert sum(request == f"PUT {UPLOAD}" for request in drive.requests) >= 4
    assert store.list(f"{RUN}/{WRITER}") == [name]
    assert store.get(f"{RUN}/{WRITER}/{name}") == data


@pytest.mark.parametrize(
    ("status", "reason", "kind", "says"),
    [
        (429, "rateLimitExceeded", StoreError, "returned 429"),
        (403, "userRateLimitExceeded", StoreError, "returned 403"),
        (403, "storageQuotaExceeded", StoreRejected, "returned 403"),
        (401, "authError", StoreRejected, "sign-in to Google Drive has expired"),
        (500, "backendError", StoreError, "returned 500"),
    ],
)
def test_what_keeps_failing_is_reported(
    drive: Drive, store: DriveStore, status: int, reason: str, kind: type[StoreError], says: str
) -> None:
    drive.fail(f"GET {FILES}", *[status] * (drive_module.RETRIES + 1), reason=reason)
    with pytest.raises(kind, match=says) as raised:
        store.list("")
    assert type(raised.value) is kind
    assert (raised.value.wait_seconds > 0) == reason.endswith("ateLimitExceeded")


class _Google(BaseHTTPRequestHandler):
    """Lets everybody in: the page of the sign-in sends the browser back with a code, which is good for a token."""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self.server.scopes.append(query["scope"])  # type: ignore[attr-defined]
        self.send_response(302)
        self.send_header("Location", f"{query['redirect_uri']}?code=4711&state={query['state']}")
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"access_token": "at", "refresh_token": "rt", "expires_in": 3600, "token_type": "Bearer"})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())


def test_signing_in_with_the_browser_leaves_a_token_for_its_owner_alone(tmp_path: Path, clients: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Google) as google:
        google.scopes = []  # type: ignore[attr-defined]
        threading.Thread(target=google.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        url = f"http://127.0.0.1:{google.server_address[1]}"
        about = {"client_id": "id", "client_secret": "secret", "auth_uri": f"{url}/auth", "token_uri": f"{url}/token"}
        (tmp_path / "client.json").write_text(
            json.dumps({"installed": {**about, "redirect_uris": ["http://localhost"]}})
        )
        browse = "import sys, urllib.request as u; u.urlopen(sys.argv[1]).read()"
        (tmp_path / "browser.py").write_text(browse)
        environment = {
            **os.environ,
            "PULSETRAIN_HOME": str(tmp_path / "home"),
            "PYTHONPATH": str(clients),
            "BROWSER": f"{sys.executable} {tmp_path / 'browser.py'} %s &",
            "OAUTHLIB_INSECURE_TRANSPORT": "1",
        }
        command = [sys.executable, "-m", "pulsetrain", "fetch", "--setup", "--client", str(tmp_path / "client.json")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        google.shutdown()
    assert "signed in" in done.stdout, done.stdout + done.stderr
    token = tmp_path / "home/drive-token.json"
    assert token.stat().st_mode & 0o777 == 0o600
    assert json.loads(token.read_text())["refresh_token"] == "rt"
    assert google.scopes == ["https://www.googleapis.com/auth/drive.readonly"]  # type: ignore[attr-defined]


def test_a_sign_in_that_was_withdrawn_is_reported_with_what_to_do(
    tmp_path: Path, clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google's answer to a refresh then is 400, invalid_grant."""

    class Refusing(_Google):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b'{"error": "invalid_grant", "error_description": "Token has been expired or revoked."}')

    from google.oauth2 import credentials

    monkeypatch.setenv("PULSETRAIN_HOME", str(tmp_path))
    with HTTPServer(("127.0.0.1", 0), Refusing) as google:
        threading.Thread(target=google.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        uri = f"http://127.0.0.1:{google.server_address[1]}/token"
        monkeypatch.setattr(credentials, "_GOOGLE_OAUTH2_TOKEN_ENDPOINT", uri)
        about = {"client_id": "id", "client_secret": "secret", "refresh_token": "rt"}
        (tmp_path / "drive-token.json").write_text(json.dumps({**about, "expiry": "2020-01-01T00:00:00Z"}))
        with (
            closing(drive_module.open_store("drive:MyDrive/pulsetrain", to_read=True)) as store,
            pytest.raises(StoreRejected, match="has expired") as raised,
        ):
            store.list("")
        google.shutdown()
    assert "fetch --setup" in (raised.value.hint or "")
