"""Where notifications go: URLs of Apprise. They are secrets, and come from the environment or from a private file."""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from pulsetrain.alerts.delivery import check_installed
from pulsetrain.errors import UsageError
from pulsetrain.regular_files import read_description
from pulsetrain.settings import Notify

VARIABLE = "PULSETRAIN_NOTIFY_URL"
EXAMPLES = "ntfy://my-topic, mailto://user:password@example.org, json://host/path; see docs/notify.md."
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def notify_urls(notify: Notify, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The URLs in $PULSETRAIN_NOTIFY_URL and in the file that the settings name. None of them is ever shown."""
    found = [(VARIABLE, url) for url in environment.get(VARIABLE, "").split()]
    if notify.url_file:
        path = Path(notify.url_file).expanduser()
        found += [(str(path), line) for line in _private_lines(path)]
    for place, url in found:
        if not _URL.fullmatch(url):
            raise UsageError(
                f"{place} contains something that is not a URL.", hint=f"Put one URL on each line, such as {EXAMPLES}"
            )
    if found:
        check_installed()
    return list(dict.fromkeys(url for _, url in found))


def _private_lines(path: Path) -> list[str]:
    try:
        mode = path.stat().st_mode
        text = read_description(path).decode()
    except OSError as error:
        raise UsageError(f"url_file of [notify], {path}, cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"url_file of [notify], {path}, is not text.") from None
    if stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"{path} contains secrets, and other users can read it.", hint=f"chmod 600 {path}")
    return [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
