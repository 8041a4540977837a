"""Who gets an answer, and what a browser may do with it."""

from collections.abc import Callable
from pathlib import Path

import bcrypt
import httpx
import pytest

from pulsetrain.errors import UsageError
from pulsetrain.serving.web_config import load
from pulsetrain.views.web.security import checked_token, is_loopback
from pulsetrain.views.web.server import WebServer

TOKEN = "a-token-that-nobody-can-guess"


def test_every_answer_forbids_code_and_requests_that_are_not_ours(server: WebServer) -> None:
    for path in ("/", "/static/main.js", "/api/v1/runs", "/nope", "/healthz"):
        policy = httpx.get(server.url + path).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(server: WebServer, method: str) -> None:
    assert httpx.request(method, f"{server.url}/api/v1/runs").status_code == 405


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.5", "localhost.evil:80"])
def test_a_page_of_another_name_that_leads_here_is_turned_away(server: WebServer, host: str) -> None:
    assert httpx.get(f"{server.url}/api/v1/runs", headers={"Host": host}).status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1", "[::1]:8765"])
def test_this_machine_has_several_names(server: WebServer, host: str) -> None:
    assert httpx.get(f"{server.url}/api/v1/runs", headers={"Host": host}).status_code == 200


def test_a_proxy_has_a_name_that_the_user_allows(serve: Callable[..., WebServer]) -> None:
    server = serve(allowed_hosts=["Watch.example"])
    assert httpx.get(f"{server.url}/", headers={"Host": "watch.example"}).status_code == 200


def test_scripts_of_other_sites_get_nothing(server: WebServer) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert httpx.get(f"{server.url}/api/v1/runs", headers=headers).status_code == 403
    assert "access-control-allow-origin" not in httpx.get(f"{server.url}/", headers={"Origin": "http://x"}).headers


def test_without_the_token_there_is_no_answer_but_for_probes(serve: Callable[..., WebServer]) -> None:
    server = serve(token=TOKEN)
    for path in ("/", "/api/v1/runs", "/metrics", "/static/main.js", "/?token=wrong", "/?token="):
        assert httpx.get(server.url + path).status_code == 401
    assert httpx.get(f"{server.url}/healthz").status_code == 200
    assert httpx.get(f"{server.url}/", headers={"Cookie": "pulsetrain_1=x"}).status_code == 401


def test_the_link_sets_a_cookie_and_the_token_leaves_the_address(serve: Callable[..., WebServer]) -> None:
    server = serve(token=TOKEN)
    with httpx.Client() as client:
        first = client.get(f"{server.url}/run/x?token={TOKEN}&tab=GPUs")
        assert (first.status_code, first.headers["location"]) == (303, "/run/x?tab=GPUs")
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert client.get(f"{server.url}/api/v1/runs").status_code == 200
    assert httpx.get(f"{server.url}/api/v1/runs", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_link_leads_nowhere_else(serve: Callable[..., WebServer]) -> None:
    server = serve(token=TOKEN)
    for path in ("//evil.example/", "/\\evil.example", "/%2F%2Fevil.example"):
        answer = httpx.get(f"{server.url}{path}?token={TOKEN}")
        where = answer.headers.get("location", "/")
        assert where.startswith("/") and not where.startswith(("//", "/\\"))


def test_logins_of_the_web_config_protect_the_page(serve: Callable[..., WebServer], tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    file.write_text(f"basic_auth_users:\n  alice: '{hashed}'\n")
    server = serve(protection=load(file))
    assert httpx.get(f"{server.url}/").status_code == 401
    assert httpx.get(f"{server.url}/", auth=("alice", "secret")).status_code == 200


@pytest.mark.parametrize("token", ["short", "", "x" * 15, "é" * 30])
def test_a_token_that_can_be_guessed_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="characters"):
        checked_token(token)


def test_what_only_this_machine_can_reach() -> None:
    assert [is_loopback(address) for address in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "10.0.0.1")] == [
        *[True] * 3,
        *[False] * 3,
    ]
