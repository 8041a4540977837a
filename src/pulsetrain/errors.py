"""The errors a user may see: what broke, what still works, what to do."""

from collections.abc import Iterable


def in_words(error: Exception) -> str:
    """What an error of another library says, for the middle of a sentence: some of them end in a full stop."""
    return str(error).rstrip(".")


class PulsetrainError(Exception):
    """Shown without a traceback; `main` turns it into text and `exit_code`."""

    exit_code = 1

    def __init__(self, message: str, *, still: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.still = still
        """What works all the same."""
        self.hint = hint
        """What the user can do."""

    def __str__(self) -> str:
        lines = [self.message]
        if self.still:
            lines.append(f"  {self.still}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class Unavailable(PulsetrainError):
    """A source or an optional part does not work on this machine: it is not here, or it is here and broken."""

    def __init__(
        self, message: str, *, still: str | None = None, hint: str | None = None, broken: bool = False
    ) -> None:
        super().__init__(message, still=still, hint=hint)
        self.broken = broken
        """Worth a warning: the user has the part, and cannot use it."""


class UsageError(PulsetrainError):
    """A wrong option, a broken configuration file, a run that does not exist."""

    exit_code = 2


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`Did you mean GpuHot or GpuLost? ` for a typo, however it is capitalized; empty when nothing is near."""
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    near = [names[name] for name in get_close_matches(word.lower(), names, 3, 0.6)]
    return f"Did you mean {' or '.join(near)}? " if near else ""
