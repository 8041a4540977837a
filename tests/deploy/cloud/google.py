"""A server on the loopback that answers as Google's Compute Engine and Kubernetes Engine do, for the real gcloud.

It keeps what it is asked to make, so that a later question finds it, and every request, for a test to compare.
"""

import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

PROJECT = "demo-project"
ZONES = ("us-central1-a", "us-central1-b", "europe-west4-a", "europe-west6-b")
"""Those that have an L4."""
Document = dict[str, Any]

STOCK_OUT = {
    "code": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "message": "The zone 'projects/demo-project/zones/us-central1-a' does not have enough resources available to "
    "fulfill the request.  '(resource type:compute)'.",
}
QUOTA = {"code": "QUOTA_EXCEEDED", "message": "Quota 'NVIDIA_L4_GPUS' exceeded.  Limit: 0.0 in region us-central1."}


def refusal(code: int, message: str, reason: str = "forbidden") -> tuple[int, Document]:
    """An error as Google's servers word it."""
    return code, {"error": {"code": code, "message": message, "errors": [{"message": message, "reason": reason}]}}


class Google:
    """The server, within a `with`. Set `refuse` or `fail` to have it refuse a request, or have an operation fail."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Document]] = []
        """Everything that changes something: method, path and body."""
        self.instances: dict[str, Document] = {}
        self.firewalls: dict[str, Document] = {}
        self.clusters: dict[str, Document] = {}
        self.operations: dict[str, Document] = {}
        self.metadata: list[Document] = []
        """Of the project: where gcloud puts SSH keys."""
        self.families = ["common-cu128-ubuntu-2204-nvidia-570", "common-cu129-ubuntu-2204-nvidia-580"]
        self.endpoint, self.authority = "127.0.0.1", ""
        """Where the API of its clusters is, and the certificate of that."""
        self.refuse: dict[str, tuple[int, Document]] = {}
        """By the last word of the path that is posted to: status and body."""
        self.fail: dict[str, Document] = {}
        """By the same word: the error with which the operation ends."""

    def __enter__(self) -> Self:
        google = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}") if length else {}
                status, document = google.answer(self.command, self.path, body)
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = answer

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environment(self, folder: Path) -> dict[str, str]:
        """For a gcloud with settings of its own that asks this server, without an account."""
        (folder / "configurations").mkdir(parents=True, exist_ok=True)
        (folder / "active_config").write_text("default")
        (folder / "configurations/config_default").write_text(
            f"[core]\nproject = {PROJECT}\ndisable_usage_reporting = true\n"
            "[auth]\ndisable_credentials = true\n"
            "[component_manager]\ndisable_update_check = true\n"
            f"[api_endpoint_overrides]\ncompute = {self.url}/compute/v1/\ncontainer = {self.url}/\n"
            f"serviceusage = {self.url}/\n"
        )
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("CLOUDSDK_", "PULSETRAIN_"))}
        return {**kept, "CLOUDSDK_CONFIG": str(folder), "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}

    def changes(self) -> list[str]:
        """What was asked for that changes something, in order: `POST zones/us-central1-a/instances`."""
        return [f"{method} {path}" for method, path, _ in self.requests]

    def body(self, change: str) -> Document:
        """Of the one request of this method and path."""
        (found,) = [body for method, path, body in self.requests if f"{method} {path}" == change]
        return found

    def answer(self, method: str, path: str, body: Document) -> tuple[int, Document]:
        parts = urlsplit(path)
        place = parts.path.removeprefix("/compute").removeprefix("/v1").removeprefix(f"/projects/{PROJECT}/").strip("/")
        if method != "GET" and not place.endswith("/wait"):
            self.requests.append((method, place, body))
            if refused := self.refuse.get(place.rpartition("/")[2]):
                return refused
        if place.endswith("etadata"):  # an SSH key is added, to the project or to a machine
            self.metadata = body["items"]
            scope = "global" if place.startswith("set") else "/".join(place.split("/")[:2])
            return 200, self._operation(scope, place.rpartition("/")[0], kind="setMetadata")
        if parts.path.startswith("/compute"):
            return self._compute(method, place, body, parse_qs(parts.query))
        return self._container(method, place, body)

    def _compute(self, method: str, place: str, body: Document, query: dict[str, list[str]]) -> tuple[int, Document]:
        if found := re.fullmatch(r"(?:zones/[^/]+|global)/operations/([^/]+)(?:/wait)?", place):
            return 200, self.operations[found[1]]
        if method == "GET":
            return self._look_up(place)
        if method == "DELETE" and (found := re.fullmatch(r"(zones/[^/]+|global)/(instances|firewalls)/([^/]+)", place)):
            store = self.instances if found[2] == "instances" else self.firewalls
            store.pop(found[3], None)
            return 200, self._operation(found[1], place, kind="delete")
        if method == "POST" and (found := re.fullmatch(r"(zones/[^/]+|global)/(instances|firewalls)", place)):
            store, name = (self.instances if found[2] == "instances" else self.firewalls), str(body["name"])
            if name in store:
                return refusal(409, f"The resource 'projects/{PROJECT}/{place}/{name}' already exists", "alreadyExists")
            error = self.fail.get(found[2])
            if not error:
                store[name] = body | self._given(found[1], found[2], name)
            return 200, self._operation(found[1], f"{place}/{name}", error)
        return refusal(404, f"The fake server does not know {method} {place}", "notFound")

    def _given(self, scope: str, kind: str, name: str) -> Document:
        """What Google adds to what it was asked for."""
        url = f"{self.url}/compute/v1/projects/{PROJECT}"
        given: Document = {
            "selfLink": f"{url}/{scope}/{kind}/{name}",
            "id": "4711",
            "creationTimestamp": "2026-11-18T10:00:00Z",
        }
        if kind == "instances":
            address = {
                "accessConfigs": [{"natIP": "203.0.113.7"}],
                "networkIP": "10.0.0.2",
                "network": f"{url}/global/networks/default",
            }
            given |= {"zone": f"{url}/{scope}", "status": "RUNNING", "networkInterfaces": [address]}
        return given

    def _look_up(self, place: str) -> tuple[int, Document]:
        url = f"{self.url}/compute/v1/projects/{PROJECT}"
        single = re.fullmatch(r"(?:zones/[^/]+|global)/(instances|firewalls)/([^/]+)", place)
        answer: Document | None = None
        if single:
            answer = (self.instances if single[1] == "instances" else self.firewalls).get(single[2])
        elif place == "aggregated/instances":
            pairs = [(one["zone"].partition(f"{PROJECT}/")[2], one) for one in self.instances.values()]
            answer = {
                "items": {zone: {"instances": [one for place, one in pairs if place == zone]} for zone, _ in pairs}
            }
        elif place == f"projects/{PROJECT}":
            answer = {"name": PROJECT, "commonInstanceMetadata": {"items": self.metadata}}
        elif place == "global/firewalls":
            answer = {"items": list(self.firewalls.values())}
        elif place.endswith("global/images"):
            answer = {"items": [{"name": f"{one}-v1", "family": one, "status": "READY"} for one in self.families]}
        elif place == "aggregated/acceleratorTypes":
            items = {
                f"zones/{zone}": {"acceleratorTypes": [{"name": "nvidia-l4", "zone": f"{url}/zones/{zone}"}]}
                for zone in ZONES
            }
            answer = {"items": items}
        elif found := re.fullmatch(r"zones/([^/]+)", place):
            answer = {"name": found[1], "region": f"{url}/regions/{found[1][:-2]}", "selfLink": f"{url}/{place}"}
        return (200, answer) if answer else refusal(404, f"The resource '{place}' was not found", "notFound")

    def _operation(self, scope: str, target: str, error: Document | None = None, kind: str = "insert") -> Document:
        name = f"operation-{len(self.operations) + 1}"
        url = f"{self.url}/compute/v1/projects/{PROJECT}"
        operation: Document = {
            "kind": "compute#operation",
            "name": name,
            "status": "DONE",
            "operationType": kind,
            "progress": 100,
            "selfLink": f"{url}/{scope}/operations/{name}",
            "targetLink": f"{url}/{target}",
            "id": str(len(self.operations) + 1),
        }
        if scope.startswith("zones/"):
            operation["zone"] = f"{url}/{scope}"
        if error:
            operation["error"] = {"errors": [error]}
            operation |= {"httpErrorStatusCode": 403, "httpErrorMessage": "FORBIDDEN"}
        self.operations[name] = operation
        return operation

    def _container(self, method: str, place: str, body: Document) -> tuple[int, Document]:
        if found := re.fullmatch(r"(?:zones|locations)/[^/]+/operations/([^/]+)", place):
            return 200, self.operations[found[1]]
        if found := re.fullmatch(r"(?:zones|locations)/([^/]+)/clusters", place):
            if method == "GET":
                return 200, {"clusters": list(self.clusters.values())}
            return self._make_cluster(found[1], body["cluster"])
        found = re.fullmatch(r"(?:zones|locations)/([^/]+)/clusters/([^/]+)((?:/nodePools)?)(?:/[^/]+)?", place)
        if not found or found[2] not in self.clusters:
            return refusal(404, f"Not found: projects/{PROJECT}/{place}.", "notFound")
        return 200, self._in_cluster(method, found[1], found[2], bool(found[3]), body)

    def _in_cluster(self, method: str, zone: str, name: str, of_pools: bool, body: Document) -> Document:
        cluster = self.clusters[name]
        if method == "POST" and of_pools:
            error = self.fail.get("nodePools")
            if not error:
                cluster["nodePools"].append(body["nodePool"] | {"status": "RUNNING"})
            return self._container_operation(zone, f"clusters/{name}/nodePools/{body['nodePool']['name']}", error)
        if method == "DELETE" and not of_pools:
            del self.clusters[name]
            return self._container_operation(zone, f"clusters/{name}")
        return cluster

    def _make_cluster(self, zone: str, asked: Document) -> tuple[int, Document]:
        name = asked["name"]
        if name in self.clusters:
            return refusal(409, f"Already exists: projects/{PROJECT}/zones/{zone}/clusters/{name}.", "alreadyExists")
        error = self.fail.get("clusters")
        if not error:
            pools = asked.get("nodePools") or [
                {"name": "default-pool", "initialNodeCount": asked.get("initialNodeCount", 1)}
            ]
            self.clusters[name] = asked | {
                "status": "RUNNING",
                "location": zone,
                "zone": zone,
                "endpoint": self.endpoint,
                "masterAuth": {"clusterCaCertificate": self.authority},
                "currentMasterVersion": "1.34.1-gke.1",
                "currentNodeVersion": "1.34.1-gke.1",
                "nodePools": [pool | {"status": "RUNNING"} for pool in pools],
                "selfLink": f"{self.url}/v1/projects/{PROJECT}/zones/{zone}/clusters/{name}",
            }
        return 200, self._container_operation(zone, f"clusters/{name}", error)

    def _container_operation(self, zone: str, target: str, error: Document | None = None) -> Document:
        name = f"operation-{len(self.operations) + 1}"
        url = f"{self.url}/v1/projects/{PROJECT}/zones/{zone}"
        operation: Document = {
            "name": name,
            "zone": zone,
            "location": zone,
            "status": "DONE",
            "selfLink": f"{url}/operations/{name}",
            "targetLink": f"{url}/{target}",
        }
        if error:
            operation |= {"statusMessage": error["message"], "error": {"code": 8, "message": error["message"]}}
        self.operations[name] = operation
        return operation
