"""A metadata server of Google Cloud, AWS or Azure on this machine, as far as pulsetrain asks them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GOOGLE = {
    "/computeMetadata/v1/instance/zone": "projects/123/zones/europe-west4-a",
    "/computeMetadata/v1/instance/machine-type": "projects/123/machineTypes/g2-standard-4",
    "/computeMetadata/v1/instance/scheduling/preemptible": "FALSE",
    "/computeMetadata/v1/instance/image": "projects/deeplearning-platform-release/global/images/common-cu129-v1",
    "/computeMetadata/v1/instance/preempted": "FALSE",
}
AMAZON = {
    "/latest/meta-data/placement/availability-zone": "eu-west-1b",
    "/latest/meta-data/placement/region": "eu-west-1",
    "/latest/meta-data/instance-type": "p4d.24xlarge",
    "/latest/meta-data/instance-life-cycle": "spot",
    "/latest/meta-data/ami-id": "ami-1",
}
AZURE = {
    "/metadata/instance/compute?api-version=2021-02-01": json.dumps(
        {"vmSize": "Standard_NC24ads_A100_v4", "location": "westeurope", "zone": "2", "priority": "Spot"}
    ),
    "/metadata/scheduledevents?api-version=2020-07-01": json.dumps({"DocumentIncarnation": 1, "Events": []}),
}
HEADERS = {"/computeMetadata": ("Metadata-Flavor", "Google"), "/metadata": ("Metadata", "true")}
TOKEN = "token-of-aws"


class MetadataServer:
    """Answers from `pages`, which a test may change at any time."""

    def __init__(self, address: str, pages: dict[str, str]) -> None:
        self.address = address
        self.pages = pages
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://{self.address}"


@contextmanager
def serving(pages: dict[str, str]) -> Iterator[MetadataServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer(200, TOKEN)

        def do_GET(self) -> None:
            served.asked.append(self.path)
            for start, (name, value) in HEADERS.items():
                if self.path.startswith(start) and self.headers.get(name) != value:
                    return self._answer(403, "")
            if self.path.startswith("/latest") and self.headers.get("X-aws-ec2-metadata-token") != TOKEN:
                return self._answer(401, "")
            page = served.pages.get(self.path)
            return self._answer(404, "") if page is None else self._answer(200, page)

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = MetadataServer(f"127.0.0.1:{server.server_port}", dict(pages))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
