"""The compact table of a machine: what it says, and in which colors."""

import re
from collections.abc import Callable

import pytest

from pulsetrain.live import Live
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds
from pulsetrain.snapshot import Label, Sample, Snapshot, Subject, Value
from pulsetrain.views.machine import MOST_PROCESSES, machine_lines
from pulsetrain.views.text import PLAIN, Style, visible

NAMES = {"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "36": "cyan"}
MakeStyle = Callable[[int], Style]


def machine(
    gpu: dict[str, Value] | None = None, host: dict[str, Value] | None = None, *, simulated: bool = False, **more: Value
) -> Live:
    """A machine with one GPU, on which all is well but what is named."""
    normal: dict[str, Value] = {
        "up": 1,
        "utilization_percent": 50.0,
        "memory_used_mb": 40 * 1024.0,
        "memory_total_mb": 80 * 1024.0,
        "memory_percent": 50.0,
        "temperature_celsius": 60.0,
        "power_draw_watts": 300.0,
    }
    labels: dict[str, Label] = {"gpu_index": 3, "uuid": "GPU-1", "name": "NVIDIA H100"}
    about = Subject("gpu", "GPU-1", labels | ({"simulated": True} if simulated else {}))
    here: dict[str, Value] = {"cpu_ratio": 0.5, "cpu_cores": 8, "memory_used_bytes": 50.0, "memory_total_bytes": 100.0}
    live = Live()
    samples = (Sample(about, normal | (gpu or {}) | more), Sample(Subject("host", ""), here | (host or {})))
    live(Snapshot(1794830400.0, 0.0, samples))
    return live


def colored(lines: list[str]) -> list[tuple[str, str]]:
    """Every piece of text with a color of its own, and the names of its colors."""
    pieces = re.findall(r"\x1b\[([0-9;]+)m(.*?)\x1b\[0m", "\n".join(lines))
    return [(text.strip(), " ".join(NAMES[code] for code in codes.split(";"))) for codes, text in pieces]


def color_of(text: str, lines: list[str]) -> str:
    """The colors of this text; empty where it has none."""
    assert text in visible("\n".join(lines))
    return dict(colored(lines)).get(text, "")


@pytest.mark.parametrize(("celsius", "color"), [(60.0, ""), (85.0, "yellow"), (95.0, "red")])
def test_a_hot_gpu_is_yellow_and_one_in_danger_red(terminal: MakeStyle, celsius: float, color: str) -> None:
    lines = machine_lines(machine(temperature_celsius=celsius), "gpu01", terminal(120), DEFAULTS)
    assert color_of(f"{celsius:.0f} °C", lines) == color


def test_the_users_thresholds_count(terminal: MakeStyle) -> None:
    users = Thresholds(gpu_hot_celsius=50, gpu_too_hot_celsius=55, host_memory_full_percent=40, host_memory_ratio=0.55)
    lines = machine_lines(machine(), "gpu01", terminal(120), users)
    assert color_of("60 °C", lines) == "red"
    (line,) = (line for line in lines if "RAM" in line)
    assert ("████", "red") in colored([line])


@pytest.mark.parametrize(
    ("percent", "bar", "color"), [(50.0, "████", "cyan"), (92.5, "███████▍", "yellow"), (100.0, "████████", "red")]
)
def test_a_bar_of_gpu_memory_is_as_long_as_what_is_used_and_warns_when_full(
    terminal: MakeStyle, percent: float, bar: str, color: str
) -> None:
    full = {"memory_used_mb": 81920 * percent / 100, "memory_percent": percent, "utilization_percent": 10.0}
    lines = machine_lines(machine(dict(full)), "gpu01", terminal(120), DEFAULTS)
    assert (bar, color) in colored(lines[2:3])


@pytest.mark.parametrize(
    ("percent", "bar", "color"), [(50.0, "████", "cyan"), (92.5, "███████▍", "yellow"), (100.0, "████████", "red")]
)
def test_a_bar_of_host_memory_is_as_long_as_what_is_used_and_warns_when_full(
    terminal: MakeStyle, percent: float, bar: str, color: str
) -> None:
    lines = machine_lines(machine(host={"memory_used_bytes": percent}), "gpu01", terminal(120), DEFAULTS)
    (line,) = (line for line in lines if "RAM" in line)
    assert colored([line[line.index("RAM") :]])[0] == (bar, color)


def test_utilization_and_cpu_are_green_whatever_they_are(terminal: MakeStyle) -> None:
    lines = machine_lines(machine({"utilization_percent": 100.0}, {"cpu_ratio": 1.0}), "gpu01", terminal(120), DEFAULTS)
    assert colored(lines[2:3])[0] == ("████████", "green")
    (line,) = (line for line in lines if "CPU" in line)
    assert colored([line])[0] == ("████████", "green")


def test_a_lost_gpu_stands_out_and_shows_no_figures(terminal: MakeStyle) -> None:
    lines = machine_lines(machine({"up": 0}), "gpu01", terminal(120), DEFAULTS)
    assert color_of("lost", lines) == "red bold"
    assert visible(lines[2]).split() == ["3", "H100", "lost"]


def test_what_holds_a_gpu_back_is_yellow_and_named_once(terminal: MakeStyle) -> None:
    reasons: list[str] = ["sw_power_cap", "hw_thermal", "sw_thermal", "gpu_idle"]
    lines = machine_lines(machine(throttle_reasons=reasons), "gpu01", terminal(120), DEFAULTS)
    assert color_of("power cap, hot", lines) == "yellow"


def test_the_title_is_bold_headings_are_dim_and_simulated_gpus_are_marked(terminal: MakeStyle) -> None:
    lines = machine_lines(machine(simulated=True), "gpu01", terminal(120), DEFAULTS)
    assert colored(lines[:1]) == [("gpu01", "bold"), ("simulated GPUs", "yellow")]
    ((_, color),) = colored(lines[1:2])
    assert color == "dim"
    assert colored(machine_lines(machine(), "gpu01", terminal(120), DEFAULTS)[:1]) == [("gpu01", "bold")]


def test_why_there_is_no_gpu_is_dim(terminal: MakeStyle) -> None:
    lines = machine_lines(Live(), "gpu01", terminal(120), DEFAULTS, "no driver\nhint: install it")
    assert colored(lines[1:3]) == [("no GPU: no driver", "dim"), ("hint: install it", "dim")]


def test_without_colors_nothing_is_colored() -> None:
    lines = machine_lines(machine(temperature_celsius=95.0), "gpu01", PLAIN, DEFAULTS)
    assert colored(lines) == []


def test_the_processes_with_the_most_memory_are_listed_and_the_others_counted(terminal: MakeStyle) -> None:
    live = machine()
    samples = [
        Sample(
            Subject("process", f"{pid}@GPU-1", {"pid": pid, "gpu_index": 3, "uuid": "GPU-1", "command": "train"}),
            {"gpu_memory_mb": 100.0 + pid},
        )
        for pid in range(MOST_PROCESSES + 1)
    ]
    live(Snapshot(1794830401.0, 1.0, tuple(samples[:-1])))
    lines = machine_lines(live, "gpu01", terminal(120), DEFAULTS)
    assert [visible(line).split()[1] for line in lines if "train" in line] == [
        *map(str, reversed(range(MOST_PROCESSES)))
    ]
    assert not [line for line in lines if "more" in line]
    live(Snapshot(1794830402.0, 2.0, tuple(samples)))
    lines = machine_lines(live, "gpu01", terminal(120), DEFAULTS)
    assert color_of("and 1 more", lines) == "dim"


def test_a_part_of_pulsetrain_that_is_down_is_named(terminal: MakeStyle) -> None:
    lines = machine_lines(machine(host={"part_up": {"writer": 0, "push-vm": 1}}), "gpu01", terminal(120), DEFAULTS)
    assert color_of("pulsetrain's writer is down", lines) == "red"
    assert "push-vm" not in visible("\n".join(lines))


def test_a_line_that_lacks_a_label_is_shown_without_it(terminal: MakeStyle) -> None:
    live = Live()
    samples = (
        Sample(Subject("gpu", "GPU-1", {}), {"up": 1, "power_draw_watts": 300.0}),
        Sample(Subject("mig", "MIG-1", {"gpu_index": 3}), {"multiprocessors": 16}),
        Sample(Subject("process", "@GPU-1", {"gpu_index": 3, "command": "train"}), {"gpu_memory_mb": 100.0}),
    )
    live(Snapshot(1794830401.0, 1.0, samples))
    shown = [visible(line).split() for line in machine_lines(live, "gpu01", terminal(120), DEFAULTS)]
    assert [words[:2] for words in shown if "300" in words] == [["-", "-"]]
    assert [words[:2] for words in shown if "16" in words] == [["3/-/-", "-"]]
    assert [words[:2] for words in shown if "train" in words] == [["3", "-"]]


def test_the_versions_of_driver_and_cuda_are_in_the_first_line() -> None:
    versions: dict[str, Value] = {"gpu_driver_versions": {"580.95.05": 1}, "cuda_versions": {"13.0": 1}}
    lines = machine_lines(machine(host=versions), "gpu01", PLAIN, DEFAULTS)
    assert lines[0] == "gpu01  2026-11-16 12:00:00 UTC  driver 580.95.05, CUDA 13.0"
