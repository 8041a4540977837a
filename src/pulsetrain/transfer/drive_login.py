"""Signing in to Google Drive from a desktop, with the user's own client, and the token that this gives."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsetrain.errors import PulsetrainError, UsageError, in_words
from pulsetrain.runs.folder import Home
from pulsetrain.transfer.store import StoreRejected

if TYPE_CHECKING:
    from google.oauth2.credentials import Credentials

INSTALL = "pip install 'pulsetrain[drive]'"
SCOPES = {
    "read": "https://www.googleapis.com/auth/drive.readonly",
    "send": "https://www.googleapis.com/auth/drive.file",
}
"""What a notebook wrote into its mounted Drive, only `read` sees. `send` sees what this same client has sent."""
SIGN_IN_SECONDS = 300
EXPIRED = "the sign-in to Google Drive has expired or was revoked."
AGAIN = "Sign in again: pulsetrain fetch --setup. For a test client it lasts 7 days; publish the app to keep it."
HOW = """\
Google Drive needs an OAuth client that you create once. It takes about five minutes:

  1. https://console.cloud.google.com/projectcreate  create a project, or choose one
  2. https://console.cloud.google.com/apis/library/drive.googleapis.com  enable the Google Drive API
  3. https://console.cloud.google.com/auth/branding  name the app, and enter your email address
  4. https://console.cloud.google.com/auth/audience  choose External, and add yourself as a test user;
     "Publish app" keeps the sign-in from expiring after 7 days
  5. https://console.cloud.google.com/auth/clients  create a client of type Desktop app, and download its JSON
  6. pulsetrain fetch --setup --client client_secret_....json

Or skip all of this: let Drive for desktop sync the folder to this machine, and run `pulsetrain fetch FOLDER`.
"""


def token_file() -> Path:
    return Home.find().path.parent / "drive-token.json"


def sign_in(client: Path | None, purpose: str = "read") -> Iterator[str]:
    """Have the user sign in with the browser, or explain what is missing; says what was done, line by line."""
    if client is None:
        yield HOW
        return
    try:
        from google_auth_oauthlib.flow import InstalledAppFlow
    except ImportError:
        raise UsageError("signing in to Google needs its client libraries.", hint=INSTALL) from None
    try:
        flow: Any = InstalledAppFlow.from_client_secrets_file(str(client), [SCOPES[purpose]])
    except OSError as error:
        raise UsageError(f"{client} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"{client} is not an OAuth client file: {in_words(error)}.",
            hint="Use the JSON of a client of type Desktop app.",
        ) from None
    yield "Sign in with the browser window that opens now, or at the address below."
    try:
        credentials = flow.run_local_server(
            port=0, timeout_seconds=SIGN_IN_SECONDS, success_message="pulsetrain is signed in. You can close this page."
        )
    except Exception as error:  # noqa: BLE001 - denied, timed out, or a client that Google does not know
        raise PulsetrainError(f"the sign-in failed: {in_words(error)}.", hint="Try again.") from None
    _write(credentials)
    purposes = {"read": "read from", "send": "send to"}
    yield f"signed in to {purposes[purpose]} your Drive; only you can read the token in {token_file()}"


def credentials() -> Any:
    """The credentials to use: of the sign-in here, or those of the environment, such as Colab's; None without any."""
    try:
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError
        from google.oauth2.credentials import Credentials
    except ImportError:
        raise UsageError("drive: needs Google's client libraries.", hint=INSTALL) from None
    file = token_file()
    if file.exists():
        try:
            return Credentials.from_authorized_user_file(str(file))
        except (OSError, ValueError) as error:
            raise StoreRejected(f"{file} cannot be used: {in_words(error)}.", hint=AGAIN) from None
    try:
        found, _ = google.auth.default(scopes=[SCOPES["send"]])
    except DefaultCredentialsError:
        return None
    return found


def keep(credentials: Any) -> None:
    """Write down what a refresh has changed, where it was a sign-in here."""
    if token_file().exists() and hasattr(credentials, "to_json"):
        _write(credentials)


def _write(credentials: "Credentials") -> None:
    """For the user alone, from the first byte on."""
    file = token_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(credentials.to_json())
    temporary.replace(file)
