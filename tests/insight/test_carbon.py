"""Energy times the intensity of its own time."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.insight.carbon import Carbon, JoulesBetween, emissions, fill, greener_start
from pulsetrain.intensity import RunIntensity, find
from pulsetrain.intensity.slots import ProviderFacts, Quality, Slot, gaps
from pulsetrain.units import JOULES_PER_KWH

NOON = datetime(2026, 3, 20, 12, tzinfo=UTC)
MINUTE, HALF_HOUR, HOUR = timedelta(minutes=1), timedelta(minutes=30), timedelta(hours=1)
LATER = NOON + timedelta(days=30)
"""A moment from which no slot here lies ahead."""


def watts(power: float) -> JoulesBetween:
    """A run that draws the same all the time."""
    return lambda start, end: power * (end - start).total_seconds()


def slots(
    *grams: float, start: datetime = NOON, length: timedelta = HALF_HOUR, quality: Quality = "actual"
) -> list[Slot]:
    return [
        Slot(
            start=start + n * length,
            end=start + (n + 1) * length,
            grams_per_kwh=value,
            quality=quality,
            fetched=start,
        )
        for n, value in enumerate(grams)
    ]


def uk(known: list[Slot], problem: str = "") -> RunIntensity:
    return RunIntensity(provider=find("uk").about, slots=known, problem=problem)


def counted(record: RunIntensity, start: datetime, end: datetime, power: float = 1000.0) -> Carbon:
    carbon, missing = emissions(record, watts(power), start, end, now=LATER)
    assert carbon, missing
    return carbon


def test_each_half_hour_counts_with_its_own_intensity() -> None:
    carbon = counted(uk(slots(100, 300)), NOON, NOON + HOUR)
    assert carbon.grams == pytest.approx(0.5 * 100 + 0.5 * 300)
    assert carbon.grams_per_kwh == pytest.approx(200)
    assert (carbon.region, carbon.accounting, carbon.quality) == ("Great Britain", "operational", "actual")
    assert "CC BY 4.0" in carbon.provider
    assert carbon.notes == []


def test_the_mean_is_weighted_by_energy_and_not_by_time() -> None:
    def burst(start: datetime, end: datetime) -> float:
        return 3.6e6 if start < NOON + HALF_HOUR else 0.0

    carbon, _ = emissions(uk(slots(100, 300)), burst, NOON, NOON + HOUR, now=LATER)
    assert carbon and (carbon.grams, carbon.grams_per_kwh) == (100, 100)


def test_a_run_that_used_nothing_emitted_nothing() -> None:
    carbon = counted(uk(slots(100, 300)), NOON, NOON + HOUR, power=0.0)
    assert (carbon.grams, carbon.grams_per_kwh) == (0, 200)


def test_only_the_run_itself_counts_of_the_slots_it_begins_and_ends_in() -> None:
    carbon = counted(uk(slots(100, 300)), NOON + 20 * MINUTE, NOON + 40 * MINUTE, power=3000)
    assert [(slot.start, slot.end) for slot in carbon.slots] == [
        (NOON + 20 * MINUTE, NOON + HALF_HOUR),
        (NOON + HALF_HOUR, NOON + 40 * MINUTE),
    ]
    assert [slot.grams for slot in carbon.slots] == pytest.approx([50, 150])


def test_the_error_of_the_energy_is_passed_on() -> None:
    carbon, _ = emissions(
        uk(slots(100, 300)), watts(1000), NOON, NOON + HOUR, error_joules=0.1 * JOULES_PER_KWH, now=LATER
    )
    assert carbon and carbon.error_grams == pytest.approx(20)
    assert counted(uk(slots(100, 300)), NOON, NOON + HOUR).error_grams is None


# What is not known


def test_a_hole_is_filled_by_its_neighbors_and_that_is_said() -> None:
    known = [*slots(100), *slots(300, start=NOON + 3 * HALF_HOUR)]
    carbon = counted(uk(known), NOON, NOON + 2 * HOUR)
    assert carbon.grams == pytest.approx(0.5 * 100 + 0.5 * 100 + 0.5 * 300 + 0.5 * 300)
    assert carbon.quality == "mixed"
    assert carbon.notes == [
        "No value for 2026-03-20 12:30 to 13:30 UTC: filled in from the values before and after.",
        "Of the energy, by kind of value: actual 50 %, last known 50 %.",
    ]


def test_the_last_known_value_is_used_with_its_age() -> None:
    record = uk(slots(120, start=NOON - 3 * HOUR), problem="api.example cannot be reached.")
    carbon = counted(record, NOON, NOON + HOUR)
    assert carbon.grams == pytest.approx(120)
    assert (carbon.quality, carbon.accounting) == ("last known", "operational")
    assert carbon.notes == [
        "The last request failed: api.example cannot be reached.",
        "No value for 2026-03-20 12:00 to 13:00 UTC: filled in with the last known value, from 2 h 30 min before.",
    ]


def test_a_value_that_begins_after_a_run_is_used_as_well() -> None:
    carbon = counted(uk(slots(120, start=NOON + 90 * MINUTE)), NOON, NOON + HOUR)
    assert carbon.grams == pytest.approx(120)
    assert carbon.notes == [
        "No value for 2026-03-20 12:00 to 13:00 UTC: filled in with the first known value, from 30 min after."
    ]


def test_without_any_value_near_the_yearly_average_is_used_with_its_own_name_and_kind() -> None:
    carbon = counted(uk(slots(120, start=NOON - timedelta(days=3)), problem="nobody answers."), NOON, NOON + HOUR)
    assert carbon.grams == pytest.approx(216)
    assert (carbon.quality, carbon.accounting) == ("annual", "lifecycle")
    assert (carbon.region, carbon.provider) == ("United Kingdom", "average of 2024 (Ember, through co2.js, CC BY 4.0)")
    assert carbon.notes[0] == "The last request failed: nobody answers."
    assert "using the yearly average of United Kingdom instead (lifecycle, not operational)" in carbon.notes[1]


def test_where_there_is_no_average_either_nothing_is_claimed() -> None:
    about = find("watttime:CAISO_NORTH").about
    assert emissions(RunIntensity(provider=about, problem="nobody answers."), watts(1), NOON, NOON + HOUR) == (
        None,
        "nobody answers.",
    )
    assert emissions(RunIntensity(provider=about), watts(1), NOON, NOON + HOUR) == (
        None,
        "WattTime has not answered yet.",
    )


def test_a_run_that_ends_before_it_begins_is_not_counted() -> None:
    assert emissions(uk(slots(100)), watts(1), NOON, NOON) == (None, "the run has no duration.")


@pytest.mark.parametrize(
    ("region", "grams", "quality", "kind"),
    [
        ("DE", 342, "annual", "lifecycle"),
        ("gcp:us-west1", 79, "annual", "operational"),
        ("250", 250, "constant", "unknown"),
    ],
)
def test_what_holds_for_all_times_needs_no_excuse(region: str, grams: float, quality: str, kind: str) -> None:
    carbon = counted(RunIntensity(provider=find(region).about), NOON, NOON + HOUR)
    assert carbon.grams == pytest.approx(grams)
    assert (carbon.quality, carbon.accounting) == (quality, kind)
    assert carbon.notes == []
    assert len(carbon.slots) == 1


# Whatever the run and the grid


intensities = st.lists(st.floats(0, 3000), min_size=1, max_size=12)
minutes = st.integers(0, 400)
powers = st.lists(st.floats(0, 1e5), min_size=1, max_size=20)


def curve(powers: list[float]) -> JoulesBetween:
    """A power for each ten minutes from noon; nothing after."""

    def joules(start: datetime, end: datetime) -> float:
        total = 0.0
        for n, power in enumerate(powers):
            begin, stop = max(start, NOON + n * 10 * MINUTE), min(end, NOON + (n + 1) * 10 * MINUTE)
            total += power * max(0.0, (stop - begin).total_seconds())
        return total

    return joules


@given(powers, st.floats(0, 3000), minutes, st.integers(1, 400), st.sets(st.integers(0, 30), min_size=1))
def test_a_constant_intensity_gives_energy_times_intensity(
    powers: list[float], grams: float, begin: int, length: int, present: set[int]
) -> None:
    start, end = NOON + begin * MINUTE, NOON + (begin + length) * MINUTE
    known = [slot for n in present for slot in slots(grams, start=NOON + n * HALF_HOUR)]
    carbon, _ = emissions(uk(known), curve(powers), start, end, now=LATER)
    assert carbon
    assert carbon.grams == pytest.approx(curve(powers)(start, end) / JOULES_PER_KWH * grams, rel=1e-9, abs=1e-9)
    assert carbon.grams_per_kwh == pytest.approx(grams)


@given(powers, intensities, minutes, st.integers(1, 400))
def test_the_slots_add_up_to_the_whole_and_have_no_hole(
    powers: list[float], grams: list[float], begin: int, length: int
) -> None:
    start, end = NOON + begin * MINUTE, NOON + (begin + length) * MINUTE
    carbon, _ = emissions(uk(slots(*grams)), curve(powers), start, end, now=LATER)
    assert carbon
    assert carbon.grams == pytest.approx(sum(slot.grams for slot in carbon.slots))
    assert sum(slot.joules for slot in carbon.slots) == pytest.approx(curve(powers)(start, end))
    assert [slot.start for slot in carbon.slots] == [start, *(slot.end for slot in carbon.slots[:-1])]
    assert carbon.slots[-1].end == end


@given(powers, intensities, st.data())
def test_splitting_slots_does_not_change_the_sum(powers: list[float], grams: list[float], data: st.DataObject) -> None:
    whole = slots(*grams)
    split = []
    for slot in whole:
        cut = slot.start + data.draw(st.integers(1, 29)) * MINUTE
        split += [
            Slot(start=a, end=b, grams_per_kwh=slot.grams_per_kwh, quality="actual", fetched=NOON)
            for a, b in ((slot.start, cut), (cut, slot.end))
        ]
    end = whole[-1].end
    one, _ = emissions(uk(whole), curve(powers), NOON, end, now=LATER)
    two, _ = emissions(uk(split), curve(powers), NOON, end, now=LATER)
    assert one and two and one.grams == pytest.approx(two.grams)


@given(st.sets(st.integers(0, 20), min_size=1), minutes, st.integers(1, 400))
def test_filling_leaves_no_hole_and_no_overlap(present: set[int], begin: int, length: int) -> None:
    start, end = NOON + begin * MINUTE, NOON + (begin + length) * MINUTE
    known = [slot for n in present for slot in slots(float(n), start=NOON + n * HALF_HOUR)]
    filled, notes = fill(known, start, end)
    assert list(gaps(filled, start, end)) == []
    assert sum((slot.end - slot.start for slot in filled), timedelta()) == end - start
    assert len(notes) == len(list(gaps(known, start, end)))


# When it would have been greener


def test_the_greenest_start_is_found_also_between_slots() -> None:
    ahead = slots(300, 300, 100, 100, 300, 300, length=HOUR, quality="forecast")
    best = greener_start(JOULES_PER_KWH, 2 * HOUR, ahead, NOON)
    assert best and best.start == NOON + 2 * HOUR
    assert [best.grams, best.grams_now] == pytest.approx([100, 300])
    longer = greener_start(JOULES_PER_KWH, 150 * MINUTE, ahead, NOON)
    assert longer and longer.start in (NOON + 90 * MINUTE, NOON + 2 * HOUR)
    assert longer.grams == pytest.approx((2 * 100 + 0.5 * 300) / 2.5)


def test_the_present_slot_counts_from_now_on() -> None:
    ahead = slots(300, 100, length=HOUR, quality="forecast")
    best = greener_start(JOULES_PER_KWH, HOUR, ahead, NOON + 30 * MINUTE)
    assert best and best.start == NOON + HOUR
    assert best.grams_now == pytest.approx(200)


@pytest.mark.parametrize(
    ("grams", "length"),
    [
        ((100, 100, 100), HOUR),  # nothing to gain
        ((100, 300, 300), HOUR),  # now is best
        ((100, 96, 96), HOUR),  # less than 5 %
        ((300, 100), 3 * HOUR),  # longer than is foreseen
        ((), HOUR),
    ],
)
def test_no_start_is_proposed_that_is_not_worth_it_or_not_foreseen(grams: tuple[float, ...], length: timedelta) -> None:
    assert greener_start(JOULES_PER_KWH, length, slots(*grams, length=HOUR, quality="forecast"), NOON) is None


def test_beyond_a_hole_in_the_forecast_nothing_is_proposed() -> None:
    ahead = [*slots(300, 300, length=HOUR), *slots(10, 10, start=NOON + 3 * HOUR, length=HOUR)]
    assert greener_start(JOULES_PER_KWH, HOUR, ahead, NOON) is None


def test_a_report_proposes_a_start_when_the_record_looks_ahead() -> None:
    record = uk([*slots(300), *slots(300, 300, 50, 50, start=NOON + HALF_HOUR, quality="forecast")])
    carbon, _ = emissions(record, watts(1000), NOON, NOON + HALF_HOUR, now=NOON + HALF_HOUR)
    assert carbon and carbon.greener
    assert carbon.greener.start == NOON + 3 * HALF_HOUR
    assert [carbon.greener.grams, carbon.greener.grams_now] == pytest.approx([25, 150])
    carbon, _ = emissions(record, watts(1000), NOON, NOON + HALF_HOUR, now=LATER)
    assert carbon and carbon.greener is None


@given(intensities, st.integers(1, 300))
def test_no_other_start_on_the_minute_would_be_greener(grams: list[float], length: int) -> None:
    ahead = slots(*grams, quality="forecast")
    best = greener_start(JOULES_PER_KWH, length * MINUTE, ahead, NOON)
    emitted = [
        sum(grams[(begin + minute) // 30] for minute in range(length)) / length
        for begin in range(len(grams) * 30 - length + 1)
    ]
    if not emitted:
        assert best is None
    elif best:
        assert best.grams == pytest.approx(min(emitted), abs=1e-6)
        assert best.grams_now == pytest.approx(emitted[0], abs=1e-6)
    else:
        assert min(emitted) >= 0.95 * emitted[0] - 1e-6


def test_the_record_of_a_provider_is_enough_to_count_by() -> None:
    about = ProviderFacts(spec="x", region="Nowhere", source="nobody", accounting="unknown")
    assert counted(RunIntensity(provider=about, slots=slots(80)), NOON, NOON + HALF_HOUR).region == "Nowhere"
