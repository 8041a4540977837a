"""Google Drive: a folder where it is mounted or synced, and Google's API elsewhere."""

import io
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pulsetrain.errors import UsageError, in_words
from pulsetrain.training.colab import DRIVE, MOUNT
from pulsetrain.transfer import drive_login
from pulsetrain.transfer.folder import FolderStore
from pulsetrain.transfer.segments import MOST_SEGMENT_BYTES
from pulsetrain.transfer.store import Store, StoreError, StoreRejected

log = logging.getLogger(__name__)

EVERY_SECONDS = 5.0
FOLDER_TYPE = "application/vnd.google-apps.folder"
RETRIES = 3
"""Of one request, by Google's client itself, with increasing delay: after 429, a rate limit, and 5xx."""
RATE_WAIT_SECONDS = 30.0
RESUMABLE_BYTES = 256 * 2**10
"""What is larger is uploaded in pieces that can be continued."""
PAGE = 1000
OVERLAP = timedelta(minutes=10)
"""A listing begins so long before the newest file that is known: they may appear in another order."""
RATE_REASONS = ("rateLimitExceeded", "userRateLimitExceeded", "sharingRateLimitExceeded")
SYNCED = ("Library/CloudStorage/GoogleDrive-*/My Drive", "Google Drive/My Drive", "GoogleDrive")
"""Where Drive for desktop and its like keep the files, below the home directory."""


def open_store(url: str, *, to_read: bool = False) -> Store:
    path = url.removeprefix(DRIVE).strip("/")
    inside = path.removeprefix("MyDrive").strip("/")
    if not inside or ".." in inside.split("/"):
        raise UsageError(f"{url} does not name a folder in Google Drive.", hint="drive:MyDrive/pulsetrain")
    if Path(MOUNT, "MyDrive").is_dir():
        return FolderStore(Path(MOUNT, "MyDrive", inside))
    synced = _synced()
    if synced and not drive_login.token_file().exists():
        return FolderStore(synced / inside, must_exist=to_read)
    found = drive_login.credentials()
    if found is None:
        raise StoreRejected(
            "this machine is not signed in to Google Drive.",
            hint="Sign in: pulsetrain fetch --setup; or use the folder that Drive for desktop syncs.",
        )
    from googleapiclient.discovery import build

    return DriveStore(build("drive", "v3", credentials=found, cache_discovery=False), inside, found)


def _synced() -> Path | None:
    """My Drive, where Drive for desktop syncs it."""
    for pattern in SYNCED:
        for found in Path.home().glob(pattern):
            if found.is_dir():
                return found
    windows = Path("G:/My Drive")
    return windows if windows.is_dir() else None


@dataclass
class _Listed:
    """What is known of a folder."""

    ids: dict[str, list[str]] = field(default_factory=dict)
    """By name: Drive lets several files have the same."""
    newest: str = ""
    """When the newest of them was made, as Drive says it."""


class DriveStore:
    """A folder of the Drive, by Google's client. One request at a time: its connection is not for several threads."""

    every_seconds = EVERY_SECONDS

    def __init__(self, service: Any, path: str, credentials: Any = None) -> None:
        self._files = service.files()
        self._service = service
        self._path = path
        self._credentials = credentials
        self._token = getattr(credentials, "token", None)
        self._folders: dict[str, str] = {}
        """Ids by path."""
        self._listed: dict[str, _Listed] = {}
        self._lock = threading.RLock()

    def put(self, path: str, data: bytes) -> None:
        from googleapiclient.http import MediaIoBaseUpload

        folder, _, name = path.rpartition("/")
        with self._lock, self._errors():
            parent = self._folder(f"{self._path}/{folder}", make=True)
            assert parent
            if self._find(parent, name):
                return
            large = len(data) > RESUMABLE_BYTES
            media = MediaIoBaseUpload(
                io.BytesIO(data), "application/octet-stream", chunksize=RESUMABLE_BYTES, resumable=large
            )
            # The client sends bytes again after an error, but a stream only from where it stopped reading.
            media.has_stream = lambda: False
            request = self._files.create(body={"name": name, "parents": [parent]}, media_body=media, fields="id")
            if not large:
                request.execute(num_retries=RETRIES)
                return
            done = None
            while done is None:
                _, done = request.next_chunk(num_retries=RETRIES)

    def list(self, folder: str, after: str = "") -> list[str]:
        with self._lock, self._errors():
            parent = self._folder(f"{self._path}/{folder}".rstrip("/"))
            if parent is None:
                return []
            listed = self._listed.setdefault(folder, _Listed())
            since = f" and createdTime > '{_before(listed.newest)}'" if listed.newest else ""
            for file in self._query(f"'{parent}' in parents and trashed = false{since}"):
                ids = listed.ids.setdefault(file["name"], [])
                if file["id"] not in ids:
                    ids.append(file["id"])
                listed.newest = max(listed.newest, file["createdTime"])
        return [name for name in listed.ids if name > after]

    def get(self, path: str) -> bytes:
        folder, _, name = path.rpartition("/")
        with self._lock, self._errors():
            ids = self._listed.get(folder, _Listed()).ids.get(name)
            if not ids:
                raise StoreError(f"{path} is not in Google Drive.")
            data = b""
            for id in ids:  # of several with this name, an upload that broke off may be one
                data = max(data, self._content(id), key=len)
            return data

    def close(self) -> None:
        self._service.close()

    def _content(self, id: str) -> bytes:
        from googleapiclient.http import MediaIoBaseDownload

        buffer = io.BytesIO()
        download = MediaIoBaseDownload(buffer, self._files.get_media(fileId=id), chunksize=MOST_SEGMENT_BYTES + 1)
        download.next_chunk(num_retries=RETRIES)  # a segment is no larger than this
        return buffer.getvalue()

    def _folder(self, path: str, *, make: bool = False) -> str | None:
        """The id of a folder; None when there is none."""
        if path in self._folders:
            return self._folders[path]
        above, _, name = path.rpartition("/")
        parent = self._folder(above, make=make) if above else "root"
        if parent is None:
            return None
        found = self._find(parent, name, folder=True)
        if found is None and make:
            about = {"name": name, "parents": [parent], "mimeType": FOLDER_TYPE}
            found = self._files.create(body=about, fields="id").execute(num_retries=RETRIES)["id"]
        if found is not None:
            self._folders[path] = found
        return found

    def _find(self, parent: str, name: str, *, folder: bool = False) -> str | None:
        quoted = name.replace("\\", "\\\\").replace("'", "\\'")
        kind = f" and mimeType = '{FOLDER_TYPE}'" if folder else ""
        found = next(self._query(f"'{parent}' in parents and name = '{quoted}' and trashed = false{kind}"), None)
        return found["id"] if found else None

    def _query(self, query: str) -> Iterator[dict[str, str]]:
        """All files that match, page by page, the oldest first."""
        token = None
        while True:
            page = self._files.list(
                q=query,
                pageSize=PAGE,
                pageToken=token,
                orderBy="createdTime",
                fields="nextPageToken, files(id, name, createdTime)",
            ).execute(num_retries=RETRIES)
            yield from page.get("files", ())
            token = page.get("nextPageToken")
            if not token:
                return

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Google's errors as ours."""
        from google.auth.exceptions import RefreshError, TransportError
        from googleapiclient.errors import HttpError
        from httplib2 import HttpLib2Error

        try:
            yield
        except RefreshError:
            raise StoreRejected(drive_login.EXPIRED, hint=drive_login.AGAIN) from None
        except HttpError as error:
            self._folders.clear()  # one of them may have been removed
            raise _of_http(error) from None
        except (OSError, HttpLib2Error, TransportError) as error:
            raise StoreError(f"Google Drive does not answer: {in_words(error)}.") from None
        if self._credentials is not None and self._credentials.token != self._token:
            self._token = self._credentials.token
            drive_login.keep(self._credentials)


def _of_http(error: Any) -> StoreError:
    reasons = {detail.get("reason") for detail in error.error_details or () if isinstance(detail, dict)}
    message = f"Google Drive returned {error.status_code}: {in_words(Exception(error.reason))}."
    if error.status_code == 429 or reasons.intersection(RATE_REASONS):
        return StoreError(message, wait_seconds=RATE_WAIT_SECONDS)
    if error.status_code == 401:
        return StoreRejected(drive_login.EXPIRED, hint=drive_login.AGAIN)
    if error.status_code == 403:
        return StoreRejected(message, hint="Check that the Drive has space left and that this client has permission.")
    return StoreError(message)


def _before(time: str) -> str:
    """A moment as Drive says it, a little earlier."""
    return (datetime.fromisoformat(time) - OVERLAP).isoformat(timespec="seconds")
