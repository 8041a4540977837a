"""Which GPUs to watch: from `--gpus`, or from CUDA_VISIBLE_DEVICES."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pulsetrain.errors import UsageError


@dataclass(frozen=True, slots=True)
class SelectableGpu:
    """A GPU of this machine, by all names that a user or a variable may give it."""

    index: int
    """In PCI order, as NVML and nvidia-smi count."""
    uuid: str
    name: str
    instances: tuple[str, ...] = ()
    """The UUIDs of its MIG instances."""


class Selection(NamedTuple):
    """The GPUs to watch."""

    indices: frozenset[int]
    note: str = ""
    """Why these, when that is worth telling."""


def select(devices: Sequence[SelectableGpu], gpus: str | None, environ: Mapping[str, str] = os.environ) -> Selection:
    """The devices to watch. What the user names must exist; what CUDA_VISIBLE_DEVICES names may not."""
    everything = frozenset(device.index for device in devices)
    if gpus is not None:
        words = _words(gpus)
        if words == ["all"]:
            return Selection(everything)
        unknown = [word for word in words if not _matches(devices, word)]
        if unknown or not words:
            raise UsageError(
                f"--gpus {gpus}: no single GPU here matches {', '.join(unknown)}."
                if unknown
                else "--gpus names no GPU.",
                hint=f"Available: {', '.join(f'{d.index} ({d.uuid})' for d in devices) or 'none'}; or --gpus all.",
            )
        return Selection(frozenset(index for word in words for index in _matches(devices, word)))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return Selection(everything)
    # CUDA counts the fastest GPU first unless told otherwise, which differs from PCI order where models are mixed.
    mixed = len({device.name for device in devices if device.uuid}) > 1  # a lost one has not told its name
    if mixed and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and any(map(str.isdecimal, _words(visible))):
        return Selection(
            everything,
            "watching all GPUs: CUDA_VISIBLE_DEVICES counts in CUDA's own order, which is unknown on a machine of "
            "mixed models; set CUDA_DEVICE_ORDER=PCI_BUS_ID or name UUIDs",
        )
    return left_by(f"CUDA_VISIBLE_DEVICES={visible}", named(devices, visible))


def names_gpus(gpus: str | None) -> bool:
    """Whether the user wants certain GPUs, and not all there are."""
    return gpus is not None and _words(gpus) != ["all"]


def left_by(setting: str, indices: Iterable[int]) -> Selection:
    """What a variable leaves visible, and a note that it does."""
    chosen = frozenset(indices)
    what = "watching the GPUs in" if chosen else "no GPU visible with"
    return Selection(chosen, f"{what} {setting}; --gpus all watches all")


def named(devices: Sequence[SelectableGpu], visible: str) -> list[int]:
    """The devices that a variable like CUDA_VISIBLE_DEVICES names, in its order, up to the first invalid entry."""
    found: list[int] = []
    for word in _words(visible):
        match = _matches(devices, word)
        if not match:
            break
        found += match
    return found


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _matches(devices: Sequence[SelectableGpu], word: str) -> list[int]:
    """One device by index, or by UUID, the start of one, or the UUID of one of its MIG instances."""
    if word.isdecimal():
        return [device.index for device in devices if device.index == int(word)]
    if not word.startswith(("GPU-", "MIG-", "AMD-", "SIM-")):
        return []
    found = [d.index for d in devices if d.uuid.startswith(word) or any(i.startswith(word) for i in d.instances)]
    return found if len(found) == 1 else []
