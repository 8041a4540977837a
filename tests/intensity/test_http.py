"""What can go wrong between us and a provider."""

import socket
import threading
from typing import Any

import pytest
from tests.intensity.servers import Question, Reply, Server
from tests.servers import answering
from tests.waiting import PATIENCE_SECONDS, eventually

from pulsetrain import __version__
from pulsetrain.intensity import http
from pulsetrain.intensity.slots import IntensityError


def get(url: str, **more: Any) -> dict[str, int]:
    return http.get(url, dict[str, int], **more)


def test_we_say_who_asks(server: Server) -> None:
    server.answer = lambda question: Reply({"a": 1})
    assert get(f"{server.url}/x", params={"zone": "DE"}) == {"a": 1}
    (question,) = server.asked
    assert question.headers["User-Agent"] == f"pulsetrain/{__version__}"
    assert question.params == {"zone": "DE"}


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_what_may_pass_is_tried_once_more(server: Server, status: int) -> None:
    replies = [Reply({"error": "busy"}, status), Reply({"a": 1})]
    server.answer = lambda question: replies.pop(0)
    assert get(server.url) == {"a": 1}


def test_a_second_failure_is_final(server: Server) -> None:
    server.answer = lambda question: Reply({"error": {"message": "Requested resource not found."}}, 500)
    with pytest.raises(IntensityError, match="500 Internal Server Error: Requested resource not found") as caught:
        get(server.url)
    assert len(server.asked) == 2
    assert caught.value.status == 500


def test_who_asks_for_a_long_pause_is_not_asked_again(server: Server) -> None:
    server.answer = lambda question: Reply({}, 429, {"Retry-After": "3600"})
    with pytest.raises(IntensityError, match="429 Too Many Requests"):
        get(server.url)
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_is_not_tried_again(server: Server, status: int) -> None:
    server.answer = lambda question: Reply({"message": "not for you"}, status)
    with pytest.raises(IntensityError, match="not for you") as caught:
        get(server.url)
    assert len(server.asked) == 1
    assert caught.value.status == status


@pytest.mark.parametrize(
    "body",
    [b"<html><h1>Log in to this Wi-Fi</h1></html>", b'{"a": 1, "b"', b"", b"\xff\xfe\x00", b'{"a": "one"}', b"[1]"],
)
def test_what_is_not_the_expected_document_is_refused(server: Server, body: bytes) -> None:
    server.answer = lambda question: Reply(body)
    with pytest.raises(IntensityError, match="unexpected"):
        get(server.url)


def test_an_answer_that_breaks_off_is_refused(server: Server) -> None:
    server.answer = lambda question: Reply(b'{"a": 1', 200, {"Content-Length": "1000"})
    with pytest.raises(IntensityError, match="cannot be reached"):
        get(server.url)


def test_a_page_of_an_error_that_is_not_a_document_is_refused(server: Server) -> None:
    server.answer = lambda question: Reply(b"<html>Not Found</html>", 404)
    with pytest.raises(IntensityError, match=r"404 Not Found\.$"):
        get(server.url)


def test_a_slow_answer_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "READ_SECONDS", 0.1)
    done = threading.Event()

    def slow(question: Question) -> Reply:
        done.wait(PATIENCE_SECONDS)
        return Reply({"a": 1})

    server.answer = slow
    try:
        with pytest.raises(IntensityError, match="does not respond in time"):
            get(server.url)
        assert eventually(lambda: len(server.asked) == 2)
    finally:
        done.set()


def test_an_answer_without_end_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BYTES", 1000)
    server.answer = lambda question: Reply(b" " * 200_000)
    with pytest.raises(IntensityError, match="endless"):
        get(server.url)


@pytest.mark.parametrize("pause_seconds", [0.0, 0.02], ids=["fast", "slow"])
def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch, pause_seconds: float) -> None:
    monkeypatch.setattr(http, "WHOLE_SECONDS", 1.0)
    with (
        answering(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 10_000, pause_seconds) as place,
        pytest.raises(IntensityError, match="endless"),
    ):
        get(f"http://{place}/")


def test_nobody_there_is_said_in_words() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(IntensityError, match=f"127.0.0.1:{port} cannot be reached: "):
        get(f"http://127.0.0.1:{port}/")


def moved(question: Question) -> Reply:
    return Reply({"a": 1}) if question.path == "/new" else Reply(b"", 301, {"Location": "/new"})


def test_a_redirect_is_followed(server: Server) -> None:
    server.answer = moved
    assert get(f"{server.url}/old") == {"a": 1}


@pytest.mark.parametrize("credentials", [{"secret": {"auth-token": "abc"}}, {"login": ("me", "abc")}])
def test_credentials_do_not_follow_a_redirect(server: Server, credentials: dict[str, Any]) -> None:
    server.answer = moved
    with pytest.raises(IntensityError, match="A redirect is not followed with credentials"):
        get(f"{server.url}/old", **credentials)
    assert server.paths == ["/old"]


def test_redirects_in_a_circle_end(server: Server) -> None:
    server.answer = lambda question: Reply(b"", 302, {"Location": "/"})
    with pytest.raises(IntensityError, match=r"failed: Exceeded maximum allowed redirects\.$"):
        get(server.url)


def test_settings_of_a_proxy_that_cannot_be_used_are_said(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://127.0.0.1:1")
    with pytest.raises(IntensityError, match="settings for proxies or certificates"):
        get(server.url)
