"""Sends one message to people's phones, chats and mailboxes, through Apprise, in a process of its own.

`python -m pulsetrain.alerts.delivery` reads the message and its URLs from standard input, so that no secret is in a
command line, and writes what became of each. Apprise imports more than a hundred services: the process that watches a
run stays small without it, and a service that hangs is ended with this one.
"""

import logging
import re
import sys
from importlib.util import find_spec

import msgspec

from pulsetrain.errors import PulsetrainError
from pulsetrain.snapshot import Severity

INSTALL = "pip install 'pulsetrain[notify]'"
_STATUS = re.compile(r"error=(\d+)")
_TYPES: dict[Severity, str] = {"info": "info", "warning": "warning", "critical": "failure"}


class Message(msgspec.Struct, frozen=True):
    """What is sent."""

    title: str
    body: str
    severity: Severity = "info"


class Delivery(msgspec.Struct, frozen=True):
    """A message, and the URLs that shall get it. None only checks the URLs."""

    message: Message | None
    urls: list[str]


class Outcome(msgspec.Struct, frozen=True):
    """What became of a message at one URL. Nothing in it is secret."""

    service: str
    """`ntfy`, `Slack`; empty for a URL that Apprise does not understand."""
    delivered: bool = False
    reason: str = ""

    @property
    def hopeless(self) -> bool:
        """Whether it is of no use to try again."""
        return not self.service


def check_installed() -> None:
    """Say what to install, where Apprise is missing."""
    if find_spec("apprise") is None:
        raise PulsetrainError("notifications need Apprise, which is not installed.", hint=INSTALL)


class _LastWords(logging.Handler):
    """Why Apprise could not send: of its messages only a status, for they name topics and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if status := _STATUS.search(text):
            self.reason = f"it answered {status[1]}"
        elif "onnection error" in text:
            self.reason = "it cannot be reached"


def deliver(delivery: Delivery) -> list[Outcome]:
    """Send a message to each URL, or only look whether they are right."""
    import apprise

    words = _LastWords()
    log = logging.getLogger("apprise")
    log.handlers, log.propagate = [words], False
    outcomes = []
    for url in delivery.urls:
        words.reason = ""
        service = apprise.Apprise.instantiate(url)
        if service is None:
            outcomes.append(Outcome("", reason="Apprise does not understand the URL"))
            continue
        name, message = str(service.service_name), delivery.message
        sent = message is None or service.notify(
            body=message.body, title=message.title, notify_type=_TYPES[message.severity], body_format="text"
        )
        outcomes.append(Outcome(name, bool(sent), "" if sent else words.reason or "it rejected the message"))
    return outcomes


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(deliver(msgspec.json.decode(sys.stdin.buffer.read(), type=Delivery))))
