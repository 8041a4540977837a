"""The folder of benchmark images: lint, order, and what builds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers import program

CONTAINERS = Path(__file__).parents[1] / "containers"
DOCKERFILES = sorted(CONTAINERS.glob("*/Dockerfile"))
OTHERS = [
    CONTAINERS.parent / "src/pulsetrain/deploy/docker/Dockerfile",
    CONTAINERS.parent / "examples/cluster_trainer/Dockerfile",
]
IMAGES = {
    *("gpu_base", "sciml_base", "mantid_base", "mantid_run_1", "mantid_run_8", "mnist_tf_keras"),
    *("stemdl_classification_1gpu", "stemdl_classification_2gpu", "synthetic_regression", "dummy"),
}
ENGINE = """#!/bin/sh
shift
while [ $# -gt 1 ]; do shift; done
echo "$1" >> "$TOLD"
[ "$1" != "$FAILS" ]
"""


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """Notes what it is asked to build, and fails for one of them."""
    engine = tmp_path / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    return engine


def build(engine: Path, *names: str, fails: str = "none") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [CONTAINERS / "build_images.sh", *names],
        env={"PATH": "/usr/bin:/bin", "ENGINE": str(engine), "TOLD": str(engine.parent / "told"), "FAILS": fails},
        capture_output=True,
        text=True,
    )


def test_there_are_all_images_of_the_older_tool() -> None:
    assert {file.parent.name for file in DOCKERFILES} == IMAGES


@pytest.mark.parametrize("file", [*DOCKERFILES, *OTHERS], ids=lambda file: file.parent.name)
def test_hadolint_finds_nothing(file: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    command = [hadolint if hadolint.exists() else program("hadolint"), "-c", CONTAINERS / ".hadolint.yaml", file]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run([program("shellcheck"), CONTAINERS / "build_images.sh"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_wheels_and_data_have_checksums() -> None:
    for file in CONTAINERS.glob("*/requirements.txt"):
        pinned = re.findall(r"^[a-z][\w.\[\]-]*==\S+ (?:; .*)?\\$", file.read_text(), re.MULTILINE)
        assert len(pinned) > 10 and len(pinned) == len(re.findall(r"^\w", file.read_text(), re.MULTILINE))
    for file in DOCKERFILES:
        assert not re.search(r"\b(curl|wget)\b|^ADD (?!--checksum)", file.read_text(), re.MULTILINE)


def test_every_image_is_built_after_its_base(engine: Path) -> None:
    done = build(engine)
    told = (engine.parent / "told").read_text().split()
    assert done.returncode == 0 and set(told) == IMAGES and len(told) == len(IMAGES)
    assert told.index("gpu_base") < told.index("sciml_base") < told.index("synthetic_regression")
    assert "built:  gpu_base" in done.stdout


def test_an_image_that_fails_stops_those_on_it_and_no_others(engine: Path) -> None:
    done = build(engine, fails="sciml_base")
    told = (engine.parent / "told").read_text().split()
    assert done.returncode == 1 and "mnist_tf_keras" in told and "synthetic_regression" not in told
    assert "failed: sciml_base stemdl_classification_1gpu" in done.stderr


def test_one_image_is_built_with_its_bases(engine: Path) -> None:
    assert build(engine, "synthetic_regression").returncode == 0
    assert (engine.parent / "told").read_text().split() == ["gpu_base", "sciml_base", "synthetic_regression"]
    done = build(engine, "nonsense")
    assert done.returncode == 2 and "there is no image nonsense" in done.stderr
