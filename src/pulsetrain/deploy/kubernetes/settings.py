"""What a cluster is to have of pulsetrain, and what a training job is; checked before anything is applied."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pulsetrain import __version__
from pulsetrain.deploy.cache.settings import check_networks, check_upstream
from pulsetrain.errors import UsageError
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds

PARTS = ("agent", "monitoring", "cache", "collector")
"""What `render` can make, in the order in which it is applied."""
NAMESPACE = "pulsetrain"
PRIVATE_NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fd00::/8")
"""Addresses that pods have."""
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]*")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_JOB = 40
"""Characters: names of pods and hosts add to it, and may have 63."""


@dataclass(frozen=True, kw_only=True)
class KubernetesSettings:
    """What a cluster is to have of pulsetrain."""

    namespace: str = NAMESPACE
    image: str = f"pulsetrain:{__version__}"
    """That of deploy/docker, wherever you pushed it."""
    cache_image: str = f"pulsetrain-cache:{__version__}"
    """That of deploy/docker/cache."""
    parts: tuple[str, ...] = PARTS
    interval_seconds: float = 1.0
    """Time between readings of the agents."""
    scrape_seconds: int = 30
    names: tuple[str, ...] = ("native",)
    """Naming schemes of the agents' metrics."""
    cache_upstream: str = "https://storage.googleapis.com"
    """Where the shards are that the cache keeps: scheme and host, or a path below it."""
    cache_gigabytes: int = 100
    cache_clients: tuple[str, ...] = PRIVATE_NETWORKS
    """The networks that may ask the cache."""
    collector_gigabytes: int = 50
    storage_class: str | None = None
    """For the disks of cache and collector; None is the cluster's default."""
    tokens: Mapping[str, str] = field(default_factory=dict)
    """`page` and `collector`: what browsers and senders of runs need. Without them the collector makes its own."""
    grafana_url: str | None = None
    """Where people find Grafana, for links in alerts."""
    thresholds: Thresholds = DEFAULTS
    """Limits of the alerts."""

    def __post_init__(self) -> None:
        _check(_DNS_NAME, self.namespace, "a namespace", most=63)
        for image in (self.image, self.cache_image):
            _check(_IMAGE, image, "the name of an image", most=255)
        if unknown := set(self.parts) - set(PARTS):
            raise UsageError(f"there is no part {sorted(unknown)[0]!r}.", hint=f"Available: {', '.join(PARTS)}.")
        check_upstream(self.cache_upstream)
        check_networks(self.cache_clients)
        _positive(cache_gigabytes=self.cache_gigabytes, collector_gigabytes=self.collector_gigabytes)
        _positive(scrape_seconds=self.scrape_seconds, interval_seconds=self.interval_seconds)
        if self.storage_class is not None:
            _check(_DNS_NAME, self.storage_class, "a storage class", most=63)
        if unknown := set(self.tokens) - {"page", "collector"}:
            raise UsageError(f"there is no token {sorted(unknown)[0]!r}.", hint="Available: page, collector.")


@dataclass(frozen=True, kw_only=True)
class TrainerJobSpec:
    """A training as a Job, or as a JobSet on several nodes, with `pulsetrain run` before its command."""

    name: str
    image: str
    """Yours, with the training and pulsetrain in it."""
    command: tuple[str, ...]
    """Without `pulsetrain run`."""
    namespace: str = NAMESPACE
    nodes: int = 1
    gpus: int = 1
    """On each node; 0 trains on CPUs."""
    gpu_type: str | None = None
    """The accelerator's name in the cluster, such as nvidia-l4."""
    gpu_label: str = "cloud.google.com/gke-accelerator"
    """The label of nodes that has it; nvidia.com/gpu.product where NVIDIA's operator labels them."""
    spot: bool = False
    """Run on GKE's spot nodes."""
    backoff_limit: int = 4
    """How often a failed pod is tried again; with several nodes, all of them together."""
    deadline_seconds: int | None = None
    """The longest that the job may run."""
    keep_seconds: int = 7 * 86400
    """How long a job that has ended stays, with its log."""
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu: str = "2"
    memory: str = "8Gi"
    """Of each pod; its shared memory may take half of it."""
    disk: str = "10Gi"
    """Of each pod, beside its image: runs, and what is written to /tmp."""
    user: int = 1000
    """The user id that trains; 0 is refused."""
    queue: str | None = None
    """A local queue of Kueue."""
    service_account: str | None = None
    checkpoints_claim: str | None = None
    """A volume claim for /checkpoints, which outlives pods."""
    runs_claim: str | None = None
    """A volume claim that all nodes can write, for one run of all of them. Else each node records its own."""
    send_to: str | None = None
    """Where the run is sent, as with `run --to`. None is the collector of the namespace; '' is nowhere."""
    run_options: tuple[str, ...] = ()
    """More options of `pulsetrain run`: --project, --tag, --price, ..."""

    def __post_init__(self) -> None:
        _check(_DNS_NAME, self.name, "the name of a job", most=_LONGEST_JOB)
        _check(_DNS_NAME, self.namespace, "a namespace", most=63)
        _check(_IMAGE, self.image, "the name of an image", most=255)
        if not self.command:
            raise UsageError(f"the job {self.name} has no command.")
        _positive(nodes=self.nodes, user=self.user, keep_seconds=self.keep_seconds)
        if self.gpus < 0 or self.backoff_limit < 0:
            raise UsageError("gpus and backoff_limit cannot be negative.")
        if self.deadline_seconds is not None:
            _positive(deadline_seconds=self.deadline_seconds)
        if self.gpu_type is not None:
            _check(_LABEL_VALUE, self.gpu_type, "a GPU type", most=63)
        for quantity in (self.cpu, self.memory, self.disk):
            _check(_QUANTITY, quantity, "a quantity such as 2, 500m or 8Gi", most=20)
        for name in self.environment:
            _check(_VARIABLE, name, "the name of a variable", most=255)
        for claim in filter(None, (self.queue, self.service_account, self.checkpoints_claim, self.runs_claim)):
            _check(_DNS_NAME, claim, "a name in Kubernetes", most=63)


def _check(form: re.Pattern[str], text: str, what: str, *, most: int) -> None:
    if len(text) > most or not form.fullmatch(text):
        raise UsageError(
            f"{text!r} is not {what}.",
            hint=f"Up to {most} lowercase letters, digits and hyphens." if form is _DNS_NAME else None,
        )


def _positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if number <= 0:
            raise UsageError(f"{name} is {number:g}, and must be above 0.")
