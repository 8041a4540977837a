"""Runs put together: what arrives is what was sent, or a named gap, and never anything else."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.transfer.sending import HOST, LINES, RUN, WRITER, line, segments

from pulsetrain.runs.folder import Home, RunFolder
from pulsetrain.transfer.assemble import Assembly, NotFetched
from pulsetrain.transfer.fetching import FetchedRun, Fetcher
from pulsetrain.transfer.folder import FolderStore
from pulsetrain.transfer.segments import SegmentHeader, SegmentPart, name_of, read_segment, write_segment

FOREVER = 1e9


def fetcher(place: Path, *, patience_seconds: float = FOREVER) -> Fetcher:
    return Fetcher(FolderStore(place / "store"), Home(place / "home"), patience_seconds=patience_seconds)


def deliver(place: Path, sent: Sequence[tuple[str, bytes]], writer: str = WRITER) -> None:
    folder = place / "store" / RUN / writer
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in sent:
        (folder / name).write_bytes(data)


def lines_here(place: Path) -> bytes:
    file = place / "home" / RUN / LINES
    return file.read_bytes() if file.exists() else b""


def gap_events(place: Path) -> list[tuple[int, int]]:
    file = place / "home" / RUN / HOST / "events.jsonl"
    events = [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []
    return [(event["first"], event["last"]) for event in events if event["kind"] == "transfer_gap"]


def named(run: FetchedRun) -> set[int]:
    return {seq for gap in run.gaps for seq in range(gap.first, gap.last + 1)}


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[bytes], list[list[tuple[str, bytes]]]]:
    """What was sent, and what arrives of it, look by look: in any order, some twice, some torn, some never."""
    contents = draw(st.lists(st.integers(1, 3), min_size=1, max_size=8))
    numbers = iter(range(1000))
    sent = [b"".join(line(next(numbers)) for _ in range(count)) for count in contents]
    arriving = segments(sent)
    fates = draw(st.lists(st.sampled_from(["comes", "late", "torn", "never", "twice"]), min_size=8, max_size=8))
    looks: list[list[tuple[str, bytes]]] = [[], [], []]
    order = draw(st.permutations(range(len(arriving))))
    for index in order:
        name, data = arriving[index]
        fate = fates[index]
        if fate in ("comes", "twice"):
            looks[0].append((name, data))
        if fate in ("late", "twice"):
            looks[1].append((name, data))
        if fate == "torn":
            looks[0].append((name, data[: len(data) // 2]))
            if draw(st.booleans()):  # and whole in the end
                looks[2].append((name, data))
    return sent, looks


@settings(max_examples=60)
@given(deliveries())
def test_what_arrives_is_what_was_sent_or_a_named_gap(
    given_: tuple[list[bytes], list[list[tuple[str, bytes]]]],
) -> None:
    sent, looks = given_
    with TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "store").mkdir()
        looking = fetcher(place)
        before = b""
        for arriving in looks:
            deliver(place, arriving)
            looking.look()
            now = lines_here(place)
            assert now.startswith(before) and b"".join(sent).startswith(now)  # only ever what was sent, in order
            before = now
        found = looking.look(last=True)
        looking.close()
        whole = {name for arriving in looks for name, data in arriving if (name, data) in segments(sent)}
        there = {index for index, (name, _) in enumerate(segments(sent), start=1) if name in whole}
        if not there:
            assert lines_here(place) == b""
            return
        missing = {seq for seq in range(1, max(there)) if seq not in there}
        assert lines_here(place) == b"".join(content for seq, content in enumerate(sent, start=1) if seq in there)
        assert named(found[0]) == missing
        assert {seq for first, last in gap_events(place) for seq in range(first, last + 1)} == missing


def test_a_segment_that_comes_after_its_gap_was_named_fills_it(tmp_path: Path) -> None:
    sent = [line(number) for number in range(5)]
    made = segments(sent)
    deliver(tmp_path, [made[0], made[1], made[4]])
    looking = fetcher(tmp_path, patience_seconds=0.0)
    assert named(looking.look()[0]) == {3, 4}
    assert lines_here(tmp_path) == sent[0] + sent[1] + sent[4]
    assert gap_events(tmp_path) == [(3, 4)]
    deliver(tmp_path, made)
    looking.look()
    assert lines_here(tmp_path) == b"".join(sent)
    assert gap_events(tmp_path) == []


def test_two_segments_with_one_number_wait_for_the_one_that_shows_which_is_right(tmp_path: Path) -> None:
    made = segments([line(0), line(1), line(2)])
    other = segments([line(0), line(7)])[1]
    deliver(tmp_path, [made[0], made[1], other])
    looking = fetcher(tmp_path)
    assert looking.look()[0].waiting == [f"segment 2 of {WRITER}"]
    assert lines_here(tmp_path) == line(0)
    deliver(tmp_path, made)
    looking.look()
    assert lines_here(tmp_path) == line(0) + line(1) + line(2)


def test_a_fetch_that_was_killed_in_the_middle_continues_without_a_trace(tmp_path: Path) -> None:
    made = segments([line(0), line(1), line(2)])
    deliver(tmp_path, made[:2])
    fetcher(tmp_path).look()
    with (tmp_path / "home" / RUN / LINES).open("ab") as file:
        file.write(line(2)[:20])  # written, and killed before it was noted down
    deliver(tmp_path, made)
    fetcher(tmp_path).look()
    assert lines_here(tmp_path) == line(0) + line(1) + line(2)


def test_a_segment_cannot_touch_a_file_of_another_writer(tmp_path: Path) -> None:
    deliver(tmp_path, segments([line(0)]))
    deliver(tmp_path, segments([line(9), line(10)], writer="stranger-00"), "stranger-00")
    looking = fetcher(tmp_path)
    looking.look()
    looking.look(last=True)
    assert lines_here(tmp_path) == line(0)


def test_a_run_that_was_recorded_here_is_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "home" / RUN
    own.mkdir(parents=True)
    (own / "run.json").write_text("{}")
    deliver(tmp_path, segments([line(0)]))
    (found,) = fetcher(tmp_path).look()
    assert "was not fetched" in found.refused
    assert sorted(path.name for path in own.iterdir()) == ["run.json"]
    with pytest.raises(NotFetched):
        Assembly(RunFolder(own))


def test_a_parquet_file_is_seen_when_all_of_it_is_here_and_never_with_a_hole(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(3000)
    path = f"{HOST}/gpu_metrics_20261116_120000.parquet"
    made, previous = [], ""
    for number in range(3):
        part = SegmentPart(path, 1000 * number, 1000, whole=number == 0, size=3000)
        header = SegmentHeader(
            run=RUN, writer=WRITER, seq=number + 1, previous=previous, created=float(number), parts=[part]
        )
        segment = write_segment(header, [data[1000 * number : 1000 * number + 1000]])
        made.append((name_of(number + 1, segment), segment))
        previous = read_segment(segment, RUN, WRITER, made[-1][0]).checksum
    deliver(tmp_path, [made[0], made[2]])
    looking = fetcher(tmp_path, patience_seconds=0.0)
    looking.look()
    place = tmp_path / "home" / RUN / path
    assert not place.exists()
    deliver(tmp_path, made)
    looking.look()
    assert place.read_bytes() == data
