"""The API as a client sees it, over HTTP."""

import json
import math
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.servers import program
from tests.views.web.conftest import MakeRun, readings
from tests.waiting import eventually

from pulsetrain.runs.folder import Host, RunFolder
from pulsetrain.runs.seal import seal_all
from pulsetrain.views.web.app import endpoints, openapi
from pulsetrain.views.web.configuration import configuration
from pulsetrain.views.web.server import WebServer

FIRST, SECOND = "20261116-120000-first-0001", "20261116-130000-second-0002"


def get(server: WebServer, path: str, **parameters: Any) -> Any:
    query = f"?{urlencode(parameters, doseq=True)}" if parameters else ""
    with urllib.request.urlopen(f"{server.url}/api/v1{path}{query}") as response:
        return json.load(response)


def test_runs_in_progress_come_first_then_the_newest(server: WebServer, runs: Path, make_run: MakeRun) -> None:
    found = get(server, "/runs")
    assert {run["name"] for run in found} == {"first", "second"}
    assert found[0]["gpus"] == 2
    old = datetime(2026, 11, 1, 12, tzinfo=UTC)
    make_run("20261101-120000-old-0003", home=runs, name="old", start=old)
    assert eventually(lambda: [run["name"] for run in get(server, "/runs")][2:] == ["old"])


def test_a_run_says_which_charts_it_has_and_the_catalog_says_what_they_are(server: WebServer) -> None:
    run = get(server, f"/runs/{FIRST}")
    charts = {chart["key"]: chart for chart in run["charts"]}
    assert {"loss", "step_time", "utilization", "power", "gpu_memory", "cpu", "disk", "own:val_accuracy"} <= set(charts)
    assert "step_seconds" not in charts  # its parts are known
    assert charts["utilization"]["unit"] == "%" and "kernel" in charts["utilization"]["help"]
    assert run["steps"]["steps"][-1] == 120


def test_the_page_stays_light() -> None:
    static = Path(str(files("pulsetrain.views.web").joinpath("static")))
    assert sum(file.stat().st_size for file in static.iterdir() if file.suffix in (".js", ".css")) < 150_000


def test_the_configuration_shows_whatever_a_run_says_of_itself(make_run: MakeRun) -> None:
    config = {"lr": 0.1, "layers": [64, 32], "amp": True, "none": None}
    hosts = {"vm": Host(system="Linux", gpus=[{"name": "NVIDIA H100"}] * 2, memory_bytes=2**35, pid=7)}
    folder = make_run(command=["python", "train it.py"], config=config, hosts=hosts)
    found = {title: dict(facts) for title, facts in configuration(folder.load())}
    assert found["Config"] == {"lr": "0.1", "layers": "64, 32", "amp": "yes"}
    assert found["Run"]["command"] == "python 'train it.py'"
    assert found["Host vm"] == {"system": "Linux", "gpus": "2 x NVIDIA H100", "memory_bytes": "32.0 GiB"}


def test_a_spike_is_in_the_series_however_few_points_are_asked_for(server: WebServer) -> None:
    (line,) = get(server, f"/runs/{FIRST}/series", chart="loss", points=10)["charts"]["loss"]
    assert max(line["high"]) == 50.0 and len(line["x"]) <= 10


def test_a_zoom_gives_the_readings_themselves(server: WebServer) -> None:
    found = get(server, f"/runs/{FIRST}/series", chart=["power", "disk"], start=10, end=20, points=800)["charts"]
    first, second = found["power"]
    assert first["x"] == [float(second) for second in range(9, 21)] and "x" not in second and "low" not in first
    assert found["disk"][0]["last"] == pytest.approx([1e6 / 2**20] * 12, rel=1e-4)


def test_sealed_files_give_the_same_series(server: WebServer, serve: Callable[..., WebServer], runs: Path) -> None:
    before = get(server, f"/runs/{FIRST}/series", chart=["loss", "power", "cpu"], points=50)
    seal_all(RunFolder(runs / FIRST))
    assert list((runs / FIRST).rglob("*.parquet"))
    assert get(serve(), f"/runs/{FIRST}/series", chart=["loss", "power", "cpu"], points=50) == before


def test_the_report_is_in_the_same_words_as_in_the_terminal(server: WebServer) -> None:
    report = get(server, f"/runs/{FIRST}/report")
    titles = [section["title"] for section in report["sections"]]
    assert {"Run", "GPUs", "Training", "Energy"} <= set(titles)
    assert {"name": "steps", "value": "120"} in report["figures"]
    shares = sum(sum(part) for part in report["band"].values()) / len(next(iter(report["band"].values())))
    assert shares == pytest.approx(1.0, abs=0.02)


def test_figures_of_a_list_have_values_to_sort_by_and_text_to_show(server: WebServer) -> None:
    found = get(server, "/figures", run=[FIRST, SECOND])
    assert found[FIRST]["steps"] == {"value": 120, "text": "120"}
    assert len(found[FIRST]["shape"]) > 10


def test_a_comparison_says_what_the_command_says_and_which_settings_differ(server: WebServer) -> None:
    found = get(server, "/compare", run=[FIRST, SECOND])
    assert [run["label"] for run in found["runs"]] == ["first", "second"]
    assert {"name": "lr", "values": ["0.1", "0.2"]} in found["settings"]
    assert found["verdicts"] and found["figures"]


def test_csv_has_every_reading_and_no_formula(server: WebServer, runs: Path, make_run: MakeRun) -> None:
    body = urllib.request.urlopen(f"{server.url}/api/v1/runs/{FIRST}/csv?chart=power&start=0&end=5").read().decode()
    assert body.splitlines()[0] == "elapsed_seconds,line,Power (W)"
    assert len(body.splitlines()) == 1 + 2 * 6
    evil = [{"rank": 0, "loss": 1.0, "=cmd()": 1.0, "step_seconds": 1.0}] * 3
    make_run("20261117-120000-evil-0009", home=runs, training=evil)
    url = f"{server.url}/api/v1/runs/20261117-120000-evil-0009/csv?chart={quote('own:=cmd()')}"
    assert eventually(lambda: ",'=cmd()," in urllib.request.urlopen(url).read().decode())


def test_who_has_an_answer_already_gets_none(server: WebServer) -> None:
    with httpx.Client(base_url=server.url) as client:
        first = client.get(f"/api/v1/runs/{FIRST}")
        again = client.get(f"/api/v1/runs/{FIRST}", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/runs/nope", 404),
        ("/api/v1/runs/..%2F..%2Fetc/report", 404),
        (f"/api/v1/runs/{FIRST}/series?chart=nope", 404),
        (f"/api/v1/runs/{FIRST}/series", 400),
        (f"/api/v1/runs/{FIRST}/series?chart=loss&start=nan", 400),
        (f"/api/v1/runs/{FIRST}/series?chart=loss&start=9&end=3", 400),
        (f"/api/v1/runs/{FIRST}/series?chart=loss&points=1000000", 400),
        ("/static/..%2Fapp.py", 404),
        ("/static/nope.js", 404),
        (f"/api/v1/stream?topic=run:{quote('../x')}", 404),
    ],
)
def test_what_does_not_exist_or_makes_no_sense_is_refused_with_a_reason(
    server: WebServer, path: str, status: int
) -> None:
    answer = httpx.get(server.url + path)
    assert answer.status_code == status
    assert answer.json()["error"]


def test_a_damaged_run_hides_no_other(server: WebServer, runs: Path) -> None:
    (runs / "20261118-120000-bad-0004").mkdir()
    (runs / "20261118-120000-bad-0004/run.json").write_text("{")
    assert len(get(server, "/runs")) == 2
    assert httpx.get(f"{server.url}/api/v1/runs/20261118-120000-bad-0004").status_code in (404, 503)


def test_prometheus_finds_the_machines_in_view_and_the_runs_that_are_shown(serve_machine: WebServer) -> None:
    def scraped() -> str:
        answer = httpx.get(f"{serve_machine.url}/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return answer.text

    assert eventually(lambda: 'gpu_up{gpu="1",host=' in scraped())
    text = scraped()
    assert 'pulsetrain_web_runs{status="finished"} 2' in text and "pulsetrain_web_viewers 0" in text
    told = subprocess.run([program("promtool"), "check", "metrics"], input=text.encode(), capture_output=True)
    assert all("abbreviated units" in line for line in (told.stdout + told.stderr).decode().splitlines())
    headers = {"Accept": "application/openmetrics-text"}
    assert httpx.get(f"{serve_machine.url}/metrics", headers=headers).text.endswith("# EOF\n")


# Whatever is asked for, the server does not fail

PATHS = sorted(path for path in openapi(endpoints())["paths"])
TEXT = st.text(max_size=20) | st.sampled_from(
    [FIRST, SECOND, "loss", "power", "0", "-1", "1e300", "inf", "nan", "é\x00"]
)


NAMES = st.sampled_from(["chart", "start", "end", "points", "smooth", "run", "seconds", "topic"])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(PATHS), id=TEXT, query=st.lists(st.tuples(NAMES, TEXT), max_size=5))
def test_no_question_makes_the_server_fail(server: WebServer, path: str, id: str, query: list[tuple[str, str]]) -> None:
    url = f"{server.url}{path.replace('{id}', quote(id, safe=''))}?{urlencode(query)}"
    answer = httpx.get(url)
    assert answer.status_code in (200, 400, 404), (url, answer.text)


def test_the_description_of_the_api_is_openapi_and_names_every_parameter(server: WebServer) -> None:
    described = get(server, "/openapi.json")
    assert described["openapi"].startswith("3.1")
    series = described["paths"]["/api/v1/runs/{id}/series"]["get"]
    assert [parameter["name"] for parameter in series["parameters"]] == [
        "id",
        "chart",
        "start",
        "end",
        "points",
        "smooth",
    ]
    for path in described["paths"].values():
        for parameter in path["get"]["parameters"]:
            jsonschema.Draft202012Validator.check_schema(parameter["schema"])


def test_a_stream_begins_with_an_id_and_a_viewer_that_comes_back_too_late_reads_all_again(server: WebServer) -> None:
    headers = {"Last-Event-ID": "other-17"}
    with httpx.stream("GET", f"{server.url}/api/v1/stream?topic=machine", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = ""
        for chunk in answer.iter_text():
            text += chunk
            if "reset" in text:
                break
    assert "retry: 2000" in text and "id: " in text


def test_readings_are_numbers_or_null(server: WebServer, runs: Path, make_run: MakeRun) -> None:
    lines = readings(30)["training"]
    for line in lines[10:20]:
        line["loss"] = None
        line["nonfinite"] = {"loss": "nan"}
    make_run("20261117-120000-nan-0005", home=runs, training=lines)
    found = eventually(lambda: get(server, "/runs/20261117-120000-nan-0005/series", chart="loss"))
    values = found["charts"]["loss"][0]["last"]
    assert all(value is None or math.isfinite(value) for value in values)


def test_what_else_changed_names_the_metrics_that_moved(server: WebServer, runs: Path, make_run: MakeRun) -> None:
    lines = readings(120)
    for line in lines["gpu"]:
        if line["elapsed_seconds"] >= 90 and line["gpu_index"] == 1:
            line["power_draw_watts"] = 120.0
    make_run("20261117-120000-drop-0006", home=runs, **lines)
    found = eventually(lambda: get(server, "/runs/20261117-120000-drop-0006/changes", start=90, end=120))
    assert found[0]["name"] == "power_draw_watts 1" and found[0]["there"] == "120 watts"
    assert "loss" not in {change["name"] for change in found[:1]}


def test_the_verdict_is_the_one_of_the_report(server: WebServer) -> None:
    verdict = get(server, f"/runs/{FIRST}/report")["verdict"]
    assert verdict["headline"]
    assert all(finding["summary"] and finding["severity"] for finding in verdict["findings"])
