"""NVIDIA GPUs through the nvidia-smi command, for machines where its library (NVML) cannot be loaded."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pulsetrain.errors import Unavailable
from pulsetrain.snapshot import Event, Sample, Value
from pulsetrain.sources import Options, gpus, selection
from pulsetrain.sources.throttle import throttle_words

TIMEOUT_SECONDS = 10.0
SHORTEST_PERIOD_SECONDS = 1.0
LONGEST_PERIOD_SECONDS = 10.0
REST = 4
"""A reading takes from tens of milliseconds to seconds: the next one waits at least this many times as long."""


def open_sources(options: Options) -> list["NvidiaSmi"]:
    command = shutil.which("nvidia-smi")
    if command is None:
        raise Unavailable("no nvidia-smi in PATH", hint="It comes with NVIDIA's driver.")
    return [NvidiaSmi(command, options.gpus)]


def _percent(text: str) -> float:
    return float(text) / 100


def _megahertz(text: str) -> int:
    return int(text) * 1_000_000


def _yes_or_no(text: str) -> int:
    return ("No", "Yes").index(text)


class _Column(NamedTuple):
    field: str
    parse: Callable[[str], Value]
    """Raises ValueError for all the texts that stand for no value, like `[N/A]`."""
    names: tuple[str, ...]
    """What nvidia-smi calls it; the next one is tried where a driver does not know the first."""


IDENTITY = ("index", "uuid", "pci.bus_id", "name")
COLUMNS = (
    _Column("utilization_percent", float, ("utilization.gpu",)),
    _Column("memory_controller_ratio", _percent, ("utilization.memory",)),
    _Column("memory_used_mb", float, ("memory.used",)),
    _Column("memory_free_mb", float, ("memory.free",)),
    _Column("memory_total_mb", float, ("memory.total",)),
    _Column("temperature_celsius", float, ("temperature.gpu",)),
    _Column("memory_temperature_celsius", float, ("temperature.memory",)),
    _Column("power_draw_watts", float, ("power.draw",)),
    _Column("power_average_watts", float, ("power.draw.average",)),
    _Column("power_instant_watts", float, ("power.draw.instant",)),
    _Column("power_limit_watts", float, ("enforced.power.limit",)),
    _Column("power_limit_max_watts", float, ("power.max_limit",)),
    _Column("fan_speed_percent", float, ("fan.speed",)),
    _Column("clock_sm_hertz", _megahertz, ("clocks.sm",)),
    _Column("clock_memory_hertz", _megahertz, ("clocks.mem",)),
    _Column("clock_sm_max_hertz", _megahertz, ("clocks.max.sm",)),
    _Column("clock_memory_max_hertz", _megahertz, ("clocks.max.mem",)),
    _Column("performance_state", lambda text: int(text.removeprefix("P")), ("pstate",)),
    _Column(
        "throttle_reasons",
        lambda text: throttle_words(int(text, 16)),
        ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
    ),
    _Column("pcie_generation", int, ("pcie.link.gen.current", "pcie.link.gen.gpucurrent")),
    _Column("pcie_width", int, ("pcie.link.width.current",)),
    _Column("pcie_max_generation", int, ("pcie.link.gen.max",)),
    _Column("pcie_max_width", int, ("pcie.link.width.max",)),
    _Column("encoder_ratio", _percent, ("utilization.encoder",)),
    _Column("decoder_ratio", _percent, ("utilization.decoder",)),
    _Column("ecc_corrected_errors", int, ("ecc.errors.corrected.aggregate.total",)),
    _Column("ecc_uncorrected_errors", int, ("ecc.errors.uncorrected.aggregate.total",)),
    _Column("remapped_rows_corrected", int, ("remapped_rows.correctable",)),
    _Column("remapped_rows_uncorrected", int, ("remapped_rows.uncorrectable",)),
    _Column("remapped_rows_pending", _yes_or_no, ("remapped_rows.pending",)),
    _Column("remapped_rows_failed", _yes_or_no, ("remapped_rows.failure",)),
)

_VITAL = ("utilization_percent", "memory_used_mb", "temperature_celsius")
"""A GPU that gives an error for all of these is lost; some boards give one for a single sensor all their life."""
_LOST = "GPU is lost"
_ABSENT = {"[N/A]", "N/A", "[Not Supported]"}
_NO_HANDLE = re.compile(r"Unable to determine the device handle for GPU\s?(?:\d+: )?([\da-f:.]+): (.+)", re.IGNORECASE)


class _Gpu:
    """Whom we watch, there or not."""

    def __init__(self, index: str, uuid: str, address: str, name: str) -> None:
        self.index = int(index)
        self.uuid = uuid
        self.address = _short(address)
        self.name = name
        self.subject = gpus.subject(self.index, self.uuid, self.name)
        self.up = True


class _Row(NamedTuple):
    identity: list[str]
    values: dict[str, Value]


class NvidiaSmi:
    """One run of the command for each reading. A GPU that is lost is reported; the others continue."""

    name = "nvidia_smi"

    def __init__(
        self,
        command: str | Path,
        wanted: str | None = None,
        environ: Mapping[str, str] = os.environ,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self.period: float | None = SHORTEST_PERIOD_SECONDS
        self._command = command
        self._timeout = timeout
        self._columns = list(COLUMNS)
        rows, faults = self._query()
        all_gpus = [_Gpu(*row.identity) for row in rows.values()]
        instances = self._instances() if "MIG-" in f"{wanted} {environ.get('CUDA_VISIBLE_DEVICES')}" else {}
        devices = [
            selection.SelectableGpu(gpu.index, gpu.uuid, gpu.name, instances.get(gpu.uuid, ())) for gpu in all_gpus
        ]
        chosen = selection.select(devices, wanted, environ)
        if not chosen.indices:
            raise Unavailable(chosen.note or f"every GPU is lost: {next(iter(faults.values()))}")
        self._gpus = [gpu for gpu in all_gpus if gpu.index in chosen.indices]
        self._news = [Event("gpus_selected", chosen.note)] if chosen.note else []
        for address, reason in faults.items():  # such a one has no UUID to write lines about
            message = f"the GPU at {address} is lost and not watched: {reason}"
            self._news.append(Event("gpu_lost", message, "critical", {"pci_bus_id": address}))

    def read(self) -> Iterator[Sample | Event]:
        yield from self._news
        self._news = []
        rows, faults = self._query()
        for gpu in self._gpus:
            row = rows.get(gpu.uuid)
            if row is None and gpu.up:
                reason = faults.get(gpu.address, "nvidia-smi no longer lists it")
                yield gpus.lost(gpu.index, gpu.uuid, gpu.name, reason)
            if row is not None and not gpu.up:
                yield gpus.back(gpu.index, gpu.uuid, gpu.name)
            gpu.up = row is not None
            yield Sample(gpu.subject, row.values if row else gpus.lost_values())

    def close(self) -> None:
        pass

    def _query(self) -> tuple[dict[str, _Row], dict[str, str]]:
        """The GPUs that answer, by UUID, and the reasons of those that do not, by PCI address."""
        while True:
            names = [*IDENTITY, *(column.names[0] for column in self._columns)]
            started = time.monotonic()
            status, output = self._run(f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits")
            seconds = time.monotonic() - started
            refused = re.search(r'Field "(.+?)" is not a valid field to query', output)
            if not refused or not self._forget(refused[1]):
                break
        self.period = min(max(SHORTEST_PERIOD_SECONDS, REST * seconds), LONGEST_PERIOD_SECONDS)
        rows: dict[str, _Row] = {}
        faults = {_short(address): " ".join(reason.split()) for address, reason in _NO_HANDLE.findall(output)}
        for line in output.splitlines():
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) == len(names):
                identity = cells[: len(IDENTITY)]
                values, fault = self._parse(cells[len(IDENTITY) :])
                _, uuid, address, _ = identity
                if fault:
                    faults[_short(address)] = fault
                else:
                    rows[uuid] = _Row(identity, values)
        if not rows and not faults:
            raise Unavailable(output.strip().partition("\n")[0] or f"nvidia-smi ended with status {status}")
        return rows, faults

    def _parse(self, cells: list[str]) -> tuple[dict[str, Value], str | None]:
        """The values of a row, and why its GPU counts as lost, if so."""
        values: dict[str, Value] = {"up": 1}
        errors: dict[str, str] = {}
        for column, cell in zip(self._columns, cells, strict=True):
            try:
                values[column.field] = column.parse(cell)
            except ValueError:
                if cell not in _ABSENT:
                    errors[column.field] = cell.strip("[]")
        vital = next((errors[field] for field in _VITAL if field in errors), None)
        if _LOST in errors.values():
            return values, _LOST
        return gpus.complete(values), vital if values.keys().isdisjoint(_VITAL) else None

    def _forget(self, name: str) -> bool:
        """Ask no more for a column that the driver does not know; False if it was not asked for."""
        renamed = [column._replace(names=tuple(n for n in column.names if n != name)) for column in self._columns]
        columns = [column for column in renamed if column.names]
        changed = columns != self._columns
        self._columns = columns
        return changed

    def _instances(self) -> dict[str, tuple[str, ...]]:
        """The UUIDs of MIG instances, by that of their GPU."""
        instances: dict[str, tuple[str, ...]] = {}
        gpu = ""
        for uuid in re.findall(r"UUID: ([^)\s]+)", self._run("-L")[1]):
            if uuid.startswith("MIG-"):
                instances[gpu] = (*instances.get(gpu, ()), uuid)
            else:
                gpu = uuid
        return instances

    def _run(self, *arguments: str) -> tuple[int, str]:
        try:
            done = subprocess.run(
                [self._command, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"nvidia-smi did not respond within {self._timeout:g} s") from error
        except OSError as error:
            raise Unavailable(f"nvidia-smi would not start: {error.strerror} ({self._command})") from error
        # Which of the two carries the message about a lost GPU differs between drivers.
        return done.returncode, f"{done.stdout}\n{done.stderr}"


def _short(address: str) -> str:
    """One spelling for `00000000:3B:00.0` of the rows and `0000:3B:00.0` of the messages."""
    return address.lower()[-len("0000:3b:00.0") :]
