"""Whether this process is the kernel of a notebook, and what is known of the notebook."""

from __future__ import annotations

import os
import sys
from typing import Any


def shell() -> Any:
    """IPython's shell; None where there is none."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return ask() if ask is not None else None


def is_notebook() -> bool:
    """Whether this is the kernel of a notebook, which shows HTML; IPython in a terminal does not."""
    return hasattr(shell(), "kernel")


def notebook_name() -> str:
    """What the notebook is called, as Jupyter's server or VS Code say."""
    said = os.environ.get("JPY_SESSION_NAME") or getattr(shell(), "user_ns", {}).get("__vsc_ipynb_file__")
    return os.path.splitext(os.path.basename(str(said or "notebook")))[0]


def cell_was_interrupted() -> bool:
    """Whether the last cell was, as when a kernel is shut down while it trains."""
    error = getattr(getattr(shell(), "last_execution_result", None), "error_in_exec", None)
    return isinstance(error, KeyboardInterrupt)
