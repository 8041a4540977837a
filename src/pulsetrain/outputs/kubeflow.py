"""Progress for Kubeflow Trainer, which names a server for it in the environment of its jobs.

Where Transformers tells it itself, we stay quiet.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from pulsetrain.errors import PulsetrainError
from pulsetrain.outputs import Origin, Output, OutputOptions
from pulsetrain.snapshot import Sample, Snapshot
from pulsetrain.supervise import Part, Supervisor, Worker

URL = "KUBEFLOW_TRAINER_SERVER_URL"
CA_CERT = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable
"""The path of a file: the token in it changes, so it is read each time."""
EVERY_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 60.0
TIMEOUT_SECONDS = 5.0
TOLD_BY_ANOTHER = "kubeflow_progress"
"""The event that says so."""
METRICS = ("loss", "learning_rate", "gradient_norm", "throughput_samples_per_sec", "throughput_tokens_per_sec", "epoch")


def open_output(options: OutputOptions, interval_seconds: float) -> Output:
    return KubeflowProgress(os.environ[URL], os.environ.get(CA_CERT), os.environ.get(TOKEN))


class KubeflowProgress:
    """Sends the progress of rank 0 at most every 5 seconds, from a thread of its own."""

    notice = None

    def __init__(
        self, url: str, ca_cert: str | None, token: str | None, *, every_seconds: float = EVERY_SECONDS
    ) -> None:
        self._url, self._ca_cert, self._token = url, ca_cert, token
        self._every_seconds = every_seconds
        self._values: dict[str, Any] = {}
        self._remaining: float | None = None
        self._quiet = False
        self._sent: dict[str, Any] | None = None
        self._part: Part = Supervisor().part("kubeflow")
        self._worker: Worker | None = None
        self._wait = every_seconds

    def start(self, origin: Origin) -> None:
        if origin.run is not None:
            self._part = origin.supervisor.part("kubeflow")
            self._worker = Worker(
                self._part, self._send, every_seconds=self._every_seconds, finish=self._finish, what="sending progress"
            )
            self._worker.start()

    def __call__(self, snapshot: Snapshot) -> None:
        if any(event.kind == TOLD_BY_ANOTHER for event in snapshot.events):
            self._quiet = True
        for sample in snapshot.samples:
            if sample.subject.table == "training" and not sample.subject.labels.get("rank"):
                self._values = {**self._values, **sample.values}
            elif sample.subject.table == "account":
                self._take_account(sample)

    def close(self) -> None:
        if self._worker:
            self._worker.stop(2 * TIMEOUT_SECONDS)

    def _take_account(self, sample: Sample) -> None:
        if isinstance(left := sample.values.get("remaining_seconds"), int | float):
            self._remaining = float(left)

    def status(self) -> dict[str, Any]:
        """What the server is told; empty before the training has shown anything."""
        values, found = self._values, {}
        step, total = values.get("step"), values.get("total_steps")
        if isinstance(step, int | float) and isinstance(total, int | float) and total > 0:
            found["progressPercentage"] = max(0, min(100, int(100 * step / total)))
            if self._remaining is not None:
                found["estimatedRemainingSeconds"] = max(0, round(self._remaining))
        metrics = [
            {"name": name, "value": f"{values[name]:.6g}"}
            for name in METRICS
            if isinstance(values.get(name), int | float)
        ]
        return {**found, **({"metrics": metrics} if metrics else {})}

    def _send(self) -> float | None:
        status = self.status()
        if self._quiet or not status or status == self._sent:
            return None
        try:
            self._post({"trainerStatus": {**status, "lastUpdatedTime": datetime.now(UTC).isoformat()}})
        except (httpx.HTTPError, OSError) as error:
            self._wait = min(2 * self._wait, LONGEST_WAIT_SECONDS)
            self._part.fail(f"Kubeflow's server did not accept the progress: {type(error).__name__}: {error}")
            return self._wait
        self._part.recover()
        self._sent, self._wait = status, self._every_seconds
        return None

    def _finish(self) -> None:
        if self._sent is not None and not self._quiet:
            self._send()

    def _post(self, body: dict[str, Any]) -> None:
        headers = {}
        if self._token:
            headers["Authorization"] = f"Bearer {Path(self._token).read_text().strip()}"
        with httpx.Client(verify=self._context(), timeout=TIMEOUT_SECONDS, trust_env=False) as client:
            answer = client.post(self._url, json=body, headers=headers)
            answer.raise_for_status()

    def _context(self) -> Any:
        if not self._ca_cert:
            return True
        import ssl

        try:
            return ssl.create_default_context(cafile=self._ca_cert)
        except ssl.SSLError as error:
            raise PulsetrainError(f"{self._ca_cert} is not a certificate: {error}.") from None
