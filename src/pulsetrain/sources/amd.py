"""AMD GPUs, from what the amdgpu driver shows in sysfs and hwmon. Needs no ROCm."""

import errno
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pulsetrain.errors import Unavailable
from pulsetrain.snapshot import Event, Sample, Value
from pulsetrain.sources import Options, Source, gpus, selection
from pulsetrain.sources.polling import EnergyIntegral, PowerPoller, PowerSensor

_NAMES = {
    "66a1": "AMD Instinct MI50/MI60",
    "67b0": "AMD Radeon R9 290X/390X",
    "67df": "AMD Radeon RX 470/480/570/580/590",
    "687f": "AMD Radeon RX Vega",
    "731f": "AMD Radeon RX 5600/5700",
    "738c": "AMD Instinct MI100",
    "73a5": "AMD Radeon RX 6950 XT",
    "73bf": "AMD Radeon RX 6800/6900",
    "73bf:c0": "AMD Radeon RX 6900 XT",
    "73bf:c1": "AMD Radeon RX 6800 XT",
    "73bf:c3": "AMD Radeon RX 6800",
    "7408": "AMD Instinct MI250X",
    "740c": "AMD Instinct MI250X/MI250",
    "740f": "AMD Instinct MI210",
    "7448": "AMD Radeon Pro W7900",
    "744c": "AMD Radeon RX 7900",
    "744c:c8": "AMD Radeon RX 7900 XTX",
    "744c:cc": "AMD Radeon RX 7900 XT",
    "744c:ce": "AMD Radeon RX 7900 GRE",
    "74a0": "AMD Instinct MI300A",
    "74a1": "AMD Instinct MI300X",
    "74a5": "AMD Instinct MI325X",
}
"""By PCI device id, or device and revision id, for boards that do not tell their name themselves."""

_PCIE_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""By the speed of a lane in GT/s."""
_PCIE_WIDTHS = {1, 2, 4, 8, 12, 16, 32}

_UNSUPPORTED = {errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES}
"""What a file answers that this board, or this user, does not have. Not EPERM: so does a GPU that sleeps or resets."""
_GONE = {errno.ENOENT, errno.ENODEV, errno.ENXIO}
"""What a file answers that was there before, when its device is no longer."""

_CONSTANT = {
    "memory_total_mb",
    "power_limit_max_watts",
    "clock_sm_max_hertz",
    "clock_memory_max_hertz",
    "pcie_max_generation",
    "pcie_max_width",
}
"""Fields that are read once."""

SENSOR = PowerSensor(update_seconds=0.1, window_seconds=0.025)
"""AMD does not say how its sensors work: as the least that others do."""

Parse = Callable[[str], float]
"""A file's text as a value; raises ValueError where it is none."""


def open_sources(options: Options) -> list[Source]:
    amd = Amd(wanted=options.gpus)
    return [amd, *([AmdPower(amd)] if AmdPower.needed(amd) else [])]


class Amd:
    """The chosen AMD GPUs of this machine. One that vanishes is reported and looked for; the others continue."""

    name = "amd"
    period = None

    def __init__(
        self, sys: Path = Path("/sys"), wanted: str | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._drm = sys / "class/drm"
        found = sorted(_devices(self._drm).items(), key=lambda item: _pci_order(item[0]))
        if not found:
            raise Unavailable("no AMD GPU in /sys/class/drm")
        all_gpus = [_Gpu(index, address, device) for index, (address, device) in enumerate(found)]
        if wanted is None:
            chosen = _visible(all_gpus, environ, sys)
        else:
            chosen = selection.select(
                [selection.SelectableGpu(gpu.index, gpu.uuid, gpu.name) for gpu in all_gpus], wanted
            )
        if not chosen.indices:
            raise Unavailable(chosen.note)
        self.gpus = [gpu for gpu in all_gpus if gpu.index in chosen.indices]
        self._note = chosen.note

    def read(self) -> Iterator[Sample | Event]:
        if self._note:
            yield Event("gpus_selected", self._note)
            self._note = ""
        for gpu in self.gpus:
            try:
                if gpu.card is None:
                    gpu.card = _Card(_find(self._drm, gpu.address))
                values = gpu.card.read()
            except _GoneError as gone:
                if gpu.up:
                    yield gpus.lost(gpu.index, gpu.uuid, gpu.name, str(gone))
                gpu.up = False
                gpu.card = None
                values = gpus.lost_values()
            else:
                if not gpu.up:
                    yield gpus.back(gpu.index, gpu.uuid, gpu.name)
                gpu.up = True
            yield Sample(gpu.subject, values)

    def close(self) -> None:
        pass


class AmdPower:
    """Energy from power, of the GPUs that have no energy counter; most have none."""

    name = "amd_power"
    period = None

    def __init__(self, amd: Amd) -> None:
        self._powers = [_Power(gpu) for gpu in amd.gpus if not _has_counter(gpu)]
        self._lock = threading.Lock()
        self._poller = PowerPoller("poll-amd", self._look)

    @staticmethod
    def needed(amd: Amd) -> bool:
        return any(not _has_counter(gpu) for gpu in amd.gpus)

    def read(self) -> list[Sample]:
        with self._lock:
            for power in self._powers:
                power.find()
            now = time.monotonic()
            known = [(power.gpu.subject, power.energy) for power in self._powers if power.energy is not None]
            samples = [Sample(subject, energy.values(now)) for subject, energy in known]
        self._poller.start()
        return samples

    def close(self) -> None:
        self._poller.close()

    def _look(self) -> bool:
        with self._lock:
            for power in self._powers:
                power.look()
        return True


class _Power:
    """The power file of one GPU, and the energy that it adds up to."""

    def __init__(self, gpu: "_Gpu") -> None:
        self.gpu = gpu
        self.energy: EnergyIntegral | None = None
        """None until power could be read once."""
        self._file: tuple[Path, Parse] | None = None

    def find(self) -> None:
        """Look for the file where it is not known: a GPU that comes back may have others."""
        if self._file is None:
            files = _candidates(self.gpu.device)
            candidates = (*files["power_instant_watts"], *files["power_average_watts"])
            self._file = next((file for file in candidates if _read(*file) is not None), None)
            if self._file is not None and self.energy is None:
                self.energy = EnergyIntegral(SENSOR, _read(*files["power_limit_watts"][0]))
                self.look()

    def look(self) -> None:
        if self.energy is not None:
            watts = _read(*self._file) if self._file is not None else None
            self.energy.add(time.monotonic(), watts)
            if watts is None:
                self._file = None


def _has_counter(gpu: "_Gpu") -> bool:
    return any(_read(*file) is not None for file in _candidates(gpu.device)["energy_joules"])


def _read(path: Path, parse: Parse) -> float | None:
    """What a file says now; None when it says nothing."""
    try:
        return parse(path.read_text())
    except (OSError, ValueError):
        return None


_NOT_LISTED = "its driver no longer lists it"


class _GoneError(Exception):
    """The device is not there; says how we know."""


class _Gpu:
    """Whom we watch, there or not. Known by its PCI address: its card number may change while it is away."""

    def __init__(self, index: int, address: str, device: Path) -> None:
        self.index = index
        self.address = address
        self.device = device
        unique = _text(device / "unique_id")
        self.uuid = f"AMD-{unique if unique.strip('0') else address}"
        self.name = _text(device / "product_name") or _name(_text(device / "device"), _text(device / "revision"))
        self.subject = gpus.subject(index, self.uuid, self.name)
        self.up = True
        self.card: _Card | None = None


class _Card:
    """The files of one device, for as long as it stays."""

    def __init__(self, device: Path) -> None:
        self._bound = device / "drm"
        self._constants: dict[str, Value] = {}
        self._files: dict[str, tuple[Path, Parse]] = {}
        for field, files in _candidates(device).items():
            if file := next((file for file in files if _supported(*file)), None):
                self._files[field] = file

    def read(self) -> dict[str, Value]:
        if not self._bound.exists():
            raise _GoneError(_NOT_LISTED)
        values: dict[str, Value] = {"up": 1} | self._constants
        for field, (path, parse) in self._files.items():
            try:
                values[field] = parse(path.read_text())
            except OSError as error:
                if error.errno in _GONE:
                    raise _GoneError(f"{error.strerror} ({path.name})") from error
            except ValueError:
                continue  # as after other errors: it answered before, so this is a gap
        for field in _CONSTANT & values.keys() & self._files.keys():
            self._constants[field] = values[field]
            del self._files[field]
        return gpus.complete(values)


def _candidates(device: Path) -> dict[str, list[tuple[Path, Parse]]]:
    """The files a field may come from, best first."""
    hwmon = next(iter(sorted(device.glob("hwmon/hwmon*"))), device / "hwmon")
    temperatures = {
        _text(label): label.with_name(label.name.replace("label", "input")) for label in hwmon.glob("temp*_label")
    }
    core = [temperatures[label] for label in ("edge", "junction") if label in temperatures]
    memory = [temperatures["mem"]] if "mem" in temperatures else []
    return {
        "utilization_percent": [(device / "gpu_busy_percent", float)],
        "memory_controller_ratio": [(device / "mem_busy_percent", _over(100))],
        "memory_used_mb": [(device / "mem_info_vram_used", _over(2**20))],
        "memory_total_mb": [(device / "mem_info_vram_total", _over(2**20))],
        "temperature_celsius": [(path, _over(1000)) for path in (*core, hwmon / "temp1_input")],
        "memory_temperature_celsius": [(path, _over(1000)) for path in memory],
        "power_average_watts": [(hwmon / "power1_average", _over(1e6))],
        "power_instant_watts": [(hwmon / "power1_input", _over(1e6))],
        "power_limit_watts": [(hwmon / "power1_cap", _over(1e6))],
        "power_limit_max_watts": [(hwmon / "power1_cap_max", _over(1e6))],
        "energy_joules": [(hwmon / "energy1_input", _over(1e6))],
        "fan_speed_percent": [
            (hwmon / "pwm1", _percent_of(hwmon / "pwm1_max")),
            (hwmon / "fan1_input", _percent_of(hwmon / "fan1_max")),
        ],
        "clock_sm_hertz": [(hwmon / "freq1_input", int), (device / "pp_dpm_sclk", _current_clock)],
        "clock_memory_hertz": [(hwmon / "freq2_input", int), (device / "pp_dpm_mclk", _current_clock)],
        "clock_sm_max_hertz": [(device / "pp_dpm_sclk", _highest_clock)],
        "clock_memory_max_hertz": [(device / "pp_dpm_mclk", _highest_clock)],
        "pcie_generation": [(device / "current_link_speed", _generation)],
        "pcie_width": [(device / "current_link_width", _width)],
        "pcie_max_generation": [(device / "max_link_speed", _generation)],
        "pcie_max_width": [(device / "max_link_width", _width)],
    }


def _supported(path: Path, parse: Parse) -> bool:
    """Whether to go on asking for a file."""
    try:
        parse(path.read_text())
    except OSError as error:
        return error.errno not in _UNSUPPORTED
    except ValueError:
        return False
    return True


def _over(divisor: float) -> Parse:
    return lambda text: float(text) / divisor


def _percent_of(maximum: Path) -> Parse:
    top = float(_text(maximum) or 0)

    def parse(text: str) -> float:
        if top <= 0:
            raise ValueError(f"no {maximum.name}")
        return 100 * float(text) / top

    return parse


def _clocks(text: str) -> list[tuple[int, bool]]:
    """The lines of a pp_dpm file, like `1: 2100Mhz *`: hertz, and whether it is the clock now."""
    lines = re.findall(r"^\s*\w+:\s*(\d+)\s*mhz[ \t]*(\*?)", text, re.IGNORECASE | re.MULTILINE)
    return [(int(megahertz) * 1_000_000, star == "*") for megahertz, star in lines]


def _current_clock(text: str) -> int:
    return max(hertz for hertz, current in _clocks(text) if current)


def _highest_clock(text: str) -> int:
    return max(hertz for hertz, _ in _clocks(text))  # the last line on most boards, the first on some


def _generation(text: str) -> int:
    speed = float(text.partition(" ")[0])  # "16.0 GT/s PCIe"
    if speed not in _PCIE_GENERATIONS:
        raise ValueError(text)
    return _PCIE_GENERATIONS[speed]


def _width(text: str) -> int:
    lanes = int(text)
    if lanes not in _PCIE_WIDTHS:  # 0 or 255 where there is no link
        raise ValueError(text)
    return lanes


def _devices(drm: Path) -> dict[str, Path]:
    """Device folders of the AMD GPUs that are there now, by PCI address."""
    devices = {}
    for card in drm.glob("card*"):
        if _text(card / "device/vendor") == "0x1002":  # connectors (card0-DP-1) and partitions have no such file
            slot = re.search(r"^PCI_SLOT_NAME=(.+)$", _text(card / "device/uevent"), re.MULTILINE)
            if slot:
                # Resolved, because another GPU may have this card number after a driver reload.
                devices[slot[1]] = (card / "device").resolve()
    return devices


def _find(drm: Path, address: str) -> Path:
    devices = _devices(drm)
    if address not in devices:
        raise _GoneError(_NOT_LISTED)
    return devices[address]


def _pci_order(address: str) -> list[int]:
    return [int(part, 16) for part in re.split("[:.]", address)]


def _name(device: str, revision: str) -> str:
    number = device.removeprefix("0x")
    return _NAMES.get(f"{number}:{revision.removeprefix('0x')}") or _NAMES.get(number) or f"AMD GPU {device}"


def _visible(all_gpus: list[_Gpu], environ: Mapping[str, str], sys: Path) -> selection.Selection:
    """What ROCm shows to programs. HIP counts among what ROCR leaves, and ROCR as the kernel's compute driver does."""
    settings = []
    left = _rocm_order(all_gpus, sys)
    for variable in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        if (value := environ.get(variable)) is not None:
            devices = [selection.SelectableGpu(position, gpu.uuid, gpu.name) for position, gpu in enumerate(left)]
            left = [left[position] for position in selection.named(devices, value.replace("GPU-", "AMD-"))]
            settings.append(f"{variable}={value}")
    if not settings:
        return selection.Selection(frozenset(gpu.index for gpu in all_gpus))
    return selection.left_by(" ".join(settings), (gpu.index for gpu in left))


def _rocm_order(all_gpus: list[_Gpu], sys: Path) -> list[_Gpu]:
    """GPUs as the compute driver (KFD) numbers them, which is not always PCI order; PCI order where there is none."""
    by_slot = {gpu.address.rpartition(".")[0]: gpu for gpu in all_gpus}
    ordered = []
    for node in sorted((sys / "class/kfd/kfd/topology/nodes").glob("*"), key=lambda node: int(node.name)):
        properties = {key: int(value) for key, value in re.findall(r"^(\w+) (\d+)$", _text(node / "properties"), re.M)}
        location, domain = properties.get("location_id", 0), properties.get("domain", 0)
        slot = f"{domain:04x}:{location >> 8:02x}:{location >> 3 & 31:02x}"
        if properties.get("simd_count") and slot in by_slot:
            ordered.append(by_slot[slot])
    return ordered or all_gpus


def _text(path: Path) -> str:
    """A file's text; empty where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
