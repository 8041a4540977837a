"""The page in a real browser: what a user sees and does."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.views.web.conftest import MakeRun, readings
from tests.waiting import eventually

from pulsetrain.runs.folder import Host
from pulsetrain.views.web.server import WebServer

FIRST, SECOND = "20261116-120000-first-0001", "20261116-130000-second-0002"
TRAINING = """
import time
import pulsetrain
pulsetrain.init()
for step in range(100_000):
    pulsetrain.log(loss=1 / (step + 1), step=step)
    time.sleep(0.05)
"""


@contextmanager
def watched(browser: Any, server: WebServer, **options: Any) -> Iterator[Any]:
    """A page that must not complain, nor ask anybody but its own server."""
    context = browser.new_context(viewport={"width": 1280, "height": 2400}, **options)
    context.set_default_timeout(180_000)
    complaints: list[str] = []
    requests: list[str] = []

    def watch(page: Any) -> None:
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))

    context.on("page", watch)
    page = context.new_page()
    try:
        yield page
        assert complaints == []
        origins = {"{0.scheme}://{0.netloc}".format(urlsplit(url)) for url in requests if not url.startswith("blob:")}
        assert origins <= {server.url}
    finally:
        context.close()


def drawn(page: Any, chart: str) -> None:
    """Wait until a chart has its lines."""
    page.locator(f"figure[data-chart='{chart}'] canvas").first.wait_for()


def legend(page: Any, chart: str) -> list[str]:
    texts: list[str] = page.locator(f"figure[data-chart='{chart}'] .legend b").all_inner_texts()
    return texts


def drag(page: Any, chart: str, start: float, end: float) -> None:
    """Over a part of a chart, in shares of its width."""
    box = page.locator(f"figure[data-chart='{chart}'] .u-over").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=4)
    page.mouse.up()


def test_a_recorded_run_is_drawn_zoomed_and_read_at_the_cursor(browser: Any, server: WebServer) -> None:
    with watched(browser, server) as page:
        page.goto(server.url)
        page.get_by_role("link", name="first").click()
        drawn(page, "loss")
        drawn(page, "power")
        page.locator(".figures dd", has_text="120").wait_for()
        assert page.locator(".verdict h2").inner_text()
        drag(page, "loss", 0.5, 0.75)
        page.wait_for_url("**start=**")
        view = {name: float(value[0]) for name, value in parse_qs(urlsplit(page.url).query).items()}
        assert [view["start"], view["end"]] == pytest.approx([60, 90], abs=2)
        assert "1 min" in page.locator(".toolbar .state").inner_text()
        before = legend(page, "power")
        box = page.locator("figure[data-chart='loss'] .u-over").bounding_box()
        page.mouse.move(box["x"] + box["width"] * (77.5 - view["start"]) / (view["end"] - view["start"]), box["y"] + 20)
        assert eventually(lambda: legend(page, "loss") == ["50"])  # the spike
        assert legend(page, "power") != before  # the cursor is on all charts
        page.keyboard.press("Backspace")
        assert eventually(lambda: "start" not in page.url)
        page.keyboard.press("+")
        page.wait_for_url("**start=30&end=90**")


def test_the_address_holds_the_view(browser: Any, server: WebServer) -> None:
    with watched(browser, server) as page:
        page.goto(f"{server.url}/run/{FIRST}?start=10&end=40&x=step&smooth=0.1&log=1&tab=Training")
        drawn(page, "loss")
        assert page.get_by_role("tab", name="Training").get_attribute("aria-selected") == "true"
        assert page.locator(".toolbar .state").inner_text() == "step 11 to step 41"
        assert page.get_by_label("log").is_checked()
        assert page.locator("figure[data-chart='power']").count() == 0


def test_every_tab_shows_something(browser: Any, server: WebServer) -> None:
    with watched(browser, server) as page:
        page.goto(f"{server.url}/run/{FIRST}")
        drawn(page, "loss")
        for tab in page.get_by_role("tab").all():
            tab.click()
            page.locator(".panel figure, .panel table, .panel .section, .panel p").first.wait_for()
        page.get_by_role("tab", name="Events").click()
        page.get_by_text("XID 79 on GPU 1").wait_for()
        page.get_by_text("evaluation, 20.0 s").wait_for()
        page.get_by_role("tab", name="Configuration").click()
        assert page.locator(".facts div", has_text="model.depth").inner_text().split() == ["model.depth", "12"]


def test_a_phase_is_a_bar_along_the_top_of_each_chart(browser: Any, server: WebServer) -> None:
    ink = """(plot) => {
        const canvas = plot.querySelector("canvas"), over = plot.querySelector(".u-over").getBoundingClientRect();
        const own = canvas.getBoundingClientRect(), ratio = canvas.width / own.width;
        return [0.25, 0.9].map((share) => canvas.getContext("2d").getImageData(
            ratio * (over.left - own.left + share * over.width), ratio * (over.top - own.top) + 1, 1, 1).data[3] > 0);
    }"""
    with watched(browser, server) as page:
        page.goto(f"{server.url}/run/{FIRST}")
        drawn(page, "power")
        plot = page.locator("figure[data-chart='power'] .plot")
        assert eventually(lambda: plot.evaluate(ink) == [False, True])  # from 99 to 119 of 120 seconds


def test_a_chart_can_be_kept_as_a_picture_and_as_csv(browser: Any, server: WebServer) -> None:
    with watched(browser, server, accept_downloads=True) as page:
        page.goto(f"{server.url}/run/{FIRST}?start=0&end=10")
        drawn(page, "power")
        figure = page.locator("figure[data-chart='power']")
        with page.expect_download() as picture:
            figure.get_by_role("button", name="PNG").click()
        assert Path(picture.value.path()).read_bytes().startswith(b"\x89PNG")
        with page.expect_download() as readings_of:
            figure.get_by_role("link", name="CSV").click()
        assert len(Path(readings_of.value.path()).read_text().splitlines()) == 1 + 2 * 11


def test_what_else_changed_is_asked_by_marking_a_stretch(browser: Any, server: WebServer) -> None:
    with watched(browser, server) as page:
        page.goto(f"{server.url}/run/{FIRST}")
        drawn(page, "loss")
        page.get_by_role("button", name="what else changed?").click()
        drag(page, "loss", 0.5, 0.75)
        page.locator(".changes h2", has_text="What changed from").wait_for()
        assert "start=" not in page.url


def test_runs_are_searched_chosen_and_compared(browser: Any, server: WebServer) -> None:
    with watched(browser, server) as page:
        page.goto(server.url)
        page.get_by_label("Search runs").fill("lr=0.2")
        page.get_by_text("1 of 2").wait_for()
        page.get_by_label("Search runs").fill("")
        for name in ("first", "second"):
            page.get_by_label(f"Choose {name}").check()
        page.get_by_role("button", name="Compare 2").click()
        drawn(page, "loss")
        assert page.locator("figure[data-chart='loss'] .key").all_inner_texts() == ["first", "second"]
        page.get_by_role("heading", name="Settings that differ").wait_for()
        page.get_by_label("Alignment").select_option("progress")
        page.wait_for_url("**align=progress**")
        assert eventually(lambda: "to 100 %" in page.locator("figure[data-chart='loss'] .unseen").text_content())


def test_chosen_runs_are_deleted_after_a_question_where_the_server_allows_it(
    browser: Any, serve: Callable[..., WebServer], runs: Path
) -> None:
    reader = serve()
    with watched(browser, reader) as page:
        page.goto(reader.url)
        page.get_by_label("Choose first").check()
        assert page.get_by_role("button", name="Delete").count() == 0
    server = serve(token="a-token-that-nobody-can-guess", allow_delete=True)
    with watched(browser, server) as page:
        questions: list[str] = []
        page.goto(server.link)
        delete = page.get_by_role("button", name="Delete")
        assert delete.is_disabled()
        page.get_by_label("Choose first").check()

        def refuse(dialog: Any) -> None:
            questions.append(dialog.message)
            dialog.dismiss()

        page.once("dialog", refuse)
        delete.click()
        assert questions == ["Delete first, with all files? This cannot be undone."] and (runs / FIRST).exists()
        page.once("dialog", lambda dialog: dialog.accept())
        delete.click()
        page.get_by_role("link", name="first").wait_for(state="detached")
        assert not (runs / FIRST).exists() and (runs / SECOND).exists()
        assert delete.is_disabled() and page.get_by_role("link", name="second").is_visible()


def test_durations_in_the_list_have_one_form(browser: Any, server: WebServer, runs: Path, make_run: MakeRun) -> None:
    make_run("20261117-120000-short-0003", home=runs, name="short", seconds=27.9, **readings(28))
    with watched(browser, server) as page:
        page.goto(server.url)
        page.get_by_role("link", name="short").wait_for()
        took = page.locator("td.c-seconds")
        assert eventually(lambda: sorted(took.all_inner_texts()) == ["0:00:28", "0:02:00", "0:02:00"])


def test_many_gpus_are_rows(browser: Any, server: WebServer, runs: Path, make_run: MakeRun) -> None:
    make_run("20261117-120000-many-0007", home=runs, name="many", seconds=60.0, **readings(60, gpus=16))
    with watched(browser, server) as page:
        page.goto(f"{server.url}/run/20261117-120000-many-0007")
        page.locator("figure[data-chart='utilization'] canvas.heat").wait_for()
        page.locator("figure[data-chart='utilization']").get_by_role("button", name="lines").click()
        page.locator("figure[data-chart='utilization'] .u-over").wait_for()


def test_hostile_names_are_shown_as_text(browser: Any, server: WebServer, runs: Path, make_run: MakeRun) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    lines = readings(30)
    for line in lines["training"]:
        line[evil] = 1.0
    lines["events"] = [{"elapsed_seconds": 1.0, "kind": evil, "severity": "critical", "message": evil}]
    lines["process"] = [{"pid": 7, "user": evil, "command": evil}]
    about = {"name": evil, "tags": {evil: evil}, "command": [evil], "note": evil, "hosts": {"vm": Host(system=evil)}}
    make_run("20261117-120000-evil-0008", home=runs, **about, **lines)
    with watched(browser, server) as page:
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        page.goto(server.url)
        page.get_by_role("link", name=evil).click()
        drawn(page, "loss")
        for tab in page.get_by_role("tab").all():
            tab.click()
            page.wait_for_timeout(50)
        page.get_by_text(evil).first.wait_for()
        assert page.locator("img").count() == 0 and page.locator("main script").count() == 0


def test_a_token_opens_the_page_and_nothing_else_does(browser: Any, serve: Callable[..., WebServer]) -> None:
    server = serve(token="a-token-that-nobody-can-guess")
    context = browser.new_context()
    try:
        page = context.new_page()
        assert page.goto(server.url).status == 401
        page.goto(server.link)
        page.get_by_role("link", name="first").wait_for()
        assert "token" not in page.url
        assert page.evaluate("document.cookie") == ""
    finally:
        context.close()


@pytest.fixture
def training(runs: Path) -> "Iterator[tuple[str, subprocess.Popen[bytes]]]":
    """A run in progress: its id and its process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PULSETRAIN_")}
    command = [
        sys.executable,
        "-m",
        "pulsetrain",
        "run",
        "-q",
        "--simulate",
        "2xL4",
        "--interval",
        "0.2",
        "--name",
        "live",
    ]
    process = subprocess.Popen(
        [*command, "--dir", str(runs), "--", sys.executable, "-c", TRAINING], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        yield eventually(lambda: next((path.parent.name for path in runs.glob("*live*/run.json")), None)), process
    finally:
        process.terminate()
        process.wait()


def test_a_run_in_progress_moves_in_eight_tabs_after_a_restart_and_to_its_end(
    browser: Any, serve: Callable[..., WebServer], training: "tuple[str, subprocess.Popen[bytes]]"
) -> None:
    server = serve()
    id, process = training
    context = browser.new_context()
    context.set_default_timeout(180_000)
    try:
        pages = [context.new_page() for _ in range(8)]
        for page in pages:
            page.goto(f"{server.url}/run/{id}")
        for page in pages:  # all are answered: no tab holds all connections
            page.get_by_text("live: all of it").wait_for()
        page = pages[-1]
        page.bring_to_front()
        drawn(page, "loss")

        def steps() -> int:
            shown = page.locator(".figures div", has_text="step").first.inner_text()
            return int(shown.split()[-1].replace(",", ""))

        before = eventually(steps)
        assert eventually(lambda: steps() > before)
        summary = page.locator("figure[data-chart='loss'] .unseen")
        text = summary.text_content()
        assert eventually(lambda: summary.text_content() != text)  # the chart moves too
        port = urlsplit(server.url).port
        server.close()
        page.locator("#connection", has_text="disconnected").wait_for()
        assert port
        serve(port=port)
        before = steps()
        assert eventually(lambda: steps() > before)
        process.terminate()
        page.locator(".head .chip", has_text="interrupted").wait_for()
    finally:
        context.close()


def test_the_machine_is_shown_live(browser: Any, serve_machine: WebServer) -> None:
    with watched(browser, serve_machine) as page:
        page.goto(f"{serve_machine.url}/machine")
        page.locator(".gpu").nth(1).wait_for()
        page.locator("figure[data-chart='utilization'] .u-over").wait_for()


@pytest.mark.parametrize("path", ["/", f"/run/{FIRST}", f"/compare?run={FIRST}&run={SECOND}", "/machine", "/api"])
def test_nothing_serious_is_in_the_way_of_people_with_disabilities(browser: Any, server: WebServer, path: str) -> None:
    rules = Path(__file__).parent / "axe.min.js"
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme, bypass_csp=True)
        try:
            page = context.new_page()
            page.goto(server.url + path)
            page.locator("main h1").wait_for()
            page.wait_for_load_state("networkidle")
            page.add_script_tag(path=str(rules))
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        finally:
            context.close()
        serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert serious == [], json.dumps([(one["id"], [node["html"] for node in one["nodes"]]) for one in serious])
