"""Which machines of Google Cloud have which GPUs, and what is known of their price and of the electricity there."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from pulsetrain.errors import UsageError, did_you_mean
from pulsetrain.insight.prices import ListedPrice, load_prices
from pulsetrain.intensity.tables import google_cloud

COUNTS = (1, 2, 4, 8)


class OfferedGpu(NamedTuple):
    """A GPU that can be had."""

    name: str
    """How users and price lists call it."""
    accelerator: str
    """How Google does."""
    machines: Mapping[int, str]
    """The machine type to take for so many GPUs, if the user names none."""
    pattern: str
    """The machine types that can have it."""
    attached: bool = False
    """An N1 machine gets its GPUs by --accelerator; the others bring theirs."""
    newest_driver: int | None = None
    """The last branch of NVIDIA's driver that knows it."""
    note: str = ""


GPUS = {
    gpu.name: gpu
    for gpu in (
        OfferedGpu(
            "K80",
            "nvidia-tesla-k80",
            {1: "n1-standard-4", 2: "n1-standard-8", 4: "n1-standard-16", 8: "n1-standard-32"},
            r"n1-(standard|highmem|highcpu)-\d+",
            attached=True,
            newest_driver=470,
            note="Google has retired the K80: expect to be refused.",
        ),
        OfferedGpu(
            "P100",
            "nvidia-tesla-p100",
            {1: "n1-standard-8", 2: "n1-standard-16", 4: "n1-standard-32"},
            r"n1-(standard|highmem|highcpu)-\d+",
            attached=True,
            newest_driver=580,
        ),
        OfferedGpu(
            "V100",
            "nvidia-tesla-v100",
            {1: "n1-standard-8", 2: "n1-standard-16", 4: "n1-standard-32", 8: "n1-standard-64"},
            r"n1-(standard|highmem|highcpu)-\d+",
            attached=True,
            newest_driver=580,
        ),
        OfferedGpu(
            "T4",
            "nvidia-tesla-t4",
            {1: "n1-standard-4", 2: "n1-standard-8", 4: "n1-standard-16"},
            r"n1-(standard|highmem|highcpu)-\d+",
            attached=True,
        ),
        OfferedGpu(
            "L4",
            "nvidia-l4",
            {1: "g2-standard-4", 2: "g2-standard-24", 4: "g2-standard-48", 8: "g2-standard-96"},
            r"g2-standard-\d+",
        ),
        OfferedGpu(
            "A100",
            "nvidia-tesla-a100",
            {1: "a2-highgpu-1g", 2: "a2-highgpu-2g", 4: "a2-highgpu-4g", 8: "a2-highgpu-8g"},
            r"a2-highgpu-\d+g",
        ),
        OfferedGpu(
            "A100-80GB",
            "nvidia-a100-80gb",
            {1: "a2-ultragpu-1g", 2: "a2-ultragpu-2g", 4: "a2-ultragpu-4g", 8: "a2-ultragpu-8g"},
            r"a2-ultragpu-\d+g",
        ),
        OfferedGpu(
            "H100",
            "nvidia-h100-80gb",
            {1: "a3-highgpu-1g", 2: "a3-highgpu-2g", 4: "a3-highgpu-4g", 8: "a3-highgpu-8g"},
            r"a3-highgpu-\d+g",
        ),
    )
}
_ONLY_SPOT = ("a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g")
_BROUGHT = {  # how many GPUs a machine brings, where its name does not say
    **dict.fromkeys((f"g2-standard-{cores}" for cores in (4, 8, 12, 16, 32)), 1),
    "g2-standard-24": 2,
    "g2-standard-48": 4,
    "g2-standard-96": 8,
}


class Machine(NamedTuple):
    """A machine type with its GPUs."""

    type: str
    gpu: OfferedGpu
    gpus: int

    @property
    def price_name(self) -> str:
        """What price lists call it: the GPUs of an N1 are not in its name."""
        if not self.gpu.attached:
            return self.type
        return f"{self.type}+{f'{self.gpus}x' if self.gpus > 1 else ''}{self.gpu.name}"

    @property
    def accelerator(self) -> str | None:
        """For --accelerator, where it is needed."""
        return f"type={self.gpu.accelerator},count={self.gpus}" if self.gpu.attached else None

    def __str__(self) -> str:
        return f"{self.type}, {self.gpus} x {self.gpu.name}"

    def notes(self, spot: bool) -> list[str]:
        """What a user should know before asking Google for it."""
        notes = [self.gpu.note] if self.gpu.note else []
        if self.type in _ONLY_SPOT and not spot:
            notes.append(f"Google offers {self.type} as a spot machine only: --spot.")
        return notes


def find_machine(gpu: str | None = None, gpus: int | None = None, machine_type: str | None = None) -> Machine:
    """The machine that a user means. What cannot be is refused with what can."""
    model = _model(gpu, machine_type)
    brought = None if model.attached or machine_type is None else _brought(machine_type)
    count = gpus or brought or 1
    if count not in model.machines:
        offered = ", ".join(map(str, model.machines))
        raise UsageError(f"there is no machine with {count} x {model.name}.", hint=f"Numbers offered: {offered}.")
    if machine_type is None:
        return Machine(model.machines[count], model, count)
    if not re.fullmatch(model.pattern, machine_type):
        raise UsageError(
            f"{machine_type} cannot have a {model.name}.",
            hint=f"For {count} x {model.name}, use {model.machines[count]}, or leave out the machine type.",
        )
    if brought and count != brought:
        raise UsageError(
            f"{machine_type} has {brought} x {model.name}, not {count}.",
            hint=f"For {count}, use {model.machines[count]}.",
        )
    return Machine(machine_type, model, count)


def _model(gpu: str | None, machine_type: str | None) -> OfferedGpu:
    if gpu is not None:
        by_name = {name.lower(): model for name, model in GPUS.items()}
        if found := by_name.get(gpu.lower()):
            return found
        raise UsageError(f"unknown GPU {gpu!r}.", hint=f"{did_you_mean(gpu, GPUS)}Known: {', '.join(GPUS)}.")
    if machine_type is None:
        return GPUS["L4"]
    models = [model for model in GPUS.values() if re.fullmatch(model.pattern, machine_type)]
    if not models:
        raise UsageError(f"{machine_type} is not a known GPU machine type.", hint=f"GPUs: {', '.join(GPUS)}.")
    if models[0].attached:
        raise UsageError(f"{machine_type} comes without a GPU.", hint="Choose one with --gpu, such as --gpu T4.")
    return models[0]


def _brought(machine_type: str) -> int | None:
    if machine_type in _BROUGHT:
        return _BROUGHT[machine_type]
    named = re.search(r"-(\d+)g$", machine_type)
    return int(named[1]) if named else None


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def find_price(name: str, zone: str, spot: bool) -> ListedPrice | None:
    """What the machine costs an hour, where that is known."""
    return load_prices().get(f"gcp:{name}@{region_of(zone)}{':spot' if spot else ''}".lower())


def price_words(name: str, zone: str, spot: bool) -> str:
    """For the plan that a user reads before something is made."""
    if price := find_price(name, zone, spot):
        dated = f", as of {price.dated}" if price.dated else ""
        return f"{price.per_hour:.3f} {price.currency} an hour{dated}"
    if spot and (full := find_price(name, zone, False)):
        dated = f", as of {full.dated}" if full.dated else ""
        return f"unknown for spot; at most {full.per_hour:.3f} {full.currency} an hour, the on-demand price{dated}"
    return "unknown (https://cloud.google.com/compute/all-pricing)"


def carbon_words(zone: str) -> str:
    """The electricity of that place."""
    if found := google_cloud().get(region_of(zone)):
        return f"{found.grams_per_kwh:g} g CO2 per kWh ({found.source.partition(' (')[0]})"
    return "unknown"
