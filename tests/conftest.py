"""What tests share: recorded machine trees, the NVML test library, run folders, a reader that checks the catalog."""

import importlib.util
import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from pulsetrain import catalog
from pulsetrain.runs.folder import Host, Run, RunFolder
from pulsetrain.snapshot import Event, Sample
from pulsetrain.sources import Source

HERE = Path(__file__).parent


# A deadline for each example would fail on a busy machine, not on a fault.
settings.register_profile("pulsetrain", deadline=None)
settings.load_profile("pulsetrain")


@pytest.fixture(scope="session", autouse=True)
def signals() -> None:
    """As in a terminal: a shell that starts us in the background ignores these, and what we start would inherit it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def recorded() -> Path:
    """Folder of recorded /sys, /proc and command outputs, one folder per machine."""
    return HERE / "recorded"


@pytest.fixture
def read() -> Callable[[Source], list[Sample]]:
    """Read a source once; every field it gives must be declared in the catalog."""

    def read(source: Source) -> list[Sample]:
        samples = [item for item in source.read() if isinstance(item, Sample)]
        assert [name for sample in samples for name in catalog.undeclared(sample)] == []
        return samples

    return read


@pytest.fixture
def events() -> Callable[[Source], list[Event]]:
    """Read a source once for its events."""
    return lambda source: [item for item in source.read() if isinstance(item, Event)]


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with our libnvidia-ml.so.1; a test's subprocess finds it through LD_LIBRARY_PATH."""
    if shutil.which("gcc") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("gcc is missing")
        pytest.skip("needs gcc to compile the NVML test library")
    spec = importlib.util.spec_from_file_location("nvml_build", HERE / "nvml/build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    library: Path = module.build(tmp_path_factory.mktemp("nvml"))
    return library.parent if library.is_file() else library


@pytest.fixture(scope="session")
def user_python() -> str:
    """An interpreter with the frameworks, into which pulsetrain is not installed."""
    python = os.environ.get("PULSETRAIN_TEST_PYTHON") or str(HERE.parent / ".venv-user/bin/python")
    if not Path(python).exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{python} is missing")
        pytest.skip(f"needs {python}, an interpreter with torch and its friends")
    return python


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunFolder]:
    """Write a run folder: `make_run(gpu=[{...}, ...], training=[...], status="finished")`; each line gets its times."""

    def make(
        id: str = "20261116-120000-test-0000", host_name: str = "vm", home: Path = tmp_path, **given: Any
    ) -> RunFolder:
        folder = RunFolder(home / id)
        folder.host_folder(host_name).mkdir(parents=True, exist_ok=True)
        tables = {
            table: given.pop(table)
            for table in catalog.TABLES
            if isinstance(given.get(table), Sequence)  # `account` may also be that of run.json
        }
        start = datetime(2026, 11, 16, 12, tzinfo=UTC)
        about: dict[str, Any] = {
            "name": "test",
            "start": start,
            "status": "finished",
            "hosts": {host_name: Host()},
        } | given
        for table, lines in tables.items():
            name = f"{catalog.TABLES[table].files}.jsonl".replace("*", "20261116_120000")
            with (folder.host_folder(host_name) / name).open("w") as file:
                for number, line in enumerate(lines):
                    elapsed = line.get("elapsed_seconds", float(number))
                    time = (start + timedelta(seconds=elapsed)).isoformat(timespec="milliseconds")[:-6] + "Z"
                    file.write(json.dumps({"timestamp": time, "elapsed_seconds": elapsed} | line) + "\n")
        folder.save(Run(id=id, **about))
        return folder

    return make
