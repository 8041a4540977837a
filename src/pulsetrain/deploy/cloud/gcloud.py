"""The user's own gcloud: what it is asked, its answers as JSON, and what its errors mean."""

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from pulsetrain.deploy.cloud.tools import run_tool, shown
from pulsetrain.errors import PulsetrainError
from pulsetrain.untrusted import printable

LABEL = "pulsetrain"
"""The label of everything that we make and that can have one."""
CONSOLE = "https://console.cloud.google.com"
QUIET = {"CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
"""In its environment, gcloud asks nothing and takes its own defaults."""

Reason = Literal[
    "sign-in", "project", "api", "billing", "quota", "stock", "permission", "conflict", "missing", "network", "other"
]
_REASONS: tuple[tuple[Reason, str], ...] = (
    (
        "sign-in",
        r"active account selected|valid credentials|refreshing your current auth|reauthenticat|invalid_grant"
        r"|Anonymous caller|code=401",
    ),
    ("project", r"property \[(core/)?project\]|project .* (was )?not found|not a valid project|Unknown project"),
    ("api", r"API \[\S+\] not enabled|has not been used in project|SERVICE_DISABLED|accessNotConfigured"),
    ("billing", r"[Bb]illing (must be|is not|has not been|to be) enabled|BILLING_DISABLED|billing account"),
    ("quota", r"[Qq]uota\b.*(exceeded|limit)|QUOTA_EXCEEDED|[Ii]nsufficient (regional )?quota"),
    (
        "stock",
        r"RESOURCE_POOL_EXHAUSTED|STOCKOUT|not have enough\s+resources|GCE_STOCKOUT|currently\s+unavailable in the",
    ),
    ("permission", r"[Rr]equired ['\"]\S+['\"] permission|PERMISSION_DENIED|does not have permission|code=403"),
    ("conflict", r"[Aa]lready exists|code=409"),
    ("missing", r"was not found|[Nn]ot found:|code=404"),
    ("network", r"Unable to find the server|[Cc]onnection (refused|reset|aborted)|timed out|issue connecting"),
)
"""The first that matches counts."""
_NOISE = re.compile(
    r"^(?:ERROR: (?:\([\w.-]+\) )?|- |code: \S+\s*$|message: |---$|Could not fetch resource:"
    r"|ResponseError: code=\d+, message=)"
    r"|\s*This command is (?:un)?authenticated .*$"
)


class CloudError(PulsetrainError):
    """Google Cloud, or gcloud, refused."""

    def __init__(self, reason: Reason, said: str, *, still: str | None = None, hint: str | None = None) -> None:
        super().__init__(said, still=still, hint=hint)
        self.reason = reason


class CloudSettings(NamedTuple):
    """What gcloud is set to."""

    project: str | None
    zone: str | None


class Gcloud:
    """gcloud for one project. Questions are asked with `ask`; what changes something is done with `do`."""

    def __init__(self, project: str | None = None, kubeconfig: str | None = None) -> None:
        settings = _settings() if project is None else CloudSettings(project, None)
        if not settings.project:
            raise CloudError(
                "project",
                "gcloud has no project set.",
                hint="Name one with --project, or set it: gcloud config set project PROJECT",
            )
        self.project: str = settings.project
        self.default_zone = settings.zone
        self._environment = QUIET | ({"KUBECONFIG": kubeconfig} if kubeconfig else {})

    def command(self, *words: str, project: str | None = None) -> list[str]:
        """As it is run, and as it is shown."""
        return ["gcloud", *words, f"--project={project or self.project}"]

    def ask(self, *words: str, project: str | None = None) -> Any:
        """The answer, as JSON. It changes nothing."""
        command = self.command(*words, project=project)
        if not any(word.startswith("--format=") for word in words):
            command.append("--format=json")
        return _json(self._run(command, None), command)

    def do(self, command: Sequence[str], told: Callable[[str], None] | None = None) -> None:
        """Run a command of `command()` that changes something."""
        self._run(command, told)

    def _run(self, command: Sequence[str], told: Callable[[str], None] | None) -> str:
        done = run_tool(command, environment=self._environment, told=told)
        if done.code:
            raise error_of(done.stderr, self.project)
        return done.stdout


def _settings() -> CloudSettings:
    command = ["gcloud", "config", "list", "--format=json"]
    done = run_tool(command, environment=QUIET)
    if done.code:
        raise error_of(done.stderr, "")
    found = _json(done.stdout, command)
    core, compute = found.get("core") or {}, found.get("compute") or {}
    project = os.environ.get("CLOUDSDK_CORE_PROJECT") or core.get("project")
    return CloudSettings(project, compute.get("zone"))


def _json(text: str, command: Sequence[str]) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise PulsetrainError(
            "gcloud did not answer with JSON.", hint=f"To see what it says: {shown(command)}"
        ) from None


def error_of(stderr: str, project: str) -> CloudError:
    """What gcloud's words mean, and what to do about it."""
    said = _words(stderr)
    reason: Reason = next((name for name, pattern in _REASONS if re.search(pattern, stderr)), "other")
    return CloudError(reason, said, hint=_hint(reason, stderr, project))


def _words(stderr: str) -> str:
    """Its error without its decoration: everything from ERROR on, in one line."""
    lines = printable(stderr).splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("ERROR:")), 0)
    text = " ".join(line.strip() for line in lines[first:])
    if found := re.search(r"finished with error: (.*)", text):  # before it, the whole operation is printed
        text = found[1]
    words = [_NOISE.sub("", line.strip()) for line in lines[first:]] if not found else [text]
    joined = re.sub(r"\s+", " ", " ".join(_NOISE.sub("", word.strip()) for word in words)).strip()
    return joined[:600] or "gcloud failed without a message."


def _hint(reason: Reason, stderr: str, project: str) -> str | None:
    if reason == "quota":
        return _quota_hint(stderr, project)
    if reason == "permission":
        return _permission_hint(stderr, project)
    service = "container" if "container" in stderr else "compute"
    return {
        "sign-in": "Sign in: gcloud auth login",
        "project": "List your projects: gcloud projects list. Then name one with --project.",
        "api": f"Enable it once: gcloud services enable {service}.googleapis.com --project={project}",
        "billing": f"Link a billing account: {CONSOLE}/billing/linkedaccount?project={project}",
        "network": "Check this machine's connection, and gcloud's: gcloud info --run-diagnostics",
    }.get(reason)


def _quota_hint(stderr: str, project: str) -> str:
    name = re.search(r"\b(?:PREEMPTIBLE_|COMMITTED_)?(?:NVIDIA_\w+|GPUS_ALL_REGIONS|\w*CPUS\w*)\b", stderr)
    return (
        f"Ask Google for more{f' {name[0]}' if name else ''} at {CONSOLE}/iam-admin/quotas?project={project} "
        "(a new project has none for GPUs), or try another region: each has its own limit. "
        "Spot and on-demand GPUs are counted separately."
    )


def _permission_hint(stderr: str, project: str) -> str:
    right = re.search(r"['\"]((?:compute|container)\.[\w.]+)['\"]", stderr)
    role = "Kubernetes Engine Admin" if right and right[1].startswith("container") else "Compute Admin"
    return (
        f"Ask an owner of {project} for {right[1] if right else 'that permission'} "
        f"(the role {role} has it), or choose another project with --project."
    )
