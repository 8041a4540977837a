"""Asking the servers of a stack: whoever answers at their ports, it comes to an end."""

import pytest
from tests.servers import answering

from pulsetrain.deploy.stack import health
from pulsetrain.deploy.stack.services import SERVICES
from pulsetrain.deploy.stack.settings import StackSettings

ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


def settings(place: str) -> StackSettings:
    port = int(place.rpartition(":")[2])
    return StackSettings(ports=dict.fromkeys(SERVICES, port))


@pytest.mark.parametrize("pause_seconds", [0.0, 0.02], ids=["fast", "slow"])
def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch, pause_seconds: float) -> None:
    monkeypatch.setattr(health, "TIMEOUT_SECONDS", 1.0)
    with answering(ENDLESS, b" " * 10_000, pause_seconds) as place:
        assert health.targets(settings(place)) == []
        assert {one.ready for one in health.health(settings(place))} == {True}


def test_a_server_that_does_not_speak_http_is_not_ready() -> None:
    with answering(b"SSH-2.0-OpenSSH_9.2\r\n") as place:
        assert {one.detail for one in health.health(settings(place))} == {
            "another program listens there and does not speak HTTP"
        }
        assert health.targets(settings(place)) == []
