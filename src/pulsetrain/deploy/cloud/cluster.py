"""A GKE cluster: what is to be there, what is there, and the steps between them.

Nothing is remembered: what an interrupted `init` has done is asked of the cloud, so that the next one continues.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pulsetrain.deploy.cloud.cluster_file import ClusterFile
from pulsetrain.deploy.cloud.gcloud import LABEL, CloudError, Gcloud
from pulsetrain.deploy.cloud.machines import find_price
from pulsetrain.errors import PulsetrainError

POOL = "gpu"
POLL_SECONDS = 15.0
WAIT_SECONDS = 3600.0
_MADE = ("RUNNING", "RECONCILING")
"""States of a cluster or pool that can be used."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A node pool that is there."""

    name: str
    status: str
    machine_type: str
    accelerator: str
    gpus: int
    spot: bool
    least: int
    most: int


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that is there."""

    name: str
    status: str
    ours: bool
    """Whether `init` made it."""
    nodes: int | None
    """Of all pools, now."""
    pools: tuple[Pool, ...]
    detail: str = ""

    @property
    def gpu_pool(self) -> Pool | None:
        return next((pool for pool in self.pools if pool.name == POOL), None)


def look(gcloud: Gcloud, file: ClusterFile) -> ClusterState | None:
    """The cluster of this name, if there is one."""
    found = gcloud.ask("container", "clusters", "list", f"--zone={file.zone}", f"--filter=name={file.name}")
    cluster = next((one for one in found if one.get("name") == file.name), None)
    return state_of(cluster) if cluster else None


def state_of(cluster: dict[str, Any]) -> ClusterState:
    return ClusterState(
        name=str(cluster["name"]),
        status=str(cluster.get("status", "unknown")),
        ours=(cluster.get("resourceLabels") or {}).get(LABEL) == "cluster",
        nodes=cluster.get("currentNodeCount"),
        pools=tuple(_pool(pool) for pool in cluster.get("nodePools") or ()),
        detail=str(cluster.get("statusMessage") or ""),
    )


def _pool(pool: dict[str, Any]) -> Pool:
    config, scaling = pool.get("config") or {}, pool.get("autoscaling") or {}
    accelerators = config.get("accelerators") or [{}]
    nodes = int(pool.get("initialNodeCount") or 0)
    return Pool(
        name=str(pool.get("name")),
        status=str(pool.get("status", "unknown")),
        machine_type=str(config.get("machineType", "unknown")),
        accelerator=str(accelerators[0].get("acceleratorType", "")),
        gpus=int(accelerators[0].get("acceleratorCount") or 0),
        spot=bool(config.get("spot")),
        least=int(scaling.get("minNodeCount") or 0) if scaling.get("enabled") else nodes,
        most=int(scaling.get("maxNodeCount") or nodes) if scaling.get("enabled") else nodes,
    )


def cluster_command(gcloud: Gcloud, file: ClusterFile) -> list[str]:
    return gcloud.command(
        *("container", "clusters", "create", file.name, f"--zone={file.zone}"),
        *(f"--num-nodes={file.nodes}", f"--machine-type={file.machine_type}"),
        *("--release-channel=regular", "--enable-managed-prometheus", "--monitoring=SYSTEM,DCGM"),
        f"--labels={LABEL}=cluster",
    )


def pool_command(gcloud: Gcloud, file: ClusterFile) -> list[str]:
    """GKE installs the driver itself, in the version that it has for the GPU."""
    pool = file.gpu
    accelerator = f"type={pool.machine.gpu.accelerator},count={pool.machine.gpus},gpu-driver-version=default"
    scaling = ["--enable-autoscaling", f"--min-nodes={pool.min_nodes}", f"--max-nodes={pool.max_nodes}"]
    return gcloud.command(
        *("container", "node-pools", "create", POOL, f"--cluster={file.name}", f"--zone={file.zone}"),
        *(f"--machine-type={pool.machine.type}", f"--accelerator={accelerator}"),
        *(["--spot"] if pool.spot else []),
        *(scaling if pool.autoscaling else []),
        *(f"--num-nodes={pool.nodes}", f"--disk-size={pool.disk_gb}"),
        f"--labels={LABEL}=cluster",
    )


def credentials_command(gcloud: Gcloud, file: ClusterFile) -> list[str]:
    return gcloud.command("container", "clusters", "get-credentials", file.name, f"--zone={file.zone}")


def delete_command(gcloud: Gcloud, file: ClusterFile) -> list[str]:
    return gcloud.command("container", "clusters", "delete", file.name, f"--zone={file.zone}")


def missing_commands(gcloud: Gcloud, file: ClusterFile, state: ClusterState | None) -> list[list[str]]:
    """What is left to do in Google Cloud."""
    commands = [] if state else [cluster_command(gcloud, file)]
    if not (state and state.gpu_pool):
        commands.append(pool_command(gcloud, file))
    return [*commands, credentials_command(gcloud, file)]


def check_state(file: ClusterFile, state: ClusterState | None) -> None:
    """Raise for a cluster that `init` cannot continue with."""
    if state is None:
        return
    if not state.ours:
        raise PulsetrainError(
            f"a cluster {file.name} already exists in {file.zone}, and `cluster init` did not create it.",
            still="It was not touched.",
            hint="Choose another name for this one.",
        )
    for status, detail, what in (
        (state.status, state.detail, f"the cluster {file.name}"),
        *((pool.status, "", f"its node pool {pool.name}") for pool in state.pools),
    ):
        if status in ("ERROR", "DEGRADED", "RUNNING_WITH_ERROR", "STOPPING"):
            raise PulsetrainError(
                f"{what} is {status.lower().replace('_', ' ')}{f': {detail}' if detail else ''}.",
                hint="Delete it and start over: pulsetrain cloud cluster delete",
            )


def differences(file: ClusterFile, state: ClusterState | None) -> Iterator[str]:
    """Where the pool that is there is not the one of the file: `init` makes, and changes nothing that is made."""
    pool = state.gpu_pool if state else None
    if pool is None:
        return
    wanted = file.gpu
    pairs = (
        ("machine type", pool.machine_type, wanted.machine.type),
        ("GPU", pool.accelerator, wanted.machine.gpu.accelerator),
        ("GPUs per node", pool.gpus, wanted.machine.gpus),
        ("spot", pool.spot, wanted.spot),
        ("maximum nodes", pool.most, wanted.most_nodes),
    )
    for name, there, asked in pairs:
        if there != asked:
            yield f"{name}: it has {there}, the file says {asked}"


def make(gcloud: Gcloud, file: ClusterFile, state: ClusterState | None, told: Callable[[str], None]) -> None:
    """What is missing in Google Cloud; what an interrupted `init` began is waited for first."""
    try:
        if state:
            state = _usable(gcloud, file, state, told)
        for command in missing_commands(gcloud, file, state):
            gcloud.do(command, told)
    except CloudError as error:
        raise _explained(gcloud, file, error) from None
    except KeyboardInterrupt:
        raise PulsetrainError(
            "interrupted.",
            still="Google finishes what was started, and it costs money.",
            hint="To continue: pulsetrain cloud cluster init. To remove it: pulsetrain cloud cluster delete",
        ) from None


def _usable(gcloud: Gcloud, file: ClusterFile, state: ClusterState, told: Callable[[str], None]) -> ClusterState:
    """The cluster once it and its pools are made."""
    deadline = time.monotonic() + WAIT_SECONDS
    found: ClusterState | None = state
    while True:
        check_state(file, found)
        if found and all(status in _MADE for status in (found.status, *(pool.status for pool in found.pools))):
            return found
        if time.monotonic() > deadline:
            raise PulsetrainError(
                f"the cluster {file.name} is not ready after an hour.", hint="Run `init` again later."
            )
        told(f"waiting for {file.name}: {found.status.lower() if found else 'not created yet'}")
        time.sleep(POLL_SECONDS)
        found = look(gcloud, file)


def _explained(gcloud: Gcloud, file: ClusterFile, error: CloudError) -> CloudError:
    hints = [error.hint] if error.hint else []
    try:
        state = look(gcloud, file)
    except PulsetrainError:
        left = "The current state could not be checked; see gcloud container clusters list"
    else:
        left = "Nothing was created, and nothing costs money."
        if state:
            pool = "with its GPU pool" if state.gpu_pool else "without GPU nodes"
            left = f"The cluster {file.name} exists, {pool}, and costs money."
            hints.append(
                "`pulsetrain cloud cluster init` continues from here; `pulsetrain cloud cluster delete` removes it."
            )
    return CloudError(error.reason, error.message, still=left, hint="\n  hint: ".join(hints) or None)


class HourlyCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes of a cluster cost an hour, as far as that is known."""

    known: float
    currency: str
    at_most: bool
    """Whether spot machines are counted at the on-demand price, because theirs is unknown."""
    unknown: tuple[str, ...]
    """Machines without a known price."""


def hourly_cost(zone: str, nodes: list[tuple[str, bool, int]]) -> HourlyCost:
    """Of nodes by price name, whether they are spot, and number."""
    known, currency, at_most, unknown = 0.0, "USD", False, []
    for name, spot, count in nodes:
        price = find_price(name, zone, spot) or find_price(name, zone, False)
        if not count:
            continue
        if price:
            known, currency = known + price.per_hour * count, price.currency
            at_most |= price.spot != spot
        else:
            unknown.append(f"{count} x {name}")
    return HourlyCost(known=known, currency=currency, at_most=at_most, unknown=tuple(unknown))


def cost_words(cost: HourlyCost) -> str:
    words = f"{cost.known:.3f} {cost.currency} an hour"
    if cost.at_most:
        words += ", spot counted at the on-demand price"
    if not cost.unknown:
        return words
    more = f"{' and '.join(cost.unknown)}, whose price is unknown"
    return f"{words}; and {more}" if cost.known else more
