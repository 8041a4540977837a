"""When a server that failed is asked again, and what is said of it: once when it goes away, once when it is back."""

import logging
import random
import time

from pulsetrain.outputs.push.http import PushError, Rejected

log = logging.getLogger(__name__)

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0


class Patience:
    """Waits twice as long after each failure, with some chance in it, so that many runs do not come back at once."""

    def __init__(self, name: str, promise: str) -> None:
        """`name` is that of the target; `promise` says what becomes of readings meanwhile."""
        self._name = name
        self._promise = promise
        self._wait = FIRST_WAIT_SECONDS
        self._next = 0.0
        self.trouble: PushError | None = None
        """The last failure, if nothing has succeeded since."""

    @property
    def ready(self) -> bool:
        return time.monotonic() >= self._next

    def hurry(self) -> None:
        """The end is near: try now."""
        self._next = 0.0

    def failed(self, error: PushError) -> None:
        if self.trouble is None or type(self.trouble) is not type(error):
            level = logging.ERROR if isinstance(error, Rejected) else logging.WARNING
            error.still = self._promise
            log.log(level, "push to %s: %s", self._name, error)
        self.trouble = error
        self._next = time.monotonic() + max(self._wait * random.uniform(0.5, 1.0), error.wait_seconds)
        self._wait = min(2 * self._wait, LONGEST_WAIT_SECONDS)

    def worked(self) -> None:
        if self.trouble is not None:
            log.warning("push to %s: works again", self._name)
        self.trouble = None
        self._wait = FIRST_WAIT_SECONDS
