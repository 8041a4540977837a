"""How far joules lie from the truth: many power traces in eight phases, three sensors, with a counter and without."""

import ctypes
import json
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import pynvml
from tests.nvml.scenario import Board, Curve, Scenario, constant, pulse, ramp, square, training

from benchmarks import energy_peers
from benchmarks.processes import ROOT, Machine, end, here
from benchmarks.results import Limit, Report, Result, beside

OURS = "pulsetrain"
PHASES = 8
TIE_PERCENT = 0.1
"""Differences below this are those of the ends of a window, and chance."""
ODD_SECONDS = 0.33
"""Runs do not end in step with their counters: over a whole number of their steps, stale readings would cancel out."""

Trace = Callable[[float, float], Curve]
"""From the board's power limit in watts, and a phase from 0 to 1."""


def _square(period_s: float) -> Trace:
    return lambda watts, phase: square(watts / 4, watts, period_s, phase * period_s)


def _burst(width_s: float, period_s: float) -> Trace:
    return lambda watts, phase: pulse(watts / 4, watts, period_s, width_s, phase * period_s)


TRACES: dict[str, Trace] = {
    "constant": lambda watts, phase: constant(watts * (phase + 1 / PHASES)),  # has no phase, but any height
    "square 0.1 s": _square(0.1),
    "square 0.5 s": _square(0.5),
    "square 1 s": _square(1),
    "square 5 s": _square(5),
    "ramp": lambda watts, phase: ramp(watts / 4, watts, 20, phase * 20),
    "plateaus": _burst(10, 30),
    "burst 1 s": _burst(1, 7),
    "burst 2 s": _burst(2, 11),
    "burst 5 s": _burst(5, 17),
    "burst 30 s": _burst(30, 60),
    "training": lambda watts, phase: training(phase * 0.5),
}
QUICK_TRACES = ("constant", "square 1 s", "burst 2 s", "training")


class Setting(NamedTuple):
    """Boards of one kind, chosen for how they are known to measure power."""

    sensor: str
    counter: bool
    board: Board
    limit_watts: float

    def __str__(self) -> str:
        return f"{'counter' if self.counter else 'power alone'}, {self.sensor} sensor"

    def scenario(self, traces: Sequence[str]) -> Scenario:
        """Eight boards for each trace, one for each phase of it."""
        scenario = Scenario().gpus(PHASES * len(traces), self.board)
        if self.sensor == INSTANT:
            scenario.sensor_instant("*")
        elif self.sensor == ONE_SECOND:
            scenario.unsupported("*", pynvml.NVML_FI_DEV_POWER_INSTANT)
        if not self.counter:
            scenario.counter("*", "none")
        for number, trace in enumerate(traces):
            for phase in range(PHASES):
                curve = TRACES[trace](self.limit_watts, phase / PHASES)
                scenario.curve("power", PHASES * number + phase, curve)
        return scenario


INSTANT, QUARTER, ONE_SECOND = "instant", "25 of 100 ms", "1 s mean"
SETTINGS = (
    Setting(INSTANT, True, "V100", 300),
    Setting(INSTANT, False, "P100", 250),
    Setting(QUARTER, True, "A100", 400),
    Setting(QUARTER, False, "A100", 400),
    Setting(ONE_SECOND, True, "RTX4090", 450),
    Setting(ONE_SECOND, False, "RTX4090", 450),
)


class Figures(NamedTuple):
    """What a contestant made of a window on the monotonic clock."""

    window: tuple[float, float]
    joules: Sequence[float | None]
    """For each GPU, or for each of equal groups of them."""
    bounds: Sequence[float | None] = ()
    """How far off it says that it may be."""


class Found(NamedTuple):
    """What a contestant made of one trace."""

    errors: list[float]
    """In percent of the truth, one for each phase; empty where it gave no figure."""
    bounds: list[float | None]
    """In percent too, where it gives any."""

    @property
    def median(self) -> float:
        return median(map(abs, self.errors))

    @property
    def worst(self) -> float:
        return max(map(abs, self.errors))

    @property
    def inside(self) -> int:
        """How often the truth lies within the bound."""
        pairs = zip(self.errors, self.bounds, strict=True)
        return sum(bound is not None and abs(error) <= bound for error, bound in pairs)


ByTrace = dict[str, dict[str, Found]]
"""By trace and contestant."""
Place = tuple[Setting, Sequence[str]]
"""One machine: boards, and the traces that they run."""
Running = subprocess.Popen[bytes]


def run(machine: Machine, quick: bool) -> Report:
    peers, notes = here(energy_peers.METERS, energy_peers.MODULES)
    seconds = (20 if quick else 60) + ODD_SECONDS
    found: dict[Setting, ByTrace] = {setting: {} for setting in SETTINGS}
    failed: dict[str, str] = {}
    for pair in _rounds(quick):
        measured, reasons = _measure(machine, pair, [peer for peer in peers if peer not in failed], seconds)
        failed |= reasons
        for place, by_trace in zip(pair, measured, strict=True):
            found[place[0]] |= by_trace
    _leave_out(found, failed)
    results = [result for setting in SETTINGS for result in _results(setting, found[setting])]
    results += beside(Result("energy", "a meter without figures", None, ""), {}, failed)
    tables = [line for setting in SETTINGS for line in ("", *_table(setting, found[setting]))]
    return Report(results, [*notes, *_silent(found), *tables], details=_details(found))


def _rounds(quick: bool) -> Iterator[tuple[Place, Place]]:
    """Two machines are measured beside each other: more would load ours too much."""
    names = tuple(TRACES)
    middle = len(names) // 2
    if quick:
        places: list[Place] = [(setting, QUICK_TRACES) for setting in SETTINGS]
    else:
        places = [(setting, half) for setting in SETTINGS for half in (names[:middle], names[middle:])]
    return zip(places[::2], places[1::2], strict=True)


def _leave_out(found: Mapping[Setting, ByTrace], failed: Mapping[str, str]) -> None:
    """A peer that failed once is not compared anywhere: half of its figures would be beside all of others'."""
    for by_trace in found.values():
        for contestants in by_trace.values():
            for name in failed:
                contestants.pop(name, None)


def _measure(
    machine: Machine, places: Sequence[Place], peers: Sequence[str], seconds: float
) -> tuple[list[ByTrace], dict[str, str]]:
    """All contestants on these machines at the same time; and why some have no figures."""
    environments = [_environment(machine, place, number) for number, place in enumerate(places)]
    others = [
        {name: _start("benchmarks.energy_peers", name, str(seconds), environment=environment) for name in peers}
        for environment in environments
    ]
    processes = [process for each in others for process in each.values()]
    failed: dict[str, str] = {}
    try:
        for each in others:
            for name, process in each.items():
                if _line(process, machine.most_seconds) != b"ready\n":
                    failed[name] = "it did not start"
        command = ("run", "--interval", "1", "--quiet", "--", "sleep", str(seconds))
        ours = [_start("pulsetrain", *command, environment=environment) for environment in environments]
        processes += ours
        for process in processes:
            assert process.stdin
            process.stdin.close()  # which is the others' sign to begin
        figures: list[dict[str, Figures]] = [{} for _ in others]
        for each, told in zip(others, figures, strict=True):
            for name, process in each.items():
                if answer := _line(process, seconds + machine.most_seconds):
                    told[name] = Figures(**json.loads(answer))
                else:
                    failed.setdefault(name, "it gave no figures")
        for process in ours:
            process.wait()
    finally:
        end([process for process in processes if process.poll() is None])
    compared = [
        _compare(machine, traces, {OURS: _report(machine, environment)} | peer_figures, environment)
        for (_, traces), environment, peer_figures in zip(places, environments, figures, strict=True)
    ]
    return compared, failed


def _environment(machine: Machine, place: Place, number: int) -> dict[str, str]:
    """One clock for all processes, boards of its own, and runs apart from those of others."""
    setting, traces = place
    environment = machine.environment(setting.scenario(traces).host(number))
    home = f"{environment['PULSETRAIN_TEST_NVML']}.home"
    return environment | {"PULSETRAIN_TEST_NVML_EPOCH": repr(time.monotonic()), "PULSETRAIN_HOME": home}


def _start(module: str, *arguments: str, environment: Mapping[str, str]) -> Running:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _line(process: Running, most_seconds: float) -> bytes:
    """Its next line; nothing, when it has ended, or says nothing for so long."""
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], most_seconds)
    return process.stdout.readline() if ready else b""


def _report(machine: Machine, environment: Mapping[str, str]) -> Figures:
    """What `pulsetrain report` says, of the time from the start of the run to its last tick."""
    document = machine.ask("pulsetrain", "report", "last", "--json", environment=environment)
    (host,) = document["run"]["hosts"].values()
    begin = host["started"]
    devices = [device for device in document["energy"]["devices"] if device["device"] == "gpu"]
    totals = [device["total"] or {} for device in sorted(devices, key=lambda device: int(device["gpu_index"]))]
    return Figures(
        (begin, begin + document["summary"]["seconds"]),
        [total.get("joules") for total in totals],
        [total.get("error_joules") for total in totals],
    )


def _compare(
    machine: Machine, traces: Sequence[str], figures: Mapping[str, Figures], environment: Mapping[str, str]
) -> ByTrace:
    windows = json.dumps([each.window for each in figures.values()])
    truths: list[list[float]] = machine.ask("benchmarks.energy", windows, environment=environment)
    found: ByTrace = {trace: {} for trace in traces}
    for (name, each), truth in zip(figures.items(), truths, strict=True):
        for number, trace in enumerate(traces):
            found[trace][name] = _one_trace(each, truth, number, len(traces))
    return found


def _one_trace(figures: Figures, truth: Sequence[float], number: int, traces: int) -> Found:
    """The errors of one of so many traces. One figure may stand for several GPUs."""
    count = len(figures.joules) // traces
    together = PHASES // count
    found = Found([], [])
    for figure in range(number * count, (number + 1) * count):
        joules = figures.joules[figure]
        if joules is None:
            continue
        true = sum(truth[figure * together : (figure + 1) * together])
        found.errors.append(100 * (joules / true - 1))
        if figures.bounds:
            bound = figures.bounds[figure]
            found.bounds.append(None if bound is None else 100 * bound / true)
    return found


# What to say of it


def _results(setting: Setting, found: ByTrace) -> Iterator[Result]:
    """Ours, beside the one who came closest."""
    figures = len(found) * PHASES
    outside = figures - sum(each[OURS].inside for each in found.values())
    yield Result("energy", f"{setting}: truth outside the bound, of {figures}", outside, "", target=Limit(0))
    peers = _contestants(found)
    if OURS not in peers:
        return
    peers.remove(OURS)
    for statistic, limit in _limits(setting).items():
        errors = {name: _worst_trace(found, name, statistic) for name in (OURS, *peers)}
        closest = min(peers, key=lambda name: errors[name])
        name = f"{setting}: {statistic} phase of the worst trace"
        yield Result("energy", name, errors[OURS], "%", closest, errors[closest], limit)
    closer = sum(bool(_closer(each)) for each in found.values())
    yield Result("energy", f"{setting}: another came closer, of {len(found)} traces", closer, "", target=Limit(0))


def _limits(setting: Setting) -> dict[str, Limit | None]:
    if setting.counter:
        return {"median": None, "worst": Limit(0.1)}
    # What such a sensor sees may be any quarter of a load that is in step with it: the bound alone is to be right.
    if setting.sensor == QUARTER:
        return {"median": None, "worst": None}
    return {"median": Limit(2), "worst": Limit(5)}


def _worst_trace(found: ByTrace, name: str, statistic: str) -> float:
    figures = [each[name] for each in found.values() if each[name].errors]
    return max(each.median if statistic == "median" else each.worst for each in figures)


def _contestants(found: ByTrace) -> list[str]:
    """Those who gave figures."""
    return [name for name in next(iter(found.values())) if any(each[name].errors for each in found.values())]


def _closer(contestants: Mapping[str, Found]) -> list[str]:
    """Whose worst phase is better than ours, beyond chance."""
    ours = contestants[OURS]
    return [
        name
        for name, other in contestants.items()
        if other.errors and ours.errors and other.worst < ours.worst - TIE_PERCENT
    ]


def _silent(found: Mapping[Setting, ByTrace]) -> Iterator[str]:
    for setting, by_trace in found.items():
        for name in next(iter(by_trace.values())):
            if name not in _contestants(by_trace):
                yield f"{name} gives no figure with {setting} ({setting.board})"


def _table(setting: Setting, found: ByTrace) -> Iterator[str]:
    """Lines for people: one trace a line, and the one who came closer than ours marked."""
    names = _contestants(found)
    yield f"energy: {setting} ({setting.board}): error in %, median and worst of {PHASES} phases"
    heads = [name if name != OURS else f"{OURS} (bound)" for name in names]
    widths = [max(len(head), 21 if name == OURS else 16) for head, name in zip(heads, names, strict=True)]
    yield " " * 14 + "".join(f"  {head:>{width}}" for head, width in zip(heads, widths, strict=True))
    for trace, contestants in found.items():
        closer = _closer(contestants)
        cells = [_cell(contestants[name]) + ("*" if name in closer else "") for name in names]
        yield f"{trace:14}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _cell(found: Found) -> str:
    if not found.errors:
        return "-"
    bounds = [bound for bound in found.bounds if bound is not None]
    return f"{found.median:.2f} / {found.worst:.2f}" + (f" ({median(bounds):.3g})" if bounds else "")


def _details(found: Mapping[Setting, ByTrace]) -> dict[str, Any]:
    """Every error, for scripts."""
    return {
        str(setting): {
            trace: {name: each._asdict() for name, each in contestants.items()}
            for trace, contestants in by_trace.items()
        }
        for setting, by_trace in found.items()
    }


def main(windows: Sequence[tuple[float, float]]) -> list[list[float]]:
    """The joules that each GPU of this machine really used in each of these windows."""
    pynvml.nvmlInit()
    truth = pynvml.nvmlLib.pulsetrain_test_energy
    truth.argtypes, truth.restype = (ctypes.c_uint, ctypes.c_double, ctypes.c_double), ctypes.c_double
    return [[truth(gpu, *window) for gpu in range(pynvml.nvmlDeviceGetCount())] for window in windows]


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
