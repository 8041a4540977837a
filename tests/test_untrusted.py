"""Text from elsewhere is stored, shown and shared without harm."""

import json
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.training.masking import MASK, masked, masked_command, masked_message, masked_value, storable
from pulsetrain.untrusted import showable, showable_json, showable_lines


@given(st.text(st.characters(codec=None)))
def test_whatever_a_command_line_holds_can_be_written_as_utf8(text: str) -> None:
    assert json.loads(json.dumps(storable(text)).encode()) == storable(text)
    storable(text).encode("utf-8")
    showable(text).encode("utf-8")


def test_bytes_of_another_encoding_become_replacement_characters() -> None:
    assert storable(b"\xe9t\xe9 \xc3\xa9t\xc3\xa9".decode(errors="surrogateescape")) == "\ufffdt\ufffd été"


def test_a_text_that_steers_a_terminal_is_shown_without_doing_so() -> None:
    assert showable("a\x1b[2Jb\x07\r\x9b31m\u202ec") == "a\ufffd[2Jb\ufffd\ufffd\ufffd31m\ufffdc"
    assert showable("übung 学习 ✓") == "übung 学习 ✓"


def test_a_text_of_several_lines_is_shown_in_one() -> None:
    assert showable("a\tb\nc\r\nd") == "a b c d"
    assert showable_lines("error: a\x1b[2J\n  hint: b") == "error: a\ufffd[2J\n  hint: b"


def texts(document: object) -> Iterator[str]:
    if isinstance(document, dict):
        for member in (*document.keys(), *document.values()):
            yield from texts(member)
    elif isinstance(document, list):
        for member in document:
            yield from texts(member)
    else:
        yield str(document)


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_a_document_holds_nothing_that_steers_a_terminal(document: object) -> None:
    shown = list(texts(showable_json(msgspec.json.encode({"a": document}), dict)))
    assert shown == [showable(text) for text in shown]


@pytest.mark.parametrize("text", [b"", b"{", b'{"a":"\xff"}', b"[" * 100_000])
def test_a_damaged_document_is_one_kind_of_error(text: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        showable_json(text, dict)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("train.py --api-key abc --lr 0.1", f"train.py --api-key {MASK} --lr 0.1"),
        ("train.py --password=hunter2", f"train.py --password={MASK}"),
        ("train.py --hf_token hf_abcdefghijklmnopqrst", f"train.py --hf_token {MASK}"),
        ("env WANDB_API_KEY=0123456789 python train.py", f"env WANDB_API_KEY={MASK} python train.py"),
        ("train.py https://me:hunter2@example.org/x", f"train.py https://me:{MASK}@example.org/x"),
        ("train.py https://example.org/x?token=abcdefgh1&n=2", f"train.py https://example.org/x?token={MASK}&n=2"),
        ("train.py hf_abcdefghijklmnopqrst", f"train.py {MASK}"),
        ("train.py data.secret=x", f"train.py data.secret={MASK}"),
    ],
)
def test_a_secret_in_a_command_line_is_covered(command: str, shown: str) -> None:
    assert " ".join(masked_command(command.split(" "))) == shown


@pytest.mark.parametrize(
    "command",
    [
        "train.py --tokenizer gpt2 --max-tokens 4096 --tokens-per-batch=512",
        "train.py --pad-token <pad> --eos_token </s> --token 50256",
        "train.py --key image --sort-key=length --passes 3 --keyframe 12",
        "train.py --password-file /run/secrets/wandb",
        "train.py --config secrets.yaml --lr=1e-3 --data s3://bucket/tokens",
    ],
)
def test_what_only_sounds_like_a_secret_stays(command: str) -> None:
    assert " ".join(masked_command(command.split(" "))) == command


def test_a_header_with_credentials_is_covered() -> None:
    assert masked("Authorization: Bearer abcdefghijkl") == f"Authorization: Bearer {MASK}"


def test_a_message_of_ours_may_explain_what_a_token_is() -> None:
    assert masked_message("Check the token: docs/push.md says more.") == "Check the token: docs/push.md says more."
    assert masked_message("POST http://me:p@ss@host/?token=abcdefgh failed") == (
        f"POST http://me:{MASK}@host/?token={MASK} failed"
    )


def test_a_tag_is_covered_when_its_name_says_that_it_is_secret() -> None:
    assert masked_value("api_key", "abc") == MASK
    assert masked_value("team", "vision") == "vision"
