"""Sending what is read to servers of several kinds. A new kind is one new file and one line in `KINDS`."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pulsetrain.outputs import OutputOptions
    from pulsetrain.outputs.push.output import PushOutput


class PushKind(NamedTuple):
    """What is known of a kind of server before one is spoken to."""

    example_url: str
    every_seconds: float = 0.0
    """Between two states that are sent, unless the settings say otherwise; 0 is every reading."""
    takes_history: bool = False
    """Whether `pulsetrain export --to` can send it a recorded run."""


KINDS: dict[str, PushKind] = {
    "remote-write": PushKind("https://host/api/v1/write", takes_history=True),
    "victoriametrics": PushKind("http://host:8428", takes_history=True),
    "pushgateway": PushKind("http://host:9091", every_seconds=15.0),
    "otlp": PushKind("http://host:4318", every_seconds=15.0),
}
"""What `--push KIND:URL` may say. Each kind is a module below this package (`remote_write`) with a function
`open_outlet(link)`: how to speak to such a server.
"""


def open_output(options: "OutputOptions", interval_seconds: float) -> "PushOutput":
    """Ready to send to every target; nothing is sent before it is started."""
    from pulsetrain.outputs.push.output import PushOutput

    return PushOutput(options.push, options.names)
