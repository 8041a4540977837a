"""The server of the page: its socket, TLS and limits are those of everything that pulsetrain serves."""

import contextlib
import ipaddress
import logging
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from pulsetrain.serving.limits import BACKLOG, IDLE_SECONDS, MOST_CONNECTIONS, MOST_REQUEST_BYTES
from pulsetrain.serving.listening import listen, url_of
from pulsetrain.serving.web_config import WebConfig
from pulsetrain.views.web.app import make_app
from pulsetrain.views.web.security import RequestGuard, host_names, is_loopback
from pulsetrain.views.web.site import Site

if TYPE_CHECKING:
    from pulsetrain.views.web.collecting import Collecting

PORT = 8765
LAST_SECONDS = 2
"""For answers under way, when the server is stopped."""


class WebServer:
    """Holds its port from the beginning, and answers from `start` on, in a thread of its own."""

    def __init__(
        self,
        site: Site,
        address: str = "127.0.0.1",
        port: int = PORT,
        *,
        token: str | None = None,
        protection: WebConfig | None = None,
        allowed_hosts: Sequence[str] = (),
        collecting: "Collecting | None" = None,
    ) -> None:
        self._site = site
        self._protection = protection or WebConfig()
        self._socket = listen(address, port)
        number = self._socket.getsockname()[1]
        self._token = token
        guarded: ASGIApp = RequestGuard(
            make_app(site),
            host_names(address, allowed_hosts),
            local=is_loopback(address),
            token=token,
            protection=self._protection,
            cookie=f"pulsetrain_{number}",
        )
        if collecting:
            guarded = collecting.before(guarded)
        config = uvicorn.Config(
            guarded,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=int(IDLE_SECONDS),
            timeout_graceful_shutdown=LAST_SECONDS,
            h11_max_incomplete_event_size=MOST_REQUEST_BYTES,
        )
        config.load()
        config.ssl = self._protection.tls
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    @property
    def url(self) -> str:
        """Where the page is, without the token."""
        return url_of(self._socket, encrypted=self._protection.tls is not None)

    @property
    def links(self) -> list[str]:
        """The addresses to open, with the token where there is one: here, and from elsewhere where others may come."""
        token = f"?token={self._token}" if self._token else ""
        host, port = self._socket.getsockname()[:2]
        if not ipaddress.ip_address(host).is_unspecified:
            return [f"{self.url}/{token}"]
        scheme = self.url.partition("://")[0]
        return [f"{scheme}://{name}:{port}/{token}" for name in ("127.0.0.1", socket.gethostname())]

    @property
    def link(self) -> str:
        """The address to open on this machine."""
        return self.links[0]

    def start(self) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, end all streams, and wait for the thread."""
        self._site.close()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # answers that are cut off now are not errors
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(2 * LAST_SECONDS + 1)
        with contextlib.suppress(OSError):
            self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])
