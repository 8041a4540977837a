"""Whether the servers of a stack answer, and what Prometheus says of its targets: asked over HTTP, as a user would."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from pulsetrain.deploy.services import SERVICES, Service
from pulsetrain.deploy.settings import Settings

TIMEOUT_SECONDS = 3.0
POLL_SECONDS = 0.25

# The servers are on this machine: a proxy for the world outside must not be asked for them.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Health(msgspec.Struct, frozen=True):
    service: str
    url: str
    ready: bool
    detail: str = ""
    """Why it is not."""


class Target(msgspec.Struct, frozen=True):
    """What Prometheus last saw at one address."""

    job: str
    address: str
    up: bool
    error: str = ""


def health(settings: Settings) -> list[Health]:
    """All servers, asked at once."""
    with ThreadPoolExecutor(len(SERVICES)) as threads:
        return list(threads.map(lambda service: _ask(service, settings.url(service.name)), settings.services))


def wait_until_ready(settings: Settings, seconds: float, hopeless: Callable[[], object]) -> list[Health]:
    """Their health once all are ready, after so long, or as soon as it is `hopeless`."""
    deadline = time.monotonic() + seconds
    while True:
        late = time.monotonic() > deadline or hopeless()
        found = health(settings)
        if all(one.ready for one in found) or late:
            return found
        time.sleep(POLL_SECONDS)


def targets(settings: Settings) -> list[Target]:
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
            answer = msgspec.json.decode(response.read(), type=Answer)
    except (OSError, msgspec.MsgspecError):
        return []
    return [
        Target(one.labels.get("job", ""), one.labels.get("instance", ""), one.health == "up", one.lastError)
        for one in answer.data.activeTargets
        if one.health != "unknown"  # not asked yet
    ]


def _ask(service: Service, url: str) -> Health:
    try:
        with _direct.open(url + service.ready, timeout=TIMEOUT_SECONDS):
            return Health(service.name, url, True)
    except urllib.error.HTTPError as error:
        return Health(service.name, url, False, f"answers {error.code}")
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        text = reason.strerror if isinstance(reason, OSError) else None
        return Health(service.name, url, False, (text or str(reason)).lower())
