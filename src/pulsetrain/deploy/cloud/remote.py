"""A shell on another machine: by plain ssh, or by gcloud for a machine of ours in Google Cloud."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pulsetrain.deploy.cloud.gcloud import QUIET, CloudError, Gcloud
from pulsetrain.deploy.cloud.tools import find_tool
from pulsetrain.deploy.cloud.vm import find_vm
from pulsetrain.errors import Unavailable, UsageError

_VM_NAME = re.compile(r"[a-z][-a-z0-9]*")


class Remote(NamedTuple):
    """How to reach a machine."""

    name: str
    start: tuple[str, ...]
    """The command line up to what is to be run there."""
    by_gcloud: bool

    @property
    def environment(self) -> dict[str, str]:
        """For a command whose input is ours: gcloud must not take an answer from it."""
        return QUIET if self.by_gcloud else {}

    def command(self, remote_command: str | None = None, ssh_options: Sequence[str] = ()) -> list[str]:
        """A command line that runs `remote_command` there, or opens a shell."""
        if self.by_gcloud:
            asked = [f"--command={remote_command}"] if remote_command else []
            options = ["--", *ssh_options] if ssh_options else []
            return [*self.start, *asked, *options]
        return [*self.start[:-1], *ssh_options, self.start[-1], *([remote_command] if remote_command else [])]


def find_remote(
    host: str, *, project: str | None = None, zone: str | None = None, plain: bool = False, config: Path | None = None
) -> Remote:
    """A machine that `vm create` made, by its name; else what ssh calls HOST.

    A name with a dot, an @ or a colon, and any with `plain` or an ssh configuration, is for ssh.
    """
    if host.startswith("-"):
        raise UsageError(f"{host!r} is not the name of a machine.")
    if not plain and config is None and _VM_NAME.fullmatch(host):
        try:
            gcloud = Gcloud(project)
            vm = find_vm(gcloud, host) if zone is None else None
        except Unavailable:  # without gcloud it can only be a name for ssh
            return _by_ssh(host, config)
        except CloudError as error:
            hint = f"{error.hint or ''}\n  hint: If {host} is a name for ssh, add --plain-ssh.".removeprefix(
                "\n  hint: "
            )
            raise CloudError(error.reason, error.message, still=error.still, hint=hint) from None
        if (vm and vm.zone) or zone:
            place = zone or (vm.zone if vm else "")
            start = gcloud.command("compute", "ssh", host, f"--zone={place}")
            return Remote(host, tuple(start), True)
    return _by_ssh(host, config)


def _by_ssh(host: str, config: Path | None) -> Remote:
    find_tool("ssh")
    return Remote(host, ("ssh", *(["-F", str(config)] if config else []), host), False)
