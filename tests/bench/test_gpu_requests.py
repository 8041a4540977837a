"""What is asked of an engine so that a container gets its GPUs: a server that answers as one does."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import docker
import pytest

from pulsetrain.bench.engine import EngineError, gpu_request

Answering = Callable[[str, str], Any]


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Answering]:
    """A client of an engine that says so of itself."""
    with ExitStack() as stack:

        def start(component: str, version: str) -> Any:
            document = {"ApiVersion": "1.41", "Version": version, "Components": [{"Name": component}]}

            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    body = json.dumps(document).encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

                def address_string(self) -> str:
                    return "engine"

                def log_message(self, format: str, *args: Any) -> None:
                    pass

            server = stack.enter_context(UnixServer(str(tmp_path / f"{version}.sock"), Handler))
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            stack.callback(server.shutdown)
            client = docker.DockerClient(base_url=f"unix://{tmp_path}/{version}.sock", version="1.41")
            stack.callback(client.close)
            return client

        yield start


def test_docker_gets_a_request_by_capability(answering: Answering) -> None:
    client = answering("Engine", "27.0.1")
    assert gpu_request(client, None)["Count"] == -1
    chosen = gpu_request(client, "0,GPU-3")
    assert chosen["DeviceIDs"] == ["0", "GPU-3"] and chosen["Capabilities"] == [["gpu"]]


def test_podman_gets_cdi_devices(answering: Answering) -> None:
    request = gpu_request(answering("Podman Engine", "5.4.2"), "all")
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=all"])


def test_a_podman_that_would_drop_the_gpus_silently_is_refused(answering: Answering) -> None:
    with pytest.raises(EngineError, match="without GPUs"):
        gpu_request(answering("Podman Engine", "5.3.1"), None)
