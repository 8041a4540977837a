"""A run sent while it is recorded, to a real folder: nothing is lost, twice, or waited for."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.waiting import eventually

from pulsetrain.runs import liveness
from pulsetrain.runs.folder import Home, Host, RunFolder, host_name
from pulsetrain.transfer import shipper
from pulsetrain.transfer.fetching import Fetcher
from pulsetrain.transfer.folder import FolderStore
from pulsetrain.transfer.shipper import Shipment, Shipper, load_state
from pulsetrain.transfer.store import StoreError

HERE = host_name()
MakeRun = Callable[..., RunFolder]


class Away(FolderStore):
    """A folder on a disk that can be taken away."""

    every_seconds = 0.05

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.here = threading.Event()

    def put(self, path: str, data: bytes) -> None:
        if not self.here.is_set():
            raise StoreError("the disk is away.")
        super().put(path, data)


@pytest.fixture
def recorded_run(tmp_path: Path, make_run: MakeRun) -> RunFolder:
    lines = [{"gpu_index": 0, "utilization_percent": float(number)} for number in range(50)]
    return make_run(home=tmp_path / "there", host_name=HERE, gpu=lines, hosts={HERE: Host()})


def fetched(tmp_path: Path) -> dict[str, bytes]:
    """All that is at home, after one look; by path in the run folder."""
    fetcher = Fetcher(FolderStore(tmp_path / "store"), Home(tmp_path / "home"))
    assert not any(run.gaps for run in fetcher.look(last=True))
    fetcher.close()
    return visible(tmp_path / "home")


def visible(home: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    return {path: data for path, data in files.items() if "/." not in path}


def gpu_file(folder: RunFolder) -> Path:
    return folder.files("gpu")[0]


def test_a_run_arrives_as_it_is_while_it_grows(tmp_path: Path, recorded_run: RunFolder) -> None:
    store = FolderStore(tmp_path / "store")
    shipment = Shipment(recorded_run, store, "there")
    for number in range(3):
        with gpu_file(recorded_run).open("ab") as file:
            file.write(b'{"timestamp":"2026-11-16T12:01:00.000Z","gpu_index":0,"number":%d}\n' % number)
            file.write(b'{"half a line')
        shipment.cut()
        shipment.send()
        with gpu_file(recorded_run).open("r+b") as file:
            file.truncate(gpu_file(recorded_run).stat().st_size - len(b'{"half a line'))
        assert fetched(tmp_path) == visible(tmp_path / "there")
    about = recorded_run.load()
    about.note = "changed"
    recorded_run.save(about)
    (recorded_run.path / "code.diff").write_bytes(b"-old\n+new, and no newline at the end")
    for packages in (b"torch==2.13.0\n", b"numpy==2.4.6\n"):  # written again
        (recorded_run.path / "packages.txt").write_bytes(packages)
        shipment.cut()
    shipment.cut()
    shipment.send()
    assert fetched(tmp_path) == visible(tmp_path / "there")
    shipment.close()


@pytest.mark.parametrize("moment", ["cut", "noted down", "sent", "sent and removed"])
def test_a_sender_killed_at_any_moment_continues_with_the_same_segments(
    tmp_path: Path, recorded_run: RunFolder, moment: str
) -> None:
    store = FolderStore(tmp_path / "store")
    first = Shipment(recorded_run, store, "there")
    if moment == "cut":  # the state is the one before
        first.cut()
        (recorded_run.path / shipper.FOLDER / shipper.STATE_FILE).unlink()
    else:
        first.cut()
        waiting = list((recorded_run.path / shipper.FOLDER).glob("*.seg"))
        before = {segment: segment.read_bytes() for segment in waiting}
        if moment != "noted down":
            first.send()
        if moment == "sent":
            for segment, data in before.items():
                segment.write_bytes(data)
    first.close()
    with gpu_file(recorded_run).open("ab") as file:
        file.write(b'{"timestamp":"2026-11-16T12:02:00.000Z","gpu_index":0}\n')
    second = Shipment(recorded_run, store, "there")
    second.cut()
    second.send()
    second.finish()
    second.close()
    assert fetched(tmp_path) == visible(tmp_path / "there")
    state = load_state(recorded_run)
    assert state and state.complete


def test_lines_that_were_sealed_before_they_were_sent_come_as_parquet(tmp_path: Path, recorded_run: RunFolder) -> None:
    from pulsetrain.runs.seal import seal

    store = FolderStore(tmp_path / "store")
    lines = gpu_file(recorded_run)
    first = Shipment(recorded_run, store, "there")
    first.cut()
    first.send()
    with lines.open("ab") as file:
        file.write(lines.read_bytes())
    first.close()
    seal(lines.parent, [lines.name])
    second = Shipment(recorded_run, store, "there")
    second.cut()
    second.send()
    second.close()
    assert fetched(tmp_path)[f"{recorded_run.path.name}/{HERE}/{lines.stem}.parquet"]
    home = RunFolder(tmp_path / "home" / recorded_run.path.name)
    assert [file.suffix for file in home.files("gpu")] == [".parquet"]


def test_lines_that_are_sealed_while_they_are_sent_arrive_as_lines(tmp_path: Path, recorded_run: RunFolder) -> None:
    from pulsetrain.runs.seal import seal

    store = FolderStore(tmp_path / "store")
    lines = gpu_file(recorded_run)
    shipment = Shipment(recorded_run, store, "there")
    shipment.cut()
    with lines.open("ab") as file:
        file.write(b'{"timestamp":"2026-11-16T12:02:00.000Z","gpu_index":0}\n')
    whole = lines.read_bytes()
    seal(lines.parent, [lines.name])
    shipment.cut()
    shipment.send()
    shipment.close()
    found = fetched(tmp_path)
    assert found[f"{recorded_run.path.name}/{HERE}/{lines.name}"] == whole
    assert not any(path.endswith(".parquet") for path in found)


def test_what_was_taken_back_after_it_was_sent_is_sent_again(tmp_path: Path, recorded_run: RunFolder) -> None:
    store = FolderStore(tmp_path / "store")
    shipment = Shipment(recorded_run, store, "there")
    shipment.cut()
    lines = gpu_file(recorded_run)
    whole = lines.read_bytes()
    os.truncate(lines, len(whole) // 2)
    with lines.open("ab") as file:
        file.write(b"\n" + whole)
    shipment.cut()
    shipment.send()
    shipment.close()
    assert fetched(tmp_path) == visible(tmp_path / "there")


def test_a_store_that_is_away_costs_bounded_disk_and_loses_nothing(
    tmp_path: Path, recorded_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper, "MOST_WAITING_BYTES", 3_000)
    monkeypatch.setattr(shipper, "SEGMENT_BYTES", 2_000)
    monkeypatch.setattr(shipper, "LONGEST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(shipper, "FIRST_WAIT_SECONDS", 0.05)
    lines = gpu_file(recorded_run)
    lines.write_bytes(b"".join(json.dumps({"timestamp": os.urandom(20).hex()}).encode() + b"\n" for _ in range(400)))
    store = Away(tmp_path / "store")
    sending = Shipper(recorded_run, store, "there")
    sending.start()
    waiting = recorded_run.path / shipper.FOLDER

    def held() -> int:
        return sum(file.stat().st_size for file in waiting.glob("*.seg"))

    assert eventually(lambda: held() > 3_000)
    assert held() < 3_000 + 2_500  # no more than the one that was over the limit
    store.here.set()
    assert sending.close(seconds=60.0) is None
    assert fetched(tmp_path) == visible(tmp_path / "there")


def test_what_a_killed_run_could_not_send_goes_with_the_next_one(
    tmp_path: Path, recorded_run: RunFolder, make_run: MakeRun
) -> None:
    about = recorded_run.load()
    about.status, about.hosts = "running", {HERE: Host(boot_id=liveness.boot_id())}
    recorded_run.save(about)
    lock = liveness.hold(recorded_run.host_folder(HERE))
    assert lock is not None
    os.close(lock)  # as the kernel does when a process is killed
    left = Shipment(recorded_run, Away(tmp_path / "store"), "there")
    left.cut()
    left.close()
    following = make_run("20261116-130000-next-0001", home=tmp_path / "there", host_name=HERE, hosts={HERE: Host()})
    store = Away(tmp_path / "store")
    store.here.set()
    sending = Shipper(following, store, "there")
    sending.start()
    assert eventually(lambda: (state := load_state(recorded_run)) and state.complete)
    assert sending.close() is None
    assert fetched(tmp_path) == visible(tmp_path / "there")


def test_a_run_that_cannot_be_sent_says_so_at_its_end(
    tmp_path: Path, recorded_run: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    sending = Shipper(recorded_run, Away(tmp_path / "store"), "there")
    sending.start()
    said = sending.close(seconds=0.5)
    assert said
    assert "the end of the run was not sent" in said
    assert "sending to there works again" not in caplog.text
