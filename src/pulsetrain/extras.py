"""Packages that not everybody needs: what to say where one is missing."""

from importlib.util import find_spec

from pulsetrain.errors import UsageError


def require(package: str, extra: str, what: str) -> None:
    """UsageError with the command that installs it, where the package is not there."""
    found = find_spec(package)
    if found is None or found.origin is None:  # a mere folder of that name, such as the one that wandb writes
        raise UsageError(
            f"{what} needs the package {package}, which is not installed in pulsetrain's environment.",
            hint=f"pip install 'pulsetrain[{extra}]'",
        )
