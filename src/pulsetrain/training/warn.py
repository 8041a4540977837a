"""Warnings to the user, which never become exceptions."""

from __future__ import annotations

import sys
import warnings


def warn(message: str, stacklevel: int) -> None:
    """Warn as `warnings.warn` does. Where the program has turned warnings into errors, only print it."""
    try:
        warnings.warn(message, stacklevel=stacklevel + 1)
    except Exception:
        if sys.stderr is not None:
            sys.stderr.write(message + "\n")
