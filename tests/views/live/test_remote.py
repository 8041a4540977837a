"""Other machines as feeds: they come and go, ask for a password, or are something else."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
from tests.servers import NodeExporter, answering, free_port, program
from tests.views.live.viewer import Show, reading
from tests.waiting import eventually

from pulsetrain.errors import UsageError
from pulsetrain.outputs import Origin
from pulsetrain.outputs.prometheus import Exporter
from pulsetrain.serving import web_config
from pulsetrain.snapshot import Event
from pulsetrain.views.live.remote import RemoteFeed


@contextlib.contextmanager
def exporting(port: int = 0, config: Path | None = None) -> Iterator[Exporter]:
    exporter = Exporter("127.0.0.1", port, protection=web_config.load(config) if config else None)
    exporter.start(Origin("gpu01"))
    try:
        yield exporter
    finally:
        exporter.close()


def address(exporter: Exporter) -> str:
    return exporter.url.removeprefix("http://")


def test_another_machine_is_shown_as_its_pulsetrain_sees_it(show: Show) -> None:
    with exporting() as exporter:
        exporter(reading(300.0))
        feed = RemoteFeed(address(exporter), 0.05)
        viewer = show(feed)
        assert eventually(lambda: viewer.watts() == 300.0)
        exporter(reading(310.0, 1.0))
        assert eventually(lambda: viewer.watts() == 310.0)
        exporter(reading(None, 2.0, Event("gpu_lost", "GPU 0 is gone", "critical")))
        assert eventually(viewer.lost)
        assert [event.kind for event in viewer.events()] == ["gpu_lost"]
        assert (feed.title, feed.live) == (address(exporter), True)
    assert viewer.in_order()


def test_a_machine_that_goes_away_is_reported_once_and_comes_back(show: Show) -> None:
    port = free_port()
    viewer = show(RemoteFeed(f"127.0.0.1:{port}", 0.05))
    assert eventually(lambda: len([s for s in viewer.snapshots if not s.samples]) > 2)
    with exporting(port) as exporter:
        exporter(reading(300.0))
        assert eventually(lambda: viewer.watts() == 300.0)
    assert eventually(lambda: len(viewer.events()) == 3)
    away, back, again = viewer.events()
    assert (away.kind, back.kind, again.kind) == ("machine_away", "machine_back", "machine_away")
    assert f"127.0.0.1:{port} does not respond: it cannot be reached" in away.message
    assert viewer.in_order()


def test_the_same_reading_is_not_shown_twice(show: Show) -> None:
    with exporting() as exporter:
        exporter(reading(300.0))
        viewer = show(RemoteFeed(address(exporter), 0.02))
        assert eventually(lambda: viewer.watts() == 300.0)
        exporter(reading(310.0, 1.0))
        assert eventually(lambda: viewer.watts() == 310.0)
        time.sleep(0.3)  # some fifteen answers
        assert len(viewer.snapshots) < 6


def test_a_machine_with_tls_and_a_password_lets_us_in(
    tmp_path: Path, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -addext subjectAltName=IP:127.0.0.1"
    files = "-keyout own.key -out own.crt -days 3 -subj /CN=own"
    command = [program("openssl"), *options.split(), *files.split()]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    config = tmp_path / "web-config.yml"
    hashed = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
    config.write_text(
        f"tls_server_config: {{cert_file: own.crt, key_file: own.key}}\nbasic_auth_users: {{ann: '{hashed}'}}\n"
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.crt"))
    with exporting(config=config) as exporter:
        exporter(reading(300.0))
        place = exporter.url.removeprefix("https://")
        refused = show(RemoteFeed(exporter.url, 0.05))
        assert eventually(lambda: "401" in refused.events()[0].message if refused.events() else None)
        feed = RemoteFeed(f"https://ann:s3cret@{place}", 0.05)
        viewer = show(feed)
        assert eventually(lambda: viewer.watts() == 300.0)
        assert "s3cret" not in feed.title
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password s3cret\n")
        (tmp_path / ".netrc").chmod(0o600)
        monkeypatch.setenv("HOME", str(tmp_path))
        known = show(RemoteFeed(exporter.url, 0.05))
        assert eventually(lambda: known.watts() == 300.0)


def test_a_server_that_is_not_a_pulsetrain_is_reported(tmp_path: Path, show: Show) -> None:
    with NodeExporter(tmp_path) as other:
        viewer = show(RemoteFeed(f"127.0.0.1:{other.port}", 0.05))
        # A busy machine may need a second question, after one that was not answered in time.
        assert eventually(lambda: any("not a pulsetrain exporter" in event.message for event in viewer.events()))


def test_an_answer_without_end_is_given_up_and_reported(show: Show) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n", b"# nothing\n" * 100_000) as place:
        viewer = show(RemoteFeed(place, 0.05))
        assert eventually(lambda: any("its response is too long" in event.message for event in viewer.events()))


def test_text_of_another_machine_can_be_shown_as_it_is(show: Show) -> None:
    page = (
        'pulsetrain_data_age_seconds{data="machine"} 0.5\n'
        'gpu_info{gpu="0",uuid="GPU-1",name="L4\x1b[2J\u202e"} 1\n'
        'gpu_utilization_percent{gpu="0",uuid="GPU-1"} 50\n'
        'training_value{rank="0",name="a\\nb\\\\n\x9b"} 1\n'
    ).encode()
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)) as place:
        viewer = show(RemoteFeed(place, 0.05))
        assert eventually(lambda: [snapshot for snapshot in viewer.snapshots if snapshot.samples])
    shown = next(snapshot for snapshot in viewer.snapshots if snapshot.samples)
    samples = {sample.subject.table: sample for sample in shown.samples}
    assert samples["gpu"].subject.labels["name"] == "L4\ufffd[2J\ufffd"
    assert samples["training"].values == {"a b\\n\ufffd": 1.0}


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("gpu01", "gpu01:9400"),
        ("gpu01:9500", "gpu01:9500"),
        ("[::1]", "[::1]:9400"),
        ("http://ann:secret@gpu01:9400/", "gpu01:9400"),
        ("https://metrics.example.org/gpu01/metrics", "metrics.example.org"),
    ],
)
def test_a_machine_is_called_by_its_address_without_a_login(said: str, title: str) -> None:
    assert RemoteFeed(said).title == title


@pytest.mark.parametrize("said", ["", "ftp://gpu01", "gpu01:notaport", "gpu01:99999", "http://ann:secret@:9400"])
def test_an_invalid_address_is_refused_without_showing_a_password(said: str) -> None:
    with pytest.raises(UsageError) as refused:
        RemoteFeed(said)
    assert "secret" not in str(refused.value)
