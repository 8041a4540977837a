"""Google Colab: whether this is a notebook of it, and its Drive."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pulsetrain.training.warn import warn

MOUNT = "/content/drive"
DRIVE = "drive:"
DEFAULT = "drive:MyDrive/pulsetrain"


def is_colab() -> bool:
    """Whether this is a notebook of Colab, or looks like one to everybody."""
    return "COLAB_RELEASE_TAG" in os.environ or "COLAB_GPU" in os.environ or _has_colab()


def runtime() -> dict[str, str]:
    """What Colab says of the machine, as tags of the run."""
    names = {"colab_release": "COLAB_RELEASE_TAG", "colab_accelerator": "COLAB_GPU", "colab_tpu": "COLAB_TPU_ADDR"}
    found = {tag: os.environ.get(name, "") for tag, name in names.items()}
    return {"runtime": "colab", **{tag: value for tag, value in found.items() if value}}


def place_of(to: str, mount: str = MOUNT) -> str:
    """Where segments are written: in Colab, `drive:MyDrive/folder` is a folder of the mounted Drive.

    Elsewhere, and where the Drive cannot be mounted, it is what it was: then Google's API is used.
    """
    if not to.startswith(DRIVE) or not is_colab():
        return to
    path = os.path.join(mount, to[len(DRIVE) :].lstrip("/"))
    if not os.path.isdir(os.path.join(mount, "MyDrive")):
        _mount(mount)
    if os.path.isdir(os.path.join(mount, "MyDrive")):
        return path
    warn(
        "pulsetrain: Google Drive is not mounted, so the run is not sent through it. First run this in a cell: "
        "from google.colab import drive; drive.mount(%r)" % mount,
        4,
    )
    return to


def _mount(mount: str) -> None:
    """Colab asks the user for permission."""
    try:
        drive: Any = import_module("google.colab.drive")
        drive.mount(mount)
    except Exception:
        return  # the caller says what to do


def _has_colab() -> bool:
    try:
        return find_spec("google.colab") is not None
    except (ImportError, ValueError):
        return False
