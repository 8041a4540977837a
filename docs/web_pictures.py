"""Write the pictures of the web page: real runs on simulated GPUs, in a headless Chromium. Part of `make docs`."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
PULSETRAIN = Path(sys.executable).with_name("pulsetrain")
PYTHON = ".venv-user/bin/python"
COUNTED = ("--price", "gcp:a3-highgpu-8g@europe-west4", "--carbon-region", "DE", "--interval", "0.5")
COLORS = 256


class Picture(NamedTuple):
    name: str
    path: str
    size: tuple[int, int]
    scheme: str = "light"
    ready: str = ".verdict h2"
    """What is there once the page has its data."""


def main() -> None:
    browser = shutil.which("chromium")
    if browser is None or not (ROOT / PYTHON).exists():
        print("the pictures of the web page are kept: they need chromium and .venv-user", file=sys.stderr)  # noqa: T201
        return
    with tempfile.TemporaryDirectory() as name:
        environment = os.environ | {"PULSETRAIN_HOME": name, "PULSETRAIN_HOST": "gpu01"}
        _record(environment)
        run, slow = (next(Path(name, "runs").glob(f"*-{one}-????")).name for one in ("spirals", "slow-loader"))
        with _served(environment) as link:
            _draw(
                browser,
                link,
                [
                    Picture("runs", "", (1280, 330), ready="td:has-text('Wh')"),
                    Picture("run", f"run/{run}", (1280, 1000)),
                    Picture("run-dark", f"run/{run}", (1280, 1000), scheme="dark"),
                    Picture("phone", f"run/{run}", (390, 1100)),
                    Picture("wall", f"run/{run}", (3840, 2160), scheme="dark"),
                    Picture("compare", f"compare?run={run}&run={slow}", (1280, 1000), ready="text=95 %"),
                ],
            )


def _record(environment: dict[str, str]) -> None:
    for name, gpus, arguments in (
        ("first-try", "1xL4", "--epochs none"),
        ("baseline", "2xL4", "--epochs 20"),
        ("slow-loader", "8xH100", "--epochs 40 --slow"),
        ("spirals", "8xH100", "--epochs 60"),
    ):
        training = [PYTHON, "examples/mlp.py", *arguments.split()]
        command = [str(PULSETRAIN), "run", "--name", name, "--simulate", gpus, *COUNTED, "--", *training]
        fails = name == "first-try"  # the list is to show a failed run too
        subprocess.run(command, check=not fails, cwd=ROOT, env=environment, capture_output=True)


@contextmanager
def _served(environment: dict[str, str]) -> Iterator[str]:
    """A server with these runs; its link."""
    command = [str(PULSETRAIN), "serve", "--no-machine", "--port", "0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        try:
            yield server.stderr.readline().split()[-1]
        finally:
            server.terminate()


def _draw(browser: str, link: str, pictures: list[Picture]) -> None:
    from playwright.sync_api import sync_playwright

    options: dict[str, Any] = {"executable_path": browser, "args": ["--no-sandbox", "--disable-background-networking"]}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(**options)
        for picture in pictures:
            width, height = picture.size
            page = chromium.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if picture.scheme == "dark" else "light",
            )
            page.goto(link + picture.path)
            page.locator(picture.ready).first.wait_for()
            page.wait_for_timeout(3000)  # the other charts, and the verdict
            _keep(page, IMAGES / f"web-{picture.name}.png")
            page.close()
        chromium.close()


def _keep(page: "Page", path: Path) -> None:
    from PIL import Image

    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(COLORS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(path.relative_to(ROOT))  # noqa: T201 (a script)


if __name__ == "__main__":
    main()
