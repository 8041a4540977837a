"""Electricity Maps: a token, hours, and a free plan that sees one day."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.intensity.servers import Question, Reply, Server

from pulsetrain.intensity.electricity_maps import ElectricityMaps
from pulsetrain.intensity.slots import IntensityError

HOUR = timedelta(hours=1)


def this_hour() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def row(start: datetime, grams: float | None, **more: Any) -> dict[str, Any]:
    return {
        "zone": "DE",
        "carbonIntensity": grams,
        "datetime": f"{start:%Y-%m-%dT%H:%M:%S.000Z}",
        "updatedAt": "2026-04-07T15:32:21.002Z",
        "emissionFactorType": "lifecycle",
        "isEstimated": False,
        "estimationMethod": None,
        **more,
    }


def answer(question: Question) -> Reply:
    """A plan that allows everything."""
    if question.path.endswith("/history"):
        return Reply({"zone": "DE", "history": [row(this_hour() - n * HOUR, 300 + n) for n in range(24)]})
    if question.path.endswith("/forecast"):
        rows = [{"carbonIntensity": 250, "datetime": row(this_hour() + n * HOUR, 0)["datetime"]} for n in range(49)]
        return Reply({"zone": "DE", "forecast": rows, "updatedAt": "2026-04-07T15:32:21.002Z"})
    start = datetime.fromisoformat(question.params["start"]).replace(minute=0, second=0) + HOUR
    end = datetime.fromisoformat(question.params["end"])
    hours = int((end - start) / HOUR) + 1
    return Reply({"zone": "DE", "data": [row(start + n * HOUR, 400) for n in range(hours)]})


def free(question: Question) -> Reply:
    """A plan that sees the last day alone."""
    if question.path.endswith("/history"):
        return answer(question)
    return Reply({"error": "Request unauthorized for zoneKey=DE"}, 401)


def germany(server: Server) -> ElectricityMaps:
    return ElectricityMaps("DE", server.url, "abc")


def test_the_last_hours_come_from_the_free_history(server: Server) -> None:
    server.answer = free
    now = datetime.now(UTC)
    slots = germany(server).slots(now - 2 * HOUR, now)
    assert [slot.grams_per_kwh for slot in slots] == [302, 301, 300]
    assert {(slot.end - slot.start, slot.quality) for slot in slots} == {(HOUR, "actual")}
    (question,) = server.asked
    assert question.headers["auth-token"] == "abc"
    assert question.params == {
        "zone": "DE",
        "emissionFactorType": "lifecycle",
        "shouldUseFallbackCallerLookup": "false",
    }


def test_what_lies_further_back_comes_from_the_paid_range_in_pieces_of_ten_days(server: Server) -> None:
    server.answer = answer
    now = datetime.now(UTC)
    slots = germany(server).slots(now - timedelta(days=15), now)
    assert [path.rpartition("/")[2] for path in server.paths] == ["history", "past-range", "past-range"]
    assert len(slots) == 15 * 24 + 1
    assert (slots[0].grams_per_kwh, slots[-1].grams_per_kwh) == (400, 300)


def test_a_free_plan_gives_what_it_has_of_a_longer_stretch(server: Server) -> None:
    server.answer = free
    now = datetime.now(UTC)
    slots = germany(server).slots(now - timedelta(days=3), now)
    assert len(slots) == 24


def test_a_free_plan_has_nothing_of_last_week(server: Server) -> None:
    server.answer = free
    now = datetime.now(UTC)
    with pytest.raises(IntensityError, match="401 Unauthorized: Request unauthorized for zoneKey=DE"):
        germany(server).slots(now - timedelta(days=7), now - timedelta(days=6))


def test_an_estimate_is_not_an_actual_value(server: Server) -> None:
    rows = [row(this_hour() - HOUR, 300), row(this_hour(), 310, isEstimated=True, estimationMethod="TIME_SLICER")]
    server.answer = lambda question: Reply({"zone": "DE", "history": rows})
    now = datetime.now(UTC)
    assert [slot.quality for slot in germany(server).slots(now - HOUR, now)] == ["actual", "estimated"]


def test_an_hour_without_a_value_is_left_out(server: Server) -> None:
    server.answer = lambda question: Reply(
        {"zone": "DE", "history": [row(this_hour() - HOUR, None), row(this_hour(), 310)]}
    )
    now = datetime.now(UTC)
    assert [slot.grams_per_kwh for slot in germany(server).slots(now - HOUR, now)] == [310]


def test_the_forecast_covers_two_days(server: Server) -> None:
    server.answer = answer
    slots = germany(server).forecast()
    assert {slot.quality for slot in slots} == {"forecast"}
    assert slots[0].start <= datetime.now(UTC) < slots[0].end
    assert len(slots) == 49


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"zone": "FR", "history": []}, "asked for DE and answered for FR"),
        ({"zone": "DE", "history": [row(this_hour(), -1)]}, "-1 g/kWh"),
        ({"zone": "DE", "history": [row(this_hour(), 300, emissionFactorType="direct")]}, "direct values"),
        ({"zone": "DE", "history": [{"datetime": "2026-04-07T15:00:00", "carbonIntensity": 3}]}, "unexpected"),
        ({"zone": "DE", "history": [{"datetime": "2026-04-07T15:00:00Z"}]}, "unexpected"),
        ({"zone": "DE"}, "has no values"),
    ],
)
def test_an_answer_that_cannot_be_is_refused(server: Server, document: object, reason: str) -> None:
    server.answer = lambda question: Reply(document)
    now = datetime.now(UTC)
    with pytest.raises(IntensityError, match=reason):
        germany(server).slots(now - timedelta(minutes=1), now)


def test_without_a_token_nothing_is_asked(server: Server) -> None:
    now = datetime.now(UTC)
    with pytest.raises(IntensityError, match="needs a token") as caught:
        ElectricityMaps("DE", server.url).slots(now - HOUR, now)
    assert caught.value.hint and "ELECTRICITYMAPS_TOKEN" in caught.value.hint
    assert server.asked == []


def test_the_country_of_a_zone_is_known(server: Server) -> None:
    fixed = ElectricityMaps("US-CAL-CISO", server.url).about.fixed
    assert fixed and fixed.region == "United States"
    assert ElectricityMaps("AX", server.url).about.fixed is None
