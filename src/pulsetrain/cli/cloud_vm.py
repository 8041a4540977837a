"""`pulsetrain cloud vm`: a GPU machine of Google Cloud, and pulsetrain on any machine."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pulsetrain.cli import cloud_plan as plan_options
from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.runs.folder import SCHEMA

if TYPE_CHECKING:
    from pulsetrain.deploy.cloud.gcloud import Gcloud
    from pulsetrain.deploy.cloud.vm import Vm, VmPlan

MAX_RUN_DURATION = "24h"
PAGES = [("Grafana", 3000), ("Prometheus", 9090), ("agent", 9400)]


@click.group(short_help="GPU machines: create, list, ssh, tunnel, install, delete.")
def vm() -> None:
    """Create GPU machines in Google Cloud, and install pulsetrain on any Debian or Ubuntu machine."""


@vm.command()
@click.argument("name", metavar="NAME")
@click.option("--gpu", metavar="MODEL", help="L4, A100, A100-80GB, H100, T4, V100 or P100. [default: L4]")
@click.option("--gpus", type=click.IntRange(1, 8), metavar="N", help="Number of GPUs. [default: 1]")
@click.option(
    "--machine-type", metavar="TYPE", help="Machine type, such as g2-standard-8. [default: one that fits the GPUs]"
)
@click.option("--spot/--on-demand", default=False, help="Spot is cheaper, but Google may stop it at any time.")
@click.option("--disk-gb", type=click.IntRange(50, 65536), default=150, show_default=True, help="Disk size.")
@click.option("--image-family", metavar="NAME", help="Image family. [default: Google's newest deep-learning image]")
@click.option(
    "--max-run-duration",
    metavar="TIME",
    default=MAX_RUN_DURATION,
    show_default=True,
    help="Stop the machine after this time, in case you forget it; none means never.",
)
@click.option("--http", is_flag=True, help="Open port 80.")
@click.option("--https", is_flag=True, help="Open port 443.")
@click.option("--port", "ports", type=click.IntRange(1, 65535), multiple=True, help="Open this port. Repeatable.")
@click.option(
    "--source-ranges", "ranges", multiple=True, metavar="CIDR", help="Who may reach the open ports. Repeatable."
)
@plan_options.project
@plan_options.zone
@plan_options.dry_run
@plan_options.yes
def create(
    name: str,
    gpu: str | None,
    gpus: int | None,
    machine_type: str | None,
    spot: bool,
    disk_gb: int,
    image_family: str | None,
    max_run_duration: str,
    http: bool,
    https: bool,
    ports: tuple[int, ...],
    ranges: tuple[str, ...],
    project: str | None,
    zone: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Create a machine with GPUs. Price, carbon and commands are shown before anything is created.

    No port is opened by default: `vm tunnel` shows its dashboards here. Everything created has the label pulsetrain=vm.
    """
    from pulsetrain.deploy.cloud import vm as vms
    from pulsetrain.deploy.cloud.gcloud import Gcloud
    from pulsetrain.deploy.cloud.machines import find_machine

    machine = find_machine(gpu, gpus, machine_type)
    opened = (*(port for flag, port in ((http, 80), (https, 443)) if flag), *ports)
    _check_ports(opened, ranges)
    vms.check_name(name)
    duration = None if max_run_duration.lower() in ("none", "0") else vms.check_duration(max_run_duration)
    source_ranges = vms.check_ranges(ranges)
    gcloud = Gcloud(project)
    plan = vms.VmPlan(
        name=name,
        zone=zone or gcloud.default_zone or vms.DEFAULT_ZONE,
        machine=machine,
        image_family=image_family or vms.image_family(gcloud, machine),
        spot=spot,
        disk_gb=disk_gb,
        max_run_duration=duration,
        ports=tuple(dict.fromkeys(opened)),
        source_ranges=source_ranges,
    )
    commands = [plan.instance_command(gcloud)] + ([rule] if (rule := plan.rule_command(gcloud)) else [])
    plan_options.show_plan(f"A machine named {name} in the project {gcloud.project}", _facts(plan), commands)
    for note in machine.notes(spot):
        click.echo(f"warning: {note}", err=True)
    if not plan_options.confirmed("Create it? It will cost money from now on.", dry=dry_run, assume_yes=yes):
        return
    vms.create(gcloud, plan, plan_options.told)
    click.echo(
        f"{name} is running and costs money until you delete it.\n"
        f"  pulsetrain cloud vm install {name} --stack   # pulsetrain, Prometheus and Grafana on it\n"
        f"  pulsetrain cloud vm tunnel {name}            # their pages, in your browser\n"
        f"  pulsetrain cloud vm delete {name}"
    )


def _check_ports(ports: Sequence[int], ranges: Sequence[str]) -> None:
    if ports and not ranges:
        raise UsageError(
            "opening a port needs --source-ranges: who may reach it.",
            hint="Add --source-ranges YOUR_IP/32, or open no port and use pulsetrain cloud vm tunnel.",
        )
    if ranges and not ports:
        raise UsageError(
            "--source-ranges says who may reach open ports, but no port is opened.",
            hint="Add --http, --https or --port.",
        )


def _facts(plan: "VmPlan") -> list[tuple[str, str]]:
    """What will be there, in the words of someone who pays for it."""
    from pulsetrain.deploy.cloud.machines import carbon_words, find_price, price_words

    kind = "spot: cheaper, but Google may stop it at any time" if plan.spot else "on demand"
    ends = "never by itself: it runs and costs money until you delete it"
    if plan.max_run_duration:
        ends = f"stops by itself after {plan.max_run_duration}; its disk stays and costs money until you delete it"
    price = find_price(plan.machine.price_name, plan.zone, plan.spot)
    return [
        ("machine", f"{plan.machine}, {kind}"),
        ("zone", plan.zone),
        ("price", price_words(plan.machine.price_name, plan.zone, plan.spot)),
        *([("", f"{price.per_hour * 24:.2f} {price.currency} a day")] if price else []),
        ("not included", f"the {plan.disk_gb} GB disk, network traffic and taxes"),
        ("end", ends),
        ("electricity", carbon_words(plan.zone)),
        ("image", f"{plan.image_family}, with the NVIDIA driver"),
        ("ports", _ports_words(plan)),
        ("SSH key", "your Google Cloud key; gcloud creates one at the first `vm ssh` if you have none"),
    ]


def _ports_words(plan: "VmPlan") -> str:
    if not plan.ports:
        return "none opened; see its pages with `pulsetrain cloud vm tunnel`"
    words = f"{', '.join(map(str, plan.ports))} opened to {', '.join(plan.source_ranges)}"
    everyone = any(text in ("0.0.0.0/0", "::/0") for text in plan.source_ranges)
    return f"{words}: the whole internet" if everyone else words


@vm.command(name="list")
@plan_options.project
@plan_options.json_output
def list_machines(project: str | None, as_json: bool) -> None:
    """List the machines created by `vm create`, in all zones, and what they cost per hour."""
    from pulsetrain.deploy.cloud.gcloud import Gcloud
    from pulsetrain.deploy.cloud.vm import list_vms

    gcloud = Gcloud(project)
    found = list_vms(gcloud)
    if as_json:
        document = {"schema": SCHEMA, "project": gcloud.project, "machines": found}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    elif not found:
        click.echo(f"no pulsetrain machines in the project {gcloud.project}")
    else:
        click.echo("\n".join(_table(found)))


def _table(found: "Sequence[Vm]") -> list[str]:
    from pulsetrain.views.text import Style, table

    rows = [
        (
            vm.name,
            vm.status.lower(),
            f"{vm.machine_type}{', spot' if vm.spot else ''}",
            vm.zone,
            vm.address or "",
            ", ".join(vm.open_ports),
            _cost(vm),
        )
        for vm in found
    ]
    head = ("name", "state", "machine", "zone", "address", "open ports", "per hour")
    return table(head, rows, Style(sys.stdout), "lllllll", spare=(4, 5))


def _cost(vm: "Vm") -> str:
    if not vm.zone:
        return "free"
    if vm.status in ("TERMINATED", "STOPPED", "SUSPENDED"):
        return "disk only"
    return f"{vm.per_hour:.3f} {vm.currency}" if vm.per_hour is not None else "unknown"


@vm.command()
@click.argument("name", metavar="NAME")
@plan_options.project
@plan_options.dry_run
@plan_options.yes
def delete(name: str, project: str | None, dry_run: bool, yes: bool) -> None:
    """Delete a machine created by `vm create`, with its disk and its firewall rule, and nothing else.

    Disks that you attached yourself are kept.
    """
    from pulsetrain.deploy.cloud.gcloud import Gcloud
    from pulsetrain.deploy.cloud.vm import delete_commands, find_vm

    gcloud = Gcloud(project)
    found = find_vm(gcloud, name)
    if found is None:
        raise PulsetrainError(
            f"pulsetrain has created no machine {name} in the project {gcloud.project}.",
            still="Nothing was changed.",
            hint="List them: pulsetrain cloud vm list",
        )
    commands = delete_commands(gcloud, found)
    facts = [
        ("machine", f"{found.machine_type} in {found.zone}" if found.zone else "already gone"),
        ("disk", "its boot disk, with everything on it"),
    ]
    plan_options.show_plan(f"Delete {name} in the project {gcloud.project}", facts[: 2 if found.zone else 1], commands)
    if plan_options.confirmed("Delete it? This cannot be undone.", dry=dry_run, assume_yes=yes):
        _delete_all(gcloud, commands)
        click.echo(f"{name} was deleted.")


def _delete_all(gcloud: "Gcloud", commands: Sequence[Sequence[str]]) -> None:
    from pulsetrain.deploy.cloud.gcloud import CloudError
    from pulsetrain.deploy.cloud.tools import shown

    for number, command in enumerate(commands):
        try:
            gcloud.do(command, plan_options.told)
        except CloudError as error:
            if error.reason != "missing":
                left = "; ".join(shown(one) for one in commands[number:])
                raise CloudError(error.reason, error.message, still=f"Not done: {left}", hint=error.hint) from None


@vm.command(context_settings={"ignore_unknown_options": True})
@click.argument("host", metavar="HOST")
@click.argument("words", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
@plan_options.project
@plan_options.zone
@plan_options.plain_ssh
@plan_options.ssh_config
def ssh(
    host: str, words: tuple[str, ...], project: str | None, zone: str | None, plain_ssh: bool, ssh_config: str | None
) -> int:
    """Open a shell on a machine, or run a command there. gcloud sets up your SSH key the first time."""
    import shlex

    from pulsetrain.deploy.cloud.remote import find_remote
    from pulsetrain.deploy.cloud.tools import attach_tool

    config = Path(ssh_config) if ssh_config else None
    remote = find_remote(host, project=project, zone=zone, plain=plain_ssh, config=config)
    return attach_tool(remote.command(shlex.join(words) if words else None))


@vm.command()
@click.argument("host", metavar="HOST")
@click.option("--stack", is_flag=True, help="Also install Docker, Prometheus, Grafana and exporters.")
@click.option(
    "--package", metavar="PACKAGE", help="A wheel, a URL or a requirement. [default: a wheel of this installation]"
)
@plan_options.project
@plan_options.zone
@plan_options.plain_ssh
@plan_options.ssh_config
def install(
    host: str,
    stack: bool,
    package: str | None,
    project: str | None,
    zone: str | None,
    plain_ssh: bool,
    ssh_config: str | None,
) -> None:
    """Install pulsetrain as an agent on a Debian or Ubuntu machine, over ssh. Run it again to update it.

    HOST is a machine in `vm list`, or anything that ssh knows: gpu01, ada@gpu01, ssh://ada@gpu01:2222. The agent
    exports the machine's metrics on port 9400 and starts when the machine boots.
    """
    from pulsetrain.deploy.cloud.install import STACK_HOME
    from pulsetrain.deploy.cloud.install import install as install_there
    from pulsetrain.deploy.cloud.remote import find_remote

    config = Path(ssh_config) if ssh_config else None
    remote = find_remote(host, project=project, zone=zone, plain=plain_ssh, config=config)
    click.echo(f"Installing on {host} ...", err=True)
    done = install_there(remote, package=package, stack=stack)
    for change in done.changes:
        click.echo(f"  {change}")
    for warning in done.warnings:
        click.echo(warning, err=True)
    click.echo(f"{host}: {'ready' if done.changes else 'already up to date'}")
    if stack:
        click.echo(
            f"  pulsetrain cloud vm tunnel {host}   # Grafana and Prometheus in your browser\n"
            f"  Grafana's user is admin; its password: pulsetrain cloud vm ssh {host} sudo cat "
            f"{STACK_HOME}/grafana/admin-password"
        )


@vm.command()
@click.argument("host", metavar="HOST")
@click.option(
    "--port", "ports", type=click.IntRange(1, 65535), multiple=True, help="Forward this port instead. Repeatable."
)
@plan_options.project
@plan_options.zone
@plan_options.plain_ssh
@plan_options.ssh_config
def tunnel(
    host: str,
    ports: tuple[int, ...],
    project: str | None,
    zone: str | None,
    plain_ssh: bool,
    ssh_config: str | None,
) -> int:
    """Show a machine's pages here until Ctrl-C: Grafana, Prometheus and the agent, or the ports that you name.

    They stay closed to everybody else: the traffic goes through an ssh connection.
    """
    from pulsetrain.deploy.cloud.remote import find_remote
    from pulsetrain.deploy.cloud.tunnel import Tunnel, choose_ports

    config = Path(ssh_config) if ssh_config else None
    remote = find_remote(host, project=project, zone=zone, plain=plain_ssh, config=config)
    wanted = [(f"port {port}", port) for port in ports] or PAGES
    pages = choose_ports(wanted)
    try:
        with Tunnel(remote, pages) as opened:
            for page in pages:
                click.echo(f"{page.name:<10}  {page.url}")
            click.echo("Ctrl-C closes the tunnel.")
            code = opened.wait()
    except KeyboardInterrupt:
        click.echo("\nclosed")
        return 0
    raise PulsetrainError(f"the connection to {host} ended (ssh: {code}).")
