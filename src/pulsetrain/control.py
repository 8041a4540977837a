"""`pulsetrain.control.start()`: fetch at home what notebooks elsewhere send, until Ctrl-C."""

from __future__ import annotations

import subprocess
import sys

from pulsetrain.training import colab


def start(source: str = colab.DEFAULT, *options: str) -> int:
    """Run `pulsetrain fetch SOURCE --follow`, with further options. Returns its exit code."""
    # -P: the working folder may be anybody's, and its modules are none of ours.
    command = [sys.executable, "-P", "-m", "pulsetrain", "fetch", source, "--follow", *options]
    with subprocess.Popen(command) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue  # it got the same Ctrl-C, and ends
