"""NVIDIA GPUs through the nvidia-smi command."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsetrain.catalog import CORE_GPU_FIELDS
from pulsetrain.errors import Unavailable, UsageError
from pulsetrain.snapshot import Event, Sample
from pulsetrain.sources import Options, Source, nvidia_smi
from pulsetrain.sources.nvidia_smi import NvidiaSmi
from pulsetrain.sources.throttle import THROTTLING, throttle_words

Read = Callable[[Source], list[Sample]]
Events = Callable[[Source], list[Event]]

SCRIPT = '''\
#!{python} -IS
"""Answers like nvidia-smi: prints the columns asked for, and refuses the first one that its driver does not know."""
import pathlib, sys
here = pathlib.Path(__file__).parent
with open(here / "runs", "a") as runs:
    print(sys.argv[1:], file=runs)
if sys.argv[1] == "-L":
    sys.exit(print((here / "list.txt").read_text(), end=""))
query, format = sys.argv[1:]
assert format == "--format=csv,noheader,nounits"
header, *lines = (here / "answer.txt").read_text().splitlines()
known = header.split(", ")
asked = query.removeprefix("--query-gpu=").split(",")
for field in asked:
    if field not in known:
        print(f'Field "{{field}}" is not a valid field to query.\\n')
        sys.exit(2)
status = 0
for line in lines:
    cells = line.split(", ")
    if line.startswith("# exit"):
        status = int(line.split()[-1])
    elif len(cells) == len(known):
        print(", ".join(cells[known.index(field)] for field in asked))
    else:
        print(line, file=sys.stderr if line.startswith("Unable") else sys.stdout)
sys.exit(status)
'''


class Command:
    """An nvidia-smi of our own, whose answer a test can change."""

    def __init__(self, folder: Path, recorded: Path) -> None:
        self.path = folder / "nvidia-smi"
        self.path.write_text(SCRIPT.format(python=sys.executable))
        self.path.chmod(0o755)
        self._recorded = recorded / "nvidia-smi"
        self._answer = folder / "answer.txt"

    def answer(self, name: str) -> None:
        shutil.copy(self._recorded / f"{name}.txt", self._answer)

    def list(self, name: str) -> None:
        shutil.copy(self._recorded / f"{name}.txt", self.path.with_name("list.txt"))

    def edit(self, old: str, new: str) -> None:
        text = self._answer.read_text()
        assert old in text
        self._answer.write_text(text.replace(old, new))

    @property
    def runs(self) -> int:
        return len(self.path.with_name("runs").read_text().splitlines())


@pytest.fixture
def command(tmp_path: Path, recorded: Path) -> Command:
    return Command(tmp_path, recorded)


def test_a_server_of_eight(command: Command, read: Read, events: Events) -> None:
    command.answer("a100-8x")
    source = NvidiaSmi(command.path, environ={})
    samples = read(source)
    assert [sample.subject.labels["gpu_index"] for sample in samples] == list(range(8))
    first, second = samples[:2]
    assert first.subject.key == "GPU-892f902b-d23f-4824-928b-2f330c5c7fd0"
    assert first.subject.labels == {"gpu_index": 0, "uuid": first.subject.key, "name": "NVIDIA A100-SXM4-80GB"}
    assert first.values == {
        "up": 1,
        "utilization_percent": 95.0,
        "memory_controller_ratio": 0.43,
        "memory_used_mb": 66305.0,
        "memory_free_mb": 14983.0,
        "memory_total_mb": 81920.0,
        "memory_percent": 80.94,
        "temperature_celsius": 60.0,
        "memory_temperature_celsius": 75.0,
        "power_draw_watts": 356.85,
        "power_instant_watts": 356.85,
        "power_limit_watts": 400.0,
        "power_limit_max_watts": 400.0,
        "clock_sm_hertz": 1_290_000_000,
        "clock_memory_hertz": 1_593_000_000,
        "clock_sm_max_hertz": 1_410_000_000,
        "clock_memory_max_hertz": 1_593_000_000,
        "performance_state": 0,
        "throttle_reasons": ["sw_power_cap"],
        "pcie_generation": 4,
        "pcie_width": 16,
        "pcie_max_generation": 4,
        "pcie_max_width": 16,
        "encoder_ratio": 0.0,
        "decoder_ratio": 0.0,
        "ecc_corrected_errors": 0,
        "ecc_uncorrected_errors": 0,
        "remapped_rows_corrected": 0,
        "remapped_rows_uncorrected": 0,
        "remapped_rows_pending": 0,
        "remapped_rows_failed": 0,
    }
    assert second.values["throttle_reasons"] == []
    assert events(source) == []
    assert command.runs == 3  # one to open, one for each reading


def test_what_a_laptop_does_not_have_is_left_out(command: Command, read: Read) -> None:
    command.answer("rtx-4090-laptop")
    (laptop,) = read(NvidiaSmi(command.path, environ={}))
    assert {"fan_speed_percent", "memory_temperature_celsius", "power_limit_watts"}.isdisjoint(laptop.values)
    assert not any(name.startswith(("ecc_", "remapped_")) for name in laptop.values)
    assert laptop.values["power_draw_watts"] == laptop.values["power_instant_watts"] == 96.41
    assert laptop.values["power_average_watts"] == 95.2
    assert laptop.values["throttle_reasons"] == ["idle", "sw_thermal"]
    assert (laptop.values["pcie_width"], laptop.values["pcie_max_width"]) == (8, 16)


def test_fields_that_an_old_driver_refuses_are_learned_when_opening(command: Command, read: Read) -> None:
    command.answer("k80-old-driver")
    source = NvidiaSmi(command.path, environ={})
    refused = command.runs - 1
    busy, idle = read(source)
    assert refused == 9  # two powers, the new name of the throttle reasons, two video engines, four of row remapping
    assert command.runs == refused + 2
    assert busy.values["power_draw_watts"] == 138.55
    assert {"power_instant_watts", "encoder_ratio", "remapped_rows_failed"}.isdisjoint(busy.values)
    assert (busy.values["throttle_reasons"], idle.values["throttle_reasons"]) == ([], ["idle"])
    assert idle.values["performance_state"] == 8
    assert "fan_speed_percent" not in busy.values


def test_a_lost_gpu_is_reported_once_and_the_others_continue(command: Command, read: Read, events: Events) -> None:
    command.answer("a100-8x")
    source = NvidiaSmi(command.path, environ={})
    read(source)
    command.answer("a100-8x-one-lost")
    (lost,) = events(source)
    assert (lost.kind, lost.severity) == ("gpu_lost", "critical")
    assert lost.details == {"gpu_index": 2, "uuid": "GPU-f29d0da9-953f-48f1-a09f-76b5a170b338"}
    assert "GPU is lost. Reboot the system to recover this GPU" in lost.message
    samples = read(source)
    assert [sample.values["up"] for sample in samples] == [1, 1, 0, 1, 1, 1, 1, 1]
    assert samples[2].values == {"up": 0, **dict.fromkeys(CORE_GPU_FIELDS)}
    assert samples[3].values["power_draw_watts"] == 396.39
    assert events(source) == []
    command.answer("a100-8x")
    (back,) = events(source)
    assert (back.kind, back.severity, back.details) == ("gpu_back", "info", lost.details)
    assert [sample.values["up"] for sample in read(source)] == [1] * 8


def test_the_message_of_newer_drivers_names_the_index_too(command: Command, read: Read, events: Events) -> None:
    command.answer("a100-8x")
    source = NvidiaSmi(command.path, environ={})
    command.answer("a100-8x-one-lost")
    command.edit("for GPU 0000:48:00.0: GPU is lost.", "for GPU2: 0000:48:00.0: Unknown Error.")
    (lost,) = events(source)
    assert lost.details["gpu_index"] == 2
    assert "Unknown Error" in lost.message


@pytest.mark.parametrize("text", ["[GPU is lost]", "[Unknown Error]", "ERR!", "[GPU requires reset]"])
def test_a_row_of_errors_is_a_lost_gpu(command: Command, events: Events, text: str) -> None:
    command.answer("rtx-4090-laptop")
    source = NvidiaSmi(command.path, environ={})
    command.edit("41, 12, 5210, 10818, 16376, 67", ", ".join([text] * 6))
    (lost,) = events(source)
    assert lost.kind == "gpu_lost"
    assert text.strip("[]") in lost.message


def test_one_cell_that_says_the_gpu_is_lost_is_enough(command: Command, events: Events) -> None:
    command.answer("rtx-4090-laptop")
    source = NvidiaSmi(command.path, environ={})
    command.edit(" 5210,", " [GPU is lost],")
    assert [event.kind for event in events(source)] == ["gpu_lost"]


@pytest.mark.parametrize("text", ["[Unknown Error]", "ERR!"])
def test_one_broken_sensor_is_not_a_lost_gpu(command: Command, read: Read, events: Events, text: str) -> None:
    command.answer("rtx-4090-laptop")
    source = NvidiaSmi(command.path, environ={})
    command.edit(" 67,", f" {text},")
    (laptop,) = read(source)
    assert laptop.values["up"] == 1
    assert "temperature_celsius" not in laptop.values
    assert laptop.values["utilization_percent"] == 41.0
    assert events(source) == []


def test_a_gpu_that_is_no_longer_listed_is_lost(command: Command, events: Events) -> None:
    command.answer("k80-old-driver")
    source = NvidiaSmi(command.path, environ={})
    command.edit("GPU-eeeacbe2", "GPU-00000000")
    (lost,) = events(source)
    assert lost.details["gpu_index"] == 1
    assert "no longer lists it" in lost.message


def test_the_last_gpu_may_be_lost_too(command: Command, read: Read) -> None:
    command.answer("rtx-4090-laptop")
    source = NvidiaSmi(command.path, environ={})
    command.edit(
        "0, GPU-12bd4ace-faec-4d38-9be4-bcfc49b64a08, 00000000:01:00.0, NVIDIA GeForce RTX 4090 Laptop GPU, 41, ",
        "Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error # ",
    )
    assert [sample.values["up"] for sample in read(source)] == [0]


def test_a_gpu_lost_before_the_start_is_reported_and_not_watched(command: Command, read: Read, events: Events) -> None:
    command.answer("a100-8x-one-lost")
    source = NvidiaSmi(command.path, environ={})
    (lost,) = events(source)
    assert (lost.kind, lost.details) == ("gpu_lost", {"pci_bus_id": "0000:48:00.0"})
    assert events(source) == []
    assert [sample.subject.labels["gpu_index"] for sample in read(source)] == [0, 1, 3, 4, 5, 6, 7]


def test_gpus_are_chosen_by_option_and_by_variable(command: Command, read: Read, events: Events) -> None:
    command.answer("a100-8x")
    command.list("a100-mig-list")

    def watched(wanted: str | None, visible: str | None = None) -> list[object]:
        environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        return [s.subject.labels["gpu_index"] for s in read(NvidiaSmi(command.path, wanted, environ))]

    assert watched("1,GPU-e009") == [1, 7]
    assert watched(None, "3,4") == [3, 4]
    assert watched("all", "3,4") == list(range(8))
    assert watched(None, "MIG-c6a4e9b2-3f58-5d17-b1c9-7e0d5a8f2364") == [1]
    assert watched("MIG-9d2f") == [0]
    (told,) = events(NvidiaSmi(command.path, environ={"CUDA_VISIBLE_DEVICES": "3"}))
    assert told.kind == "gpus_selected"
    with pytest.raises(UsageError, match="8"):
        watched("8")
    with pytest.raises(Unavailable, match="no GPU visible with CUDA_VISIBLE_DEVICES="):
        watched(None, "")


def test_a_driver_that_does_not_answer_makes_the_source_unavailable(command: Command, read: Read) -> None:
    command.answer("no-driver")
    with pytest.raises(Unavailable, match=r"^NVIDIA-SMI has failed because it couldn't communicate"):
        NvidiaSmi(command.path, environ={})


def test_a_driver_that_fails_later_makes_the_reading_fail(command: Command, read: Read) -> None:
    command.answer("a100-8x")
    source = NvidiaSmi(command.path, environ={})
    command.answer("no-driver")
    with pytest.raises(Unavailable, match="couldn't communicate"):
        read(source)
    command.answer("a100-8x")
    assert len(read(source)) == 8


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    hanging = tmp_path / "nvidia-smi"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o755)
    with pytest.raises(Unavailable, match=r"did not respond within 0\.3 s"):
        NvidiaSmi(hanging, environ={}, timeout=0.3)


def test_a_file_that_is_not_a_program_makes_the_source_unavailable(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").touch(0o755)
    (tmp_path / "nvidia-smi").write_text("not a program")
    with pytest.raises(Unavailable, match="would not start: Exec format error"):
        NvidiaSmi(tmp_path / "nvidia-smi", environ={})


def test_the_command_is_looked_for_in_path(
    command: Command, read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.answer("rtx-4090-laptop")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (source,) = nvidia_smi.open_sources(Options())
    assert len(read(source)) == 1
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(Unavailable, match="no nvidia-smi in PATH"):
        nvidia_smi.open_sources(Options())


def test_readings_keep_a_distance_that_grows_with_their_cost(command: Command, read: Read) -> None:
    command.answer("rtx-4090-laptop")
    source = NvidiaSmi(command.path, environ={})
    assert source.period is not None
    assert source.period >= 1.0
    slow = command.path.read_text().replace("import pathlib, sys", "import pathlib, sys, time; time.sleep(0.5)")
    command.path.write_text(slow)
    read(source)
    assert 2.0 <= source.period <= 10.0


def test_throttle_reasons_are_words_for_every_bit() -> None:
    assert throttle_words(0) == []
    assert throttle_words(0x1FF) == [
        "idle",
        "applications_clocks",
        "sw_power_cap",
        "hw_slowdown",
        "sync_boost",
        "sw_thermal",
        "hw_thermal",
        "hw_power_brake",
        "display_clocks",
    ]
    assert throttle_words(0x401) == ["idle", "reason_0x400"]  # of a driver newer than we are
    assert set(throttle_words(0x1FF)) > THROTTLING
    assert THROTTLING.isdisjoint({"idle", "applications_clocks", "display_clocks"})
