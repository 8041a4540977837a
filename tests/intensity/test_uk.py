"""The UK's API, with what it does beyond its documentation."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.intensity.servers import HALF_HOUR, Reply, Server, minute, uk_answer, uk_slot

from pulsetrain.intensity import uk
from pulsetrain.intensity.slots import IntensityError, gaps

DAY = datetime(2026, 3, 20, tzinfo=UTC)


def national(server: Server) -> uk.Uk:
    found = uk.find("uk", server.url)
    assert found
    return found


def london(server: Server) -> uk.Uk:
    found = uk.find("London", server.url)
    assert found
    return found


def test_a_stretch_is_covered_from_the_slot_it_begins_in_to_the_one_it_ends_in(server: Server) -> None:
    server.answer = lambda question: uk_answer(question, lambda start: start.hour * 10)
    slots = national(server).slots(DAY + timedelta(hours=9, minutes=10), DAY + timedelta(hours=10, minutes=40))
    assert server.paths == ["/intensity/2026-03-20T09:00Z/2026-03-20T11:00Z"]
    assert [(minute(slot.start), slot.grams_per_kwh) for slot in slots] == [
        ("2026-03-20T09:00Z", 90),
        ("2026-03-20T09:30Z", 90),
        ("2026-03-20T10:00Z", 100),
        ("2026-03-20T10:30Z", 100),
    ]
    assert {slot.quality for slot in slots} == {"actual"}
    assert {slot.end - slot.start for slot in slots} == {HALF_HOUR}


def test_a_time_of_another_zone_is_asked_for_in_utc(server: Server) -> None:
    server.answer = uk_answer
    start = datetime.fromisoformat("2026-03-20T14:50:00+05:45")  # 09:05 UTC
    national(server).slots(start, start + timedelta(minutes=5))
    assert server.paths == ["/intensity/2026-03-20T09:00Z/2026-03-20T09:30Z"]


def test_a_slot_whose_actual_value_is_not_known_yet_has_its_forecast(server: Server) -> None:
    now = datetime.now(UTC)
    server.answer = lambda question: uk_answer(question, lambda start: 100)
    *passed, current = national(server).slots(now - timedelta(hours=1), now)
    assert [(slot.quality, slot.grams_per_kwh) for slot in passed] == [("actual", 100)] * len(passed)
    assert (current.quality, current.grams_per_kwh) == ("forecast", 110)


def test_a_region_has_forecasts_alone_and_an_object_where_the_country_has_a_list(server: Server) -> None:
    server.answer = lambda question: uk_answer(question, lambda start: 55)
    slots = london(server).slots(DAY, DAY + timedelta(hours=1))
    assert server.paths == ["/regional/intensity/2026-03-20T00:00Z/2026-03-20T01:00Z/regionid/13"]
    assert [(slot.quality, slot.grams_per_kwh) for slot in slots] == [("forecast", 55), ("forecast", 55)]


def test_a_list_of_regions_is_understood_as_well(server: Server) -> None:
    server.answer = lambda question: Reply({"data": [{"regionid": 13, "data": [uk_slot(DAY, forecast=55)]}]})
    (slot,) = london(server).slots(DAY, DAY + HALF_HOUR)
    assert slot.grams_per_kwh == 55


def test_only_the_first_half_of_a_postcode_is_sent(server: Server) -> None:
    server.answer = uk_answer
    place = uk.find_within("SW1A 1AA", server.url)
    assert place
    place.slots(DAY, DAY + HALF_HOUR)
    assert server.paths == ["/regional/intensity/2026-03-20T00:00Z/2026-03-20T00:30Z/postcode/SW1A"]


def test_a_month_is_asked_for_in_pieces_that_the_api_accepts(server: Server) -> None:
    server.answer = uk_answer
    slots = national(server).slots(DAY, DAY + timedelta(days=31))
    assert len(server.asked) == 3
    assert len(slots) == 31 * 48
    assert list(gaps(slots, DAY, DAY + timedelta(days=31))) == []


def test_the_forecast_begins_with_the_present_slot_and_ends_after_two_days(server: Server) -> None:
    server.answer = uk_answer
    now = datetime.now(UTC)
    slots = london(server).forecast()
    assert [path[-len("/fw48h/regionid/13") :] for path in server.paths] == ["/fw48h/regionid/13"]
    assert slots[0].start <= datetime.now(UTC) and slots[0].end > now
    assert timedelta(hours=47) < slots[-1].end - now < timedelta(hours=49)


def test_a_slot_without_any_value_is_left_out(server: Server) -> None:
    hole = uk_slot(DAY + HALF_HOUR, forecast=None, actual=None)
    server.answer = lambda question: Reply({"data": [uk_slot(DAY, forecast=90, actual=80), hole]})
    (slot,) = national(server).slots(DAY, DAY + timedelta(hours=1))
    assert slot.start == DAY


def test_of_a_slot_that_is_given_twice_the_actual_value_counts(server: Server) -> None:
    twice = [uk_slot(DAY, forecast=90, actual=80), uk_slot(DAY, forecast=91, actual=None)]
    server.answer = lambda question: Reply({"data": twice})
    (slot,) = national(server).slots(DAY, DAY + HALF_HOUR)
    assert (slot.grams_per_kwh, slot.quality) == (80, "actual")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([uk_slot(DAY, forecast=-5)], "-5 g/kWh"),
        ([uk_slot(DAY, forecast=200, actual=99999)], "99999 g/kWh"),
        ([{"from": "yesterday", "to": "today", "intensity": {"forecast": 1}}], "an invalid time"),
        ([{"from": minute(DAY), "to": minute(DAY), "intensity": {"forecast": 1}}], "an invalid slot"),
        ([{"from": "2026-03-20T00:00", "to": "2026-03-20T00:30", "intensity": {"forecast": 1}}], "an invalid slot"),
        ([{"from": minute(DAY), "to": minute(DAY + HALF_HOUR)}], "without an intensity"),
        ([{"from": minute(DAY), "to": minute(DAY + HALF_HOUR), "intensity": {"forecast": "low"}}], "unexpected"),
        ([], "has no values"),
        ([uk_slot(DAY - timedelta(days=9), forecast=200)], "has no values"),
        ("moderate", "unexpected"),
        (None, "unexpected"),
    ],
)
def test_an_answer_that_cannot_be_is_refused_with_a_reason(server: Server, data: object, reason: str) -> None:
    server.answer = lambda question: Reply({"data": data})
    with pytest.raises(IntensityError, match=reason):
        national(server).slots(DAY, DAY + HALF_HOUR)


def test_the_reason_of_the_api_is_passed_on(server: Server) -> None:
    error = {"error": {"code": "400 Bad Request", "message": "Please enter a valid postcode i.e. RG41."}}
    server.answer = lambda question: Reply(error, 400)
    with pytest.raises(IntensityError, match=r"400 Bad Request: Please enter a valid postcode i\.e\. RG41\.$"):
        london(server).slots(DAY, DAY + HALF_HOUR)
