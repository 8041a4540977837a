"""Where snapshots come from: this machine, runs that go on or are over, and other machines that come and go."""

import contextlib
import json
import math
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import bcrypt
import psutil
import pytest
from tests.servers import NodeExporter, eventually, free_port, program

from pulsetrain.cli.session import Session
from pulsetrain.errors import UsageError
from pulsetrain.outputs import web_config
from pulsetrain.outputs.prometheus import Exporter
from pulsetrain.runs.folder import Host, RunFolder, host_name
from pulsetrain.runs.seal import seal_all
from pulsetrain.runs.writer import Writer
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject
from pulsetrain.sources import Options, open_sources
from pulsetrain.views.terminal.feeds import Feed, FollowedRun, OwnMachine, RemoteMachine, ReplayedRun
from pulsetrain.views.terminal.history import History

MakeRun = Callable[..., RunFolder]
GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4"})
LINE = {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4"}


class Screen:
    """A consumer that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.history = History()
        self.snapshots: list[Snapshot] = []
        self.lock = threading.Lock()

    def __call__(self, snapshot: Snapshot) -> None:
        with self.lock:
            self.history(snapshot)
            self.snapshots.append(snapshot)

    def events(self) -> list[Event]:
        with self.lock:
            return [event for snapshot in self.snapshots for event in snapshot.events]

    def watts(self) -> float | None:
        with self.lock:
            return next((gpu.number("power_draw_watts") for gpu in self.history.live.table("gpu")), None)

    def lost(self) -> bool:
        with self.lock:
            return any(gpu.values.get("up") == 0 for gpu in self.history.live.table("gpu"))

    def ended(self) -> bool:
        with self.lock:
            return any(snapshot.last for snapshot in self.snapshots)

    def in_order(self) -> bool:
        times = [snapshot.elapsed for snapshot in self.snapshots]
        return times == sorted(times)


@pytest.fixture
def show() -> Iterator[Callable[[Feed], Screen]]:
    """Start a feed; it is stopped with the test."""
    with contextlib.ExitStack() as started:

        def show(feed: Feed) -> Screen:
            screen = Screen()
            feed.start(screen)
            started.callback(feed.stop)
            return screen

        yield show


Show = Callable[[Feed], Screen]


def reading(watts: float | None, elapsed: float = 0.0, *events: Event) -> Snapshot:
    values = {"up": 0} if watts is None else {"up": 1, "power_draw_watts": watts}
    return Snapshot(time.time(), elapsed, (Sample(GPU, dict(values)),), events)


@contextlib.contextmanager
def exporting(port: int = 0, config: Path | None = None) -> Iterator[Exporter]:
    exporter = Exporter("127.0.0.1", port, web=web_config.load(config) if config else None)
    exporter.start({"host": "gpu01"})
    try:
        yield exporter
    finally:
        exporter.close()


def address(exporter: Exporter) -> str:
    return exporter.url.removeprefix("http://")


def here() -> dict[str, Host]:
    me = psutil.Process()
    return {host_name(): Host(pid=me.pid, pid_start=me.create_time())}


def test_this_machine_is_read_by_ourselves(show: Show) -> None:
    opened = open_sources(Options(simulate="2xL4"))
    feed = OwnMachine(Session(opened, [], 0.1, None))
    screen = show(feed)
    assert eventually(lambda: len(screen.snapshots) > 3)
    assert feed.live
    assert feed.title == host_name()
    assert len(list(screen.history.live.table("gpu"))) == 2


def test_a_run_that_goes_on_is_shown_from_its_beginning_and_on_to_its_end(make_run: MakeRun, show: Show) -> None:
    lines = [{**LINE, "up": 1, "power_draw_watts": float(second)} for second in range(50)]
    run = make_run(gpu=lines, host_name=host_name(), status="running", hosts=here())
    feed = FollowedRun(run)
    screen = show(feed)
    assert (feed.live, feed.title) == (True, f"test on {host_name()}")
    assert eventually(lambda: screen.watts() == 49.0)
    with next(run.host_folder(host_name()).glob("gpu_*")).open("a") as file:
        late = {"timestamp": "2026-11-16T12:00:50.000Z", "elapsed_seconds": 50.0, **LINE, "up": 0}
        file.write(json.dumps(late) + "\n")
    assert eventually(screen.lost)
    about = run.load()
    about.status = "finished"
    run.save(about)
    assert eventually(screen.ended)
    assert [snapshot.elapsed for snapshot in screen.snapshots] == [*range(51), 50.0]  # the last one only says so
    assert screen.history.span is not None
    start, end = screen.history.span
    assert screen.history.series("gpu", "GPU-1", "power_draw_watts", start - 1, end, 51)[-3:] == [48.0, 49.0, None]


def test_a_run_of_another_machine_is_followed_by_what_its_writer_writes(make_run: MakeRun, show: Show) -> None:
    run = make_run(host_name="gpu01", status="running", hosts={"gpu01": Host(pid=1)})
    writer = Writer(run.host_folder("gpu01"), datetime(2026, 11, 16, 12, tzinfo=UTC))
    screen = show(FollowedRun(run, "gpu01"))
    for number in range(5):
        writer(reading(100.0 + number, float(number)))
    writer.close()
    assert eventually(lambda: screen.watts() == 104.0)
    assert screen.in_order()


def test_a_run_that_is_over_is_shown_whole(make_run: MakeRun, show: Show) -> None:
    run = make_run(gpu=[{**LINE, "up": 1, "power_draw_watts": float(number)} for number in range(20)])
    feed = FollowedRun(run)
    screen = show(feed)
    assert eventually(screen.ended)
    assert not feed.live
    assert len(screen.snapshots) == 20


def test_the_time_of_a_sealed_run_stands_still_at_its_end(make_run: MakeRun, show: Show) -> None:
    run = make_run(gpu=[{**LINE, "up": 1, "power_draw_watts": float(number)} for number in range(20)])
    seal_all(run)
    screen = show(FollowedRun(run))
    assert eventually(screen.ended)
    assert screen.watts() == 19.0
    assert screen.history.live.time == datetime(2026, 11, 16, 12, 0, 19, tzinfo=UTC).timestamp()


def test_a_run_that_is_over_can_be_replayed(make_run: MakeRun, show: Show) -> None:
    run = make_run(gpu=[{**LINE, "up": 1, "power_draw_watts": float(number)} for number in range(20)])
    feed = ReplayedRun(run, speed=math.inf)
    screen = show(feed)
    assert eventually(lambda: screen.watts() == 19.0)
    assert (feed.live, feed.title) == (False, "test on vm (replay)")


def test_a_run_that_cannot_be_read_for_a_while_is_told_once_and_goes_on(make_run: MakeRun, show: Show) -> None:
    run = make_run(
        gpu=[{**LINE, "up": 1, "power_draw_watts": 5.0}], host_name=host_name(), status="running", hosts=here()
    )
    hindrance = run.host_folder(host_name()) / "host_metrics_20261116_120000.jsonl"
    hindrance.mkdir()
    screen = show(FollowedRun(run))
    assert eventually(screen.events)
    hindrance.rmdir()
    assert eventually(lambda: screen.watts() == 5.0)
    assert [event.kind for event in screen.events()] == ["run_unreadable"]


def test_a_run_without_a_host_cannot_be_shown(make_run: MakeRun) -> None:
    with pytest.raises(UsageError, match="names no host"):
        FollowedRun(make_run(hosts={}))


def test_a_replay_that_fails_says_so_and_ends(make_run: MakeRun, show: Show) -> None:
    screen = show(ReplayedRun(make_run(gpu=[LINE]), speed=-1.0))
    assert eventually(screen.ended)
    assert [event.kind for event in screen.events()] == ["feed_failed"]


def test_another_machine_is_shown_as_its_pulsetrain_sees_it(show: Show) -> None:
    with exporting() as exporter:
        exporter(reading(300.0))
        feed = RemoteMachine(address(exporter), 0.05)
        screen = show(feed)
        assert eventually(lambda: screen.watts() == 300.0)
        exporter(reading(310.0, 1.0))
        assert eventually(lambda: screen.watts() == 310.0)
        exporter(reading(None, 2.0, Event("gpu_lost", "GPU 0 is gone", "error")))
        assert eventually(screen.lost)
        assert [event.kind for event in screen.events()] == ["gpu_lost"]
        assert (feed.title, feed.live) == (address(exporter), True)
    assert screen.in_order()


def test_a_machine_that_goes_away_is_told_once_and_comes_back(show: Show) -> None:
    port = free_port()
    screen = show(RemoteMachine(f"127.0.0.1:{port}", 0.05))
    assert eventually(lambda: len([s for s in screen.snapshots if not s.samples]) > 2)
    with exporting(port) as exporter:
        exporter(reading(300.0))
        assert eventually(lambda: screen.watts() == 300.0)
    assert eventually(lambda: len(screen.events()) == 3)
    away, back, again = screen.events()
    assert (away.kind, back.kind, again.kind) == ("machine_away", "machine_back", "machine_away")
    assert f"127.0.0.1:{port} is away: it cannot be reached" in away.message
    assert screen.in_order()


def test_the_same_reading_is_not_shown_twice(show: Show) -> None:
    with exporting() as exporter:
        exporter(reading(300.0))
        screen = show(RemoteMachine(address(exporter), 0.02))
        assert eventually(lambda: screen.watts() == 300.0)
        exporter(reading(310.0, 1.0))
        assert eventually(lambda: screen.watts() == 310.0)
        time.sleep(0.3)  # some fifteen answers
        assert len(screen.snapshots) < 6


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
        refused = show(RemoteMachine(exporter.url, 0.05))
        assert eventually(lambda: "401" in refused.events()[0].message if refused.events() else None)
        feed = RemoteMachine(f"https://ann:s3cret@{place}", 0.05)
        screen = show(feed)
        assert eventually(lambda: screen.watts() == 300.0)
        assert "s3cret" not in feed.title
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password s3cret\n")
        (tmp_path / ".netrc").chmod(0o600)
        monkeypatch.setenv("HOME", str(tmp_path))
        known = show(RemoteMachine(exporter.url, 0.05))
        assert eventually(lambda: known.watts() == 300.0)


def test_what_is_no_pulsetrain_is_told(tmp_path: Path, show: Show) -> None:
    with NodeExporter(tmp_path) as other:
        screen = show(RemoteMachine(f"127.0.0.1:{other.port}", 0.05))
        assert eventually(screen.events)
        assert "no pulsetrain" in screen.events()[0].message


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
    assert RemoteMachine(said).title == title


@pytest.mark.parametrize("said", ["", "ftp://gpu01", "gpu01:notaport", "gpu01:99999", "http://ann:secret@:9400"])
def test_what_is_no_address_is_refused_without_telling_a_password(said: str) -> None:
    with pytest.raises(UsageError) as refused:
        RemoteMachine(said)
    assert "secret" not in str(refused.value)
