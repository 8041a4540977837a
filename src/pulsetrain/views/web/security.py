"""Who may ask the server, for what, and what a browser may do with the answers."""

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Collection, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pulsetrain.errors import UsageError
from pulsetrain.serving.web_config import CHALLENGE, WebConfig

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LEAST_TOKEN = 16
"""Characters. A shorter one can be guessed."""
COOKIE_SECONDS = 30 * 86400
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
"""Of every answer: no code but our own files, nothing from elsewhere, nothing for pages of others."""
DELETED = "/api/v1/runs/"
"""What is below can be deleted, if the application allows it."""
OPEN_PATHS = frozenset({"/healthz"})
"""For probes, which have no token; it says nothing about runs."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def new_token() -> str:
    return secrets.token_urlsafe(24)


def checked_token(token: str) -> str:
    """A token that the user chose, if it cannot be guessed."""
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable():
        raise UsageError(
            f"PULSETRAIN_TOKEN is not usable: it needs at least {LEAST_TOKEN} printable ASCII characters.",
            hint="Make one: openssl rand -hex 24; or unset it to have one generated.",
        )
    return token


def host_names(address: str, more: Iterable[str] = ()) -> frozenset[str] | None:
    """What the Host header may say beside addresses: a page of another site that resolves to us is turned away."""
    own = set() if is_loopback(address) else {socket.gethostname().lower(), socket.getfqdn().lower()}
    return _LOOPBACK | own | {name.lower() for name in more}


class RequestGuard:
    """An ASGI application around another one: it lets through who may pass, and adds the headers."""

    def __init__(
        self,
        app: "ASGIApp",
        names: Collection[str] | None,
        *,
        local: bool,
        token: str | None = None,
        protection: WebConfig | None = None,
        cookie: str = "pulsetrain",
    ) -> None:
        """`names` are those of the Host header; `local` when the loopback alone is served."""
        self._app = app
        self._names = names or frozenset()
        self._local = local
        self._token = token.encode() if token else None
        self._tls, self._may_pass = protection or WebConfig()
        self._cookie = cookie

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = await self._refusal(scope, headers)
        if refusal:
            await _answer(send, *refusal)
            return

        async def protected(message: "Message") -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_encoded(HEADERS)]
            await send(message)

        await self._app(scope, receive, protected)

    async def _refusal(self, scope: "Scope", headers: dict[str, str]) -> tuple[HTTPStatus, str, dict[str, str]] | None:
        """Why a request is not answered, or where it is sent; None when it may pass."""
        deletes = scope["method"] == "DELETE" and scope["path"].startswith(DELETED)
        if scope["method"] not in ("GET", "HEAD") and not deletes:
            return HTTPStatus.METHOD_NOT_ALLOWED, "This server is read-only.", {"Allow": "GET, HEAD"}
        if not self._knows(headers.get("host", "")):
            return HTTPStatus.MISDIRECTED_REQUEST, "Unknown host name. See: pulsetrain serve --allow-host", {}
        if _is_of_another_origin(headers) if deletes else _is_cross_site(headers):
            return HTTPStatus.FORBIDDEN, "Requests from other sites are refused.", {}
        if scope["path"] in OPEN_PATHS:
            return None
        if self._may_pass and not await self._may_pass(headers.get("authorization", "")):
            return HTTPStatus.UNAUTHORIZED, "Login required.", {"WWW-Authenticate": CHALLENGE}
        return self._check_token(scope, headers) if self._token else None

    def _check_token(self, scope: "Scope", headers: dict[str, str]) -> tuple[HTTPStatus, str, dict[str, str]] | None:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if given is not None and self._is_token(given):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            flags = f"Path=/; HttpOnly; SameSite=Strict; Max-Age={COOKIE_SECONDS}" + ("; Secure" if self._tls else "")
            where = "/" + quote(scope["path"].lstrip("/\\")) + (f"?{rest}" if rest else "")
            return HTTPStatus.SEE_OTHER, "", {"Location": where, "Set-Cookie": f"{self._cookie}={given}; {flags}"}
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if self._is_token(_cookie(headers.get("cookie", ""), self._cookie)):
            return None
        if scheme.lower() == "bearer" and self._is_token(bearer.strip()):
            return None
        text = "Token required: open the link that pulsetrain printed when it started."
        return HTTPStatus.UNAUTHORIZED, text, {"WWW-Authenticate": "Bearer"}

    def _is_token(self, given: str) -> bool:
        assert self._token
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    def _knows(self, host: str) -> bool:
        name = host.lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return not self._local or is_loopback(name)


def _is_cross_site(headers: dict[str, str]) -> bool:
    """Whether a page of another site reads from us; a link that leads here is followed."""
    return headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"


def _is_of_another_origin(headers: dict[str, str]) -> bool:
    """Whether a page that is not ours wants a change. Programs that are not browsers send neither header."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site != "same-origin"
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def _cookie(header: str, wanted: str) -> str:
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return value
    return ""


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]


async def _answer(send: "Send", status: HTTPStatus, text: str, headers: dict[str, str]) -> None:
    body = f"{status.value} {status.phrase}. {text}\n".encode()
    about = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        **HEADERS,
        **headers,
    }
    await send({"type": "http.response.start", "status": status.value, "headers": _encoded(about)})
    await send({"type": "http.response.body", "body": body})
