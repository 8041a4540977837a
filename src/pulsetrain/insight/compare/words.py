"""Figures in sentences."""

from collections.abc import Sequence


def time_text(seconds: float) -> str:
    """A time with three digits, in the unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds / 1e-6)} µs"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def listed(pieces: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(pieces[:-1]), *pieces[-1:])))


def _digits(value: float) -> str:
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"
