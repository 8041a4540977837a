"""The cloud's metadata servers: which machine this is, and whether its end is announced.

They are asked only where the firmware says that this is a machine of that cloud, or where the cloud's own variable
names the server. Answers take milliseconds; nothing waits longer than a second, and proxies are not used.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.description import Place

SECONDS = 1.0
MOST_BYTES = 2**16
LINK_LOCAL = "http://169.254.169.254"
GOOGLE_VARIABLE = "GCE_METADATA_HOST"
AMAZON_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"


class MetadataError(PulsetrainError):
    """A metadata server did not answer, or not as it should."""


class Google:
    """Google Cloud: https://cloud.google.com/compute/docs/metadata."""

    name = "Google Cloud"

    def __init__(self, endpoint: str = LINK_LOCAL) -> None:
        self._endpoint = endpoint

    def place(self) -> Place:
        zone = self._get("instance/zone").rpartition("/")[2]
        return Place(
            cloud="gcp",
            machine_type=self._get("instance/machine-type").rpartition("/")[2],
            zone=zone,
            region=zone.rpartition("-")[0],
            spot=self._get("instance/scheduling/preemptible").strip().upper() == "TRUE",
            image=self._get("instance/image").rpartition("/")[2],
            told_by=f"{self.name}'s metadata server",
        )

    def announced_end(self) -> str:
        """Why this machine is about to be taken away; empty while it is not."""
        return "Google Cloud preempts it" if self._get("instance/preempted").strip().upper() == "TRUE" else ""

    def _get(self, path: str) -> str:
        return ask(f"{self._endpoint}/computeMetadata/v1/{path}", {"Metadata-Flavor": "Google"}) or ""


class Amazon:
    """AWS, version 2 of its instance metadata service."""

    name = "AWS"

    def __init__(self, endpoint: str = LINK_LOCAL) -> None:
        self._endpoint = endpoint
        self._token = ""

    def place(self) -> Place:
        zone = self._get("placement/availability-zone") or ""
        return Place(
            cloud="aws",
            machine_type=self._get("instance-type") or "",
            zone=zone,
            region=self._get("placement/region") or zone[:-1],
            spot=self._get("instance-life-cycle") == "spot",
            image=self._get("ami-id") or "",
            told_by=f"{self.name}'s metadata server",
        )

    def announced_end(self) -> str:
        action = _document(self._get("spot/instance-action"))
        if not action:
            return ""
        return f"AWS will {action.get('action', 'terminate')} it at {action.get('time', 'any moment')}"

    def _get(self, path: str) -> str | None:
        """None for what this machine does not have. A token lasts for six hours; one that is refused is made anew."""
        for _ in range(2):
            if not self._token:
                lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
                self._token = ask(f"{self._endpoint}/latest/api/token", lifetime, method="PUT") or ""
            try:
                return ask(f"{self._endpoint}/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self._token})
            except PermissionError:
                self._token = ""
        raise MetadataError("AWS's metadata server refuses its own token.")


class Azure:
    """Azure's instance metadata service."""

    name = "Azure"

    def __init__(self, endpoint: str = LINK_LOCAL) -> None:
        self._endpoint = endpoint

    def place(self) -> Place:
        compute = _document(self._get("instance/compute?api-version=2021-02-01"))
        known = {name: str(compute.get(name) or "") for name in ("vmSize", "location", "zone", "priority", "sku")}
        return Place(
            cloud="azure",
            machine_type=known["vmSize"],
            region=known["location"],
            zone=known["zone"],
            spot=known["priority"].lower() == "spot",
            image=known["sku"],
            told_by=f"{self.name}'s metadata server",
        )

    def announced_end(self) -> str:
        events = _document(self._get("scheduledevents?api-version=2020-07-01")).get("Events")
        for event in events if isinstance(events, list) else ():
            if isinstance(event, dict) and event.get("EventType") in ("Preempt", "Terminate"):
                return f"Azure will {event['EventType'].lower()} it at {event.get('NotBefore') or 'any moment'}"
        return ""

    def _get(self, path: str) -> str | None:
        return ask(f"{self._endpoint}/metadata/{path}", {"Metadata": "true"})


Cloud = Google | Amazon | Azure


def this_cloud(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Cloud | None:
    """The cloud whose machine this is; None elsewhere, and then nobody is asked."""
    if host := environment.get(GOOGLE_VARIABLE):
        return Google(f"http://{host}")
    if endpoint := environment.get(AMAZON_VARIABLE):
        return Amazon(endpoint.rstrip("/"))
    vendor, product, tag = (_dmi(root, name) for name in ("sys_vendor", "product_name", "chassis_asset_tag"))
    if product == "Google Compute Engine" or vendor == "Google":
        return Google()
    if vendor == "Amazon EC2" and environment.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
        return Amazon()
    if vendor == "Microsoft Corporation" and tag == _AZURE_TAG:
        return Azure()
    return None


def ask(url: str, headers: Mapping[str, str], method: str = "GET") -> str | None:
    """What a metadata server answers; None for what it does not have. Raises MetadataError."""
    import http.client  # which few machines need

    parts = urlsplit(url)
    try:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS)
        try:
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            text = answer.read(MOST_BYTES).decode(errors="replace")
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise MetadataError(f"the metadata server {parts.netloc} does not answer: {error}.") from None
    if answer.status == http.client.NOT_FOUND:
        return None
    if answer.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        raise PermissionError(answer.status, "refused")
    if answer.status != http.client.OK:
        raise MetadataError(f"the metadata server {parts.netloc} answers {answer.status}.")
    return text


def _document(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        raise MetadataError("the metadata server's answer is not JSON.") from None
    return found if isinstance(found, dict) else {}


def _dmi(root: Path, name: str) -> str:
    try:
        return (root / "sys/class/dmi/id" / name).read_text(errors="replace").strip()
    except OSError:
        return ""
