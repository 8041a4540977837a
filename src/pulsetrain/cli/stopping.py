"""How commands without an end of their own are ended."""

import signal
import threading


def stop_on_signals() -> threading.Event:
    """An event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
