"""The pages of the exporter without its server, as another server would show them."""

import time

from pulsetrain.outputs import Origin
from pulsetrain.outputs.metrics_pages import MetricsPages
from pulsetrain.serving.server import HttpRequest
from pulsetrain.snapshot import Sample, Snapshot, Subject

GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "L4"})


def test_any_server_can_answer_with_the_pages() -> None:
    pages = MetricsPages(("native",), 1.0)
    pages.begin(Origin("gpu01"))
    pages.take(Snapshot(time.time(), 0.0, (Sample(GPU, {"up": 1, "power_draw_watts": 300.0}),)))
    answer = pages.answer(HttpRequest("GET", "/metrics", {"accept": "text/plain"}))
    assert answer.status == 200
    assert b'gpu_power_draw_watts{gpu="0",host="gpu01",uuid="GPU-1"} 300.0\n' in answer.body
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    assert pages.answer(HttpRequest("GET", "/healthz", {})).status == 200
    assert pages.answer(HttpRequest("GET", "/else", {})).status == 404


def test_the_health_page_names_what_is_degraded_and_fails_when_a_part_is_down() -> None:
    origin = Origin("gpu01")
    pages = MetricsPages(("native",), 1.0)
    pages.begin(origin)
    pages.take(Snapshot(time.time(), 0.0, (Sample(GPU, {"up": 1}),)))
    writer = origin.supervisor.part("writer")
    with writer.attempt("a line"):
        raise ValueError("no JSON")
    degraded = pages.answer(HttpRequest("GET", "/healthz", {}))
    assert degraded.status == 200
    assert degraded.body == b"200 OK\nwriter: degraded, 1 item skipped: a line: ValueError: no JSON\n"
    writer.fail("the disk is full")
    down = pages.answer(HttpRequest("GET", "/healthz", {}))
    assert down.status == 503
    assert b"writer: down, 1 item skipped: the disk is full" in down.body
