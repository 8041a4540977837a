"""Colors by name. None needs an eye for red and green; what is bad is bold or reversed as well."""

import os

STYLES = ("", "dim", "title", "accent", "warn", "bad", "banner", "cursor", "key")

_COMMON = {"": "", "dim": "dim", "title": "bold", "cursor": "reverse"}
PALETTES: dict[str, dict[str, str]] = {
    # The sixteen colors of the terminal, as its owner has set them: right on dark and on light backgrounds.
    "terminal": _COMMON
    | {"accent": "cyan", "warn": "yellow", "bad": "bold red", "banner": "bold reverse red", "key": "bold cyan"},
    # Okabe and Ito, "Color Universal Design": made to be told apart by everybody.
    "okabe-ito": _COMMON
    | {
        "accent": "#56b4e9",
        "warn": "#e69f00",
        "bad": "bold #d55e00",
        "banner": "bold #000000 on #d55e00",
        "key": "bold #56b4e9",
    },
    # Blue to yellow, equally far apart in gray too.
    "cividis": _COMMON
    | {
        "accent": "#7c9bd6",
        "warn": "#d9c255",
        "bad": "bold #ffe945",
        "banner": "bold #00224e on #ffe945",
        "key": "bold #7c9bd6",
    },
    "plain": _COMMON | {"accent": "", "warn": "underline", "bad": "bold underline", "banner": "reverse", "key": "bold"},
}
"""Styles in rich's words. `plain` has no color: it is what NO_COLOR gets."""
_SGR = {"bold": "1", "dim": "2", "underline": "4", "reverse": "7", "red": "31", "yellow": "33", "cyan": "36"}


def chosen(name: str) -> dict[str, str]:
    """The palette of this name, unless no colors are wanted (https://no-color.org)."""
    return PALETTES["plain" if os.environ.get("NO_COLOR") else name]


def sgr(words: str) -> str:
    """Rich's words as the codes of a terminal, joined by `;`."""
    codes: list[str] = []
    background = False
    for word in words.split():
        if word == "on":
            background = True
        elif word.startswith("#"):
            red, green, blue = (int(word[place : place + 2], 16) for place in (1, 3, 5))
            codes.append(f"{48 if background else 38};2;{red};{green};{blue}")
        else:
            codes.append(_SGR[word])
    return ";".join(codes)
