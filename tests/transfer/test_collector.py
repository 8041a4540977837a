"""A collector: many senders at once, and all that a sender, a network or a disk can do to it."""

import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.disks import small
from tests.transfer.sending import LINES, RUN, WRITER, line, segments

from pulsetrain.runs.folder import Home, Host, Run, RunFolder
from pulsetrain.transfer import receiving
from pulsetrain.transfer.collector import CollectorStore
from pulsetrain.transfer.receiving import Receiver, collector_token
from pulsetrain.transfer.store import StoreError, StoreRejected
from pulsetrain.views.web import collecting
from pulsetrain.views.web.collecting import Collecting
from pulsetrain.views.web.security import checked_token
from pulsetrain.views.web.server import WebServer
from pulsetrain.views.web.site import Site

TOKEN = "a token that nobody guesses"
SENDERS = 100


def send(url: str, path: str, data: bytes, token: str = TOKEN) -> None:
    with closing(CollectorStore(url, token)) as store:
        store.put(path, data)


class Running(NamedTuple):
    server: WebServer
    home: Path
    stop: Callable[[], None]

    def lines(self, run: str = RUN) -> bytes:
        file = self.home / run / LINES
        return file.read_bytes() if file.exists() else b""

    def put(self, path: str, data: bytes, token: str = TOKEN) -> int:
        """The status that a plain client gets, which checks nothing itself."""
        request = urllib.request.Request(f"{self.server.url}/collect/v1/{path}", data, method="PUT")
        request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code


@pytest.fixture
def collect(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a collector: `collect(home, quota_bytes=...)`."""
    with ExitStack() as started:
        yield partial(start_collector, started, tmp_path / "home")


def start_collector(
    started: ExitStack,
    home: Path,
    *,
    disk: Path | None = None,
    quota_bytes: int = 10**9,
) -> Running:
    home = disk or home
    home.mkdir(exist_ok=True)
    taking = Collecting(Receiver(Home(home), quota_bytes=quota_bytes, patience_seconds=1e9), TOKEN, "")
    server = WebServer(Site(Home(home)), port=0, token="another token for the page", collecting=taking)
    server.start()

    def stop() -> None:
        server.close()
        taking.close()

    started.callback(stop)
    return Running(server, home, stop)


def test_a_hundred_senders_at_once_beside_one_that_dawdles(collect: Callable[..., Running]) -> None:
    collector = collect()
    address = ("127.0.0.1", int(collector.server.url.rpartition(":")[2]))
    with socket.create_connection(address) as slow:  # it begins a segment, and says no more
        slow.sendall(
            f"PUT /collect/v1/{RUN}/{WRITER}/00000001-0123456789abcdef.seg HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\nx".encode()
        )
        sent = [line(number) for number in range(3)]

        def send_all(number: int) -> str:
            run = f"{RUN}{number}"
            with closing(CollectorStore(collector.server.url, TOKEN)) as store:
                for name, data in segments(sent, run=run):
                    store.put(f"{run}/{WRITER}/{name}", data)
            return run

        with ThreadPoolExecutor(SENDERS) as senders:
            runs = list(senders.map(send_all, range(SENDERS)))
    assert {collector.lines(run) for run in runs} == {b"".join(sent)}


def test_the_hosts_of_a_job_get_one_run_while_it_is_in_progress(collect: Callable[..., Running]) -> None:
    collector = collect()
    with closing(CollectorStore(collector.server.url, TOKEN)) as store:
        join = partial(store.join, "job/1")
        assert join("a", "run-1") == "run-1"
        assert join("b", "run-2") == "run-1"
        folder = RunFolder(collector.home / "run-1")
        folder.path.mkdir()
        about = Run(id="run-1", name="run", start=datetime.now(UTC), hosts={"a": Host()})
        folder.save(about)
        assert join("c", "run-3") == "run-1"
        assert store.join("job/2", "a", "run-4") == "run-4"
        about.status = "finished"
        folder.save(about)
        assert join("b", "run-5") == "run-5"
        folder.path.rename(collector.home / "run-5")
        folder = RunFolder(collector.home / "run-5")
        folder.save(Run(id="run-5", name="run", start=datetime.now(UTC), hosts={"b": Host()}))
        assert join("b", "run-6") == "run-6"  # it was started again there
        for host, run in (("../b", "run-7"), ("b", "../run-7"), ("", "run-7")):
            with pytest.raises(StoreRejected):
                join(host, run)
    with closing(CollectorStore(collector.server.url, "wrong")) as store, pytest.raises(StoreRejected):
        store.join("job/1", "a", "run-8")


def test_a_segment_that_comes_again_changes_nothing(collect: Callable[..., Running]) -> None:
    collector = collect()
    made = segments([line(0), line(1)])
    path = f"{RUN}/{WRITER}/"
    assert [collector.put(path + name, data) for name, data in made] == [201, 201]
    assert [collector.put(path + name, data) for name, data in made] == [200, 200]
    assert collector.lines() == line(0) + line(1)


def test_segments_that_overtake_each_other_wait_across_a_restart(collect: Callable[..., Running]) -> None:
    collector = collect()
    made = segments([line(number) for number in range(4)])
    path = f"{RUN}/{WRITER}/"
    assert [collector.put(path + made[index][0], made[index][1]) for index in (0, 3, 2)] == [201, 202, 202]
    assert collector.lines() == line(0)
    collector.stop()
    collector = collect()
    assert collector.put(path + made[1][0], made[1][1]) == 201
    assert collector.lines() == b"".join(line(number) for number in range(4))
    assert not (collector.home / receiving.INBOX / RUN).exists()


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/{name}",
        "..%2F..%2Fetc/{writer}/{name}",
        "{run}/..%2f/{name}",
        "{run}/{writer}/..%2F..%2F{name}",
        ".hidden/{writer}/{name}",
        "{run}/{writer}/run.json",
        "{run}/{writer}/{name}/more",
        "{run}",
    ],
)
def test_a_path_in_a_name_leads_nowhere(collect: Callable[..., Running], path: str) -> None:
    collector = collect()
    ((name, data),) = segments([line(0)])
    assert collector.put(path.format(run=RUN, writer=WRITER, name=name), data) in (400, 404, 405)
    assert list(collector.home.iterdir()) == []


def test_a_wrong_token_or_a_damaged_segment_leaves_no_trace(collect: Callable[..., Running]) -> None:
    collector = collect()
    ((name, data),) = segments([line(0)])
    path = f"{RUN}/{WRITER}/{name}"
    assert collector.put(path, data, token="wrong") == 401
    assert collector.put(path, data, token="another token for the page") == 401
    assert collector.put(path, data[:-1]) == 400
    assert collector.put(path, bytes(9 * 2**20)) == 400
    assert list(collector.home.iterdir()) == []
    with pytest.raises(StoreRejected, match="collector token"):
        send(collector.server.url, path, data, "wrong")
    with pytest.raises(StoreError, match="does not answer"):
        send("http://127.0.0.1:1", path, data)


def test_a_run_that_was_recorded_by_the_collectors_own_machine_cannot_be_overwritten(
    collect: Callable[..., Running],
) -> None:
    collector = collect()
    (collector.home / RUN).mkdir()
    (collector.home / RUN / "run.json").write_text("{}")
    ((name, data),) = segments([line(0)])
    assert collector.put(f"{RUN}/{WRITER}/{name}", data) == 409
    assert (collector.home / RUN / "run.json").read_text() == "{}"


def test_a_run_grows_to_its_quota_and_others_continue(collect: Callable[..., Running]) -> None:
    collector = collect(quota_bytes=1_000)
    big, *_ = segments([line(0) * 20])
    (small,) = segments([line(1)], run="another")
    assert collector.put(f"{RUN}/{WRITER}/{big[0]}", big[1]) == 413
    assert collector.put(f"another/{WRITER}/{small[0]}", small[1]) == 201
    with pytest.raises(StoreRejected, match="quota"):
        send(collector.server.url, f"{RUN}/{WRITER}/{big[0]}", big[1])


def test_a_full_disk_takes_nothing_half_and_all_of_it_later(tmp_path: Path, collect: Callable[..., Running]) -> None:
    with small(tmp_path / "disk", "256k") as disk:
        collector = collect(disk=disk)
        sent = [line(0), line(1) * 5_000, line(2)]
        made = segments(sent)
        path = f"{RUN}/{WRITER}/"
        assert collector.put(path + made[0][0], made[0][1]) == 201
        assert collector.put(path + made[1][0], made[1][1]) == 507
        assert collector.lines() == line(0)
        subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
        assert [collector.put(path + name, data) for name, data in made] == [200, 201, 201]
        assert collector.lines() == b"".join(sent)


def test_a_sender_that_stops_in_the_middle_gets_an_answer_that_says_so(
    collect: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "BODY_SECONDS", 0.2)
    collector = collect()
    with socket.create_connection(("127.0.0.1", int(collector.server.url.rpartition(":")[2]))) as slow:
        slow.sendall(
            f"PUT /collect/v1/a/b/c HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Length: 9\r\n\r\nx".encode()
        )
        assert b" 408 " in slow.recv(1000)


def test_the_token_is_made_once_and_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSETRAIN_HOME", str(tmp_path / "pulsetrain"))
    token, how = collector_token(checked_token)
    assert collector_token(checked_token) == (token, how)
    file = tmp_path / "pulsetrain" / "collector-token"
    assert str(file) in how
    assert file.stat().st_mode & 0o777 == 0o600
