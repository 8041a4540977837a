"""Simulated GPUs in a training run: for the demo, for tests, for machines without one. Each says what it is."""

import math
import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pulsetrain import catalog
from pulsetrain.errors import Unavailable, UsageError
from pulsetrain.snapshot import Label, Sample, Subject, Value
from pulsetrain.sources import Options
from pulsetrain.sources.gpus import memory_percent
from pulsetrain.sources.selection import SelectableGpu, select

STEPS_PER_SECOND = 10
"""Power sensors and energy counters of real boards move about every 100 ms: finer steps would show nowhere."""
STEP_SECONDS = 1 / STEPS_PER_SECOND
FINE_STEPS = 2 * STEPS_PER_SECOND
"""The last two seconds before a reading always go in fine steps, so that means over a second are true."""
MOST_COARSE_STEPS = 500
"""A longer gap (a suspended machine) is crossed in this many strides, however long it was."""

NOISE_STEPS = 997
"""Noise repeats after this many steps: a prime, so that it falls differently on each minute of the pattern."""


class GpuClocks(NamedTuple):
    """In MHz."""

    idle: int
    busy: int
    """While computing, with neither power nor heat in the way."""
    max: int


@dataclass(frozen=True, kw_only=True)
class GpuModel:
    """What sets one model apart from another."""

    name: str
    """As NVML gives it."""
    memory_mb: int
    idle_watts: float
    full_watts: float
    """What a hard training step would draw at full clocks if there were no power limit."""
    limit_watts: float
    limit_max_watts: float
    sm_mhz: GpuClocks
    memory_mhz: GpuClocks
    states: tuple[int, int] = (0, 0)
    """Performance state when idle and when computing."""
    celsius_per_watt: float
    heat_seconds: float
    """Time constant of board and heat sink."""
    hot_celsius: float
    """The driver lowers the clocks above this."""
    pcie_generation: int
    nvlink_gb_per_second: int | None = None
    """Each way, all links."""
    average_power: bool = False
    """Has a 1 s mean beside the instant value."""
    fan: bool = False
    memory_sensor: bool = False
    ecc: bool = True
    row_remapping: bool = True
    gpm: bool = False
    """Has counters of multiprocessor, tensor core and memory activity."""


MODELS = {
    "L4": GpuModel(
        name="NVIDIA L4",
        memory_mb=23034,
        idle_watts=12.0,
        full_watts=110.0,
        limit_watts=72.0,
        limit_max_watts=72.0,
        sm_mhz=GpuClocks(210, 2040, 2040),
        memory_mhz=GpuClocks(405, 6251, 6251),
        states=(8, 0),
        celsius_per_watt=0.62,
        heat_seconds=45.0,
        hot_celsius=85.0,
        pcie_generation=4,
        average_power=True,
    ),
    "A100": GpuModel(
        name="NVIDIA A100-SXM4-80GB",
        memory_mb=81920,
        idle_watts=62.0,
        full_watts=405.0,
        limit_watts=400.0,
        limit_max_watts=400.0,
        sm_mhz=GpuClocks(210, 1410, 1410),
        memory_mhz=GpuClocks(1593, 1593, 1593),
        celsius_per_watt=0.085,
        heat_seconds=20.0,
        hot_celsius=85.0,
        pcie_generation=4,
        nvlink_gb_per_second=300,
        memory_sensor=True,
    ),
    "H100": GpuModel(
        name="NVIDIA H100 80GB HBM3",
        memory_mb=81559,
        idle_watts=70.0,
        full_watts=720.0,
        limit_watts=700.0,
        limit_max_watts=700.0,
        sm_mhz=GpuClocks(345, 1980, 1980),
        memory_mhz=GpuClocks(2619, 2619, 2619),
        celsius_per_watt=0.056,
        heat_seconds=18.0,
        hot_celsius=85.0,
        pcie_generation=5,
        nvlink_gb_per_second=450,
        average_power=True,
        memory_sensor=True,
        gpm=True,
    ),
    "V100": GpuModel(
        name="Tesla V100-SXM2-16GB",
        memory_mb=16384,
        idle_watts=40.0,
        full_watts=300.0,
        limit_watts=300.0,
        limit_max_watts=300.0,
        sm_mhz=GpuClocks(135, 1530, 1530),
        memory_mhz=GpuClocks(877, 877, 877),
        celsius_per_watt=0.115,
        heat_seconds=22.0,
        hot_celsius=83.0,
        pcie_generation=3,
        nvlink_gb_per_second=150,
        memory_sensor=True,
        row_remapping=False,
    ),
    "RTX 4090": GpuModel(
        name="NVIDIA GeForce RTX 4090",
        memory_mb=24564,
        idle_watts=20.0,
        full_watts=435.0,
        limit_watts=450.0,
        limit_max_watts=600.0,
        sm_mhz=GpuClocks(210, 2745, 3105),
        memory_mhz=GpuClocks(405, 10251, 10501),
        states=(8, 2),
        celsius_per_watt=0.12,
        heat_seconds=35.0,
        hot_celsius=83.0,
        pcie_generation=4,
        average_power=True,
        fan=True,
        ecc=False,
        row_remapping=False,
    ),
}


class SimulatedLoad(NamedTuple):
    """What a job asks of its GPUs for a while. All are shares of what the board could do."""

    busy: float
    """Time in which any kernel runs."""
    power: float
    """Of the way from idle to full."""
    dram: float
    sm: float
    tensor: float
    exchange: float
    """NVLink traffic, of which only gradients make any."""
    received: float
    """PCIe traffic to the board: batches; while loading, weights."""
    sent: float


LOADING = SimulatedLoad(busy=0, power=0, dram=0, sm=0, tensor=0, exchange=0, received=0.08, sent=0)
TRAINING = SimulatedLoad(busy=1, power=0.95, dram=0.52, sm=0.87, tensor=0.44, exchange=0.12, received=0.03, sent=0.004)
VALIDATION = SimulatedLoad(busy=0.9, power=0.5, dram=0.4, sm=0.61, tensor=0.22, exchange=0, received=0.05, sent=0.002)
CHECKPOINT = SimulatedLoad(busy=0.06, power=0.12, dram=0.5, sm=0.05, tensor=0, exchange=0, received=0.001, sent=0.2)


def load_at(seconds: float) -> SimulatedLoad:
    """The pattern of the job: load, train, validate every minute, save a checkpoint every five."""
    if seconds < 2:
        return LOADING
    if seconds >= 300 and seconds % 300 < 6:
        return CHECKPOINT
    return VALIDATION if seconds % 60 >= 50 else TRAINING


def memory_share_at(seconds: float) -> float:
    """Of the memory the job takes in the end: context, weights, optimizer, activations of the first steps."""
    for until, share in ((0.3, 0.0), (0.8, 0.02), (1.3, 0.2), (2.0, 0.41), (2.6, 0.85)):
        if seconds < until:
            return share
    return 1.0


def loader_keeps_up(rng: random.Random) -> list[float]:
    """For each step the share in which there is data to work on: mostly all of it, with dips of 0.1 to 0.5 s."""
    steps: list[float] = []
    while len(steps) < NOISE_STEPS:
        steps += [1.0] * rng.randint(15, 60)
        steps += [rng.uniform(0.3, 0.8)] * rng.randint(1, 5)
    return steps[:NOISE_STEPS]


class SimulatedBoard:
    """The physics of one board: power from load, heat from power, clocks from both."""

    def __init__(self, model: GpuModel, rng: random.Random, *, linked: bool, hot: bool, slow: bool) -> None:
        self.model = model
        self.nvlink_bytes_per_second = 1e9 * (model.nvlink_gb_per_second or 0) if linked else 0.0
        # No two boards are alike.
        self.pace = 0.97 if slow else rng.uniform(0.99, 1)
        self.full_watts = model.full_watts * rng.uniform(0.97, 1.02)
        self.celsius_per_watt = model.celsius_per_watt * (1.2 if hot else rng.uniform(0.95, 1.05))
        self.inlet_celsius = rng.uniform(24, 28)
        self.memory_mb = model.memory_mb * rng.uniform(0.85, 0.89)
        """What the job takes in the end."""
        self.unrest = [1 + rng.gauss(0, 0.015) for _ in range(NOISE_STEPS)]
        # Where it stands: it idled before the job, and its energy counter has run since the driver was loaded.
        self.watts = model.idle_watts
        self.last_second_watts = [self.watts] * STEPS_PER_SECOND
        self.celsius = self.inlet_celsius + self.celsius_per_watt * self.watts
        self.joules = rng.uniform(1e6, 1e7)
        self.nvlink_bytes = 0.0
        """Each way."""
        self.clock = 1.0
        """Of the clock it would have with neither power nor heat in the way."""
        self.throttle: str | None = None
        self.wobble = 1.0

    def advance(self, steps: Iterable[tuple[int, float, float]], seconds: float) -> None:
        """Live through steps of so many seconds each, given as (number, power, exchange) as shares."""
        model, unrest, inlet, rise = self.model, self.unrest, self.inlet_celsius, self.celsius_per_watt
        idle, hot = model.idle_watts, model.hot_celsius
        span, headroom = (self.full_watts - idle) * self.pace, model.limit_watts - idle
        warming = 1 - math.exp(-seconds / model.heat_seconds)
        celsius, watts, energy, exchanged = self.celsius, self.watts, 0.0, 0.0
        history = self.last_second_watts
        clock, throttle, wobble = self.clock, self.throttle, self.wobble
        for number, power, exchange in steps:
            wobble = unrest[number % NOISE_STEPS]
            # Hot silicon leaks: the same work draws more.
            wanted = span * power * wobble * (0.9 + celsius * 0.002)
            clock, throttle = 1.0, None
            if wanted > headroom:
                # The limiter hovers just below its limit. Voltage falls with the clock: power goes with its square.
                held = headroom * min(1.0, 0.99 * wobble)
                clock, throttle, wanted = math.sqrt(held / wanted), "sw_power_cap", held
            if celsius > hot:
                slower = max(0.5, 1 - 0.04 * (celsius - hot))
                clock, throttle, wanted = clock * slower, "sw_thermal", wanted * slower * slower
            watts = idle + wanted
            energy += watts
            history.append(watts)
            exchanged += exchange
            celsius += (inlet + rise * watts - celsius) * warming
        self.celsius, self.watts, self.clock, self.throttle, self.wobble = celsius, watts, clock, throttle, wobble
        self.joules += energy * seconds
        self.nvlink_bytes += exchanged * seconds * self.nvlink_bytes_per_second
        del history[:-STEPS_PER_SECOND]


class Simulated:
    """The GPUs of one training job, as a function of the clock and the seed."""

    name = "simulated"
    period = None

    def __init__(
        self, spec: str, gpus: str | None = None, *, clock: Callable[[], float] = time.monotonic, seed: int = 0
    ) -> None:
        models = parse(spec)
        rng = random.Random(f"job {seed}")
        hot, slow = rng.sample(range(len(models)), 2) if len(models) > 1 else (None, None)
        self._loader = loader_keeps_up(rng)
        linked = sum(model.nvlink_gb_per_second is not None for model in models) > 1
        boards: list[SimulatedBoard] = []
        devices: list[SelectableGpu] = []
        for index, model in enumerate(models):
            own = random.Random(f"{model.name} {index} {seed}")
            devices.append(SelectableGpu(index, f"SIM-{uuid.UUID(int=own.getrandbits(128), version=4)}", model.name))
            boards.append(SimulatedBoard(model, own, linked=linked, hot=index == hot, slow=index == slow))
        # CUDA_VISIBLE_DEVICES speaks of real GPUs.
        watched = select(devices, gpus, environ={}).indices
        self._boards = [
            (_subject(device), board, _fixed_values(board.model))
            for device, board in zip(devices, boards, strict=True)
            if device.index in watched
        ]
        self._clock = clock
        self._start = clock()
        self._steps = 0
        self._last_second_busy = [0.0] * STEPS_PER_SECOND

    def read(self) -> Iterator[Sample]:
        self._advance()
        seconds = (self._steps - 1) * STEP_SECONDS
        load, memory_share = load_at(seconds), memory_share_at(seconds)
        busy = sum(self._last_second_busy) / STEPS_PER_SECOND
        for subject, board, fixed in self._boards:
            yield Sample(subject, _values(board, load, busy * board.pace, memory_share) | fixed)

    def close(self) -> None:
        """Nothing is held open."""

    def _advance(self) -> None:
        until = int((self._clock() - self._start) * STEPS_PER_SECOND)
        coarse = until - self._steps - FINE_STEPS
        if coarse > MOST_COARSE_STEPS:
            stride = coarse // MOST_COARSE_STEPS
            self._live(self._steps, self._steps + MOST_COARSE_STEPS * stride, stride)
        self._live(self._steps, until, 1)

    def _live(self, first: int, until: int, stride: int) -> None:
        steps: list[tuple[int, float, float]] = []
        loader, busy = self._loader, self._last_second_busy
        for number in range(first, until, stride):
            load = load_at(number * STEP_SECONDS)
            working = loader[number % NOISE_STEPS]
            steps.append((number, load.power * working, load.exchange * working))
            busy.append(load.busy * working)
        for _, board, _ in self._boards:
            board.advance(steps, stride * STEP_SECONDS)
        del busy[:-STEPS_PER_SECOND]
        self._steps = until


def open_sources(options: Options) -> list[Simulated]:
    if not options.simulate:
        raise Unavailable("no simulated GPUs were requested", hint="Request some: --simulate 2xL4.")
    return [Simulated(options.simulate, options.gpus)]


def parse(spec: str) -> list[GpuModel]:
    """The GPUs that `8xH100` or `2xL4,rtx 4090` stand for."""
    known = {_plain(name): model for name, model in MODELS.items()}
    models: list[GpuModel] = []
    for part in spec.split(","):
        match = re.fullmatch(r"(?:([1-9]\d{0,2})x)?(.*)", _plain(part))
        if match is None or match[2] not in known:
            raise UsageError(
                f"--simulate {spec}: cannot simulate {part.strip()!r}.",
                hint=f"Available: {', '.join(MODELS)}. Use 8xH100 or 2xL4,1xA100; at most 999 of each.",
            )
        models += [known[match[2]]] * int(match[1] or 1)
    return models


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]", "", text).lower()


def _subject(device: SelectableGpu) -> Subject:
    name = f"{device.name} (simulated)"
    labels: dict[str, Label] = {"gpu_index": device.index, "uuid": device.uuid, "name": name, "simulated": True}
    return catalog.subject("gpu", labels)


def _fixed_values(model: GpuModel) -> dict[str, Value]:
    """What never changes."""
    values: dict[str, Value] = {
        "up": 1,
        "memory_total_mb": float(model.memory_mb),
        "power_limit_watts": model.limit_watts,
        "power_limit_max_watts": model.limit_max_watts,
        "clock_sm_max_hertz": model.sm_mhz.max * 1_000_000,
        "clock_memory_max_hertz": model.memory_mhz.max * 1_000_000,
        "encoder_ratio": 0.0,
        "decoder_ratio": 0.0,
        "xid_errors": 0,
        "pcie_width": 16,
        "pcie_max_generation": model.pcie_generation,
        "pcie_max_width": 16,
        "pcie_replays": 0,
    }
    if model.ecc:
        values |= {"ecc_corrected_errors": 0, "ecc_uncorrected_errors": 0}
    if model.row_remapping:
        values |= {"remapped_rows_corrected": 0, "remapped_rows_uncorrected": 0}
        values |= {"remapped_rows_pending": 0, "remapped_rows_failed": 0}
    return values


def _values(board: SimulatedBoard, load: SimulatedLoad, busy: float, memory_share: float) -> dict[str, Value]:
    """What changes, rounded as NVML rounds: whole percents and degrees, milliwatts, clocks of 15 MHz."""
    model = board.model
    idle = load.busy == 0
    state = model.states[0] if idle else model.states[1]
    sm_mhz = model.sm_mhz.idle if idle else int(model.sm_mhz.busy * board.clock) // 15 * 15
    memory_mhz = model.memory_mhz.idle if idle else model.memory_mhz.busy
    used = int(board.memory_mb * memory_share) + 4
    watts = int(board.watts * 1000) / 1000
    active = busy * board.wobble
    pcie_bytes_per_second = 2e9 * 2**model.pcie_generation * board.wobble
    values: dict[str, Value] = {
        "utilization_percent": float(round(100 * busy)),
        "memory_used_mb": float(used),
        "memory_free_mb": float(model.memory_mb - used),
        "memory_percent": memory_percent(used, model.memory_mb),
        "temperature_celsius": float(round(board.celsius)),
        "power_draw_watts": watts,
        "memory_controller_ratio": round(100 * active * load.dram) / 100,
        "power_instant_watts": watts,
        "energy_joules": int(board.joules * 1000) / 1000,
        "clock_sm_hertz": sm_mhz * 1_000_000,
        "clock_memory_hertz": memory_mhz * 1_000_000,
        "throttle_reasons": ["idle"] if idle else [board.throttle] if board.throttle else [],
        "performance_state": state,
        "pcie_generation": 1 if state == 8 else model.pcie_generation,
        "pcie_received_bytes_per_second": int(pcie_bytes_per_second * load.received),
        "pcie_sent_bytes_per_second": int(pcie_bytes_per_second * load.sent),
    }
    if model.average_power:
        values["power_average_watts"] = int(sum(board.last_second_watts) * 1000 / STEPS_PER_SECOND) / 1000
    if model.fan:
        # It does not turn while the board is cool.
        values["fan_speed_percent"] = float(round(30 + 1.2 * (board.celsius - 50))) if board.celsius > 50 else 0.0
    if model.memory_sensor:
        above_inlet = board.celsius - board.inlet_celsius
        values["memory_temperature_celsius"] = float(round(board.inlet_celsius + 1.2 * above_inlet))
    if model.nvlink_gb_per_second is not None:
        values["nvlink_received_bytes"] = values["nvlink_sent_bytes"] = int(board.nvlink_bytes)
    if model.gpm:
        values["sm_active_ratio"] = int(1000 * active * load.sm) / 1000
        values["sm_occupancy_ratio"] = int(400 * active * load.sm) / 1000
        values["tensor_active_ratio"] = int(1000 * active * load.tensor) / 1000
        values["dram_active_ratio"] = int(1000 * active * load.dram) / 1000
    return values
