"""The user's own kubectl, with a configuration file of ours: it never touches the cluster that they work with now."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pulsetrain.deploy.cloud.tools import ToolResult, find_tool, run_tool, shown
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home
from pulsetrain.untrusted import printable

MANAGER = "pulsetrain"
"""The field manager of what we apply: others keep the fields that are theirs."""


class KubernetesError(PulsetrainError):
    """The cluster, or kubectl, refused."""


class Kubectl:
    """kubectl for one cluster."""

    def __init__(self, kubeconfig: Path | None, namespace: str) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace

    def command(self, *words: str) -> list[str]:
        """As it is run, and as it is shown."""
        config = [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        return ["kubectl", *config, f"--namespace={self.namespace}", *words]

    def apply_command(self) -> list[str]:
        return self.command("apply", "--server-side", f"--field-manager={MANAGER}", "--filename=-")

    def apply(self, objects: Sequence[dict[str, Any]]) -> list[str]:
        """Make these objects so; what is said of each."""
        document = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        done = run_tool(self.apply_command(), given=document)
        if done.code:
            raise error_of(done)
        return done.stdout.splitlines()

    def ask(self, *words: str) -> Any:
        """The answer as JSON, or None where there is no such thing."""
        done = run_tool(self.command(*words, "--ignore-not-found", "--output=json"))
        if done.code:
            raise error_of(done)
        try:
            return msgspec.json.decode(done.stdout) if done.stdout.strip() else None
        except msgspec.DecodeError:
            raise KubernetesError("kubectl did not answer with JSON.", hint=shown(self.command(*words))) from None

    def do(self, *words: str) -> str:
        done = run_tool(self.command(*words))
        if done.code:
            raise error_of(done)
        return done.stdout


def kubeconfig_file(project: str, zone: str, name: str) -> Path:
    """Where the way to a cluster of ours is kept, apart from the user's own ~/.kube/config."""
    file = Home.find().path.parent / "clusters" / f"{project}_{zone}_{name}.yaml"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return file


def check_tools() -> None:
    """Before something is made that could then not be used."""
    for name in ("gcloud", "kubectl", "gke-gcloud-auth-plugin"):
        find_tool(name)


def error_of(done: ToolResult) -> KubernetesError:
    """What kubectl's words mean."""
    said = re.sub(r"\s+", " ", printable(done.stderr)).strip()[:600] or "kubectl failed without a message."
    hint = None
    if re.search(r"forbidden|Unauthorized|must be logged in", said):
        hint = "Ask an owner of the project for the role Kubernetes Engine Developer, or sign in: gcloud auth login"
    elif re.search(r"refused|no such host|timeout|timed out|Unable to connect", said):
        hint = "Does the cluster exist? pulsetrain cloud cluster status"
    elif re.search(r"no matches for kind|resource mapping not found", said):
        kind = re.search(r'kind "?(\w+)', said)
        hint = {
            "JobSet": "Training on several nodes needs JobSet: https://jobset.sigs.k8s.io/docs/installation/",
        }.get(kind[1] if kind else "", "The cluster lacks a part of Kubernetes that this needs.")
    return KubernetesError(said, hint=hint)
