"""WattTime: a login, pounds and megawatt-hours, marginal values."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.intensity.servers import Question, Reply, Server

from pulsetrain.intensity.slots import IntensityError
from pulsetrain.intensity.watttime import WattTime

STEP = timedelta(minutes=5)
DAY = datetime(2026, 3, 20, tzinfo=UTC)


def document(start: datetime, count: int, pounds: float = 1000.0, **meta: Any) -> dict[str, Any]:
    points = [{"point_time": (start + n * STEP).isoformat(), "value": pounds} for n in range(count)]
    return {
        "data": points,
        "meta": {
            "data_point_period_seconds": 300,
            "region": "CAISO_NORTH",
            "signal_type": "co2_moer",
            "units": "lbs_co2_per_mwh",
            "warnings": [],
            "model": {"date": "2026-03-01", "type": "binned_regression"},
            **meta,
        },
    }


def answer(question: Question) -> Reply:
    if question.path == "/login":
        allowed = question.headers.get("Authorization") == "Basic " + b64encode(b"me:secret").decode()
        return Reply({"token": "jwt"}) if allowed else Reply({"error": "Invalid credentials"}, 401)
    assert question.headers["Authorization"] == "Bearer jwt"
    if question.path == "/v3/forecast":
        now = datetime.now(UTC).replace(second=0, microsecond=0)
        start = now - timedelta(minutes=now.minute % 5)
        return Reply(document(start, int(question.params["horizon_hours"]) * 12))
    start, end = (datetime.fromisoformat(question.params[name]) for name in ("start", "end"))
    if end - start > timedelta(days=32):
        return Reply({"error": "the range is limited to 32 days"}, 400)
    return Reply(document(start, int((end - start) / STEP) + 1))


def california(server: Server, password: str = "secret") -> WattTime:
    return WattTime("CAISO_NORTH", server.url, "me", password)


def test_pounds_for_a_megawatt_hour_become_grams_for_a_kilowatt_hour(server: Server) -> None:
    server.answer = answer
    slots = california(server).slots(DAY, DAY + 3 * STEP)
    assert [slot.grams_per_kwh for slot in slots] == [453.59237] * 3
    assert [(slot.start, slot.end) for slot in slots] == [(DAY + n * STEP, DAY + (n + 1) * STEP) for n in range(3)]
    assert california(server).about.accounting == "marginal"


def test_the_signal_and_the_region_are_named(server: Server) -> None:
    server.answer = answer
    california(server).slots(DAY, DAY + STEP)
    assert server.paths == ["/login", "/v3/historical"]
    assert server.asked[1].params["region"] == "CAISO_NORTH"
    assert server.asked[1].params["signal_type"] == "co2_moer"


def test_one_login_serves_several_questions(server: Server) -> None:
    server.answer = answer
    provider = california(server)
    assert len(provider.slots(DAY, DAY + timedelta(days=70))) == 70 * 24 * 12
    provider.forecast()
    assert server.paths == ["/login", *["/v3/historical"] * 3, "/v3/forecast"]


def test_the_forecast_covers_two_days(server: Server) -> None:
    server.answer = answer
    slots = california(server).forecast()
    assert len(slots) == 48 * 12
    assert {slot.quality for slot in slots} == {"forecast"}


def test_an_imputed_value_is_an_estimate(server: Server) -> None:
    found = document(DAY, 2)
    found["data"][0]["imputed_data_used"] = True
    server.answer = lambda question: answer(question) if question.path == "/login" else Reply(found)
    assert [slot.quality for slot in california(server).slots(DAY, DAY + 2 * STEP)] == ["estimated", "actual"]


def test_a_wrong_password_is_said(server: Server) -> None:
    server.answer = answer
    with pytest.raises(IntensityError, match="401 Unauthorized: Invalid credentials"):
        california(server, "wrong").slots(DAY, DAY + STEP)


def test_without_a_login_nothing_is_asked(server: Server) -> None:
    with pytest.raises(IntensityError, match="needs a login") as caught:
        WattTime("CAISO_NORTH", server.url).slots(DAY, DAY + STEP)
    assert caught.value.hint and "WATTTIME_USERNAME" in caught.value.hint
    assert server.asked == []


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (document(DAY, 2, units="percentile"), "in percentile"),
        (document(DAY, 2, region="PJM_DC"), "of PJM_DC"),
        (document(DAY, 2, signal_type="health_damage"), "health_damage"),
        (document(DAY, 2, data_point_period_seconds=0), "unexpected"),
        (document(DAY, 2, pounds=1e6), "which is impossible"),
        (document(DAY, 0), "has no values"),
        ({"data": []}, "unexpected"),
    ],
)
def test_an_answer_that_cannot_be_is_refused(server: Server, found: object, reason: str) -> None:
    server.answer = lambda question: answer(question) if question.path == "/login" else Reply(found)
    with pytest.raises(IntensityError, match=reason):
        california(server).slots(DAY, DAY + 2 * STEP)
