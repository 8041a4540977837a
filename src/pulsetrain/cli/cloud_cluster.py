"""`pulsetrain cloud cluster`: a GKE cluster for trainings, from one small file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pulsetrain.cli import cloud_plan as plan_options
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import SCHEMA

if TYPE_CHECKING:
    from pulsetrain.deploy.cloud.cluster import ClusterState
    from pulsetrain.deploy.cloud.cluster_file import ClusterFile
    from pulsetrain.deploy.cloud.gcloud import Gcloud
    from pulsetrain.deploy.cloud.kubectl import Kubectl

_file = click.argument("file", metavar="[cluster.toml]", default="cluster.toml", type=click.Path(path_type=Path))


@click.group(short_help="A GKE cluster: init, status, delete.")
def cluster() -> None:
    """A GKE cluster with GPU nodes, agents, a dataset cache and monitoring, described in cluster.toml."""


@cluster.command()
@_file
@plan_options.dry_run
@plan_options.yes
def init(file: Path, dry_run: bool, yes: bool) -> None:
    """Create the cluster, or whatever is still missing. If it was interrupted, run it again to continue."""
    from pulsetrain.deploy.cloud import cluster as clusters
    from pulsetrain.deploy.cloud.cluster_file import read_cluster_file
    from pulsetrain.deploy.cloud.workloads import apply_workloads, objects_of

    wanted = read_cluster_file(file)
    gcloud, kubectl = _tools(wanted)
    state = clusters.look(gcloud, wanted)
    clusters.check_state(wanted, state)
    commands = [*clusters.missing_commands(gcloud, wanted, state), kubectl.apply_command()]
    title = f"The cluster {wanted.name} in the project {gcloud.project}"
    plan_options.show_plan(title, [*_facts(wanted), *_there(wanted, state)], commands)
    click.echo("Applied by the last command (each init updates them):")
    for made in objects_of(wanted, {}):
        click.echo(f"  {made['kind']} {made['metadata']['name']}")
    click.echo()
    for difference in clusters.differences(wanted, state):
        click.echo(f"warning: the GPU pool will not be changed: {difference}", err=True)
    question = "Go ahead? It will cost money from now on." if not state else "Go ahead?"
    if not plan_options.confirmed(question, dry=dry_run, assume_yes=yes):
        return
    clusters.make(gcloud, wanted, state, plan_options.told)
    for line in apply_workloads(kubectl, wanted):
        plan_options.told(line)
    click.echo(
        f"{wanted.name} is ready and costs money until you delete it.\n"
        f"  pulsetrain cloud submit trainer.toml            # train on it\n"
        f"  pulsetrain cloud cluster status {file}\n"
        f"  {' '.join(kubectl.command('get', 'pods'))}"
    )


def _tools(wanted: "ClusterFile") -> "tuple[Gcloud, Kubectl]":
    """gcloud and kubectl for this cluster, with a configuration file of ours: the user's own stays as it is."""
    from pulsetrain.deploy.cloud.gcloud import Gcloud
    from pulsetrain.deploy.cloud.kubectl import Kubectl, check_tools, kubeconfig_file
    from pulsetrain.deploy.kubernetes import KubernetesSettings

    check_tools()
    project = wanted.project or Gcloud().project
    config = kubeconfig_file(project, wanted.zone, wanted.name)
    return Gcloud(project, kubeconfig=str(config)), Kubectl(config, KubernetesSettings().namespace)


def _facts(wanted: "ClusterFile") -> list[tuple[str, str]]:
    from pulsetrain.deploy.cloud.cluster import cost_words, hourly_cost
    from pulsetrain.deploy.cloud.machines import carbon_words, price_words

    pool, machine = wanted.gpu, wanted.gpu.machine
    system = (wanted.machine_type, False, wanted.nodes)
    number = f"{pool.min_nodes} to {pool.max_nodes}, as needed" if pool.autoscaling else str(pool.nodes)
    idle = pool.min_nodes if pool.autoscaling else pool.nodes
    kind = "spot: cheaper, but Google may stop them at any time" if pool.spot else "on demand"
    rows = [
        ("zone", wanted.zone),
        ("services", f"{wanted.nodes} x {wanted.machine_type}, always on"),
        ("GPU nodes", f"{number}; each {machine}, {kind}"),
        ("per GPU node", price_words(machine.price_name, wanted.zone, pool.spot)),
        ("idle cost", cost_words(hourly_cost(wanted.zone, [system, (machine.price_name, pool.spot, idle)]))),
        ("full cost", cost_words(hourly_cost(wanted.zone, [system, (machine.price_name, pool.spot, pool.most_nodes)]))),
        ("not included", "GKE's cluster fee, disks, managed Prometheus, network traffic and taxes"),
        ("electricity", carbon_words(wanted.zone)),
        ("driver", "NVIDIA, installed by GKE"),
    ]
    return rows + [("warning", note) for note in machine.notes(pool.spot)]


def _there(wanted: "ClusterFile", state: "ClusterState | None") -> list[tuple[str, str]]:
    if state is None:
        return [("exists now", "nothing")]
    pool = state.gpu_pool
    pools = f"its GPU pool ({pool.status.lower()})" if pool else "no GPU pool yet"
    return [("exists now", f"the cluster ({state.status.lower()}), {pools}")]


@cluster.command()
@_file
@plan_options.json_output
def status(file: Path, as_json: bool) -> int:
    """Show which parts of a cluster exist, whether it works, and its current cost per hour.

    Exits with 1 when it does not work.
    """
    from pulsetrain.deploy.cloud import cluster as clusters
    from pulsetrain.deploy.cloud.cluster_file import read_cluster_file
    from pulsetrain.deploy.cloud.workloads import look_inside

    wanted = read_cluster_file(file)
    gcloud, kubectl = _tools(wanted)
    state = clusters.look(gcloud, wanted)
    inside = look_inside(kubectl) if state and kubectl.kubeconfig and kubectl.kubeconfig.exists() else None
    nodes = inside.nodes if inside else []
    cost = clusters.hourly_cost(wanted.zone, [(node.price_name, node.spot, node.count) for node in nodes])
    if as_json:
        document = {"schema": SCHEMA, "cluster": state, "inside": inside, "cost": cost if inside else None}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
        return 0 if state and inside and inside.ready else 1
    if state is None:
        click.echo(f"there is no cluster {wanted.name} in {wanted.zone}, so it costs nothing")
        return 1
    click.echo(f"cluster    {state.name} in {wanted.zone}: {state.status.lower()}")
    for pool in state.pools:
        gpus = f", {pool.gpus} x {pool.accelerator}" if pool.gpus else ""
        size = f"{pool.least} to {pool.most} nodes" if pool.least != pool.most else f"{pool.most} nodes"
        spot = ", spot" if pool.spot else ""
        click.echo(f"node pool  {pool.name}: {pool.status.lower()}, {size} of {pool.machine_type}{gpus}{spot}")
    if inside is None:
        click.echo(f"inside     unknown until `pulsetrain cloud cluster init {file}` has been run here")
        return 1
    for workload in inside.workloads:
        click.echo(f"{workload.kind.lower():<9}  {workload.name}: {workload.ready} of {workload.wanted} ready")
    running = ", ".join(f"{node.count} x {node.price_name}{' (spot)' if node.spot else ''}" for node in nodes) or "none"
    click.echo(f"nodes now  {running}")
    click.echo(f"cost now   {clusters.cost_words(cost) if nodes else 'no nodes'}; GKE's fee and disks are not included")
    if state.gpu_pool is None:
        click.echo("  hint: the GPU nodes are missing; create them: pulsetrain cloud cluster init", err=True)
    return 0 if inside.ready and state.gpu_pool else 1


@cluster.command()
@_file
@plan_options.dry_run
@plan_options.yes
def delete(file: Path, dry_run: bool, yes: bool) -> None:
    """Delete a cluster created by `init`, with its nodes and pulsetrain's disks, and nothing else."""
    from pulsetrain.deploy.cloud import cluster as clusters
    from pulsetrain.deploy.cloud.cluster_file import read_cluster_file
    from pulsetrain.deploy.cloud.workloads import release_disks

    wanted = read_cluster_file(file)
    gcloud, kubectl = _tools(wanted)
    state = clusters.look(gcloud, wanted)
    if state is None:
        raise PulsetrainError(
            f"there is no cluster {wanted.name} in {wanted.zone} of project {gcloud.project}.",
            still="Nothing was changed.",
        )
    if not state.ours:
        raise PulsetrainError(
            f"the cluster {wanted.name} was not created by `cluster init`: it lacks the label pulsetrain=cluster.",
            still="Nothing was changed.",
        )
    release = kubectl.command("delete", "namespace", kubectl.namespace, "--ignore-not-found", "--timeout=10m")
    commands = [clusters.credentials_command(gcloud, wanted), release, clusters.delete_command(gcloud, wanted)]
    facts = [
        (
            "cluster",
            f"{wanted.name} in {wanted.zone}, with all {len(state.pools)} node pools and everything running on it",
        ),
        ("disks", "of the dataset cache and of the collector, with the runs on it: fetch those first"),
    ]
    plan_options.show_plan(f"Delete the cluster {wanted.name} in the project {gcloud.project}", facts, commands)
    if not plan_options.confirmed("Delete it? This cannot be undone.", dry=dry_run, assume_yes=yes):
        return
    try:
        gcloud.do(commands[0])
        release_disks(kubectl)
    except PulsetrainError as error:
        click.echo(f"warning: pulsetrain's disks may be left behind: {error.message}", err=True)
        click.echo("  hint: check for them afterward: gcloud compute disks list --filter=name~^pvc-", err=True)
    gcloud.do(commands[2], plan_options.told)
    if kubectl.kubeconfig:
        kubectl.kubeconfig.unlink(missing_ok=True)
    sys.stdout.flush()
    click.echo(f"{wanted.name} was deleted.")
