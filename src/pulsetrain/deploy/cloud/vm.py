"""A GPU machine of Google Cloud: what is to be made, making it, and what is there."""

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from pulsetrain.deploy.cloud.gcloud import LABEL, CloudError, Gcloud
from pulsetrain.deploy.cloud.machines import Machine, find_price, region_of
from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.intensity.tables import google_cloud

IMAGE_PROJECT = "deeplearning-platform-release"
DEFAULT_ZONE = "us-central1-a"
DISK_GB = 150
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")
_FAMILY = re.compile(r"common-cu(\d+)-(ubuntu|debian)-(\d+)(?:-nvidia-(\d+))?")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?")


class VmPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that is to be made."""

    name: str
    zone: str
    machine: Machine
    image_family: str
    spot: bool = False
    disk_gb: int = DISK_GB
    max_run_duration: str | None = None
    ports: tuple[int, ...] = ()
    source_ranges: tuple[str, ...] = ()

    @property
    def rule_name(self) -> str:
        return rule_name(self.name)

    def instance_command(self, gcloud: Gcloud) -> list[str]:
        accelerator = self.machine.accelerator
        ends_by_itself = self.spot or self.max_run_duration
        return gcloud.command(
            *("compute", "instances", "create", self.name, f"--zone={self.zone}"),
            f"--machine-type={self.machine.type}",
            *([f"--accelerator={accelerator}"] if accelerator else []),
            *(["--provisioning-model=SPOT"] if self.spot else []),
            *([f"--max-run-duration={self.max_run_duration}"] if self.max_run_duration else []),
            *(["--instance-termination-action=STOP"] if ends_by_itself else []),  # its disk stays
            "--maintenance-policy=TERMINATE",  # a machine with GPUs cannot be moved while it runs
            *(f"--image-family={self.image_family}", f"--image-project={IMAGE_PROJECT}"),
            *(f"--boot-disk-size={self.disk_gb}GB", "--boot-disk-type=pd-balanced"),
            "--metadata=install-nvidia-driver=True",
            *(f"--labels={LABEL}=vm", f"--tags={self.rule_name}"),
        )

    def rule_command(self, gcloud: Gcloud) -> list[str] | None:
        """The firewall rule, where a port is to be open."""
        if not self.ports:
            return None
        return gcloud.command(
            *("compute", "firewall-rules", "create", self.rule_name, "--network=default"),
            f"--allow={','.join(f'tcp:{port}' for port in self.ports)}",
            f"--source-ranges={','.join(self.source_ranges)}",
            f"--target-tags={self.rule_name}",
            f"--description={rule_description(self.name)}",
        )


class Vm(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that is there, or the firewall rule that one left behind."""

    name: str
    zone: str
    machine_type: str
    status: str
    spot: bool
    address: str | None
    open_ports: tuple[str, ...] = ()
    per_hour: float | None = None
    """While it runs; None where the price is unknown."""
    currency: str = ""


def rule_name(name: str) -> str:
    return f"{LABEL}-{name}"


def rule_description(name: str) -> str:
    """How we know our firewall rules: they have no labels."""
    return f"made by pulsetrain for the machine {name}"


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid machine name.",
            hint="Use up to 52 lowercase letters, digits and hyphens, starting with a letter.",
        )
    return name


def check_duration(text: str) -> str:
    """`8h`, `1d12h`, `90m`: Google wants at least 30 seconds and at most 120 days."""
    found = _DURATION.fullmatch(text)
    if not found or not any(found.groups()):
        raise UsageError(
            f"{text!r} is not a duration such as 8h, 90m or 2d.", hint="For no limit: --max-run-duration none"
        )
    days, hours, minutes = (int(part or 0) for part in found.groups())
    if not 0 < days * 1440 + hours * 60 + minutes <= 120 * 1440:
        raise UsageError(f"{text!r} is not between 1 minute and 120 days.")
    return text


def check_ranges(texts: Sequence[str]) -> tuple[str, ...]:
    ranges = []
    for text in texts:
        try:
            ranges.append(str(ipaddress.ip_network(text, strict=False)))
        except ValueError:
            raise UsageError(f"{text!r} is not an address range.", hint="Such as 203.0.113.7/32.") from None
    return tuple(ranges)


def image_family(gcloud: Gcloud, machine: Machine) -> str:
    """The newest deep-learning image whose driver knows the GPU. Google renames its families with each version."""
    images = gcloud.ask(
        *("compute", "images", "list", "--no-standard-images", "--filter=family~^common-cu", "--format=json(family)"),
        project=IMAGE_PROJECT,
    )
    return newest_family([str(image.get("family")) for image in images], machine)


def newest_family(families: Sequence[str], machine: Machine) -> str:
    limit = machine.gpu.newest_driver
    ranked = []
    for family in families:
        if not (found := _FAMILY.fullmatch(family)):
            continue
        cuda, system, release, driver = found.groups()
        if driver is None or not limit or int(driver) <= limit:
            # One with a driver before one without; then the newest driver, system and CUDA.
            ranked.append((int(driver or 0), system == "ubuntu", int(release), int(cuda), family))
    if not ranked:
        raise PulsetrainError(
            f"{IMAGE_PROJECT} has no known image for a {machine.gpu.name}.",
            hint="List the images: gcloud compute images list --no-standard-images "
            f"--project={IMAGE_PROJECT}; then choose one with --image-family.",
        )
    return max(ranked)[-1]


def create(gcloud: Gcloud, plan: VmPlan, told: Callable[[str], None]) -> None:
    """Make the machine, then open its ports. What an error or an interruption leaves behind is in its message."""
    done = []
    try:
        gcloud.do(plan.instance_command(gcloud), told)
        done.append("machine")
        if rule := plan.rule_command(gcloud):
            gcloud.do(rule, told)
    except CloudError as error:
        raise _explained(gcloud, plan, error, machine_made=bool(done)) from None
    except KeyboardInterrupt:
        raise PulsetrainError(
            "interrupted.", still=what_is_left(gcloud, plan.name), hint=_how_to_end(plan.name)
        ) from None


def _explained(gcloud: Gcloud, plan: VmPlan, error: CloudError, *, machine_made: bool) -> CloudError:
    """The same error, with what is left behind and where else the GPU can be had."""
    if error.reason == "conflict" and not machine_made:
        return CloudError(
            "conflict",
            f"a machine named {plan.name} already exists: {error.message}",
            still="It was not touched.",
            hint="Choose another name, or see what you have: pulsetrain cloud vm list",
        )
    what = "the machine was created, but its ports were not opened" if machine_made else "the machine was not created"
    left = what_is_left(gcloud, plan.name)
    hints = [error.hint] if error.hint else []
    if error.reason in ("stock", "quota", "missing") and not machine_made:
        hints.append(_elsewhere(gcloud, plan))
    if left != NOTHING_LEFT:
        hints.append(_how_to_end(plan.name))
    return CloudError(error.reason, f"{what}: {error.message}", still=left, hint="\n  hint: ".join(hints) or None)


NOTHING_LEFT = "Nothing was left behind, and nothing costs money."


def what_is_left(gcloud: Gcloud, name: str) -> str:
    """Asked of the cloud, not remembered: what there is by this name after something went wrong."""
    try:
        found = [vm for vm in list_vms(gcloud) if vm.name == name]
    except PulsetrainError as error:
        reason = error.message.rstrip(".")
        return f"Could not check what was left behind ({reason}): run gcloud compute instances list."
    if not found:
        return NOTHING_LEFT
    return f"{name} exists in {found[0].zone} ({found[0].status.lower()}) and costs money."


def _how_to_end(name: str) -> str:
    return f"To remove it: pulsetrain cloud vm delete {name}"


def _elsewhere(gcloud: Gcloud, plan: VmPlan) -> str:
    """Which zones have the GPU: those of the same region first, then by how clean their electricity is."""
    try:
        zones = gpu_zones(gcloud, plan.machine)
    except PulsetrainError:
        return "List the zones that have that GPU: gcloud compute accelerator-types list"
    zones = [zone for zone in zones if zone != plan.zone]
    if not zones:
        return f"No other zone has a {plan.machine.gpu.name}: try again later, --spot, or another --gpu."
    here = region_of(plan.zone)
    known = google_cloud()

    def order(zone: str) -> tuple[bool, float, str]:
        region = region_of(zone)
        return region != here, known[region].grams_per_kwh if region in known else 1e9, zone

    words = [f"{zone}{_grams(zone)}" for zone in sorted(zones, key=order)[:8]]
    more = f" and {len(zones) - 8} more" if len(zones) > 8 else ""
    return f"Zones with a {plan.machine.gpu.name}: {', '.join(words)}{more}. Try one with --zone."


def _grams(zone: str) -> str:
    found = google_cloud().get(region_of(zone))
    return f" ({found.grams_per_kwh:g} g/kWh)" if found else ""


def gpu_zones(gcloud: Gcloud, machine: Machine) -> list[str]:
    found = gcloud.ask(
        *("compute", "accelerator-types", "list", f"--filter=name={machine.gpu.accelerator}", "--format=json(zone)")
    )
    return sorted({_last(one.get("zone")) for one in found if one.get("zone")})


def list_vms(gcloud: Gcloud) -> list[Vm]:
    """What `create` made and is there still: machines, and firewall rules whose machine is gone."""
    instances = gcloud.ask("compute", "instances", "list", f"--filter=labels.{LABEL}=vm")
    rules = _own_rules(gcloud)
    found = [_vm(instance, rules.pop(rule_name(str(instance.get("name"))), None)) for instance in instances]
    return found + [_orphan(rule) for rule in rules.values()]


def _own_rules(gcloud: Gcloud) -> dict[str, Any]:
    rules = gcloud.ask("compute", "firewall-rules", "list", f"--filter=name~^{LABEL}-")
    return {
        str(rule["name"]): rule
        for rule in rules
        if rule.get("description") == rule_description(str(rule["name"]).removeprefix(f"{LABEL}-"))
    }


def _vm(instance: dict[str, Any], rule: dict[str, Any] | None) -> Vm:
    zone, machine_type = _last(instance.get("zone")), _last(instance.get("machineType"))
    spot = (instance.get("scheduling") or {}).get("provisioningModel") == "SPOT"
    status = str(instance.get("status", "unknown"))
    price = find_price(_price_name(machine_type, instance), zone, spot)
    return Vm(
        name=str(instance["name"]),
        zone=zone,
        machine_type=machine_type,
        status=status,
        spot=spot,
        address=_address(instance),
        open_ports=tuple(_ports(rule)) if rule else (),
        per_hour=price.per_hour if price else None,
        currency=price.currency if price else "",
    )


def _price_name(machine_type: str, instance: dict[str, Any]) -> str:
    """As price lists call it: an N1 with its GPUs."""
    for one in instance.get("guestAccelerators") or ():
        name = _last(one.get("acceleratorType")).removeprefix("nvidia-").removeprefix("tesla-").upper()
        count = int(one.get("acceleratorCount", 1))
        if machine_type.startswith("n1-"):
            return f"{machine_type}+{f'{count}x' if count > 1 else ''}{name}"
    return machine_type


def _orphan(rule: dict[str, Any]) -> Vm:
    name = str(rule["name"]).removeprefix(f"{LABEL}-")
    return Vm(
        name=name,
        zone="",
        machine_type="",
        status="FIREWALL RULE ONLY",
        spot=False,
        address=None,
        open_ports=tuple(_ports(rule)),
    )


def _ports(rule: dict[str, Any]) -> Iterator[str]:
    for allowed in rule.get("allowed") or ():
        yield from (str(port) for port in allowed.get("ports") or ())


def _address(instance: dict[str, Any]) -> str | None:
    for interface in instance.get("networkInterfaces") or ():
        for access in interface.get("accessConfigs") or ():
            if access.get("natIP"):
                return str(access["natIP"])
    return None


def find_vm(gcloud: Gcloud, name: str) -> Vm | None:
    """A machine that `create` made."""
    return next((vm for vm in list_vms(gcloud) if vm.name == name), None)


def delete_commands(gcloud: Gcloud, vm: Vm) -> list[list[str]]:
    """What removes it: the machine with its boot disk, not with disks that somebody attached; and its rule."""
    commands = []
    if vm.zone:
        commands.append(
            gcloud.command("compute", "instances", "delete", vm.name, f"--zone={vm.zone}", "--keep-disks=data")
        )
    if vm.open_ports:
        commands.append(gcloud.command("compute", "firewall-rules", "delete", rule_name(vm.name)))
    return commands


def _last(link: object) -> str:
    """The name at the end of a link."""
    return str(link or "").rpartition("/")[2]
