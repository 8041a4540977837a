"""A server on the loopback that answers the real kubectl as a cluster does: discovery, apply, get, delete, logs."""

import base64
import http.server
import json
import re
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import yaml
from tests.servers import program

Document = dict[str, Any]

RESOURCES = {
    "v1": "Namespace ConfigMap Secret Service ServiceAccount Pod Node Event",
    "apps/v1": "DaemonSet StatefulSet",
    "batch/v1": "Job",
    "networking.k8s.io/v1": "NetworkPolicy",
    "monitoring.googleapis.com/v1": "ClusterPodMonitoring ClusterRules PodMonitoring Rules",
}
WITHOUT_NAMESPACE = {"Namespace", "Node", "ClusterPodMonitoring", "ClusterRules"}


def plural(kind: str) -> str:
    lower = kind.lower()
    if lower.endswith("y"):
        return f"{lower[:-1]}ies"
    return lower if lower.endswith("rules") else f"{lower}s"


class KubeApi:
    """The server, within a `with`. What is applied to it is in `objects`, by path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: dict[str, Document] = {}
        self.requests: list[tuple[str, str]] = []
        """Everything that changes something: method and path."""
        self.logs: dict[str, str] = {}
        """What a pod has printed, by name."""
        self.raw: dict[str, str] = {}
        """Answers for other paths."""
        self.story: list[Callable[[str], None]] = []
        """What happens next to a job of this name: one of these each time that its pods are looked at."""
        self._job = ""

    def __enter__(self) -> Self:
        cert, key = self.folder / "api.crt", self.folder / "api.key"
        words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1"
        name = ("-addext", "subjectAltName=IP:127.0.0.1")
        command = [program("openssl"), *words.split(), *name, "-keyout", str(key), "-out", str(cert)]
        subprocess.run(command, check=True, capture_output=True)
        self.authority = base64.b64encode(cert.read_bytes()).decode()
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else b""
                status, content = api.answer(self.command, self.path, body)
                kind = "text/plain" if isinstance(content, str) else "application/json"
                if "/openapi/" in self.path:
                    kind = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
                data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def kubeconfig(self, file: Path) -> Path:
        cluster = {"server": f"https://{self.address}", "certificate-authority-data": self.authority}
        file.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        return file

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Document | str]:
        parts = urlsplit(path)
        if method != "GET":
            self.requests.append((method, parts.path))
        if parts.path == "/openapi/v2":  # a schema without types, as protobuf: kubectl then leaves checks to the server
            return 200, ""
        if parts.path in self.raw:
            return 200, self.raw[parts.path]
        if (found := self._discovery(parts.path)) is not None:
            return 200, found
        if log := re.fullmatch(r".*/pods/([^/]+)/log", parts.path):
            return 200, self.logs.get(log[1], "")
        if parts.path.endswith("/pods") and self._job and self.story:
            self.story.pop(0)(self._job)
        if method == "PATCH":
            if "/jobs/" in parts.path:
                self._job = parts.path.rpartition("/")[2]
            self.objects[parts.path] = self.objects.get(parts.path, {}) | yaml.safe_load(body)
        if method == "DELETE":
            gone = self.objects.pop(parts.path, None)
            self.objects = {name: one for name, one in self.objects.items() if not name.startswith(f"{parts.path}/")}
            return (200, {"kind": "Status", "status": "Success"}) if gone else _missing(parts.path)
        there = self.objects.get(parts.path)
        return (200, there) if there else self._listed(parts.path, parse_qs(parts.query))

    def _listed(self, path: str, query: dict[str, list[str]]) -> tuple[int, Document]:
        if path.rpartition("/")[2] not in {plural(kind) for kinds in RESOURCES.values() for kind in kinds.split()}:
            return _missing(path)
        wanted = dict(pair.split("=") for pair in ",".join(query.get("labelSelector", [])).split(",") if pair)
        items = [
            one
            for name, one in self.objects.items()
            if name.rpartition("/")[0] == path and wanted.items() <= (one["metadata"].get("labels") or {}).items()
        ]
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}

    @staticmethod
    def _discovery(path: str) -> Document | None:
        groups = [version for version in RESOURCES if version != "v1"]
        if path == "/version":
            return {"major": "1", "minor": "32", "gitVersion": "v1.32.4"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            found = [{"groupVersion": one, "version": one.partition("/")[2]} for one in groups]
            names = [one.partition("/")[0] for one in groups]
            listed = [
                {"name": name, "versions": [version], "preferredVersion": version}
                for name, version in zip(names, found, strict=True)
            ]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if path.startswith("/api") and version in RESOURCES:
            verbs = ["get", "list", "patch", "delete", "create"]
            kinds = [
                {"name": plural(kind), "kind": kind, "namespaced": kind not in WITHOUT_NAMESPACE, "verbs": verbs}
                for kind in RESOURCES[version].split()
            ]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": kinds}
        return None


def _missing(path: str) -> tuple[int, Document]:
    message = f"{path} not found"
    return 404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": message, "code": 404}
