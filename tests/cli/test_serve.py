"""`pulsetrain serve` and `run --serve` as a user calls them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.conftest import Pulsetrain
from tests.waiting import eventually

ASKS_ITSELF = """
import sys, time, urllib.request
for _ in range(600):
    links = [line.split()[-1] for line in open(sys.argv[1]) if "watch it at" in line]
    if links:
        break
    time.sleep(0.1)
print(urllib.request.urlopen(links[0]).status)
"""


@contextmanager
def serving(environment: dict[str, str], log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "pulsetrain", "serve", "--port", "0", "--no-machine", *arguments]
    with log.open("wb") as stderr, subprocess.Popen(command, env=environment, stderr=stderr) as process:
        try:
            yield process
        finally:
            process.kill()


def link(log: Path) -> str:
    found: re.Match[str] = eventually(lambda: re.search(r"https?://\S+", log.read_text()))
    return found[0]


def test_the_printed_link_works_and_ctrl_c_ends_the_server(environment: dict[str, str], tmp_path: Path) -> None:
    with serving(environment, tmp_path / "log") as process:
        with urllib.request.urlopen(link(tmp_path / "log")) as page:
            assert b"pulsetrain" in page.read()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


def test_bound_to_another_address_the_link_has_a_token(environment: dict[str, str], tmp_path: Path) -> None:
    with serving(environment, tmp_path / "log", "--host", "0.0.0.0"):
        with_token = link(tmp_path / "log")
        assert with_token.startswith("http://127.0.0.1") and "?token=" in with_token
        assert f" or http://{socket.gethostname()}:" in (tmp_path / "log").read_text()
        assert "not encrypted" in (tmp_path / "log").read_text()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(with_token.partition("?")[0])


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell's streams")
def test_a_run_shows_itself_while_it_lasts(environment: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        done = subprocess.run(
            [sys.executable, "-m", "pulsetrain", "run", "--serve", "--", sys.executable, "-c", ASKS_ITSELF, str(log)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert (done.returncode, done.stdout) == (0, "200\n")


def test_a_short_token_and_a_port_in_use_are_refused(pulsetrain: Pulsetrain) -> None:
    done = pulsetrain("serve", "--no-machine", "--port", "0", PULSETRAIN_TOKEN="short")
    assert done.returncode == 2 and "at least 16" in done.stderr
    done = pulsetrain("serve", "nope")
    assert done.returncode == 2 and "there are no runs" in done.stderr


def test_a_page_that_may_delete_asks_for_a_token_on_this_machine_too(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with serving(environment, tmp_path / "log", "--allow-delete"):
        with_token = link(tmp_path / "log")
        assert with_token.startswith("http://127.0.0.1") and "?token=" in with_token
        address, _, token = with_token.partition("?token=")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(address)
        asked = urllib.request.Request(f"{address}api/v1/catalog", headers={"Authorization": f"Bearer {token}"})
        assert json.load(urllib.request.urlopen(asked))["delete"] is True
