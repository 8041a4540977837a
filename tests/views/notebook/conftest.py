"""Notebooks with real kernels, and a real JupyterLab in a real browser."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.servers import Server
from tests.views.web.conftest import browser

__all__ = ["browser"]

FOLDER = Path(__file__).parents[3] / ".venv-notebook"


@pytest.fixture(scope="session")
def jupyter() -> str:
    """The program, in an environment with a kernel that has all of pulsetrain."""
    program = FOLDER / "bin/jupyter"
    if not program.exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{program} is missing")
        pytest.skip(f"needs {program}: make .venv-notebook/ready")
    return str(program)


def kernel_environment(folder: Path) -> dict[str, str]:
    """Runs below a folder, and nothing of this machine's own Jupyter."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PULSETRAIN_", "JUPYTER_", "JPY_"))
    }
    ours = {name: str(folder / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")}
    return kept | ours | {"PULSETRAIN_HOME": str(folder / "home"), "PULSETRAIN_SIMULATE": "2xL4"}


def write_notebook(path: Path, *cells: str) -> Path:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    document = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernel},
        "cells": [
            {
                "id": f"cell-{number}",
                "cell_type": "code",
                "metadata": {},
                "outputs": [],
                "execution_count": None,
                "source": source,
            }
            for number, source in enumerate(cells)
        ],
    }
    path.write_text(json.dumps(document))
    return path


class Executed:
    """A notebook that `jupyter nbconvert --execute` has run, with a name for each of its cells."""

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        self._cells = dict(zip(names, json.loads(path.read_text())["cells"], strict=True))

    def cell(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._cells[name]
        return found

    def outputs(self, cell: str, kind: str) -> list[str]:
        """What a cell shows of this MIME type, in order."""
        found = [output["data"][kind] for output in self.cell(cell)["outputs"] if kind in output.get("data", {})]
        return [text if isinstance(text, str) else "".join(text) for text in found]

    def printed(self, cell: str) -> str:
        return "".join("".join(output.get("text", "")) for output in self.cell(cell)["outputs"])

    def error(self, cell: str) -> dict[str, Any] | None:
        return next((output for output in self.cell(cell)["outputs"] if output["output_type"] == "error"), None)


@pytest.fixture(scope="session")
def execute(jupyter: str) -> Callable[..., Executed]:
    """`execute(folder, cells)`: cells by their names, which may fail."""

    def run(folder: Path, cells: Mapping[str, str]) -> Executed:
        notebook = write_notebook(folder / "notebook.ipynb", *cells.values())
        command = [jupyter, "nbconvert", "--to", "notebook", "--execute", "--allow-errors", "--output", "done.ipynb"]
        done = subprocess.run(
            [*command, notebook], env=kernel_environment(folder), cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return Executed(folder / "done.ipynb", cells)

    return run


class JupyterLab(Server):
    """JupyterLab, with the notebooks of its folder."""

    name = "jupyter"
    ready = "/api"

    def __init__(self, folder: Path, jupyter: str) -> None:
        super().__init__(folder, jupyter)
        self.environment = kernel_environment(folder)

    def arguments(self) -> list[str]:
        return [
            "lab",
            "--allow-root",
            "--no-browser",
            f"--ServerApp.port={self.port}",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.root_dir={self.folder}",
            "--IdentityProvider.token=",
            "--LabApp.expose_app_in_browser=True",
            "--LabApp.news_url=None",
        ]


class OpenNotebook:
    """A notebook in a tab of JupyterLab, in a browser."""

    def __init__(self, page: Any, lab: JupyterLab) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self._lab = lab
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def open(self, name: str) -> None:
        self.page.goto(f"{self._lab.url}/lab/tree/{name}")
        kernel = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"
        self.page.wait_for_function(f"() => {kernel}?.status === 'idle'")

    def do(self, command: str) -> None:
        """A command of JupyterLab, which goes on after we return."""
        self.page.evaluate("command => { window.jupyterapp.commands.execute(command); }", command)

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "pulsetrain" in f"{message.text} {message.location}".lower():
            self.complaints.append(message.text)

    def _asked(self, url: str) -> None:
        if not url.startswith((self._lab.url, self._lab.url.replace("http", "ws"), "blob:", "data:")):
            self.elsewhere.append(url)


@contextmanager
def opened(browser: Any, lab: JupyterLab, name: str, **options: Any) -> Iterator[OpenNotebook]:
    context = browser.new_context(viewport={"width": 1280, "height": 1500}, **options)
    context.set_default_timeout(180_000)
    try:
        notebook = OpenNotebook(context.new_page(), lab)
        notebook.open(name)
        yield notebook
    finally:
        context.close()
