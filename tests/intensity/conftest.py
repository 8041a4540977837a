"""A web server for each test, and a home of its own to keep answers in."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.intensity.servers import Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("PULSETRAIN_HOME", str(home))
    for variable in ("ELECTRICITYMAPS_TOKEN", "WATTTIME_USERNAME", "WATTTIME_PASSWORD", "PULSETRAIN_CARBON_UK_URL"):
        monkeypatch.delenv(variable, raising=False)
    return home
