"""TLS and passwords from the web-config.yml that Prometheus' exporters use.

https://prometheus.io/docs/prometheus/latest/configuration/https/
"""

import asyncio
import base64
import binascii
import hashlib
import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from pulsetrain.errors import UsageError

log = logging.getLogger(__name__)

Version = Literal["TLS12", "TLS13"]
VERSIONS: dict[Version, ssl.TLSVersion] = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
BCRYPT_BYTES = 72
"""More of a password does not count."""
KEPT_LOGINS = 1000
"""A check takes a tenth of a second on purpose; one that went well is remembered."""


CHALLENGE = 'Basic realm="pulsetrain", charset="UTF-8"'
"""The header WWW-Authenticate of an answer to whoever may not pass."""


class WebConfig(NamedTuple):
    """How a server is protected; not at all by default. Any engine that runs on asyncio can use it."""

    tls: ssl.SSLContext | None = None
    """For every connection; a renewed certificate is picked up by itself."""
    may_pass: Callable[[str], Awaitable[bool]] | None = None
    """Whether a client with this Authorization header is let in; None when all are."""


class _Tls(msgspec.Struct, forbid_unknown_fields=True):
    cert_file: str
    key_file: str
    client_auth_type: Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"] | None = None
    client_ca_file: str | None = None
    min_version: Version = "TLS12"
    max_version: Version = "TLS13"


class _Http(msgspec.Struct, forbid_unknown_fields=True):
    http2: bool = True
    """Allowed or not, we speak HTTP/1.1."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tls_server_config: _Tls | None = None
    http_server_config: _Http | None = None
    basic_auth_users: dict[str, str] = {}


def load(path: Path) -> WebConfig:
    """Read the file, and all that it names, so that a mistake is reported before anything starts."""
    import yaml

    try:
        file = msgspec.convert(yaml.safe_load(path.read_text()) or {}, _File)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid YAML: {error}.") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}.", hint="docs/prometheus.md lists the supported fields.") from None
    tls = _Certificates(file.tls_server_config, path).context if file.tls_server_config else None
    users = _Users(file.basic_auth_users, path).may_pass if file.basic_auth_users else None
    return WebConfig(tls, users)


class _Certificates:
    """The server's certificate, read again when its files change, as they do when it is renewed."""

    def __init__(self, config: _Tls, path: Path) -> None:
        self._config = config
        self._folder = path.parent
        self._cert, self._key = self._folder / config.cert_file, self._folder / config.key_file
        try:
            self._changed = self._times()
            self.context = self._newest = self._load()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise UsageError(f"{path}: the certificate cannot be used: {error}.") from None
        self.context.sni_callback = self._renew

    def _times(self) -> list[float]:
        return [file.stat().st_mtime for file in (self._cert, self._key)]

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = VERSIONS[self._config.min_version]
        context.maximum_version = VERSIONS[self._config.max_version]
        context.load_cert_chain(self._cert, self._key)
        asks = self._config.client_auth_type or (
            "RequireAndVerifyClientCert" if self._config.client_ca_file else "NoClientCert"
        )
        context.verify_mode = CLIENT_AUTH[asks]
        if self._config.client_ca_file:
            context.load_verify_locations(self._folder / self._config.client_ca_file)
        elif context.verify_mode is not ssl.CERT_NONE:
            raise ValueError(f"{asks} needs a client_ca_file")
        return context

    def _renew(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        """At each new connection."""
        try:
            if (times := self._times()) != self._changed:
                self._newest, self._changed = self._load(), times
        except (OSError, ValueError) as error:
            log.warning("the new certificate cannot be used; keeping the old one: %s", error)
        connection.context = self._newest


class _Users:
    """Names, and bcrypt hashes of their passwords."""

    def __init__(self, users: dict[str, str], path: Path) -> None:
        import bcrypt

        self._check = bcrypt.checkpw
        self._users = {user: hash.encode() for user, hash in users.items()}
        self._nobody = bcrypt.hashpw(secrets.token_bytes(16), bcrypt.gensalt(10))
        for user, hash in self._users.items():
            try:
                self._check(b"", hash)
            except ValueError:
                raise UsageError(
                    f"{path}: the password of {user!r} is not a bcrypt hash.", hint="Make one: htpasswd -nBC 10 ''"
                ) from None
        self._key = secrets.token_bytes(32)
        self._passed: set[bytes] = set()
        self._checker = ThreadPoolExecutor(1, "bcrypt")  # one: guessing shall not take the machine

    async def may_pass(self, authorization: str) -> bool:
        login = _login(authorization)
        if login is None:
            return False
        user, password = login
        fingerprint = hashlib.blake2b(f"{user}\0{password}".encode(), key=self._key).digest()
        if fingerprint in self._passed:
            return True
        hash = self._users.get(user, self._nobody)  # whoever does not exist takes as long
        short = password.encode()[:BCRYPT_BYTES]
        right = await asyncio.get_running_loop().run_in_executor(self._checker, self._check, short, hash)
        if not right or user not in self._users:
            return False
        if len(self._passed) >= KEPT_LOGINS:
            self._passed.clear()
        self._passed.add(fingerprint)
        return True


def _login(authorization: str) -> tuple[str, str] | None:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(token, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None
