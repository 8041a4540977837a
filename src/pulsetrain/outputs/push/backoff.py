"""When a server that failed is asked again, and what is said of it: once when it goes away, once when it is back."""

import logging
import random
import time

from pulsetrain.outputs.push.http import PushError, Rejected
from pulsetrain.supervise import DOWN_AFTER_FAILURES, Part

log = logging.getLogger(__name__)

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0


class Backoff:
    """Waits twice as long after each failure, with some chance in it, so that many runs do not come back at once."""

    def __init__(self, name: str, promise: str, part: Part) -> None:
        """`name` is that of the target; `promise` says what becomes of readings meanwhile.

        The part is down when somebody has to put it right, or after a few failures in a row.
        """
        self._name = name
        self._promise = promise
        self._part = part
        self._failures = 0
        self._wait = FIRST_WAIT_SECONDS
        self._next = 0.0
        self.trouble: PushError | None = None
        """The last failure, if nothing has succeeded since."""

    @property
    def ready(self) -> bool:
        return time.monotonic() >= self._next

    def retry_now(self) -> None:
        """Wait no longer: the run is about to end."""
        self._next = 0.0

    def failed(self, error: PushError) -> None:
        if self.trouble is None or type(self.trouble) is not type(error):
            level = logging.CRITICAL if isinstance(error, Rejected) else logging.WARNING
            error.still = self._promise
            log.log(level, "push to %s: %s", self._name, error)
        self.trouble = error
        self._failures += 1
        if isinstance(error, Rejected) or self._failures >= DOWN_AFTER_FAILURES:
            self._part.fail(error.message, logged=True)
        self._next = time.monotonic() + max(self._wait * random.uniform(0.5, 1.0), error.wait_seconds)
        self._wait = min(2 * self._wait, LONGEST_WAIT_SECONDS)

    def succeeded(self) -> None:
        if self.trouble is not None:
            log.warning("push to %s: works again", self._name)
            self._part.recover()
        self.trouble = None
        self._failures = 0
        self._wait = FIRST_WAIT_SECONDS
