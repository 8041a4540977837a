"""A fleet from a real Prometheus-compatible server that holds simulated hosts, and from servers that are none."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.servers import Prometheus, Server, VictoriaMetrics, answering, free_port, hanging_up
from tests.waiting import eventually

from pulsetrain.errors import UsageError
from pulsetrain.outputs.points import make_labels
from pulsetrain.outputs.push import remote_write
from pulsetrain.outputs.push.series import PushSeries
from pulsetrain.runs.folder import Home
from pulsetrain.views.web.fleet import Fleet
from pulsetrain.views.web.server import WebServer
from pulsetrain.views.web.site import Site

NODES, GPUS = 12, 4
RUN = "20261116-120000-resnet50-3f9c"
EVIL = "<img src=x onerror=alert(1)>"


class Node:
    """A simulated node: what it said in the last hour, or until a while ago."""

    def __init__(self, host: str, now: float, away: int = 0) -> None:
        self._host = host
        self._times = [now - second for second in range(3600, away - 1, -15)]

    def series(self, metric: str, value: float | Callable[[float], float], **labels: str) -> PushSeries:
        values: list[float | None] = [value(one) if callable(value) else value for one in self._times]
        times = [round(1000 * one) for one in self._times]
        return PushSeries(metric, "gauge", make_labels({"host": self._host}, labels), times, values)


def simulated(now: float) -> Iterator[PushSeries]:
    """Twelve nodes: one is away since 10 minutes, on another a run holds a GPU that idles since half an hour."""

    def until_lately(moment: float) -> float:
        return 0.0 if moment > now - 1800 else 90.0

    def counted(moment: float) -> float:
        return moment - now + 3600

    for number in range(NODES):
        node = Node(EVIL if number == 5 else f"gpu{number:02}", now, 600 if number == 3 else 0)
        yield node.series("pulsetrain_build_info", 1.0, version="1")
        yield node.series("host_cpu_ratio", 0.25)
        yield node.series("host_disk_read_bytes_total", lambda moment: 2**20 * counted(moment))
        for gpu in range(GPUS):
            about = {"gpu": str(gpu), "uuid": f"GPU-{number}-{gpu}"}
            idle = (number, gpu) in ((2, 1), (7, 0))
            yield node.series("gpu_up", 1.0, **about)
            yield node.series("gpu_info", 1.0, name="NVIDIA H100", **about)
            yield node.series("gpu_power_draw_watts", 300.0, **about)
            yield node.series("gpu_utilization_percent", until_lately if idle else 90.0, **about)
        if number == 2:
            about = {"gpu": "1", "uuid": "GPU-2-1", "pid": "77", "user": "ana", "command": "jupyter", "run": RUN}
            yield node.series("process_gpu_memory_mb", 40_960.0, **about)
            yield node.series("process_start_time_seconds", now - 7200, **about)
            yield node.series("run_info", 1.0, name="resnet50", status="running", run=RUN)
            yield node.series("run_start_time_seconds", now - 7200, run=RUN)
            yield node.series("run_progress_ratio", 0.4, run=RUN)
            yield node.series("run_remaining_seconds", 10_800.0, run=RUN)
            yield node.series("training_steps_total", lambda moment: 4 * counted(moment), rank="0", run=RUN)
            yield node.series("training_loss", 0.75, rank="0", run=RUN)
            yield node.series("run_cost_total", 8.0, currency="USD", run=RUN)
            yield node.series("run_gpu_seconds_total", 4 * 7200.0, run=RUN)
            yield node.series("pulsetrain_alert", 1.0, alertname="GpuIdle", severity="warning", run=RUN)


@pytest.fixture(params=[Prometheus, VictoriaMetrics])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with request.param(tmp_path) as started:
        content = remote_write.packed(list(simulated(time.time())))
        assert httpx.post(started.url + remote_write.PATH, content=content, headers=remote_write.HEADERS).is_success
        yield started


@pytest.fixture
def ask(runs: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Ask `serve --from URL` for its fleet."""
    servers: list[WebServer] = []

    def asked(url: str, **parameters: Any) -> dict[str, Any]:
        servers.append(WebServer(Site(Home(runs), fleet=Fleet(url)), port=0))
        servers[-1].start()
        answer = httpx.get(f"{servers[-1].url}/api/v1/fleet", params=parameters, timeout=60)
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found

    yield asked
    for one in servers:
        one.close()


def test_a_fleet_is_shown_with_who_holds_what_idle_and_how_its_trainings_do(
    server: Server, ask: Callable[..., dict[str, Any]]
) -> None:
    assert eventually(lambda: len(ask(server.url)["nodes"]) == NODES)
    found = ask(server.url)
    assert found["problem"] is None and found["server"] == server.url
    nodes = {node["host"]: node for node in found["nodes"]}
    assert "min" in nodes["gpu03"]["away"] and not nodes["gpu02"]["away"]
    assert nodes[EVIL]["gpus"][0] == {
        "gpu": "0", "name": "H100", "lost": False, "utilization": 90.0, "text": "90 %, 300 W",
    }  # fmt: skip
    (idle,) = found["idle"]  # the GPU of gpu07 is idle, and nobody holds it
    assert (idle["host"], idle["gpu"], idle["user"], idle["memory"]) == ("gpu02", "1", "ana", "40.0 GiB")
    assert 1700 < idle["seconds"] < 3600
    amount, currency = idle["cost"].split()
    assert abs(float(amount) - idle["seconds"] / 3600) < 0.01 and currency == "USD"
    (run,) = found["runs"]
    assert (run["name"], run["progress"], run["step_time"], run["loss"]) == ("resnet50", "40 %", "250 ms", "0.75")
    assert run["alerts"] == [{"name": "GpuIdle", "severity": "warning"}] and run["cost"] == "8.00 USD"
    utilization, power = found["charts"]
    assert len(utilization["lines"]) == NODES and power["lines"][0]["last"][-2] == 1200.0
    node = ask(server.url, host="gpu02", seconds=1200)
    charts = {chart["key"]: chart for chart in node["charts"]}
    assert [line["label"] for line in charts["utilization"]["lines"]] == [f"GPU {gpu}" for gpu in range(GPUS)]
    assert charts["disk"]["lines"][0]["last"][-3] == pytest.approx(1.0, rel=0.2) and charts["cpu"]["unit"] == "%"
    assert ask(server.url, host='x"} or up{a="')["nodes"] == []


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        ("200 OK", "hello", "is not a Prometheus-compatible server."),
        ("500 Oh", "[]", "is not a Prometheus-compatible server."),
        ("200 OK", '{"status":"success","data":{"result":[{"metric":1}]}}', "is not a Prometheus-compatible server."),
        ("401 No", "", "requires a login."),
        ("422 No", '{"status":"error","error":"too \\u001b[31m much"}', "refused a query: too"),
    ],
)
def test_a_server_that_is_another_is_said_in_the_page(
    ask: Callable[..., dict[str, Any]], status: str, body: str, said: str
) -> None:
    with answering(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()) as address:
        found = ask(f"http://user:secret@{address}")
    assert (
        said in found["problem"]
        and "secret" not in str(found)
        and "\x1b" not in found["problem"]
        and found["nodes"] == []
    )


def test_a_server_that_is_away_or_hangs_up_is_said_in_the_page(ask: Callable[..., dict[str, Any]]) -> None:
    assert "cannot be reached" in ask(f"http://127.0.0.1:{free_port()}")["problem"]
    with hanging_up() as address:
        assert "cannot be reached" in ask(address)["problem"]


def test_an_answer_without_end_is_given_up(ask: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsetrain.views.web.promql.MOST_BYTES", 10_000)
    with answering(b"HTTP/1.1 200 OK\r\n\r\n", endless=b"x" * 1000) as address:
        assert "too long" in ask(f"http://{address}")["problem"]


@pytest.mark.parametrize("address", ["", "ftp://a", "http://", "http://a:b"])
def test_an_address_that_is_none_is_said_at_the_start(address: str) -> None:
    with pytest.raises(UsageError, match="is not a server address"):
        Fleet(address)


def test_a_server_that_is_stopped_while_it_answers_says_nothing_of_it(
    runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # it accepts, and never answers
        server = WebServer(Site(Home(runs), fleet=Fleet(f"http://127.0.0.1:{deaf.getsockname()[1]}")), port=0)
        server.start()
        asking = threading.Thread(target=_ask_in_vain, args=(f"{server.url}/api/v1/fleet",))
        asking.start()
        with deaf.accept()[0]:
            server.close()
            asking.join()
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


def _ask_in_vain(url: str) -> None:
    with contextlib.suppress(httpx.HTTPError):
        httpx.get(url, timeout=60)
