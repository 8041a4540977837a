"""Whether the servers of a stack answer, and what Prometheus says of its targets: asked over HTTP, as a user would."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

import msgspec

from pulsetrain.answers import EndlessAnswer, read_bounded
from pulsetrain.deploy.stack.services import SERVICES, Service
from pulsetrain.deploy.stack.settings import StackSettings
from pulsetrain.untrusted import showable_json

TIMEOUT_SECONDS = 3.0
POLL_SECONDS = 0.25
MOST_BYTES = 32_000_000
CHUNK_BYTES = 65_536

# The servers are on this machine: a proxy for the world outside must not be asked for them.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServiceHealth(msgspec.Struct, frozen=True):
    """Whether one server of the stack answers."""

    service: str
    url: str
    ready: bool
    detail: str = ""
    """Why it is not."""


class ScrapeTarget(msgspec.Struct, frozen=True):
    """What Prometheus last saw at one address."""

    job: str
    address: str
    up: bool
    error: str = ""


def health(settings: StackSettings) -> list[ServiceHealth]:
    """All servers, asked at once."""
    with ThreadPoolExecutor(len(SERVICES)) as threads:
        return list(threads.map(lambda service: _ask(service, settings.url(service.name)), settings.services))


def of_stack(
    found: Iterable[ServiceHealth], running: Collection[str], otherwise: str = "another program listens there"
) -> list[ServiceHealth]:
    """The same, where a server that answers and is not among those `running` is not ready, but `otherwise`."""
    return [
        msgspec.structs.replace(one, ready=False, detail=otherwise) if one.ready and one.service not in running else one
        for one in found
    ]


def wait_until_ready(settings: StackSettings, seconds: float, hopeless: Callable[[], object]) -> list[ServiceHealth]:
    """Their health once all are ready, after so long, or as soon as it is `hopeless`."""
    deadline = time.monotonic() + seconds
    while True:
        late = time.monotonic() > deadline or hopeless()
        found = health(settings)
        if all(one.ready for one in found) or late:
            return found
        time.sleep(POLL_SECONDS)


def targets(settings: StackSettings) -> list[ScrapeTarget]:
    """What Prometheus scrapes; nothing when it does not answer."""

    class Active(msgspec.Struct):
        labels: dict[str, str]
        health: str
        lastError: str

    class Data(msgspec.Struct):
        activeTargets: list[Active]

    class Answer(msgspec.Struct):
        data: Data

    try:
        url = f"{settings.url('prometheus')}/api/v1/targets?state=active"
        with _direct.open(url, timeout=TIMEOUT_SECONDS) as response:
            chunks = iter(lambda: response.read1(CHUNK_BYTES), b"")
            answer = showable_json(read_bounded(chunks, MOST_BYTES, time.monotonic() + TIMEOUT_SECONDS), Answer)
    except (OSError, HTTPException, EndlessAnswer, msgspec.MsgspecError):
        return []
    return [
        ScrapeTarget(one.labels.get("job", ""), one.labels.get("instance", ""), one.health == "up", one.lastError)
        for one in answer.data.activeTargets
        if one.health != "unknown"  # not asked yet
    ]


def _ask(service: Service, url: str) -> ServiceHealth:
    try:
        with _direct.open(url + service.ready, timeout=TIMEOUT_SECONDS):
            return ServiceHealth(service.name, url, True)
    except urllib.error.HTTPError as error:
        return ServiceHealth(service.name, url, False, f"answers {error.code}")
    except HTTPException:
        return ServiceHealth(service.name, url, False, "another program listens there and does not speak HTTP")
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        text = reason.strerror if isinstance(reason, OSError) else None
        return ServiceHealth(service.name, url, False, (text or str(reason)).lower())
