"""The clients of stores, from an environment of their own: they are large, and users install them only when needed."""

import importlib.util
import os
import site
from pathlib import Path

import pytest

ENVIRONMENT = Path(__file__).parents[2] / ".venv-transfer"


@pytest.fixture(scope="session")
def clients() -> Path:
    """Makes the clients importable, and returns their folder, for processes that a test starts."""
    found = next(ENVIRONMENT.glob("lib/python*/site-packages"), None)
    if found is None or not (ENVIRONMENT / "ready").exists():
        reason = f"needs {ENVIRONMENT}: make .venv-transfer/ready"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    site.addsitedir(str(found))  # after our own: what both have is ours
    assert importlib.util.find_spec("googleapiclient")
    return found
