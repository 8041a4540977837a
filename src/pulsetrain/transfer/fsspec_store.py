"""Buckets and other machines, through fsspec: gs://, s3://, ssh:// and sftp://."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pulsetrain.errors import UsageError, in_words
from pulsetrain.transfer.segments import MOST_SEGMENT_BYTES
from pulsetrain.transfer.store import StoreError, StoreRejected

EVERY_SECONDS = 5.0
PACKAGES = {"gs": ("gcsfs", "gcs"), "s3": ("s3fs", "s3"), "ssh": ("sshfs", "ssh"), "sftp": ("sshfs", "ssh")}
"""By scheme: the module that speaks to it, and the extra that brings it."""
REJECTED = (
    "NoCredentials",
    "AccessDenied",
    "PermissionDenied",
    "HostKeyNotVerifiable",
    "Host key",
    "DefaultCredentials",
    "Forbidden",
)
"""In the name or text of an error: nothing but the user can put this right."""


def open_store(url: str, *, to_read: bool = False) -> "FsspecStore":
    parts = urlsplit(url)
    if not parts.netloc:
        raise UsageError(f"{url} does not name a {'host' if parts.scheme in ('ssh', 'sftp') else 'bucket'}.")
    _check_installed(parts.scheme)
    if parts.scheme in ("ssh", "sftp"):
        return SshStore(partial(_ssh, parts), parts.path.rstrip("/").removeprefix("/~/") or ".")
    kind = S3Store if parts.scheme == "s3" else FsspecStore
    return kind(partial(_bucket, parts.scheme), f"{parts.netloc}{parts.path}".rstrip("/"))


def _check_installed(scheme: str) -> None:
    module, extra = PACKAGES[scheme]
    if find_spec(module) is None:
        raise UsageError(f"{scheme}:// needs the package {module}.", hint=f"pip install 'pulsetrain[{extra}]'")


def _bucket(scheme: str) -> Any:
    import fsspec

    return fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True)


def _ssh(parts: SplitResult) -> Any:
    """A connection. Host keys are those that `ssh` knows: by default, fsspec and sshfs trust every key."""
    from sshfs import SSHFileSystem

    login = {"username": parts.username, "password": parts.password, "port": parts.port}
    given = {name: value for name, value in login.items() if value}
    return SSHFileSystem(parts.hostname, known_hosts=(), skip_instance_cache=True, **given)


class FsspecStore:
    """Files below a bucket's folder. An object store shows a file when it is whole."""

    every_seconds = EVERY_SECONDS

    def __init__(self, connect: Callable[[], Any], place: str) -> None:
        """Connects when it is first used, and again after an error."""
        self._connect = connect
        self._connected: Any = None
        self._place = place

    @property
    def _system(self) -> Any:
        if self._connected is None:
            self._connected = self._connect()
        return self._connected

    def put(self, path: str, data: bytes) -> None:
        with self._errors():
            self._system.pipe_file(f"{self._place}/{path}", data)

    def list(self, folder: str, after: str = "") -> list[str]:
        try:
            with self._errors():
                found = self._system.ls(f"{self._place}/{folder}".rstrip("/"), detail=False)
        except _Missing:
            return []
        names = (str(path).rstrip("/").rpartition("/")[2] for path in found)
        return [name for name in names if name > after and not name.startswith(".")]

    def get(self, path: str) -> bytes:
        with self._errors():
            data: bytes = self._system.cat_file(f"{self._place}/{path}", end=MOST_SEGMENT_BYTES + 1)
        return data

    def close(self) -> None:
        self._connected = None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of three libraries as ours."""
        try:
            yield
        except FileNotFoundError:
            raise _Missing(f"{self._place} does not exist.", hint="Create the bucket first.") from None
        except Exception as error:  # noqa: BLE001 - each library has its own, and none may end the shipper
            self._connected = None
            said = f"{self._place}: {in_words(error) or type(error).__name__}."
            kind = f"{type(error).__name__} {error}"
            if isinstance(error, PermissionError) or any(word in kind for word in REJECTED):
                raise StoreRejected(said, hint="Check your credentials for it; docs/transfer.md.") from None
            raise StoreError(said) from None


class S3Store(FsspecStore):
    """A bucket that lists what comes after a name: a long run is not listed whole each time."""

    def list(self, folder: str, after: str = "") -> list[str]:
        if not after:
            return super().list(folder)
        bucket, _, key = f"{self._place}/{folder}/".partition("/")
        names: list[str] = []
        more: dict[str, str] = {"StartAfter": key + after}
        with self._errors():
            while more:
                page = self._system.call_s3("list_objects_v2", Bucket=bucket, Prefix=key, **more)
                names += [found["Key"].removeprefix(key) for found in page.get("Contents", ())]
                token = page.get("NextContinuationToken")
                more = {"ContinuationToken": token} if token else {}
        return names


class SshStore(FsspecStore):
    """A folder of another machine, by SFTP."""

    def put(self, path: str, data: bytes) -> None:
        place = f"{self._place}/{path}"
        folder, _, name = place.rpartition("/")
        with self._errors():
            if self._system.exists(place):
                return
            self._system.makedirs(folder, exist_ok=True)
            self._system.pipe_file(f"{folder}/.{name}", data)
            self._system.mv(f"{folder}/.{name}", place)

    def get(self, path: str) -> bytes:
        with self._errors(), self._system.open(f"{self._place}/{path}", "rb") as file:
            data: bytes = file.read(MOST_SEGMENT_BYTES + 1)
        return data


class _Missing(StoreRejected):
    """There is no such bucket, folder or file."""
