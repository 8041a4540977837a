"""Pushing: what is sent, what is kept when a server is away, and what is said."""

import contextlib
import logging
import os
import re
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.outputs.collector import Collector, Reply, Request
from tests.servers import answering, hanging_up, program
from tests.waiting import PATIENCE_SECONDS, eventually

from pulsetrain import settings
from pulsetrain.errors import UsageError
from pulsetrain.outputs.families import families
from pulsetrain.outputs.points import Family, Point
from pulsetrain.outputs.push import backoff, pusher
from pulsetrain.outputs.push import http as push_http
from pulsetrain.outputs.push.http import Client, PushError
from pulsetrain.outputs.push.otlp import OtlpChannel
from pulsetrain.outputs.push.pusher import Pusher
from pulsetrain.outputs.push.pushgateway import group_path
from pulsetrain.outputs.push.series import Batch, PushSeries, count
from pulsetrain.outputs.push.spool import Spool
from pulsetrain.outputs.push.target import PushTarget, parse_targets
from pulsetrain.settings import Push
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject, Value
from pulsetrain.supervise import Supervisor

GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "L4"})
SCOPE = {"host": "gpu01", "run": "r1"}
FAMILIES_OF = partial(families, scope=SCOPE)
START = time.time() - 3600


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, no login of the user's, and no long waits."""
    for variable in ("PULSETRAIN_PUSH_USER", "PULSETRAIN_PUSH_PASSWORD", "PULSETRAIN_PUSH_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setattr(pusher, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(backoff, "LONGEST_WAIT_SECONDS", 0.2)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor()


@pytest.fixture
def push(tmp_path: Path, supervisor: Supervisor) -> Iterator[Callable[..., Pusher]]:
    """A pusher that sends every reading by OTLP, at once."""
    started: list[Pusher] = []

    def start(url: str, **more: Any) -> Pusher:
        target = PushTarget(name="otlp", spec=f"otlp:{url}", kind="otlp", url=url, interval=0.001, **more)
        spool = tmp_path / "spool"
        started.append(Pusher(target, Client(target), SCOPE, FAMILIES_OF, spool, 0.0, supervisor))
        return started[-1]

    yield start
    for one in started:
        one.end()
        one.wait()


def reading(second: int, **values: float) -> Snapshot:
    return Snapshot(
        START + second, float(second), (Sample(GPU, {"up": 1, "power_draw_watts": 100.0 + second, **values}),)
    )


def points(requests: list[Request], name: str) -> list[dict[str, Any]]:
    """The points of a metric, in the order in which they came."""
    return [
        point
        for request in requests
        for resource in request.document["resourceMetrics"]
        for scope in resource["scopeMetrics"]
        for metric in scope["metrics"]
        if metric["name"] == name
        for kind in ("gauge", "sum", "histogram")
        for point in metric.get(kind, {"dataPoints": []})["dataPoints"]
    ]


def has_files(folder: Path, number: int) -> bool:
    return len(list(folder.iterdir())) >= number


def watts(collector: Collector) -> list[float]:
    return [p["asDouble"] for p in points(collector.taken, "gpu_power_draw_watts") if "asDouble" in p]


def test_what_was_read_while_the_server_was_away_arrives_in_order_when_it_is_back(
    collector: Collector, push: Callable[..., Pusher], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pushing = push(collector.url)
    pushing(reading(0))
    assert eventually(lambda: watts(collector) == [100.0])
    collector.stop()
    for second in range(1, 4):
        pushing(reading(second))
        assert eventually(partial(has_files, tmp_path / "spool", second))
    collector.start()
    assert eventually(lambda: watts(collector) == [100.0, 101.0, 102.0, 103.0])
    pushing(reading(4))
    pushing.end()
    assert pushing.wait() is None
    assert watts(collector) == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert list((tmp_path / "spool").iterdir()) == []
    said = [record.getMessage() for record in caplog.records]
    assert "cannot be reached" in said[0] and "Readings are kept" in said[0]
    assert said[1:] == ["push to otlp: works again"]


def test_a_server_that_hangs_does_not_hold_up_the_reading(collector: Collector, push: Callable[..., Pusher]) -> None:
    """If it did, this test would not end: the server answers after all has been read."""
    all_read = threading.Event()

    def answer(request: Request) -> Reply:
        all_read.wait(PATIENCE_SECONDS)
        return Reply()

    collector.answer = answer
    pushing = push(collector.url)
    assert eventually(lambda: collector.asked)
    for second in range(50):
        pushing(reading(second))
    all_read.set()
    pushing.end()
    assert pushing.wait() is None
    assert watts(collector) == [100.0 + second for second in range(50)]


@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error"])
@pytest.mark.parametrize("pause_seconds", [0.0, 0.02], ids=["fast", "slow"])
def test_an_answer_without_end_is_given_up_and_the_readings_are_kept(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    push: Callable[..., Pusher],
    tmp_path: Path,
    status: str,
    pause_seconds: float,
) -> None:
    monkeypatch.setattr(push_http, "WHOLE_SECONDS", 1.0)
    with answering(f"HTTP/1.1 {status}\r\n\r\n".encode(), b" " * 10_000, pause_seconds) as place:
        pusher = push(f"http://{place}")
        pusher(reading(0))
        assert eventually(lambda: "sends an endless response" in caplog.text)
        pusher.end()
        pusher.wait()
    assert has_files(tmp_path / "spool", 1)


def test_what_a_library_says_with_a_full_stop_gets_no_second_one() -> None:
    with hanging_up() as place:
        url = f"http://{place}"
        client = Client(PushTarget(name="otlp", spec=f"otlp:{url}", kind="otlp", url=url))
        with contextlib.closing(client), pytest.raises(PushError, match=r"without sending a response\.$"):
            client.post(url, b"", {})


def test_readings_that_find_no_room_while_a_server_hangs_are_counted(
    collector: Collector, push: Callable[..., Pusher]
) -> None:
    all_read = threading.Event()

    def answer(request: Request) -> Reply:
        all_read.wait(PATIENCE_SECONDS)
        return Reply()

    collector.answer = answer
    pushing = push(collector.url)
    assert eventually(lambda: collector.asked)
    for second in range(pusher.WAITING_SNAPSHOTS + 7):
        pushing(reading(second))
    all_read.set()
    pushing.end()
    assert pushing.wait() == "7 readings were not accepted"


def test_a_wrong_login_is_said_once_at_once_and_nothing_is_lost(
    collector: Collector, push: Callable[..., Pusher], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "password"
    secret.write_text("wrong\n")
    collector.answer = lambda request: (
        Reply() if request.headers.get("Authorization") == "Basic bWU6cmlnaHQ=" else Reply(401, b"who are you?")
    )
    pushing = push(collector.url, username="me", password_file=str(secret))
    assert eventually(lambda: caplog.records)  # before there is anything to send
    for second in range(3):
        pushing(reading(second))
    assert eventually((tmp_path / "spool").exists)
    secret.write_text("right\n")
    assert eventually(lambda: watts(collector) == [100.0, 101.0, 102.0])
    assert eventually(lambda: len(caplog.records) == 2)
    (error, back) = caplog.records
    assert error.levelno == logging.CRITICAL
    assert "answered 401 Unauthorized: who are you?" in error.getMessage()
    assert "hint: Check username, password or token" in error.getMessage()
    assert back.getMessage() == "push to otlp: works again"


def test_what_could_not_be_sent_by_the_end_stays_in_the_spool_and_is_counted(
    push: Callable[..., Pusher], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pusher, "FINAL_SECONDS", 0.2)
    pushing = push("http://127.0.0.1:9")
    pushing(reading(0))
    pushing.end()
    left = pushing.wait()
    assert left and "samples could not be sent (127.0.0.1:9 cannot be reached" in left
    assert list((tmp_path / "spool").glob("otlp-*.spool"))


def test_a_server_that_asks_for_patience_gets_it(
    collector: Collector, push: Callable[..., Pusher], caplog: pytest.LogCaptureFixture
) -> None:
    answers = [Reply(429, b"slow down", (("Retry-After", "1"),)), Reply(503)]
    moments: list[float] = []

    def answer(request: Request) -> Reply:
        moments.append(time.monotonic())
        return answers.pop(0) if answers else Reply()

    collector.answer = answer
    pushing = push(collector.url)
    pushing(reading(0))
    assert eventually(lambda: watts(collector) == [100.0])
    assert moments[1] - moments[0] >= 1.0
    assert "429 Too Many Requests: slow down" in caplog.records[0].getMessage()


def test_refused_samples_are_found_by_halves_reported_and_skipped(
    collector: Collector, push: Callable[..., Pusher], caplog: pytest.LogCaptureFixture
) -> None:
    def answer(request: Request) -> Reply:
        bad = any(point.get("asDouble") == 666.0 for point in points([request], "gpu_temperature_celsius"))
        return Reply(400, b"666 is out of bounds") if bad else Reply()

    collector.answer = answer
    pushing = push(collector.url)
    pushing(reading(0))
    pushing(reading(1))
    pushing(reading(2, temperature_celsius=666.0, fan_speed_percent=30.0))
    pushing.end()
    assert pushing.wait() == "1 were refused"
    assert watts(collector) == [100.0, 101.0, 102.0]
    assert [p["asDouble"] for p in points(collector.taken, "gpu_fan_speed_percent") if "asDouble" in p] == [30.0]
    (warning,) = caplog.records
    assert "1 of " in warning.getMessage() and "samples are refused" in warning.getMessage()
    assert "666 is out of bounds" in warning.getMessage()


BAD_SAMPLES = [
    Sample(GPU, {"up": 1, "temperature_celsius": 10**400}),
    Sample(Subject("gpu", "GPU-2", {"gpu_index": 1, "uuid": "\udce9"}), {"up": 1}),
]


@pytest.mark.parametrize("bad", BAD_SAMPLES, ids=["number", "label"])
@pytest.mark.parametrize("away", [False, True], ids=["sent", "kept"])
def test_a_sample_that_cannot_be_sent_is_left_out_alone_counted_and_named_once(
    collector: Collector,
    push: Callable[..., Pusher],
    supervisor: Supervisor,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    bad: Sample,
    away: bool,
) -> None:
    pushing = push(collector.url)
    assert eventually(lambda: collector.asked)
    if away:
        collector.stop()
    pushing(reading(0))
    pushing(Snapshot(START + 1, 1.0, (Sample(GPU, {"up": 1, "power_draw_watts": 101.0}), bad)))
    pushing(reading(2))
    if away:
        assert eventually(lambda: has_files(tmp_path / "spool", 1) and supervisor.troubled())
        collector.start()
    assert eventually(lambda: watts(collector) == [100.0, 101.0, 102.0])
    pushing.end()
    left = pushing.wait()
    (health,) = supervisor.health()
    assert left == f"{health.skipped_items} were refused"
    assert health.name == "push-otlp" and health.skipped_items > 0 and "Error" in health.reason
    assert len([record for record in caplog.records if "samples are refused" in record.getMessage()]) == 1


def test_a_reading_of_which_nothing_can_be_made_is_left_out_alone(
    collector: Collector, push: Callable[..., Pusher], supervisor: Supervisor
) -> None:
    pushing = push(collector.url)
    pushing(reading(0))
    pushing(Snapshot(float("nan"), 1.0, (Sample(GPU, {"up": 1}),)))
    pushing(reading(2))
    assert eventually(lambda: watts(collector) == [100.0, 102.0])
    assert [(health.status, health.skipped_items) for health in supervisor.health()] == [("degraded", 1)]


def test_a_server_that_stays_away_or_keeps_us_out_is_a_part_that_is_down_until_it_takes_us(
    collector: Collector, push: Callable[..., Pusher], supervisor: Supervisor
) -> None:
    collector.answer = lambda request: Reply(503)
    pushing = push(collector.url)
    pushing(reading(0))
    assert eventually(supervisor.troubled)
    assert "503 Service Unavailable" in str(*supervisor.troubled())
    collector.answer = lambda request: Reply(401)
    assert eventually(lambda: "401 Unauthorized" in str(*supervisor.troubled()))
    collector.answer = lambda request: Reply()
    assert eventually(lambda: not supervisor.troubled())


def test_samples_of_the_future_by_the_servers_clock_are_not_sent(
    collector: Collector, push: Callable[..., Pusher], caplog: pytest.LogCaptureFixture
) -> None:
    collector.answer = lambda request: Reply(headers=(("Date", "Mon, 16 Nov 2020 12:00:00 GMT"),))
    pushing = push(collector.url)
    assert eventually(lambda: collector.taken)
    pushing(reading(0))
    pushing.end()
    left = pushing.wait()
    assert left and left.endswith("were refused")
    assert watts(collector) == []
    assert "is this machine's clock right?" in caplog.records[0].getMessage()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority of our own, and a server's certificate by it."""
    folder = tmp_path_factory.mktemp("certificates")
    make = [program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    authority = [*make, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=our authority", "-days", "2"]
    server = [*make, "-keyout", "server.key", "-out", "server.pem", "-subj", "/CN=localhost", "-days", "2"]
    server += ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=DNS:localhost"]
    server += ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=serverAuth,clientAuth"]
    for command in (authority, server):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def secure_collector(certificates: Path) -> Iterator[Collector]:
    """It wants a certificate of us too."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    with Collector(context) as collector:
        yield collector


def test_tls_with_an_authority_and_a_certificate_of_ones_own(
    secure_collector: Collector, certificates: Path, push: Callable[..., Pusher]
) -> None:
    ours = {"cert_file": str(certificates / "server.pem"), "key_file": str(certificates / "server.key")}
    pushing = push(secure_collector.url, ca_file=str(certificates / "ca.pem"), **ours)
    pushing(reading(0))
    assert eventually(lambda: watts(secure_collector) == [100.0])
    careless = push(secure_collector.url, insecure_skip_verify=True, **ours)
    careless(reading(1))
    assert eventually(lambda: watts(secure_collector) == [100.0, 101.0])


def test_a_server_that_nobody_vouches_for_gets_nothing(
    secure_collector: Collector, push: Callable[..., Pusher], caplog: pytest.LogCaptureFixture
) -> None:
    pushing = push(secure_collector.url)
    pushing(reading(0))
    assert eventually(lambda: caplog.records)
    assert "certificate verify failed" in caplog.records[0].getMessage()
    assert secure_collector.asked == []


def test_a_token_and_headers_of_ones_own_are_sent(collector: Collector, push: Callable[..., Pusher]) -> None:
    push(collector.url, token="t0ken", headers={"X-Scope-OrgID": "lab"})
    assert eventually(lambda: collector.taken)
    headers = collector.taken[0].headers
    assert headers["Authorization"] == "Bearer t0ken" and headers["X-Scope-OrgID"] == "lab"
    assert headers["User-Agent"].startswith("pulsetrain/")


def test_otlp_reports_kinds_attributes_and_times(collector: Collector, push: Callable[..., Pusher]) -> None:
    training = Subject("training", "rank 0", {"rank": 0})
    counts: dict[str, float] = {"0.1": 2, "0.25": 1, "+Inf": 1}
    values: dict[str, Value] = {"loss": 0.5, "samples": 64, "step_seconds": 200.4, "step_counts": counts}
    snapshot = Snapshot(START, 0.0, (Sample(training, values),), (Event("xid", "XID 79", "critical"),))
    pushing = push(collector.url)
    pushing(snapshot)
    pushing.end()
    assert pushing.wait() is None
    body = next(request.document for request in collector.taken if request.document["resourceMetrics"])
    (resource,) = body["resourceMetrics"]
    assert {"key": "service.name", "value": {"stringValue": "pulsetrain"}} in resource["resource"]["attributes"]
    metrics = {metric["name"]: metric for metric in resource["scopeMetrics"][0]["metrics"]}
    (loss,) = [point for point in metrics["training_loss"]["gauge"]["dataPoints"] if "asDouble" in point]
    assert loss["asDouble"] == 0.5 and int(loss["timeUnixNano"]) // 10**6 == int(START * 1000)
    assert {"key": "run", "value": {"stringValue": "r1"}} in loss["attributes"]
    samples = metrics["training_samples_total"]["sum"]
    assert samples["isMonotonic"] and samples["aggregationTemporality"] == 2
    histogram = metrics["training_step_duration_seconds"]["histogram"]
    (steps,) = [point for point in histogram["dataPoints"] if "count" in point]
    assert (steps["count"], steps["sum"]) == ("4", 200.4)
    assert len(steps["bucketCounts"]) == len(steps["explicitBounds"]) + 1
    by_bound = dict(zip([*steps["explicitBounds"], "+Inf"], steps["bucketCounts"], strict=True))
    assert {bound: int(number) for bound, number in by_bound.items() if number != "0"} == {0.1: 2, 0.25: 1, "+Inf": 1}
    ended = points(collector.taken, "training_loss")[-1]
    assert ended["flags"] == 1 and "asDouble" not in ended
    over = [one for one in points(collector.taken, "training_step_duration_seconds") if one.get("flags") == 1]
    assert over and over[-1]["explicitBounds"] == steps["explicitBounds"]


def test_a_part_that_an_otlp_server_refused_is_said(
    collector: Collector, push: Callable[..., Pusher], caplog: pytest.LogCaptureFixture
) -> None:
    words = b'{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"too old"}}'
    collector.answer = lambda request: Reply(body=words)
    push(collector.url)
    assert eventually(lambda: caplog.records)
    assert "3 points refused: too old" in caplog.records[0].getMessage()


def gauge(name: str, value: float, **labels: str) -> Family:
    return Family(name, "gauge", "", "", [Point(tuple(sorted(labels.items())), value)])


def test_the_series_of_a_lost_gpu_end_and_begin_again_when_it_is_back() -> None:
    batch = Batch()
    batch.add(1000, [gauge("gpu_up", 1, uuid="A"), gauge("gpu_watts", 70, uuid="A"), gauge("host_load", 1)])
    batch.add(2000, [gauge("gpu_up", 0, uuid="A"), gauge("host_load", 2)])
    batch.add(3000, [gauge("gpu_up", 0, uuid="A"), gauge("host_load", 3)])
    batch.add(4000, [gauge("gpu_up", 1, uuid="A"), gauge("gpu_watts", 71, uuid="A"), gauge("host_load", 4)])
    series = {one.name: list(zip(one.times, one.values, strict=True)) for one in batch.take()}
    assert series["gpu_watts"] == [(1000, 70), (2000, None), (4000, 71)]
    assert series["gpu_up"] == [(1000, 1), (2000, 0), (3000, 0), (4000, 1)]
    batch.end()
    assert {(one.name, tuple(one.times), tuple(one.values)) for one in batch.take()} == {
        ("gpu_up", (4001,), (None,)),
        ("gpu_watts", (4001,), (None,)),
        ("host_load", (4001,), (None,)),
    }


def test_a_reading_that_comes_late_adds_what_is_new_and_goes_back_in_no_series() -> None:
    batch = Batch()
    batch.add(1000, [gauge("host_load", 1)])
    batch.add(3000, [gauge("host_load", 3)])
    batch.add(2000, [gauge("host_load", 3), gauge("gpu_watts", 70)], late=True)
    assert {one.name: one.times for one in batch.take()} == {"host_load": [1000, 3000], "gpu_watts": [2000]}


def test_after_the_clock_was_set_back_readings_are_sent_with_its_times() -> None:
    batch = Batch()
    batch.add(5000, [gauge("host_load", 1)])
    batch.add(2000, [gauge("host_load", 2)])
    assert [one.times for one in batch.take()] == [[5000, 2000]]


def batch_of(number: int) -> list[PushSeries]:
    noise = [hash((number, index)) / 2**63 for index in range(200)]
    return [PushSeries("gpu_watts", "gauge", (("gpu", "0"),), list(range(200)), [float(number), *noise[1:]])]


def test_a_batch_whose_file_is_damaged_is_counted_and_holds_up_no_other(
    collector: Collector, push: Callable[..., Pusher], tmp_path: Path
) -> None:
    pushing = push(collector.url)
    assert eventually(lambda: collector.taken)
    collector.stop()
    pushing(reading(0))
    assert eventually(lambda: list((tmp_path / "spool").iterdir()))
    (file,) = (tmp_path / "spool").iterdir()
    file.write_bytes(b"no batch")
    assert eventually(lambda: not file.exists())  # before the server is back: what was read in time would be sent
    collector.start()
    pushing(reading(1))
    pushing.end()
    left = pushing.wait()
    assert left and left.endswith("were lost while waiting")
    assert watts(collector) == [101.0]


def test_a_histogram_that_an_otlp_server_refuses_is_refused_whole() -> None:
    labels = (("run", "r1"),)
    parts = [PushSeries(f"step_seconds_{part}", "histogram", labels, [1], [1.0]) for part in ("sum", "count")]
    other = [PushSeries("loss", "gauge", labels, [1], [0.5])]
    server = OtlpChannel(Client(PushTarget(name="otlp", spec="otlp:http://a", kind="otlp", url="http://a")), "http://a")
    assert server.halves([*parts, *other]) == (other, parts)
    assert server.halves(parts) is None


def test_a_spool_gives_batches_back_in_order_whole_with_their_markers(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "vm")
    marked = [PushSeries("up", "gauge", (), [1, 2], [1.5, None])]
    spool.put(batch_of(1))
    spool.put(marked)
    assert spool.first() == batch_of(1)
    spool.remove_first()
    assert spool.first() == marked
    spool.remove_first()
    assert not spool and list(tmp_path.iterdir()) == []


def test_a_full_spool_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "vm", most_bytes=5000)
    for number in range(1, 7):
        spool.put(batch_of(number))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 5000
    assert spool.dropped_samples > 0
    assert spool.dropped_samples + spool.samples == 6 * count(batch_of(1))
    assert spool.first()[0].values[0] == spool.dropped_samples // 200 + 1


def test_a_target_is_a_url_or_the_name_of_a_section(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    section = Push(
        url="remote-write:https://prom/api/v1/write", username="me", password_file=str(tmp_path / "password")
    )
    urls = ["victoriametrics:http://a:8428", "victoriametrics:http://me:p%40ss@b:8428/", "cloud", "cloud"]
    first, second, cloud = parse_targets(urls, {"cloud": section})
    assert (first.name, first.kind, first.url) == ("victoriametrics", "victoriametrics", "http://a:8428")
    assert (second.name, second.url, second.spec) == (
        "victoriametrics-2",
        "http://b:8428",
        "victoriametrics:http://b:8428",
    )
    assert second.authorization() == "Basic bWU6cEBzcw=="
    assert (cloud.name, cloud.spec, cloud.kind) == ("cloud", "cloud", "remote-write")
    assert cloud.authorization() == "Basic bWU6czNjcmV0"
    assert "p@ss" not in repr(second)


def test_the_login_of_a_url_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSETRAIN_PUSH_USER", "me")
    monkeypatch.setenv("PULSETRAIN_PUSH_PASSWORD", "s3cret")
    assert parse_targets(["otlp:http://a"], {})[0].authorization() == "Basic bWU6czNjcmV0"
    monkeypatch.setenv("PULSETRAIN_PUSH_TOKEN", "t0ken")
    assert parse_targets(["otlp:http://a"], {})[0].authorization() == "Bearer t0ken"
    assert parse_targets(["otlp:http://me:s3cret@a"], {})[0].authorization() == "Basic bWU6czNjcmV0"


@pytest.mark.parametrize(
    "spec",
    [
        "http://host:9090",
        "prometheus:http://host",
        "remote-write:host:9090",
        "otlp:",
        "cloud",
        "otlp:http://",
        "otlp:http://[::1",
    ],
)
def test_what_names_no_server_is_refused_with_all_that_can_be_said(spec: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_targets([spec], {})
    assert repr(spec) in caught.value.message
    assert caught.value.hint and "victoriametrics:http://host:8428" in caught.value.hint


def test_a_password_in_a_wrong_url_is_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        parse_targets(["influx:http://me:s3cret@host"], {})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("missing", ["password_file", "bearer_token_file", "ca_file"])
def test_a_file_that_is_not_there_is_reported_before_anything_starts(missing: str, tmp_path: Path) -> None:
    told = {"url": "otlp:https://a", "username": "me", missing: str(tmp_path / "nothing")}
    section = msgspec.convert(told, Push)
    with pytest.raises(UsageError, match=r"^\[push.cloud\]: "):
        parse_targets(["cloud"], {"cloud": section})


def call(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """The real command, in a folder with the settings of a test."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PULSETRAIN_")}
    return subprocess.Popen(
        [sys.executable, "-m", "pulsetrain", *arguments],
        env={**kept, "PULSETRAIN_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_section_of_the_settings_is_pushed_to_unless_set_otherwise(collector: Collector, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/pulsetrain.toml").write_text(f'[push.lab]\nurl = "otlp:{collector.url}/v1/metrics"\n')
    run = ("run", "--quiet", "--simulate", "1xL4", "--name", "nap")
    assert call(tmp_path, *run, "--push", "", "--", "true").communicate()[1] == ""
    assert collector.asked == []
    assert call(tmp_path, *run, "--", "true").communicate()[1] == ""
    assert {request.path for request in collector.taken} == {"/v1/metrics"}
    (info, *_) = points(collector.taken, "run_info")
    assert {"key": "name", "value": {"stringValue": "nap"}} in info["attributes"]


def test_a_machine_that_is_watched_is_pushed_without_a_run(collector: Collector, tmp_path: Path) -> None:
    watch = call(tmp_path, "watch", "--quiet", "--simulate", "1xL4", "--push", f"otlp:{collector.url}")
    assert eventually(lambda: watts(collector))
    watch.terminate()
    assert watch.communicate()[1] == ""
    keys = {attribute["key"] for attribute in points(collector.taken, "gpu_power_draw_watts")[0]["attributes"]}
    assert keys == {"gpu", "uuid", "host"}
    assert not (tmp_path / "home").exists()


def test_a_wrong_target_is_reported_before_anything_starts(tmp_path: Path) -> None:
    run = call(tmp_path, "run", "--push", "http://host:9090", "--", "touch", "started")
    _, said = run.communicate()
    assert run.returncode == 2 and said.startswith("error: 'http://host:9090' is not a push target.")
    assert not (tmp_path / "started").exists() and not (tmp_path / "home").exists()


def test_the_settings_in_the_page_are_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/push.md").read_text()
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "pulsetrain.toml").write_text(shown)
    sections = settings.load(tmp_path / "pulsetrain.toml").push
    assert sections.keys() == {"lab", "cloud", "mimir"}
    known = set(re.findall(r"`(\w+)`", page))
    assert {field.name for field in msgspec.structs.fields(Push)} <= known


def test_a_group_is_named_by_run_and_host_whatever_they_are_called() -> None:
    assert group_path({"host": "gpu01", "run": "r1"}) == "/metrics/job/pulsetrain/run/r1/host/gpu01"
    assert group_path({"host": "gpu 01"}) == "/metrics/job/pulsetrain/host/gpu%2001"
    assert group_path({"host": "gpu01", "run": "r1"}, "a b") == "/metrics/job/a%20b/run/a%20b/host/gpu01"
    assert group_path({"host": "a/b"}) == "/metrics/job/pulsetrain/host@base64/YS9i"
