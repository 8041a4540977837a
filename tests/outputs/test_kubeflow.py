"""Kubeflow Trainer's server gets the progress of rank 0, unless Transformers tells it."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from pulsetrain import catalog
from pulsetrain.outputs import Origin, OutputOptions, open_outputs
from pulsetrain.outputs.kubeflow import KubeflowProgress
from pulsetrain.runs.folder import Run
from pulsetrain.snapshot import Event, Sample, Snapshot


class Told(list[tuple[str, Any]]):
    """What the server was told: the authorization and the body of each request."""

    url = ""
    answer = 200


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.append((self.headers.get("Authorization", ""), json.loads(body)))
            self.send_response(told.answer)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        told.url = f"http://127.0.0.1:{server.server_address[1]}/status"
        yield told
        server.shutdown()


def reading(step: int, rank: int = 0, *events: Event) -> Snapshot:
    training = Sample(catalog.subject("training", {"rank": rank}), {"step": step, "total_steps": 200, "loss": 0.15})
    account = Sample(catalog.ACCOUNT, {"remaining_seconds": 119.6})
    return Snapshot(1.0, 1.0, (training, account), events)


def started(output: Any) -> Any:
    output.start(Origin("vm", Run(id="run", name="run", start=datetime.now(UTC))))
    return output


def test_progress_is_told_with_the_token_of_now(told: Told, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    output = started(KubeflowProgress(told.url, None, str(token), every_seconds=0.05))
    output(reading(90))
    output(reading(10, rank=1))
    assert eventually(lambda: told)
    authorization, body = told[0]
    status = body["trainerStatus"]
    assert authorization == "Bearer first"
    assert (status["progressPercentage"], status["estimatedRemainingSeconds"]) == (45, 120)
    assert status["metrics"] == [{"name": "loss", "value": "0.15"}]
    assert status["lastUpdatedTime"].endswith("+00:00")
    token.write_text("second\n")
    output(reading(200))
    output.close()
    assert told[-1][0] == "Bearer second"
    assert told[-1][1]["trainerStatus"]["progressPercentage"] == 100


def test_a_server_that_refuses_is_tried_again(told: Told) -> None:
    told.answer = 500
    output = started(KubeflowProgress(told.url, None, None, every_seconds=0.05))
    output(reading(90))
    assert eventually(lambda: told)
    told.answer = 200
    assert eventually(lambda: len(told) > 1)
    output.close()


def test_nothing_is_told_where_transformers_tells_it(told: Told) -> None:
    output = started(KubeflowProgress(told.url, None, None, every_seconds=0.05))
    output(reading(90, 0, Event("kubeflow_progress", "Transformers reports progress to Kubeflow.", "info", {})))
    output.close()
    assert told == []


def test_it_is_an_output_where_its_variable_is_set(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_outputs(OutputOptions(), 1.0) == []
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", told.url)
    (output,) = open_outputs(OutputOptions(), 1.0)
    assert isinstance(output, KubeflowProgress)
