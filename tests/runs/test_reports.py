"""Following the files of the training processes, and what their lines add up to."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pulsetrain.live import Live
from pulsetrain.runs import line_file
from pulsetrain.runs.reports import TrainingReports
from pulsetrain.snapshot import Event, Sample, Snapshot
from pulsetrain.sources import Source

Read = Callable[[Source], list[Sample]]


def write(folder: Path, *lines: Mapping[str, object] | str, rank: int = 0) -> Path:
    name = f"training_metrics_20261116_013054{f'.rank{rank}' if rank else ''}.jsonl"
    with (folder / name).open("a") as file:
        for line in lines:
            text = line if isinstance(line, str) else json.dumps({"timestamp": "t", "rank": rank, **line}) + "\n"
            file.write(text)
    return folder / name


def test_new_lines_are_seen_at_the_next_reading_and_only_once(tmp_path: Path, read: Read) -> None:
    source = TrainingReports(tmp_path)
    assert read(source) == []
    write(tmp_path, {"step": 1, "loss": 0.9}, {"step": 2, "loss": 0.8, "learning_rate": 0.1})
    (sample,) = read(source)
    assert sample.values == {"step": 2, "loss": 0.8, "learning_rate": 0.1}
    assert read(source) == []
    source.close()


def test_half_a_line_waits_for_its_rest_and_a_broken_one_is_skipped(tmp_path: Path, read: Read) -> None:
    source = TrainingReports(tmp_path)
    write(tmp_path, '{"step": 1, "lo')
    assert read(source) == []
    write(tmp_path, 'ss": 0.5}\n{broken}\n', {"step": 2})
    (sample,) = read(source)
    assert (sample.values["step"], sample.values["loss"]) == (2, 0.5)
    assert source.seen
    source.close()


def test_amounts_of_several_steps_add_up_between_two_readings(tmp_path: Path, read: Read) -> None:
    source = TrainingReports(tmp_path)
    write(tmp_path, *({"step": i, "step_seconds": 0.25, "samples": 32} for i in range(4)))
    (sample,) = read(source)
    assert sample.values == {"step": 3, "step_seconds": 1.0, "samples": 128, "step_counts": {"0.25": 4}}
    source.close()


IN_VALIDATION = {"step": 1, "step_seconds": 0.1, "phase": "validation"}
VALIDATION_ENDS = {"step": 1, "phase": "validation", "phase_seconds": 2.0}
STEP = {"step": 2, "step_seconds": 0.1}


@pytest.mark.parametrize(
    ("lines", "phase"),
    [
        ([STEP, IN_VALIDATION], "validation"),
        ([IN_VALIDATION, VALIDATION_ENDS], None),
        ([IN_VALIDATION, STEP], None),
        ([VALIDATION_ENDS, IN_VALIDATION], "validation"),
        ([IN_VALIDATION, {"loss": 0.5}], "validation"),
    ],
)
def test_a_phase_lasts_until_its_end_or_a_step_outside_of_it(
    tmp_path: Path, read: Read, lines: list[dict[str, object]], phase: str | None
) -> None:
    together = TrainingReports(tmp_path)
    write(tmp_path, *lines)
    (sample,) = read(together)
    assert sample.values.get("phase") == phase
    together.close()


@pytest.mark.parametrize("after", [VALIDATION_ENDS, STEP])
def test_a_phase_is_over_in_the_present_state_too(tmp_path: Path, after: dict[str, object]) -> None:
    source, live = TrainingReports(tmp_path), Live()
    for second, (line, phase) in enumerate([(IN_VALIDATION, "validation"), (after, None)]):
        write(tmp_path, line)
        live(Snapshot(float(second), float(second), tuple(item for item in source.read() if isinstance(item, Sample))))
        (training,) = live.table("training")
        assert training.values.get("phase") == phase
    source.close()


def test_a_value_that_is_not_finite_is_the_last_one_until_another_comes(tmp_path: Path, read: Read) -> None:
    source = TrainingReports(tmp_path)
    write(tmp_path, {"step": 1, "loss": 0.5}, {"step": 2, "loss": None, "nonfinite": {"loss": "inf", "samples": "nan"}})
    (sample,) = read(source)
    odd = sample.values.pop("nonfinite_counts")
    assert odd == {"loss": 1, "samples": 1}
    assert sample.values == {"step": 2, "loss": float("inf")}  # an amount that is no number adds nothing
    source.close()


def test_what_was_not_finite_is_counted_also_when_a_later_report_of_the_tick_was(tmp_path: Path, read: Read) -> None:
    source = TrainingReports(tmp_path)
    write(tmp_path, {"step": 1, "loss": None, "nonfinite": {"loss": "nan", "mine": "inf", "too": "nan"}}, {"loss": 0.5})
    (sample,) = source.read()
    assert isinstance(sample, Sample)
    assert (sample.values["loss"], sample.values["nonfinite_counts"]) == (0.5, {"loss": 1, "other": 1})
    source.close()


def test_the_time_of_the_newest_report_and_the_end_of_the_files_are_known(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_file, "MOST_BYTES", 100)  # a line and a half
    source = TrainingReports(tmp_path)
    write(tmp_path, {"step": 1, "elapsed_seconds": 3.5}, {"step": 2, "elapsed_seconds": 4.25})
    read(source)
    assert (source.newest_seconds, source.caught_up) == (3.5, False)
    read(source)
    read(source)
    assert (source.newest_seconds, source.caught_up) == (4.25, True)
    source.close()


def test_each_rank_is_a_subject_of_its_own(tmp_path: Path, read: Read) -> None:
    source = TrainingReports(tmp_path)
    for rank in (0, 1):
        write(tmp_path, {"step": 5 + rank, "step_seconds": 0.1}, rank=rank)
    assert {sample.subject.labels["rank"]: sample.values["step"] for sample in read(source)} == {0: 5, 1: 6}
    source.close()


def test_notes_of_the_recorder_become_events(tmp_path: Path) -> None:
    source = TrainingReports(tmp_path)
    head = {"event": "training_process", "severity": "info", "message": "records"}
    write(tmp_path, head, {"event": "phase_begin", "severity": "info", "message": "validation begins", "phase": "v"})
    (event,) = source.read()
    assert isinstance(event, Event)
    assert (event.kind, event.message, event.details["phase"]) == ("phase_begin", "validation begins", "v")
    source.close()
