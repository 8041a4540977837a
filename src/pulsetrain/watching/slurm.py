"""The summary of a run as the comment of its Slurm job, where `squeue`, `scontrol` and accounting show it."""

import subprocess
from collections.abc import Mapping

from pulsetrain.errors import PulsetrainError

MOST_CHARACTERS = 250
SECONDS = 10.0
"""How long scontrol may take: the controller of a large cluster is busy."""


def set_comment(environment: Mapping[str, str], text: str) -> None:
    """Give the job that this process is part of a comment, by `scontrol update`."""
    job = environment.get("SLURM_JOB_ID", "")
    if not job:
        raise PulsetrainError("there is no Slurm job to comment on: SLURM_JOB_ID is not set.")
    command = ["scontrol", "update", f"JobId={job}", f"Comment={comment_text(text)}"]
    try:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
        )
    except OSError as error:
        raise PulsetrainError(f"scontrol cannot be run: {error.strerror}.") from None
    except subprocess.TimeoutExpired:
        raise PulsetrainError(f"scontrol did not answer within {SECONDS:.0f} s.") from None
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().partition("\n")[0]
        raise PulsetrainError(f"scontrol failed with exit code {done.returncode}: {reason}")


def comment_text(text: str) -> str:
    """One line of plain ASCII, short enough for Slurm's accounting."""
    plain = " ".join(text.replace("±", "+-").encode("ascii", "ignore").decode().split())
    return plain if len(plain) <= MOST_CHARACTERS else plain[: MOST_CHARACTERS - 3].rstrip() + "..."
