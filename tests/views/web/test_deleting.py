"""Deleting runs over HTTP: only where it is allowed, only runs that have ended, and only for our own page."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.views.web.conftest import MakeRun

from pulsetrain.runs.folder import Home, RunFolder
from pulsetrain.views.web.server import WebServer
from pulsetrain.views.web.site import Site

FIRST, SECOND = "20261116-120000-first-0001", "20261116-130000-second-0002"
TOKEN = "a-token-that-nobody-can-guess"


def delete(server: WebServer, id: str, **headers: str) -> httpx.Response:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.delete(f"{server.url}/api/v1/runs/{id}", headers=bearer | named)


def test_a_server_that_was_not_asked_to_deletes_nothing(server: WebServer, runs: Path) -> None:
    answer = delete(server, FIRST)
    assert answer.status_code == 403 and "--allow-delete" in answer.json()["hint"]
    assert (runs / FIRST / "run.json").exists()
    assert httpx.get(f"{server.url}/api/v1/catalog").json()["delete"] is False


def test_a_run_that_has_ended_is_deleted_with_its_files_and_is_no_longer_listed(
    serve: Callable[..., WebServer], runs: Path
) -> None:
    server = serve(token=TOKEN, allow_delete=True)
    with httpx.Client(base_url=f"{server.url}/api/v1", headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        assert client.get("/catalog").json()["delete"] is True
        assert client.get(f"/runs/{FIRST}").status_code == 200  # it is open
        client.get("/figures", params={"run": FIRST})
        assert delete(server, FIRST).json() == {"deleted": FIRST}
        assert sorted(path.name for path in runs.iterdir()) == [SECOND]
        assert [run["id"] for run in client.get("/runs").json()] == [SECOND]
        assert client.get("/figures", params={"run": FIRST}).json() == {}
        assert client.get(f"/runs/{FIRST}").status_code == 404
        assert delete(server, FIRST).status_code == 404


def test_a_run_that_may_live_is_kept(serve: Callable[..., WebServer], runs: Path, make_run: MakeRun) -> None:
    make_run("20261117-120000-live-0003", home=runs, status="running", end=None, gpu=[{"gpu_index": 0}])
    server = serve(token=TOKEN, allow_delete=True)
    answer = delete(server, "20261117-120000-live-0003")
    assert answer.status_code == 409 and "running" in answer.json()["error"]
    assert (runs / "20261117-120000-live-0003" / "run.json").exists()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),  # another port of this machine
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_only_our_own_page_and_programs_with_the_token_delete(
    serve: Callable[..., WebServer], runs: Path, headers: dict[str, str], status: int
) -> None:
    server = serve(token=TOKEN, allow_delete=True)
    assert delete(server, FIRST, **headers).status_code == status
    assert (runs / FIRST).exists()
    assert delete(server, FIRST, Origin=server.url, Sec_Fetch_Site="same-origin").status_code == 200


@pytest.mark.parametrize("id", ["..", "%2E%2E", "..%2Fruns", "first", "", f"{FIRST}%2Fvm", f"{FIRST}/report"])
def test_nothing_but_a_run_of_the_list_is_deleted(serve: Callable[..., WebServer], runs: Path, id: str) -> None:
    server = serve(token=TOKEN, allow_delete=True)
    assert delete(server, id).status_code in (404, 405)
    assert sorted(path.name for path in runs.iterdir()) == [FIRST, SECOND]


def test_of_a_link_among_the_runs_the_link_alone_is_deleted(
    serve: Callable[..., WebServer], runs: Path, tmp_path: Path
) -> None:
    (runs / FIRST).rename(tmp_path / "elsewhere")
    (runs / FIRST).symlink_to(tmp_path / "elsewhere")
    assert delete(serve(token=TOKEN, allow_delete=True), FIRST).status_code == 200
    assert not (runs / FIRST).is_symlink() and (tmp_path / "elsewhere/run.json").exists()


def test_a_page_of_one_run_shows_none_after_it_was_deleted(runs: Path) -> None:
    site = Site(Home(runs), [RunFolder(runs / FIRST)], allow_delete=True)
    assert not site.remove(SECOND)
    assert site.remove(FIRST)
    assert site.runs() == []
