"""Answers on disk: what is asked for again, and what happens when the disk does not play along."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.intensity import cache
from pulsetrain.intensity.cache import Cache, keeps
from pulsetrain.intensity.slots import Quality, Slot, gaps, merged

HOUR = timedelta(hours=1)
NOON = datetime(2026, 3, 20, 12, tzinfo=UTC)


def slot(start: datetime = NOON, grams: float = 200.0, quality: Quality = "actual", age: timedelta = HOUR) -> Slot:
    """A slot of an hour, fetched so long after its start."""
    return Slot(start=start, end=start + HOUR, grams_per_kwh=grams, quality=quality, fetched=start + age)


def test_what_is_stored_is_found_again(home: Path) -> None:
    Cache().store("uk:13", [slot()])
    assert Cache().load("uk:13") == [slot()]
    assert Cache().load("uk:12") == []
    assert [file.name for file in (home / "cache/carbon").iterdir()] == ["uk-13.json"]


def test_a_damaged_file_is_ignored_and_rewritten(home: Path) -> None:
    file = home / "cache/carbon/uk.json"
    file.parent.mkdir(parents=True)
    for damage in (b'[{"start": "2026-', b"\xff\x00", b'{"slots": 3}', b""):
        file.write_bytes(damage)
        assert Cache().load("uk") == []
        Cache().store("uk", [slot()])
        assert Cache().load("uk") == [slot()]


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = Cache(tmp_path / "file" / "cache")
    store.store("uk", [slot()])
    assert store.load("uk") == []


def test_the_oldest_values_go_when_there_are_too_many(tmp_path: Path) -> None:
    many = [slot(NOON + n * HOUR) for n in range(cache.MAX_SLOTS + 5)]
    Cache(tmp_path).store("uk", many)
    assert Cache(tmp_path).load("uk") == many[5:]


def test_processes_that_write_at_once_leave_a_whole_file(home: Path) -> None:
    code = """
import sys
from datetime import datetime, timedelta, UTC
from pulsetrain.intensity.cache import Cache
from pulsetrain.intensity.slots import Slot
start = datetime(2026, 3, 20, int(sys.argv[1]), tzinfo=UTC)
for _ in range(60):
    slot = Slot(start=start, end=start + timedelta(hours=1), grams_per_kwh=1, quality="actual", fetched=start)
    Cache().store("uk", [slot])
    assert Cache().load("uk")
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, str(hour)]) for hour in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert [file.name for file in (home / "cache/carbon").iterdir()] == ["uk.json"]
    assert 1 <= len(Cache().load("uk")) <= 3


def test_an_actual_value_is_never_asked_for_again() -> None:
    assert keeps(slot(), NOON + timedelta(days=300))


def test_a_forecast_is_kept_for_a_while_and_asked_for_again_when_its_time_has_passed() -> None:
    foreseen = slot(quality="forecast", age=-2 * HOUR)
    assert keeps(foreseen, NOON - 2 * HOUR + timedelta(minutes=5))
    assert not keeps(foreseen, NOON - HOUR)
    late = slot(quality="forecast", age=timedelta(minutes=55))
    assert keeps(late, NOON + timedelta(minutes=59))
    assert not keeps(late, NOON + timedelta(minutes=61))


def test_what_stays_a_forecast_for_a_day_is_the_last_word() -> None:
    assert not keeps(slot(quality="forecast", age=timedelta(hours=5)), NOON + timedelta(days=2))
    assert keeps(slot(quality="forecast", age=timedelta(hours=26)), NOON + timedelta(days=300))


def test_a_newer_forecast_replaces_an_older_one_but_not_an_actual_value() -> None:
    old, new = slot(grams=100, quality="forecast"), slot(grams=120, quality="forecast")
    actual = slot(grams=110)
    assert merged([old], [new]) == [new]
    assert merged([actual], [new]) == [actual]
    assert merged([new], [actual]) == [actual]


hours = st.sets(st.integers(0, 30))


@given(hours)
def test_slots_and_gaps_together_are_the_whole_stretch(present: set[int]) -> None:
    slots = [slot(NOON + n * HOUR) for n in present]
    start, end = NOON + 5 * HOUR, NOON + 25 * HOUR
    missing = list(gaps(slots, start, end))
    assert sum((stop - begin for begin, stop in missing), timedelta()) == HOUR * len(set(range(5, 25)) - present)
    assert all(start <= begin < stop <= end for begin, stop in missing)
