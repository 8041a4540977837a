"""cluster.toml: what a cluster is to be, checked before anything is asked of Google."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from pulsetrain.deploy.cloud.machines import COUNTS, Machine, find_machine
from pulsetrain.deploy.cloud.vm import check_name
from pulsetrain.errors import UsageError

T = TypeVar("T")
_Count = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class GpuPoolFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [gpu]: the nodes that train."""

    type: str = "L4"
    per_node: int = 1
    machine_type: str | None = None
    nodes: _Count = 0
    """How many to begin with; without autoscaling, how many there are."""
    autoscaling: bool = True
    min_nodes: _Count = 0
    max_nodes: _Count = 4
    spot: bool = False
    disk_gb: Annotated[int, msgspec.Meta(ge=50, le=65536)] = 100

    @property
    def machine(self) -> Machine:
        if self.per_node not in COUNTS:
            raise UsageError(
                f"[gpu] per_node is {self.per_node}.", hint=f"Nodes have {', '.join(map(str, COUNTS))} GPUs."
            )
        return find_machine(self.type, self.per_node, self.machine_type)

    @property
    def most_nodes(self) -> int:
        return self.max_nodes if self.autoscaling else self.nodes


class PulsetrainFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [pulsetrain]: what runs on the cluster beside trainings."""

    image: str
    cache_image: str | None = None
    parts: tuple[str, ...] | None = None
    cache_upstream: str = "https://storage.googleapis.com"
    cache_gigabytes: int = 100


class ClusterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """cluster.toml."""

    name: str
    zone: str
    project: str | None = None
    machine_type: str = "e2-standard-4"
    """Of the nodes without GPUs, on which the cluster's own services run."""
    nodes: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    gpu: GpuPoolFile = GpuPoolFile()
    pulsetrain: PulsetrainFile


def read_cluster_file(file: Path) -> ClusterFile:
    found = read_toml(file, ClusterFile, "name, zone, and a table [pulsetrain] with an image")
    check_name(found.name)
    pool = found.gpu
    _ = pool.machine  # what cannot be is refused here
    if pool.autoscaling and not pool.min_nodes <= pool.max_nodes:
        raise UsageError(f"{file}: [gpu] min_nodes is above max_nodes.")
    if pool.autoscaling and not pool.min_nodes <= pool.nodes <= pool.max_nodes and pool.nodes:
        raise UsageError(f"{file}: [gpu] nodes is not between min_nodes and max_nodes.")
    if not pool.most_nodes:
        raise UsageError(f"{file}: there would never be a GPU node.", hint="Set max_nodes, or nodes, in [gpu].")
    return found


def read_toml(file: Path, kind: type[T], needed: str) -> T:
    """A file of ours in TOML; what is wrong with it in words."""
    try:
        document: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{file} does not exist.", hint=f"It has {needed}: see docs/cloud.md.") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not valid TOML: {error}.") from None
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{file}: {error}.", hint=f"It has {needed}.") from None
