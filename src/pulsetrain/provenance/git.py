"""The git repository that a command was started in: commit, branch, remote, and what differs from the commit.

The repository may be a stranger's. Nothing that its configuration names is run: no hook, no file system monitor, no
filter, no diff program; nothing is fetched; and nothing in it is changed, not even its index.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pulsetrain.runs.description import Code
from pulsetrain.training.masking import masked_code, masked_message, storable

SECONDS = 10.0
"""How long each question may take: the repository may be on a slow disk."""
MOST_DIFF_BYTES = 2**20
MOST_OUTPUT_BYTES = 4 * 2**20
_SAFE = (
    *("--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.pager=cat"),
    *("-c", "protocol.allow=never", "-c", "core.quotePath=false", "-c", "log.showSignature=false"),
)
_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--ignore-submodules=all", "-z")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all", "HEAD")
_FILTER = re.compile(r"filter\.(.+)\.(?:clean|smudge|process|required)", re.IGNORECASE | re.DOTALL)
_SECRET_FILES = re.compile(
    r"\.env(\..*)?|.*\.(pem|key|p12|pfx|jks|keystore|kdbx)|id_(rsa|dsa|ecdsa|ed25519)|\.netrc|\.npmrc|\.pypirc"
    r"|.*credentials?.*|.*secrets?.*|\.htpasswd",
    re.IGNORECASE,
)
LEFT_OUT = "(left out: such a file may hold secrets)"


class Repository(NamedTuple):
    code: Code
    diff: bytes
    """With secrets covered; empty when nothing differs."""


def repository_at(folder: Path) -> Repository | None:
    """What git says of a folder; None where there is no repository, or no git."""
    git = _Git(folder)
    status = git.ask(*_STATUS)
    if status is None:
        return None
    code = _code(status.decode(errors="replace"))
    code.remote = _remote(git)
    diff = b""
    if code.dirty and code.commit:
        whole = git.ask(*_DIFF) or b""
        diff = masked_diff(whole[:MOST_DIFF_BYTES].decode(errors="replace")).encode()
        code.diff_cut = len(whole) > MOST_DIFF_BYTES
    return Repository(code, diff)


def masked_diff(text: str) -> str:
    """A difference with secrets covered, and without the contents of files that are likely to hold some."""
    found: list[str] = []
    hidden = False
    for line in text.split("\n"):
        if line.startswith("diff --git "):
            hidden = _SECRET_FILES.fullmatch(PurePosixPath(line).name.rstrip('"')) is not None
            found += [line, LEFT_OUT] if hidden else [line]
        elif not hidden:
            found.append(line)
    return masked_code(storable("\n".join(found)))


def without_credentials(url: str) -> str:
    """The address of a remote without user and password; `git@` of ssh stays."""
    url = re.sub(r"(?<=://)[^/@\s]+@", lambda user: "git@" if user[0] == "git@" else "", url.strip())
    return storable(masked_message(url))


def _code(status: str) -> Code:
    """From what `git status` lists, each entry ended by a null character."""
    code = Code()
    entries = iter(status.split("\0"))
    for entry in entries:
        kind = entry.partition(" ")[0]
        if entry.startswith("# branch.oid "):
            commit = entry.rpartition(" ")[2]
            code.commit = commit if re.fullmatch("[0-9a-f]{40,64}", commit) else ""
        elif entry.startswith("# branch.head "):
            branch = entry.removeprefix("# branch.head ")
            code.branch = "" if branch == "(detached)" else storable(masked_message(branch))
        elif kind == "?":
            code.untracked += 1
        elif kind in ("1", "2", "u"):
            code.dirty = True
            if kind == "2":
                next(entries, None)  # the name that it had before
    return code


def _remote(git: "_Git") -> str:
    for name in ("remote.origin.url", r"--get-regexp ^remote\..*\.url$"):
        words = name.split() if name.startswith("--") else ["--get", name]
        found = (git.ask("config", *words) or b"").decode(errors="replace").strip()
        if found:
            return without_credentials(found.partition("\n")[0].rpartition(" ")[2])
    return ""


class _Git:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self._environment = {
            **kept,
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "LC_ALL": "C",
        }
        self._harmless: list[str] | None = None

    def ask(self, *words: str) -> bytes | None:
        """What git prints, at most a few megabytes of it; None when it fails, hangs or is not there."""
        if self._harmless is None:
            self._harmless = []
            names = self._run(("config", "--local", "--includes", "--list", "--name-only", "-z")) or b""
            filters = {
                found[1] for name in names.decode(errors="replace").split("\0") if (found := _FILTER.match(name))
            }
            for one in filters:  # programs that the repository itself names for its files
                for setting in ("clean=cat", "smudge=cat", "process=", "required=false"):
                    self._harmless += ["-c", f"filter.{one}.{setting}"]
        return self._run(words)

    def _run(self, words: Sequence[str]) -> bytes | None:
        command = ["git", *_SAFE, *(self._harmless or ()), *words]
        try:
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            return None
        return _output_of(process)


def _output_of(process: "subprocess.Popen[bytes]") -> bytes | None:
    """What it prints within the time; one that prints too much, or hangs, is ended."""
    import threading

    guard = threading.Timer(SECONDS, process.kill)
    guard.daemon = True
    guard.start()
    try:
        assert process.stdout
        with process.stdout as output:
            found = output.read(MOST_OUTPUT_BYTES)
        if len(found) == MOST_OUTPUT_BYTES:
            process.kill()
            process.wait()
            return found
        return found if process.wait() == 0 else None
    finally:
        guard.cancel()
