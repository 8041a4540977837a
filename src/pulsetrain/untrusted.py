"""Text from elsewhere (command lines, names, run folders of strangers), made fit to be stored, shown and shared.

A command line may hold bytes in any encoding, characters that steer a terminal, and passwords. `storable` takes care of
the first, `showable` of the second, `masked` of the third; a training process needs those two as well, so they are in
training/masking.py.
"""

import re
from typing import Any, TypeVar

from pulsetrain.training.masking import UNKNOWN_CHARACTER, masked_message

T = TypeVar("T")

_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
"""Control characters, those that change the direction of text, and halves of characters."""

_BREAKS = re.compile(r"\t|\r?\n")
_PLAIN_JSON = re.compile(rb"[\x20-\x5b\x5d-\x7e\r\n\t]*")
"""JSON whose texts are surely plain ASCII: all else is written with a backslash, or in UTF-8."""


def showable(text: str) -> str:
    """The text without what would steer a terminal: each such character becomes a replacement character.

    It is one line: tabs and line breaks become blanks.
    """
    return _STEERING.sub(UNKNOWN_CHARACTER, _BREAKS.sub(" ", text))


def showable_lines(text: str) -> str:
    """The same for a text of several lines, which stay."""
    return "\n".join(map(showable, text.split("\n")))


def showable_document(value: Any) -> Any:
    """The same for all names and texts in what JSON can hold."""
    if isinstance(value, str):
        return showable(value)
    if isinstance(value, dict):
        return {showable_document(name): showable_document(member) for name, member in value.items()}
    if isinstance(value, list):
        return [showable_document(member) for member in value]
    return value


def is_plain_json(text: bytes) -> bool:
    """Whether this JSON is surely showable as it is. Most is, and need not be looked through text by text."""
    return _PLAIN_JSON.fullmatch(text) is not None


def showable_json(text: bytes, type: type[T]) -> T:
    """A JSON document as this type, all text in it showable. MsgspecError for one that is damaged."""
    import msgspec  # which `--help` does without

    try:
        document = msgspec.json.decode(text)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None
    return msgspec.convert(document if is_plain_json(text) else showable_document(document), type)


def printable(message: str) -> str:
    """A message of one or more lines as it may be printed: nothing in it steers a terminal or is secret."""
    return showable_lines(masked_message(message))
