"""Passwords, tokens and keys on a command line: used, and neither printed nor kept."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Pulsetrain
from tests.outputs.collector import Collector, Reply

SECRETS = ("pw-s3cret", "tok-s3cret", "tag-s3cret", "url-s3cret", "name-s3cret", "cmd-s3cret", "echo-s3cret")


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A server that lets nobody in, and shows whoever asks what they sent."""
    with Collector() as collector:

        def answer(request: object) -> Reply:
            return Reply(401, b"no: Bearer echo-s3cret-echo-s3cret, https://me:echo-s3cret@here/?token=echo-s3cret")

        collector.answer = answer
        yield collector


def kept(folder: Path) -> Iterator[str]:
    """The names and the contents of all files of a folder."""
    for path in folder.rglob("*"):
        yield str(path)
        if path.is_file():
            yield path.read_bytes().decode(errors="replace")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_a_run_is_given_is_neither_printed_nor_kept(
    pulsetrain: Pulsetrain, collector: Collector, home: Path, log_format: str
) -> None:
    server = collector.url.replace("://", "://me:pw-s3cret@")
    done = pulsetrain(
        *("run", "--simulate", "1xL4", "--log-format", log_format, "--interval", "0.2"),
        *("--push", f"remote-write:{server}/api/v1/write?token=tok-s3cret", "--name", "test password=name-s3cret"),
        *("--tag", "api_key=tag-s3cret", "--tag", "data=https://me:url-s3cret@host/x"),
        *("--", sys.executable, "-c", "import time; time.sleep(1)", "--api-key", "cmd-s3cret"),
        NO_PROXY="localhost",
    )
    assert done.returncode == 0, done.stderr
    assert "401" in done.stderr and "pulsetrain export" in done.stderr  # what failed, and a hint with the address
    told = [done.stdout, done.stderr, *kept(home), *(pulsetrain(*view).stdout for view in (["runs"], ["report"]))]
    assert [secret for secret in SECRETS if any(secret in text for text in told)] == []
    assert collector.asked[0].headers["Authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--tag", "pw-s3cret", "--", "true"],
        ["run", "--push", "remote-write:http//me:pw-s3cret@host", "--", "true"],
        ["run", "--push", "nonsense:http://host/?token=tok-s3cret", "--", "true"],
        ["export", "last", "--to", "otlp:me:pw-s3cret@host"],
        ["top", "--connect", "http://me:pw-s3cret@:9400", "--once"],
        ["top", "--connect", "ftp://me:pw-s3cret@host", "--once"],
        ["python", "train.py", "--api-key", "cmd-s3cret", "https://me:url-s3cret@host"],
        ["run", "--api-key=cmd-s3cret", "--", "true"],
        ["report", "https://me:url-s3cret@host/run"],
    ],
)
def test_what_is_wrong_is_said_without_the_secret(pulsetrain: Pulsetrain, arguments: list[str]) -> None:
    done = pulsetrain(*arguments)
    assert done.returncode == 2
    assert [secret for secret in SECRETS if secret in done.stdout + done.stderr] == []
