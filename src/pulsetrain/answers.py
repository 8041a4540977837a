"""Answers of servers that may be anybody's: read whole, unless they are larger or slower than a real one can be."""

import time
from collections.abc import Iterable


class EndlessAnswer(Exception):
    """An answer that was given up."""


def read_bounded(chunks: Iterable[bytes], most_bytes: int, deadline: float) -> bytes:
    """The body of an answer, which arrives in chunks. `deadline` is a time of the monotonic clock."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > most_bytes or time.monotonic() > deadline:
            raise EndlessAnswer
    return bytes(body)
