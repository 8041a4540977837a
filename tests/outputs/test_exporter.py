"""The exporter as clients see it, over real connections: answers, bad manners, many at once, silence."""

import asyncio
import gzip
import http.client
import re
import socket
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import pytest
from tests.waiting import eventually

from pulsetrain.errors import PulsetrainError
from pulsetrain.outputs import Origin, exposition, metrics_pages
from pulsetrain.outputs.exposition import Format
from pulsetrain.outputs.points import Family
from pulsetrain.outputs.prometheus import Exporter
from pulsetrain.runs.folder import Run
from pulsetrain.serving import server
from pulsetrain.serving.limits import MOST_CONNECTIONS
from pulsetrain.snapshot import Sample, Snapshot, Subject

GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "L4"})
ORIGIN = Origin("gpu01")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def reading(power: float, elapsed: float = 0.0) -> Snapshot:
    return Snapshot(time.time(), elapsed, (Sample(GPU, {"up": 1, "power_draw_watts": power}),))


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    exporter = Exporter("127.0.0.1", 0)
    exporter.start(ORIGIN)
    exporter(reading(300.0))
    yield exporter
    exporter.close()


def connect(exporter: Exporter) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(exporter.url.removeprefix("http://"))


def get(exporter: Exporter, path: str = "/metrics", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = connect(exporter)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def power(exporter: Exporter) -> float | None:
    found = re.search(rb"^gpu_power_draw_watts\S* (\S+)$", get(exporter)[1], re.MULTILINE)
    return float(found[1]) if found else None


def test_a_scrape_gets_the_latest_reading_as_text(exporter: Exporter) -> None:
    response, body = get(exporter)
    assert (response.status, response.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'gpu_power_draw_watts{gpu="0",host="gpu01",uuid="GPU-1"} 300.0\n' in body
    exporter(reading(250.0, 1.0))
    assert eventually(lambda: power(exporter) == 250.0)


def test_openmetrics_and_gzip_are_for_those_who_ask(exporter: Exporter) -> None:
    response, body = get(exporter, Accept=OPENMETRICS, Accept_Encoding="gzip")
    assert response.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert response.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body).endswith(b"\n# EOF\n")


def test_scrapes_between_two_readings_get_the_same_bytes(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_pages, "FRESH_SECONDS", 60.0)
    assert get(exporter)[1] == get(exporter)[1]  # the age of the data would differ
    before = get(exporter)[1]
    exporter(reading(300.0, 1.0))
    assert eventually(lambda: get(exporter)[1] != before)


def test_what_is_about_to_be_asked_for_again_is_made_ready(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []
    render = exposition.render

    def noted(families: Iterable[Family], format: Format) -> bytes:
        made.append(render(families, format))
        return made[-1]

    monkeypatch.setattr(exposition, "render", noted)
    for _ in range(2):
        get(exporter)
    exporter(reading(250.0, 1.0))
    assert eventually(lambda: any(b"gpu_power_draw_watts" in page and b" 250.0\n" in page for page in made))


def test_a_connection_is_kept_for_the_next_scrape(exporter: Exporter) -> None:
    connection = connect(exporter)
    connection.connect()
    kept = connection.sock
    for method in ("GET", "HEAD", "GET"):
        connection.request(method, "/metrics")
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200
        assert (len(body) > 0) is (method == "GET")
        assert int(response.headers["Content-Length"]) > 0
    assert connection.sock is kept
    connection.close()


def test_what_is_not_there_is_not_found_and_what_is_not_allowed_is_refused(exporter: Exporter) -> None:
    assert get(exporter, "/nothing")[0].status == 404
    assert get(exporter, "/metrics?x=1")[0].status == 200
    connection = connect(exporter)
    connection.request("POST", "/metrics", body=b"x" * 100)
    response = connection.getresponse()
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    connection.close()


@pytest.mark.parametrize(
    "nonsense", [b"\x16\x03\x01 hello\r\n\r\n", b"GET /metrics\r\n\r\n", b"GET / HTTP/1.1\r\nx\r\n\r\n"]
)
def test_nonsense_gets_a_bad_request(exporter: Exporter, nonsense: bytes) -> None:
    with socket.create_connection(_place(exporter)) as client:
        client.sendall(nonsense)
        assert client.recv(100).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_request_without_end_is_cut_off(exporter: Exporter) -> None:
    with socket.create_connection(_place(exporter)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 10_000)
        assert client.recv(100) == b""
    assert get(exporter)[0].status == 200


def test_a_client_that_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.1)
    exporter = Exporter("127.0.0.1", 0)
    exporter.start(ORIGIN)
    with socket.create_connection(_place(exporter)) as client:
        assert client.recv(100) == b""
    exporter.close()


def test_the_index_and_the_health_page_are_there(exporter: Exporter) -> None:
    assert b'href="/metrics"' in get(exporter, "/")[1]
    assert b"host gpu01" in get(exporter, "/")[1]
    assert get(exporter, "/healthz")[0].status == 200


def test_a_reading_that_cannot_be_shown_is_skipped_and_the_next_is_there() -> None:
    origin = Origin("gpu01")
    exporter = Exporter("127.0.0.1", 0)
    exporter.start(origin)
    exporter(Snapshot(1.8e9, 0.0, (Sample(Subject("gpu", "odd"), None),)))  # type: ignore[arg-type]
    exporter(reading(250.0, 1.0))
    assert eventually(lambda: power(exporter) == 250.0)
    assert b"metrics-server: degraded, 1 item skipped: a reading" in get(exporter, "/healthz")[1]
    exporter.close()


def test_two_hundred_scrapes_at_once_are_all_answered_beside_clients_that_do_not_read(exporter: Exporter) -> None:
    host, port = _place(exporter)

    async def scrape() -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def all_at_once() -> list[bytes]:
        return await asyncio.gather(*(scrape() for _ in range(200)))

    slow = [socket.create_connection((host, port)) for _ in range(20)]
    for client in slow:
        client.sendall(b"GET /metr")
    answers = asyncio.run(all_at_once())
    for client in slow:
        client.close()
    assert len(answers) == 200
    assert all(answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"gpu_power_draw_watts" in answer for answer in answers)


def test_when_no_reading_comes_any_more_only_the_age_of_the_last_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_pages, "HOLD_SECONDS", 0.2)
    monkeypatch.setattr(metrics_pages, "FRESH_SECONDS", 0.0)
    exporter = Exporter("127.0.0.1", 0, interval_seconds=0.1)
    exporter.start(ORIGIN)
    exporter(reading(300.0))
    assert eventually(lambda: power(exporter) is None)
    assert b"pulsetrain_data_age_seconds{" in get(exporter)[1]
    assert get(exporter, "/healthz")[0].status == 503

    def shown_again() -> bool:
        exporter(reading(250.0, 1.0))
        return power(exporter) == 250.0

    assert eventually(shown_again)
    exporter.close()


def test_a_followed_run_has_its_own_label_until_its_last_snapshot(exporter: Exporter) -> None:
    run = Run(id="r7", name="resnet", start=datetime(2026, 11, 16, tzinfo=UTC))
    training = Sample(Subject("training", "rank 0", {"rank": 0}), {"loss": 0.5})
    exporter.follow(run, Snapshot(time.time(), 5.0, (training,)))
    exporter(reading(300.0, 1.0))  # shown with the next reading
    assert eventually(lambda: b'training_loss{host="gpu01",rank="0",run="r7"} 0.5\n' in get(exporter)[1])
    assert b'run_info{host="gpu01",name="resnet",run="r7",status="running"} 1\n' in get(exporter)[1]
    assert b'gpu_up{gpu="0",host="gpu01",uuid="GPU-1"} 1\n' in get(exporter)[1]  # the machine is not of the run
    exporter.follow(run, Snapshot(0.0, 0.0, (), last=True))
    exporter(reading(300.0, 2.0))
    assert eventually(lambda: b"r7" not in get(exporter)[1])


def test_a_port_in_use_is_said_before_anything_starts(exporter: Exporter) -> None:
    with pytest.raises(PulsetrainError, match="Address already in use"):
        Exporter(*_place(exporter))


def test_an_address_that_does_not_exist_is_said() -> None:
    with pytest.raises(PulsetrainError, match=r"no\.such\.host\.invalid is not an address"):
        Exporter("no.such.host.invalid", 0)


def test_after_the_end_snapshots_are_ignored(exporter: Exporter) -> None:
    exporter.close()
    exporter(reading(1.0))
    with pytest.raises(OSError):
        get(exporter)


def _place(exporter: Exporter) -> tuple[str, int]:
    host, _, port = exporter.url.removeprefix("http://").rpartition(":")
    return host, int(port)


def test_clients_that_hold_connections_keep_nobody_out(exporter: Exporter) -> None:
    place = ("127.0.0.1", int(exporter.url.rpartition(":")[2]))
    idle = [socket.create_connection(place) for _ in range(MOST_CONNECTIONS + 50)]
    try:
        for _ in range(3):
            assert get(exporter, "/healthz")[0].status == 200
    finally:
        for connection in idle:
            connection.close()
