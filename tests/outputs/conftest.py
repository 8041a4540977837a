"""Outputs are tried by the real command too."""

from tests.cli.conftest import environment, home, pulsetrain

__all__ = ["environment", "home", "pulsetrain"]
