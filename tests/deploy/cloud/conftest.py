"""`pulsetrain cloud` as a user runs it, with the real gcloud against a server on the loopback."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.deploy.cloud.google import Google
from tests.deploy.cloud.kube_api import KubeApi
from tests.servers import program

Cloud = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def google() -> Iterator[Google]:
    program("gcloud")
    with Google() as server:
        yield server


@pytest.fixture
def environment(google: Google, tmp_path: Path) -> dict[str, str]:
    home, kube = tmp_path / "home", tmp_path / "kubeconfig"
    return {**google.environment(tmp_path / "gcloud"), "PULSETRAIN_HOME": str(home), "KUBECONFIG": str(kube)}


@pytest.fixture
def cloud(environment: dict[str, str], tmp_path: Path) -> Cloud:
    """Run `pulsetrain cloud`. Nobody is there to answer a question."""

    def call(*words: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pulsetrain", "cloud", *words]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    return call


PLUGIN = """#!/bin/sh
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","status":{"token":"t"}}'
"""


@pytest.fixture
def kube(google: Google, environment: dict[str, str], tmp_path: Path) -> Iterator[KubeApi]:
    """A cluster's API, to which the clusters of `google` lead. Google's sign-in is a program that says a token."""
    program("kubectl")
    plugin = tmp_path / "bin/gke-gcloud-auth-plugin"
    plugin.parent.mkdir()
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    environment |= {"PATH": f"{plugin.parent}:{environment['PATH']}", "KUBECACHEDIR": str(tmp_path / "kube-cache")}
    with KubeApi(tmp_path) as api:
        google.endpoint = api.address
        google.authority = api.authority
        yield api
