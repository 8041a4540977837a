"""Lines: what is written comes back as it was, and what is damaged harms nobody."""

import json
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain import catalog
from pulsetrain.runs import codec, ticks
from pulsetrain.runs.codec import Encoder, decoded, event_of, from_row, sample_of, time_of, time_text
from pulsetrain.runs.line_file import LineFile
from pulsetrain.runs.ticks import Ticks
from pulsetrain.snapshot import Event, Label, Metric, Sample, Snapshot, Value

TIME = 1_794_823_200.125
TABLES = [table for table in catalog.SAMPLE_TABLES if not table.from_training]
TEXTS = st.text(st.characters(codec="utf-8"))


def values_of(metric: Metric) -> st.SearchStrategy[Value]:
    numbers = st.floats(allow_nan=False, allow_infinity=False)
    if metric.by:
        return st.dictionaries(TEXTS, numbers, max_size=3)
    if metric.kind == "words":
        return st.lists(TEXTS, max_size=3)
    return TEXTS if metric.kind == "text" else numbers


def fail(what: str, error: Exception) -> None:
    raise error


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """A sample of any table, with any of its labels and values."""
    table = draw(st.sampled_from(TABLES))
    kinds: dict[str, st.SearchStrategy[Label]] = {"VARCHAR": TEXTS, "BOOLEAN": st.booleans()}
    labels = {label.name: kinds.get(label.type, st.integers(0, 2**31)) for label in table.labels}
    values = {metric.field: values_of(metric) for metric in catalog.metrics_of(table.name)}
    drawn = draw(st.fixed_dictionaries({}, optional=labels))
    return Sample(catalog.subject(table.name, drawn), draw(st.fixed_dictionaries({}, optional=values)))


@given(samples())
def test_a_sample_comes_back_from_its_line(sample: Sample) -> None:
    ((table, text),) = Encoder().lines(Snapshot(TIME, 2.5, (sample,)), fail)
    line = decoded(text)
    assert line is not None and text.endswith(b"}\n") and text.count(b"\n") == 1
    back = sample_of(table, line)
    assert (back.subject, back.subject.labels, back.values) == (sample.subject, sample.subject.labels, sample.values)
    assert (time_of(line), codec.elapsed_of(line)) == (TIME, 2.5)


@given(st.builds(Event, TEXTS, TEXTS, st.sampled_from(["info", "warning", "critical"]), st.just({"gpu_index": 3})))
def test_an_event_comes_back_from_its_line(event: Event) -> None:
    encoder = Encoder()
    ((table, at_tick),) = encoder.lines(Snapshot(TIME, 2.5, (), (event,)), fail)
    assert table == "events"
    for text in (at_tick, encoder.event_line(event, TIME)):
        line = decoded(text)
        assert line is not None
        assert (event_of(line), time_of(line)) == (event, TIME)


def test_what_a_training_reported_is_not_written_again() -> None:
    report = Sample(catalog.subject("training", {"rank": 0}), {"step": 1})
    assert list(Encoder().lines(Snapshot(TIME, 2.5, (report,)), fail)) == []


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"7", b'{"a":"\xff"}', b'{"a":' + b"[" * 100_000, b'{"a":1}{'])
def test_a_damaged_line_is_none(text: bytes) -> None:
    assert decoded(text) is None


@pytest.mark.parametrize("rank", [None, "x", [0], {}])
def test_a_rank_that_is_not_a_number_counts_as_the_first(rank: object) -> None:
    assert codec.rank_of({"rank": rank}) == 0


@pytest.mark.parametrize("time", [None, 7, "yesterday", ["2026-11-16T12:00:00Z"]])
def test_a_line_with_a_time_that_is_none_is_left_out(time: object) -> None:
    gathered = Ticks()
    gathered.add("host", {"timestamp": time, "elapsed_seconds": 1.0, "load_1m": 1.0})
    assert list(gathered.rest()) == []


def test_a_row_of_the_database_is_the_line_it_was() -> None:
    row = {
        "run": "r1",
        "host": "vm",
        "timestamp": datetime(2026, 11, 16, 12),
        "elapsed_seconds": 1.0,
        "loss": None,
        "rank": 0,
        "other": '{"accuracy":0.5}',
    }
    line = from_row(row)
    assert line == {"timestamp": row["timestamp"], "elapsed_seconds": 1.0, "rank": 0, "accuracy": 0.5}
    assert time_text(time_of(line) or 0.0) == "2026-11-16T12:00:00.000Z"


def report(step: int) -> codec.Line:
    return {"timestamp": time_text(TIME + step), "elapsed_seconds": float(step), "rank": 0, "step": step, "samples": 8}


def test_reports_that_no_tick_ever_joins_take_no_more_memory_and_all_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks, "MOST_REPORTS", 10)
    gathered = Ticks()
    for step in range(1, 101):
        gathered.add("training", report(step))
        assert list(gathered.take(-1.0)) == []
    assert len(gathered._waiting) == 10
    (last,) = gathered.rest()
    assert (last.elapsed, last.time) == (100.0, TIME + 100)
    assert [(sample.values["step"], sample.values["samples"]) for sample in last.samples] == [(100, 800)]


def test_reports_join_the_tick_after_them_in_whatever_order_they_come() -> None:
    gathered = Ticks()
    for step in (3, 1, 2):
        gathered.add("training", report(step))
    for elapsed in (2.5, 1.5):
        gathered.add("host", {"timestamp": time_text(TIME), "elapsed_seconds": elapsed, "load_1m": 1.0})
    first, second, rest = gathered.rest()
    assert [snapshot.elapsed for snapshot in (first, second, rest)] == [1.5, 2.5, 3.0]
    assert [snapshot.samples[-1].values["step"] for snapshot in (first, second, rest)] == [1, 2, 3]


@pytest.mark.parametrize(("most_bytes", "numbers"), [(10_000, [0, 1, 2, 3]), (40, [2, 3]), (5, [])])
def test_the_last_lines_of_a_file_are_whole(tmp_path: Path, most_bytes: int, numbers: list[int]) -> None:
    path = tmp_path / "gpu_metrics_20261116_120000.jsonl"
    path.write_text("".join(json.dumps({"number": number}) + "\n" for number in range(4)) + '{"numb')
    with LineFile(path) as file:
        assert [line["number"] for line in file.last_lines(most_bytes)] == numbers


@pytest.mark.parametrize("elapsed", [10**400, 1e300, float("inf"), float("nan"), "1", None])
def test_an_elapsed_time_that_no_run_can_have_is_none(elapsed: object) -> None:
    assert codec.elapsed_of({"elapsed_seconds": elapsed}) is None
    assert codec.elapsed_times(b'{"elapsed_seconds":1%s,"x":1}\n{"elapsed_seconds":7.5}' % (b"0" * 400)) == [7.5]


def test_a_row_whose_other_names_are_damaged_is_a_line_without_them() -> None:
    assert from_row({"timestamp": "x", "up": 1, "other": '{"a": NaN}'}) == {"timestamp": "x", "up": 1}
