"""What a dataset cache is to be: of which server, how large, for whom."""

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pulsetrain.errors import UsageError

SLICE_MEGABYTES = 8
"""Shards are fetched and kept in pieces of this size."""


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """What `pulsetrain cache serve` was asked for."""

    upstream: str
    """Where the shards are: https://storage.googleapis.com/my-bucket."""
    folder: Path
    gigabytes: float = 100.0
    address: str = "127.0.0.1"
    port: int = 8080
    networks: tuple[str, ...] = ()
    """Who may ask, beside this machine."""

    def __post_init__(self) -> None:
        check_upstream(self.upstream)
        check_networks(self.networks)
        if not re.fullmatch(r"[A-Za-z0-9._/-]+", str(self.folder)):
            raise UsageError(f"{self.folder} has characters that an nginx configuration cannot contain.")
        try:
            ipaddress.ip_address(self.address)
        except ValueError:
            raise UsageError(f"{self.address!r} is not an IP address.", hint="0.0.0.0 means all of them.") from None


def default_folder(home: Path) -> Path:
    """Root's home is closed to the user that nginx then runs its workers as."""
    return Path("/var/cache/pulsetrain") if os.geteuid() == 0 else home / "cache"


def check_upstream(url: str) -> None:
    """Raise for what is not the address of a server; it becomes part of a configuration."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    host = parts.hostname or ""
    if (
        parts.scheme not in ("http", "https")
        or not re.fullmatch(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+", host)
        or not re.fullmatch(r"[A-Za-z0-9._~/-]*", parts.path)
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
        or port == 0
    ):
        raise UsageError(
            f"{url!r} is not the address of a shard server.",
            hint="Give scheme and host, and a path if needed: https://storage.googleapis.com/my-bucket.",
        )


def check_networks(networks: Iterable[str]) -> None:
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise UsageError(f"{network!r} is not a network: {error}.", hint="Such as 10.0.0.0/8.") from None
