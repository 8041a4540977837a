"""The intensities of a run: what is asked, what is kept with the run, and what happens when nobody answers."""

import logging
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.intensity.servers import HALF_HOUR, Question, Reply, Server, uk_answer
from tests.waiting import PATIENCE_SECONDS, eventually

from pulsetrain import intensity
from pulsetrain.intensity import (
    IntensityUpdater,
    RunIntensity,
    load_run_intensity,
    look_up,
    refresh_run_intensity,
    run_intensity_of,
    uk,
)
from pulsetrain.intensity import run_intensity as run_intensity_module
from pulsetrain.intensity.cache import Cache
from pulsetrain.intensity.slots import Provider, Quality, Slot, gaps
from pulsetrain.supervise import Supervisor

HOUR = timedelta(hours=1)


def national(server: Server) -> Provider:
    found = uk.find("uk", server.url)
    assert found
    return found


class Faulty:
    """A provider with a fault in its program, which shows a few times."""

    def __init__(self, provider: Provider, times: int) -> None:
        self.about, self.has_slots, self.has_forecast = provider.about, True, False
        self._provider = provider
        self._times = times

    def slots(self, start: datetime, end: datetime) -> list[Slot]:
        self._times -= 1
        if self._times >= 0:
            raise KeyError("data")
        return self._provider.slots(start, end)

    def forecast(self, hours: float = 48.0) -> list[Slot]:
        return []


def down(question: Question) -> Reply:
    return Reply({"error": "down"}, 404)


def known(start: datetime, quality: Quality, fetched: datetime, count: int = 1) -> list[Slot]:
    return [
        Slot(
            start=start + n * HALF_HOUR,
            end=start + (n + 1) * HALF_HOUR,
            grams_per_kwh=77,
            quality=quality,
            fetched=fetched,
        )
        for n in range(count)
    ]


def half_hour(time: datetime) -> datetime:
    return time.replace(minute=time.minute // 30 * 30, second=0, microsecond=0)


def test_a_run_gets_its_own_time_and_the_two_days_ahead(server: Server) -> None:
    server.answer = uk_answer
    now = datetime.now(UTC)
    record = look_up(national(server), now - 3 * HOUR, now)
    assert list(gaps(record.slots, now - 3 * HOUR, now + 47 * HOUR)) == []
    assert record.slots[0].end > now - 3 * HOUR
    assert record.problem == ""
    assert len(server.asked) == 2


def test_actual_values_are_not_asked_for_again(server: Server) -> None:
    server.answer = uk_answer
    end = datetime.now(UTC) - 5 * HOUR
    look_up(national(server), end - 3 * HOUR, end)
    asked = len(server.asked)
    look_up(national(server), end - 3 * HOUR, end)
    assert len(server.asked) == asked


def test_a_forecast_whose_time_has_passed_is_replaced_by_what_really_was(server: Server) -> None:
    server.answer = lambda question: uk_answer(question, lambda start: 140)
    start = half_hour(datetime.now(UTC)) - 6 * HOUR
    before = RunIntensity(provider=national(server).about, slots=known(start, "forecast", start, 4))
    record = look_up(national(server), start, start + 2 * HOUR, before=before)
    during = [slot for slot in record.slots if slot.end <= start + 2 * HOUR]
    assert [(slot.quality, slot.grams_per_kwh) for slot in during] == [("actual", 140)] * 4


def test_when_nobody_answers_the_forecast_from_before_still_counts(server: Server) -> None:
    server.answer = down
    start = half_hour(datetime.now(UTC)) - 6 * HOUR
    before = RunIntensity(provider=national(server).about, slots=known(start, "forecast", start, 4))
    record = look_up(national(server), start, start + 2 * HOUR, before=before)
    assert record.slots == before.slots
    assert "404 Not Found: down" in record.problem


def test_when_nobody_answers_the_last_known_value_is_taken_from_the_cache(server: Server) -> None:
    server.answer = down
    now = half_hour(datetime.now(UTC))
    old, recent = known(now - 40 * HOUR, "actual", now), known(now - 3 * HOUR, "actual", now)
    Cache().store("uk", [*old, *recent])
    record = look_up(national(server), now, datetime.now(UTC))
    assert record.slots == recent
    assert record.problem


def test_nonsense_is_neither_used_nor_kept(server: Server) -> None:
    server.answer = lambda question: uk_answer(question, lambda start: -300)
    now = datetime.now(UTC)
    record = look_up(national(server), now - HOUR, now)
    assert record.slots == []
    assert "-300 g/kWh, which is impossible" in record.problem
    assert Cache().load("uk") == []


def test_a_provider_that_keeps_its_forecast_to_itself_still_counts_the_run(server: Server) -> None:
    server.answer = lambda question: down(question) if "fw48h" in question.path else uk_answer(question)
    now = datetime.now(UTC)
    record = look_up(national(server), now - HOUR, now)
    assert record.problem == ""
    assert record.slots[-1].start <= now < record.slots[-1].end


def test_a_table_is_never_asked_and_needs_no_slots() -> None:
    now = datetime.now(UTC)
    record = look_up(intensity.find("DE"), now - HOUR, now)
    assert record.slots == []
    assert record.provider.fixed and record.provider.fixed.grams_per_kwh == 342


def test_a_missing_token_is_a_problem_with_a_way_out() -> None:
    now = datetime.now(UTC)
    record = look_up(intensity.find("electricitymaps:DE"), now - HOUR, now)
    assert (
        record.problem == "Electricity Maps needs a token. Set ELECTRICITYMAPS_TOKEN; electricitymaps.com issues one."
    )


# In the run folder


def test_a_run_keeps_its_values_wherever_its_folder_goes(server: Server, tmp_path: Path) -> None:
    server.answer = uk_answer
    now = datetime.now(UTC)
    record = refresh_run_intensity(tmp_path, national(server), now - HOUR, now)
    assert load_run_intensity(tmp_path) == record
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["carbon.json"]


def test_a_run_without_values_has_none(tmp_path: Path) -> None:
    assert load_run_intensity(tmp_path) is None


def test_a_damaged_record_is_reported_and_rewritten(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = uk_answer
    (tmp_path / "carbon.json").write_text('{"provider": {')
    assert load_run_intensity(tmp_path) is None
    assert "carbon.json cannot be read" in caplog.text
    now = datetime.now(UTC)
    assert refresh_run_intensity(tmp_path, national(server), now - HOUR, now) == load_run_intensity(tmp_path)


def test_a_report_asks_nobody_for_the_region_of_the_run(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSETRAIN_CARBON_UK_URL", server.url)
    server.answer = uk_answer
    now = datetime.now(UTC)
    recorded = run_intensity_of(tmp_path, "uk", now - HOUR, now, refresh=True)
    asked = len(server.asked)
    assert asked and run_intensity_of(tmp_path, "UK", now - HOUR, now) == recorded
    assert len(server.asked) == asked


def test_another_region_for_one_report_leaves_the_run_as_it_is(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSETRAIN_CARBON_UK_URL", server.url)
    server.answer = uk_answer
    now = datetime.now(UTC)
    recorded = run_intensity_of(tmp_path, "uk", now - HOUR, now, refresh=True)
    for refresh in (False, True):
        assert run_intensity_of(tmp_path, "London", now - HOUR, now, refresh=refresh).provider.region == "London"
        assert run_intensity_of(tmp_path, "FR", now - HOUR, now, refresh=refresh).provider.region == "France"
    assert load_run_intensity(tmp_path) == recorded


# While a run goes on


def test_a_recorder_that_was_never_started_can_be_stopped(server: Server, tmp_path: Path) -> None:
    IntensityUpdater(tmp_path, national(server), datetime.now(UTC)).stop()
    assert server.asked == []


def test_a_run_in_progress_has_its_values_soon(server: Server, tmp_path: Path) -> None:
    server.answer = uk_answer
    updater = IntensityUpdater(tmp_path, national(server), datetime.now(UTC))
    updater.start()
    try:
        assert eventually(lambda: updater.latest.slots)
    finally:
        updater.stop()
    assert load_run_intensity(tmp_path) == updater.latest


def test_the_end_of_a_run_does_not_wait_for_a_slow_answer(server: Server, tmp_path: Path) -> None:
    answered = threading.Event()

    def slow(question: Question) -> Reply:
        answered.wait(PATIENCE_SECONDS)
        return uk_answer(question)

    server.answer = slow
    updater = IntensityUpdater(tmp_path, national(server), datetime.now(UTC))
    updater.start()
    assert eventually(lambda: server.asked)
    updater.stop(0.01)
    assert not answered.is_set()
    left = load_run_intensity(tmp_path)
    assert left and left.slots == [] and left.provider.region == "Great Britain"
    answered.set()
    assert eventually(lambda: updater.latest.slots)  # and what comes after all is not lost
    assert eventually(lambda: load_run_intensity(tmp_path) == updater.latest)


def test_a_failure_is_one_warning_and_a_problem_in_the_record(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = down
    with caplog.at_level(logging.INFO):
        updater = IntensityUpdater(tmp_path, national(server), datetime.now(UTC))
        updater.start()
        assert eventually(lambda: updater.latest.problem)
        updater.stop()
    assert [record.levelname for record in caplog.records if record.name.startswith("pulsetrain")] == ["WARNING"]
    left = load_run_intensity(tmp_path)
    assert left and "404 Not Found: down" in left.problem


def test_a_provider_that_stays_away_is_a_part_that_is_down_until_it_answers(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_intensity_module, "RETRY_SECONDS", 0.01)
    supervisor = Supervisor()
    server.answer = down
    updater = IntensityUpdater(tmp_path, national(server), datetime.now(UTC), supervisor=supervisor)
    updater.start()
    assert eventually(supervisor.troubled)
    (health,) = supervisor.troubled()
    assert (health.name, health.status) == ("carbon", "down") and "404 Not Found: down" in health.reason
    server.answer = uk_answer
    assert eventually(lambda: updater.latest.slots)
    updater.stop(PATIENCE_SECONDS)
    assert supervisor.troubled() == []


def test_a_fault_in_one_answer_does_not_end_the_asking(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_intensity_module, "RETRY_SECONDS", 0.01)
    supervisor = Supervisor()
    server.answer = uk_answer
    updater = IntensityUpdater(tmp_path, Faulty(national(server), times=2), datetime.now(UTC), supervisor=supervisor)
    updater.start()
    assert eventually(lambda: updater.latest.slots)
    updater.stop(PATIENCE_SECONDS)
    assert [(health.status, health.skipped_items) for health in supervisor.health()] == [("degraded", 2)]


def test_a_folder_that_is_gone_is_a_warning(server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    updater = IntensityUpdater(tmp_path / "gone", intensity.find("DE"), datetime.now(UTC))
    updater.start()
    updater.stop()
    assert "could not be written" in caplog.text
    now = datetime.now(UTC)
    assert refresh_run_intensity(tmp_path / "gone", intensity.find("DE"), now - HOUR, now).provider.region == "Germany"
