"""Passwords, tokens and keys in what is recorded: covered before it reaches the disk, as far as they are recognized."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MASK = "***"
UNKNOWN_CHARACTER = "\N{REPLACEMENT CHARACTER}"

_SURROGATES = re.compile("[\ud800-\udfff]")

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_SECRET_WORDS = frozenset(
    {"password", "passwd", "pwd", "passphrase", "secret", "secrets", "credential", "credentials", "apikey"}
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


_IN_CODE = re.compile(
    r"""([\w.-]{1,64}['"]?\s*(?:=|:|=>|,)\s*)(['"])((?:(?!\2)[^\\\n]|\\.)+)\2""",
)
"""A name and a text in quotes: `api_key = "..."`, `"token": '...'`, `os.environ["X_TOKEN"] = "..."`."""
_SETTING = re.compile(r"^([+\- ]?\s*(?:export\s+)?)([\w.-]{1,64})(\s*[:=]\s*)([^\s'\"#(\[{]+)(\s*)$", re.MULTILINE)
"""A line of a settings file: `password: ...`."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_LONG_KEY = re.compile(r"[A-Za-z0-9_+/=-]{32,}")


def storable(text: str) -> str:
    """The text without what no UTF-8 file can hold: bytes of another encoding become replacement characters."""
    return _SURROGATES.sub(UNKNOWN_CHARACTER, text)


def masked(text: str) -> str:
    """The text with passwords, tokens and keys covered, as far as they can be recognized."""
    return _HEADER.sub(_mask_assignment, masked_message(text))


def masked_message(text: str) -> str:
    """The same for a message of ours, in which `token: ` may begin an explanation."""
    text = _PASSWORD_IN_URL.sub(rf"\1:{MASK}", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _KNOWN_SECRETS.sub(MASK, text)
    return _ASSIGNMENT.sub(_mask_assignment, text)


def masked_code(text: str) -> str:
    """The same for lines of code and settings files: texts that are given to names that say they are secret."""
    text = _PRIVATE_KEY.sub(MASK, text)
    text = _SETTING.sub(_mask_setting, text)
    text = _IN_CODE.sub(_mask_in_code, text)
    return masked_message(text)


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


def _mask_in_code(found: re.Match[str]) -> str:
    before, quote, value = found.groups()
    name = re.sub(r"['\"\s=:>,]+$", "", before)
    return f"{before}{quote}{MASK}{quote}" if _is_secret(name, value) else found[0]


def _mask_setting(found: re.Match[str]) -> str:
    indent, name, sign, value, end = found.groups()
    is_call = re.search(r"[().\[]", value) is not None
    return f"{indent}{name}{sign}{MASK}{end}" if not is_call and _is_secret(name, value) else found[0]


def _is_secret(name: str, value: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or not value or value == MASK:
        return False
    if _SECRET_WORDS.intersection(words):
        return not value.startswith(("/", "./", "~"))  # the file that holds it may be seen
    if words[-1] == "key":
        return not _SECRET_KEYS.isdisjoint(words[:-1]) or _LONG_KEY.fullmatch(value) is not None
    if words[-1] == "token":
        return _TOKENS_OF_TEXT.isdisjoint(words) and not _HARMLESS_TOKEN.fullmatch(value)
    return False
