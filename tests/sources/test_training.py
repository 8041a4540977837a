"""Following the files of the training processes, and what their lines add up to."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pulsetrain.snapshot import Event, Sample
from pulsetrain.sources import Source, training
from pulsetrain.sources.training import Training

Read = Callable[[Source], list[Sample]]


def write(folder: Path, *lines: Mapping[str, object] | str, rank: int = 0) -> Path:
    name = f"training_metrics_20261116_013054{f'.rank{rank}' if rank else ''}.jsonl"
    with (folder / name).open("a") as file:
        for line in lines:
            text = line if isinstance(line, str) else json.dumps({"timestamp": "t", "rank": rank, **line}) + "\n"
            file.write(text)
    return folder / name


def test_new_lines_are_seen_at_the_next_reading_and_only_once(tmp_path: Path, read: Read) -> None:
    source = Training(tmp_path)
    assert read(source) == []
    write(tmp_path, {"step": 1, "loss": 0.9}, {"step": 2, "loss": 0.8, "learning_rate": 0.1})
    (sample,) = read(source)
    assert sample.values == {"step": 2, "loss": 0.8, "learning_rate": 0.1}
    assert read(source) == []
    source.close()


def test_half_a_line_waits_for_its_rest_and_a_broken_one_is_skipped(tmp_path: Path, read: Read) -> None:
    source = Training(tmp_path)
    write(tmp_path, '{"step": 1, "lo')
    assert read(source) == []
    write(tmp_path, 'ss": 0.5}\n{broken}\n', {"step": 2})
    (sample,) = read(source)
    assert (sample.values["step"], sample.values["loss"]) == (2, 0.5)
    assert source.seen
    source.close()


def test_amounts_of_several_steps_add_up_between_two_readings(tmp_path: Path, read: Read) -> None:
    source = Training(tmp_path)
    write(tmp_path, *({"step": i, "step_seconds": 0.25, "samples": 32} for i in range(4)))
    (sample,) = read(source)
    assert sample.values == {"step": 3, "step_seconds": 1.0, "samples": 128, "step_counts": {"0.25": 4}}
    source.close()


def test_a_value_that_is_not_finite_is_the_last_one_until_another_comes(tmp_path: Path, read: Read) -> None:
    source = Training(tmp_path)
    write(tmp_path, {"step": 1, "loss": 0.5}, {"step": 2, "loss": None, "nonfinite": {"loss": "inf", "samples": "nan"}})
    (sample,) = read(source)
    assert sample.values == {"step": 2, "loss": float("inf")}  # an amount that is no number adds nothing
    source.close()


def test_the_time_of_the_newest_report_and_the_end_of_the_files_are_known(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "MOST_BYTES", 100)  # a line and a half
    source = Training(tmp_path)
    write(tmp_path, {"step": 1, "elapsed_seconds": 3.5}, {"step": 2, "elapsed_seconds": 4.25})
    read(source)
    assert (source.newest_seconds, source.caught_up) == (3.5, False)
    read(source)
    read(source)
    assert (source.newest_seconds, source.caught_up) == (4.25, True)
    source.close()


def test_each_rank_is_a_subject_of_its_own(tmp_path: Path, read: Read) -> None:
    source = Training(tmp_path)
    for rank in (0, 1):
        write(tmp_path, {"step": 5 + rank, "step_seconds": 0.1}, rank=rank)
    assert {sample.subject.labels["rank"]: sample.values["step"] for sample in read(source)} == {0: 5, 1: 6}
    source.close()


def test_notes_of_the_recorder_become_events(tmp_path: Path) -> None:
    source = Training(tmp_path)
    head = {"event": "training_process", "severity": "info", "message": "records"}
    write(tmp_path, head, {"event": "phase_begin", "severity": "info", "message": "validation begins", "phase": "v"})
    (event,) = source.read()
    assert isinstance(event, Event)
    assert (event.kind, event.message, event.details["phase"]) == ("phase_begin", "validation begins", "v")
    source.close()
