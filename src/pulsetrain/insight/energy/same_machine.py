"""One joule is counted once: hosts of a run that are the same machine, such as two containers, saw the same devices."""

from collections.abc import Hashable, Mapping, Sequence

from pulsetrain.insight.energy.device import MeteredDevice
from pulsetrain.runs.folder import Host

MOST_OVERLAP = 0.5
"""Of its time: a device that was seen elsewhere for less was another attempt's."""


def count_once(devices: Sequence[MeteredDevice], hosts: Mapping[str, Host], shifts: Mapping[str, float]) -> None:
    """Charge each device to the host that saw it longest. `shifts` put the hosts on one time."""
    seen: dict[Hashable, list[MeteredDevice]] = {}
    charged = [device for device in devices if device.figure.charged]
    for device in sorted(charged, key=lambda device: -_length(device)):
        key = _identity(device, hosts)
        first = next((other for other in seen.get(key, []) if _overlap(device, other, shifts) > MOST_OVERLAP), None)
        if key is None or first is None:
            seen.setdefault(key, []).append(device)
            continue
        device.figure.charged = False
        device.figure.notes.append(f"The same device as on {first.figure.host}, where it is counted.")


def _identity(device: MeteredDevice, hosts: Mapping[str, Host]) -> Hashable:
    """The same for one device on all hosts; None where it cannot be distinguished from others."""
    figure = device.figure
    if figure.device == "gpu":
        return figure.uuid if figure.uuid and not figure.uuid.startswith("SIM-") else None
    boot_id = hosts[figure.host].boot_id if figure.host in hosts else ""
    return (boot_id, figure.device) if boot_id else None


def _length(device: MeteredDevice) -> float:
    return float(device.curve.times[-1] - device.curve.times[0]) if device.curve is not None else 0.0


def _overlap(device: MeteredDevice, other: MeteredDevice, shifts: Mapping[str, float]) -> float:
    """The share of a device's time in which the other was seen too."""
    if device.figure.host == other.figure.host or device.curve is None or other.curve is None or not _length(device):
        return 0.0
    apart = shifts.get(device.figure.host, 0.0) - shifts.get(other.figure.host, 0.0)
    begin, end = device.curve.times[0] + apart, device.curve.times[-1] + apart
    both = min(end, other.curve.times[-1]) - max(begin, other.curve.times[0])
    return max(0.0, float(both)) / _length(device)
