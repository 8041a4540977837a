"""Reads the lines of a run folder back, one by one, in little memory."""

from collections.abc import Iterator
from typing import Any

import msgspec

from pulsetrain.runs.folder import RunFolder


class Lines:
    """Iterates over a table's lines, host by host and oldest first; damaged lines are skipped and counted."""

    def __init__(self, run: RunFolder, table: str) -> None:
        self.damaged = 0
        self._files = run.files(table)
        self._decoder = msgspec.json.Decoder(dict[str, Any])

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Host and line."""
        for path in self._files:
            with path.open("rb") as file:
                for line in file:
                    try:
                        yield path.parent.name, self._decoder.decode(line)
                    except msgspec.DecodeError:
                        self.damaged += 1
