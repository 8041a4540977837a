"""Text from elsewhere (command lines, names, run folders of strangers), made fit to be stored, shown and shared.

A command line may hold bytes in any encoding, characters that steer a terminal, and passwords. `storable` takes care of
the first, `showable` of the second, `masked` of the third.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

MASK = "***"
UNKNOWN_CHARACTER = "\N{REPLACEMENT CHARACTER}"

_SURROGATES = re.compile("[\ud800-\udfff]")
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
"""Control characters, those that change the direction of text, and halves of characters."""

_BREAKS = re.compile(r"\t|\r?\n")
_PLAIN_JSON = re.compile(rb"[\x20-\x5b\x5d-\x7e\r\n\t]*")
"""JSON whose texts are surely plain ASCII: all else is written with a backslash, or in UTF-8."""

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_SECRET_WORDS = frozenset(
    {"password", "passwd", "passphrase", "secret", "secrets", "credential", "credentials", "apikey"}
)
_SECRET_KEYS = frozenset({"api", "access", "private", "secret", "auth", "account", "license", "signing", "encryption"})
"""What a `key` is that nobody else may know; `--key` alone is often the name of a column."""
_TOKENS_OF_TEXT = frozenset(
    {"pad", "eos", "bos", "unk", "mask", "sep", "cls", "eot", "image", "special", "stop", "start", "end", "num", "per"}
)
_HARMLESS_TOKEN = re.compile(r"<.*>|\[.*\]|\d+|.{0,7}|true|false|none", re.IGNORECASE)
_KNOWN_SECRETS = re.compile(
    r"""
    \b(?: hf_[A-Za-z0-9]{16,} | sk-[A-Za-z0-9_-]{16,} | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,}
        | glpat-[\w-]{16,} | xox[abeprs]-[\w-]{10,} | A(?:KI|SI)A[A-Z0-9]{16} | AIza[\w-]{30,} | npm_[A-Za-z0-9]{30,}
        | pypi-[\w-]{30,} | ya29\.[\w-]{20,} | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]* | local-[0-9a-f]{40} )
    """,
    re.VERBOSE,
)
_PASSWORD_IN_URL = re.compile(r"(?<=://)([^/\s:@]*):[^/\s]+(?=@)")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w+/=.~-]{8,}")
_ASSIGNMENT = re.compile(r"([\w.-]{1,64})(=)([^\s&;,'\"]+)")
_HEADER = re.compile(r"([\w.-]{1,64})(:\s)([^\s&;,'\"]+)")


def storable(text: str) -> str:
    """The text without what no UTF-8 file can hold: bytes of another encoding become replacement characters."""
    return _SURROGATES.sub(UNKNOWN_CHARACTER, text)


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


def masked(text: str) -> str:
    """The text with passwords, tokens and keys covered, as far as they can be recognized."""
    return _HEADER.sub(_mask_assignment, masked_message(text))


def masked_message(text: str) -> str:
    """The same for a message of ours, in which `token: ` may begin an explanation."""
    text = _PASSWORD_IN_URL.sub(rf"\1:{MASK}", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _KNOWN_SECRETS.sub(MASK, text)
    return _ASSIGNMENT.sub(_mask_assignment, text)


def printable(message: str) -> str:
    """A message of one or more lines as it may be printed: nothing in it steers a terminal or is secret."""
    return showable_lines(masked_message(message))


def masked_command(words: Sequence[str]) -> list[str]:
    """A command line with secrets covered: `--api-key X`, `--password=X`, `TOKEN=X`, `https://user:X@host`."""
    return list(_masked_words(words))


def masked_value(name: str, value: str) -> str:
    """The value of a setting, a tag or an option, covered when its name says that it is secret."""
    return MASK if _is_secret(name, value) else masked(value)


def masked_document(value: Any, name: str = "") -> Any:
    """Nested settings with secrets covered, by their names and by how they look; fit to be stored."""
    if isinstance(value, Mapping):
        return {storable(str(key)): masked_document(member, str(key)) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked_document(member, name) for member in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return MASK if _is_secret(name, str(value)) else value
    return storable(masked_value(name, str(value)))


def _masked_words(words: Sequence[str]) -> Iterator[str]:
    option = ""
    for word in words:
        if option and not word.startswith("-") and _is_secret(option, word):
            yield MASK
        else:
            yield masked(word)
        option = word if word.startswith("-") and "=" not in word else ""


def _mask_assignment(found: re.Match[str]) -> str:
    name, sign, value = found.groups()
    return f"{name}{sign}{MASK}" if _is_secret(name, value) else found[0]


def _is_secret(name: str, value: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or not value or value == MASK:
        return False
    if _SECRET_WORDS.intersection(words):
        return not value.startswith(("/", "./", "~"))  # the file that holds it may be seen
    if words[-1] == "key":
        return not _SECRET_KEYS.isdisjoint(words[:-1])
    if words[-1] == "token":
        return _TOKENS_OF_TEXT.isdisjoint(words) and not _HARMLESS_TOKEN.fullmatch(value)
    return False
