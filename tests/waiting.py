"""How tests wait: until something is so, never for a time to pass.

A machine may be busy with anything else, so no test asserts how long something takes.
"""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 300.0
"""What is not there by now will never be. An idle machine needs a hundredth of it."""


def eventually(ask: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Ask until the answer is true; the last answer when it never is. A server that is not up yet is no answer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer = ask()
        except OSError:
            answer = None
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)
