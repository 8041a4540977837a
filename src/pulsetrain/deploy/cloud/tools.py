"""The programs of other people that do the work: found, run with their output passed on, and their errors kept."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple

from pulsetrain.errors import Unavailable

HOW_TO_GET = {
    "gcloud": "Install the Google Cloud CLI (https://cloud.google.com/sdk/docs/install), then: gcloud auth login",
    "kubectl": "Install it: gcloud components install kubectl, or https://kubernetes.io/docs/tasks/tools/",
    "gke-gcloud-auth-plugin": "Install it: gcloud components install gke-gcloud-auth-plugin, "
    "or apt install google-cloud-cli-gke-gcloud-auth-plugin",
    "docker": "Install Docker: apt install docker.io, or https://docs.docker.com/engine/install/",
    "ssh": "Install the OpenSSH client: apt install openssh-client",
}


class ToolResult(NamedTuple):
    """How a program ended."""

    code: int
    stdout: str
    stderr: str


def find_tool(name: str) -> str:
    """The path of a program that a user must have."""
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed.", hint=HOW_TO_GET[name])
    return found


def shown(command: Sequence[str]) -> str:
    """For a user to read and to type."""
    return shlex.join(command)


def run_tool(
    command: Sequence[str],
    *,
    given: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    told: Callable[[str], None] | None = None,
    into: IO[bytes] | None = None,
) -> ToolResult:
    """Run a program to its end. What it says on stderr is kept, and passed on to `told` line by line.

    Its output is kept, or written to the file `into`.
    """
    find_tool(command[0])
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE if given is not None else subprocess.DEVNULL,
        stdout=into or subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment} if environment else None,
    )
    try:
        if told is None:
            out, error = process.communicate(given)
            return ToolResult(process.returncode, _text(out or b""), _text(error))
        assert process.stderr and process.stdout and given is None  # those that are long to wait for read nothing
        lines = []
        for line in process.stderr:
            lines.append(_text(line))
            told(_text(line).rstrip())
        out = process.stdout.read()
        return ToolResult(process.wait(), _text(out), "".join(lines))
    except BaseException:  # Ctrl-C reaches the program too: it ends by itself, and is waited for
        process.terminate()
        process.wait()
        raise


def attach_tool(command: Sequence[str]) -> int:
    """Run a program at this terminal, and give its exit code."""
    find_tool(command[0])
    sys.stdout.flush()
    return subprocess.run(command, check=False).returncode


def _text(content: bytes) -> str:
    return content.decode(errors="replace")
