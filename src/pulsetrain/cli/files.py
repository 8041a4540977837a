"""Files that commands write for the user: whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pulsetrain.errors import PulsetrainError


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of this one when all went well."""
    temporary = path.absolute().with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise PulsetrainError(f"{path} cannot be written: {error.strerror or error}.") from None
