"""Whatever clients send to /metrics: each gets an answer or is let go, and the next one is answered as ever."""

import contextlib
import http.client
import logging
import socket
import struct
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.bounds import HANG_SECONDS, fuzz
from tests.fuzz.folders import Edit, edits

from pulsetrain.outputs import Origin
from pulsetrain.outputs.prometheus import Exporter
from pulsetrain.serving import web_config
from pulsetrain.snapshot import Sample, Snapshot, Subject
from pulsetrain.supervise import Supervisor

USER, PASSWORD = "ann", "s3cret"
LOGIN = "Basic YW5uOnMzY3JldA=="
GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4"})

words = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *(
                "",
                " ",
                "\t",
                "\r",
                "\n",
                "\0",
                ":",
                ";q=",
                ",",
                "*/*",
                "gzip;q=x",
                "gzip;q=9e999",
                "identity;q=0,*;q=0",
            ),
            *("application/openmetrics-text;version=1.0.0", "text/plain;version=0.0.4;q=nan", "-1", "99999999999999"),
            *(LOGIN, "Basic", "Basic \xff", "Basic " + "A" * 3000, "Basic YW5uOg==", "Bearer x", "a" * 20_000),
        ]
    ),
)
names = st.one_of(
    st.sampled_from(
        ["Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Length", "Transfer-Encoding", "Host"]
    ),
    words,
)


class Visit(NamedTuple):
    """What one client does."""

    sent: list[bytes]
    """Piece by piece."""
    leaves: str
    """`reads` to the end of the first answer, `halts` (says that nothing more comes), or `resets` the connection."""


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request: right, odd, or damaged."""
    method = draw(st.one_of(st.sampled_from(["GET", "HEAD", "POST", "get", "PRI"]), words))
    path = draw(
        st.one_of(st.sampled_from(["/metrics", "/", "/healthz", "/metrics?a=b", "//[", "http://[::1/x"]), words)
    )
    version = draw(st.one_of(st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.", "HTTP/1.1\r\n x"]), words))
    headers = draw(st.lists(st.tuples(names, words), max_size=4))
    end = draw(st.sampled_from(["\r\n", "\r\n", "\r\n", "\n", "\r"]))
    lines = [f"{method} {path} {version}", *(f"{name}: {value}" for name, value in headers), "", ""]
    text = end.join(lines).encode("utf-8", "surrogatepass")
    damage: list[Edit] = draw(edits) if draw(st.integers(0, 3)) == 0 else []
    for edit in damage:
        text = edit.apply(text)
    return text


visits = st.builds(Visit, st.lists(requests(), min_size=1, max_size=3), st.sampled_from(["reads", "halts", "resets"]))


class Served(NamedTuple):
    """A running exporter."""

    exporter: Exporter
    supervisor: Supervisor
    login: str | None

    def connect(self) -> socket.socket:
        host, _, port = self.exporter.url.removeprefix("http://").rpartition(":")
        return socket.create_connection((host, int(port)), timeout=HANG_SECONDS)

    def read_and_scrape(self) -> bytes:
        """What Prometheus gets of a new reading."""
        now = datetime.now(UTC).timestamp()
        self.exporter(Snapshot(now, 0.0, (Sample(GPU, {"up": 1, "power_draw_watts": 300.0}),)))
        connection = http.client.HTTPConnection(self.exporter.url.removeprefix("http://"), timeout=HANG_SECONDS)
        connection.request("GET", "/metrics", headers={"Authorization": self.login} if self.login else {})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        assert response.status == 200
        return body


class Complaints(logging.Handler):
    """What the event loop has to say of exceptions that nobody caught."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


@pytest.fixture(scope="module")
def complaints() -> Iterator[Complaints]:
    handler = Complaints()
    loggers = [logging.getLogger(name) for name in ("asyncio", "pulsetrain")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler
    for logger in loggers:
        logger.removeHandler(handler)


@pytest.fixture(scope="module", params=["open", "with a password"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    protection, login = None, None
    if request.param != "open":
        file: Path = tmp_path_factory.mktemp("web") / "web-config.yml"
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        file.write_text(f"basic_auth_users: {{{USER}: '{hashed}'}}\n")
        protection, login = web_config.load(file), LOGIN
    exporter = Exporter("127.0.0.1", 0, protection=protection)
    origin = Origin("gpu01")
    exporter.start(origin)
    yield Served(exporter, origin.supervisor, login)
    exporter.close()


def visit(served: Served, one: Visit) -> None:
    with contextlib.suppress(ConnectionError), served.connect() as client:
        for piece in one.sent:
            client.sendall(piece)
        if one.leaves == "resets":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        if one.leaves == "halts":
            with contextlib.suppress(OSError):  # it is closed already
                client.shutdown(socket.SHUT_WR)
        # Whoever has sent the end of a request is answered; whoever has not, and says so, is let go.
        if one.leaves == "halts" or b"\r\n\r\n" in b"".join(one.sent)[:16_000]:
            answer = client.recv(65536)  # nothing, if the connection was closed
            assert answer == b"" or answer.startswith(b"HTTP/1.1 "), answer[:200]


@fuzz(100)
@given(st.lists(visits, min_size=1, max_size=4))
def test_every_client_is_answered_or_let_go_and_the_next_is_answered(
    served: Served, complaints: Complaints, at_once: list[Visit]
) -> None:
    failures: list[BaseException] = []

    def guarded(one: Visit) -> None:
        try:
            visit(served, one)
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(one,)) for one in at_once]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert b"gpu_power_draw_watts" in served.read_and_scrape()
    assert [part for part in served.supervisor.health() if part.troubled] == []
    assert complaints.messages == []
