"""The socket of a server: taken before anything else starts, so that a port in use is reported at once."""

import socket

from pulsetrain.errors import PulsetrainError
from pulsetrain.serving.limits import BACKLOG


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens; clients wait until somebody accepts. Port 0 takes any that is free."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except socket.gaierror:
        raise PulsetrainError(
            f"{address} is not an address of this machine.", hint="0.0.0.0 means all of them."
        ) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise PulsetrainError(
            f"cannot listen on {address}, port {port}: {error.strerror}.",
            hint="Choose another port, or 0 for any free one.",
        ) from None
    return listening


def url_of(listening: socket.socket, *, encrypted: bool) -> str:
    """Where a client finds it: `http://127.0.0.1:9400`."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if encrypted else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
