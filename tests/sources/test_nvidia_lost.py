"""GPUs that are lost while others go on, and that come back; on the simulated NVML, in processes of their own.

Times are those of the scenario: a lost board is looked for again after 1 s, and NVML is restarted for it after 3.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.nvml.scenario import Scenario, constant

from pulsetrain.catalog import CORE_GPU_FIELDS

Nvidia = Callable[..., Any]
Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]
Reading = dict[str, list[dict[str, Any]]]

WATCH = "answer = watch(%s, opened()['nvidia'])[0]"


def history(readings: list[Reading], gpu: int) -> list[int]:
    """When a GPU was up, in short: [1, 0, 1] for one that was lost and came back."""
    ups = [line["up"] for reading in readings for line in reading["lines"] if line["gpu_index"] == gpu]
    assert len(ups) == len(readings)
    return [up for up, _ in groupby(ups)]


def told(readings: list[Reading]) -> list[tuple[str, int]]:
    return [(event["kind"], event["gpu_index"]) for reading in readings for event in reading["events"]]


def lines_of(readings: list[Reading], gpu: int) -> list[dict[str, Any]]:
    return [line for reading in readings for line in reading["lines"] if line["gpu_index"] == gpu]


def test_a_lost_gpu_has_lines_without_values_until_it_is_back_and_the_others_continue(nvidia: Nvidia) -> None:
    readings, lookups = nvidia(
        Scenario().gpus(3, "H100").lost(1, 0.7, 1.2),
        "answer = [watch(2.6, opened()['nvidia'])[0], calls('nvmlDeviceGetHandleByUUID')]",
    )
    assert [history(readings, gpu) for gpu in range(3)] == [[1], [1, 0, 1], [1]]
    assert told(readings) == [("gpu_lost", 1), ("gpu_back", 1)]
    before, after = readings[0]["lines"][1], readings[-1]["lines"][1]
    identity = {name: before[name] for name in ("gpu_index", "uuid", "name")}
    for line in lines_of(readings, 1):
        if line["up"]:
            assert set(line) == set(before)
        else:
            assert line == {**identity, "up": 0, **dict.fromkeys(CORE_GPU_FIELDS)}
    assert after["uuid"] == before["uuid"]
    for other in (0, 2):
        assert all(line["power_draw_watts"] > 0 for line in lines_of(readings, other))
    lost, back = (event for reading in readings for event in reading["events"])
    assert lost["message"] == "GPU 1 (NVIDIA H100 80GB HBM3) is lost: GPU is lost"
    assert back["message"] == "GPU 1 (NVIDIA H100 80GB HBM3) is back"
    assert lost["uuid"] == back["uuid"] == before["uuid"]
    assert lookups == 1  # a lost board is not looked for on every tick


def test_the_slower_sources_leave_a_lost_gpu_out_and_take_it_up_again(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(2, "H100").lost(1, 0.7, 1.2).process(0, "self", 100).process(1, "self", 100)
    ticks, activity, *others = nvidia(
        scenario,
        """
        names = "nvidia", "nvidia_activity", "nvidia_health", "nvidia_links", "nvidia_processes"
        sources = [*map(opened().get, names)]
        rounds = []
        for second in (0, 0.9, 2.2, 2.3):
            until(second)
            rounds.append([read(source) for source in sources])
        answer = [*zip(*rounds)]
        """,
    )

    def seen(readings: list[Reading]) -> list[list[int]]:
        return [[line["gpu_index"] for line in reading["lines"]] for reading in readings]

    assert [reading["lines"][1]["up"] for reading in ticks] == [1, 0, 1, 1]
    assert [seen(readings) for readings in others] == [[[0, 1], [0], [0, 1], [0, 1]]] * 3
    # A difference between two readings must not reach over the time in which the board was away.
    assert seen(activity) == [[], [0], [0], [0, 1]]


def test_a_gpu_that_needs_it_comes_back_with_a_restart_of_nvml(nvidia: Nvidia) -> None:
    readings, restarts, health = nvidia(
        Scenario().gpus(3, "H100").lost(1, 0.7, 1.2).lost_needs_reinit(),
        """
        sources = opened()
        readings = watch(4.7, sources["nvidia"])[0]
        answer = [readings, calls("nvmlShutdown"), lines(sources["nvidia_health"])]
        """,
    )
    assert [history(readings, gpu) for gpu in range(3)] == [[1], [1, 0, 1], [1]]
    assert told(readings) == [("gpu_lost", 1), ("gpu_back", 1)]
    assert restarts == 1
    assert [line["power_limit_watts"] for line in health] == [700.0, 700.0, 700.0]


def test_gpus_lost_all_at_once_share_one_restart_whether_they_come_back_or_not(nvidia: Nvidia) -> None:
    readings, restarts = nvidia(
        Scenario().gpus(4, "H100").lost(0, 0.7, 1.2).lost(1, 0.7, 1.2).lost(2, 0.7).lost(3, 0.7).lost_needs_reinit(),
        "answer = [watch(4.7, opened()['nvidia'])[0], calls('nvmlShutdown')]",
    )
    assert [history(readings, gpu) for gpu in range(4)] == [[1, 0, 1], [1, 0, 1], [1, 0], [1, 0]]
    assert told(readings) == [*(("gpu_lost", gpu) for gpu in range(4)), ("gpu_back", 0), ("gpu_back", 1)]
    assert restarts == 1


def test_gpus_whose_every_call_ends_in_an_unknown_error_are_lost(nvidia: Nvidia) -> None:
    """As in a container whose device access was revoked. A GB10 still has the host's memory to show, and does not."""
    readings = nvidia(
        Scenario().gpus(1, "H100").gpus(1, "GB10").gpus(1, "H100").lost(0, 0.7, 1.2).lost(1, 0.7).lost_error(999),
        WATCH % 2.6,
    )
    assert [history(readings, gpu) for gpu in range(3)] == [[1, 0, 1], [1, 0], [1]]
    kinds = [event["kind"] for reading in readings for event in reading["events"]]
    assert kinds == ["shared_memory", "gpu_lost", "gpu_lost", "gpu_back"]
    reasons = [e["message"] for reading in readings for e in reading["events"] if e["kind"] == "gpu_lost"]
    assert all(reason.endswith("is lost: Unknown Error") for reason in reasons)


def test_a_gpu_of_which_not_one_value_can_be_read_is_lost_though_it_is_listed(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(2, "H100")
    for function in (
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetFanSpeed",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetPerformanceState",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlDeviceGetDecoderUtilization",
        *(186, 185, 83, 82),
    ):
        scenario.fail(1, function, 999)
    (reading,) = nvidia(scenario, "answer = [read(opened()['nvidia'])]")
    assert [line["up"] for line in reading["lines"]] == [1, 0]
    assert [event["kind"] for event in reading["events"]] == ["gpu_lost"]


def test_a_gpu_lost_before_we_start_is_known_once_it_is_back(nvidia: Nvidia) -> None:
    readings, activity = nvidia(
        Scenario().gpus(2, "H100").lost(1, 0, 0.5).xid(1, 31, 1.8),
        "sources = opened(); answer = watch(2.4, sources['nvidia'], sources['nvidia_activity'])",
    )
    assert [history(readings, gpu) for gpu in range(2)] == [[1], [0, 1]]
    assert told(readings) == [("gpu_lost", 1), ("gpu_back", 1), ("xid", 1)]
    assert readings[0]["events"][0]["message"] == "GPU 1 (unknown) is lost: it does not answer"
    first, last = readings[0]["lines"][1], readings[-1]["lines"][1]
    assert (first["uuid"], first["name"], first["utilization_percent"]) == (None, "unknown", None)
    assert last["uuid"].startswith("GPU-")
    assert (last["name"], last["utilization_percent"], last["xid_errors"]) == ("NVIDIA H100 80GB HBM3", 95, 1)
    assert [line["gpu_index"] for line in activity[-1]["lines"]] == [0, 1]


def test_all_gpus_lost_before_we_start_are_watched_for_all_the_same(nvidia: Nvidia) -> None:
    readings = nvidia(Scenario().gpus(2, "H100").lost("*", 0, 0.5), WATCH % 1.6)
    assert [history(readings, gpu) for gpu in range(2)] == [[0, 1], [0, 1]]
    assert told(readings) == [("gpu_lost", 0), ("gpu_lost", 1), ("gpu_back", 0), ("gpu_back", 1)]


def test_the_xid_by_which_a_gpu_is_lost_remains_in_its_lines(nvidia: Nvidia) -> None:
    readings = nvidia(Scenario().gpus(2, "H100").lost(1, 0.5).xid(1, 79, 0.5), WATCH % 1.2)
    assert {*told(readings)} == {("gpu_lost", 1), ("xid", 1)}
    lost = [line for line in lines_of(readings, 1) if not line["up"]]
    assert [(line["xid_errors"], line["xid_code_errors"]) for line in lost] == [(1, {"79": 1})] * len(lost)
    assert lost


def test_an_xid_of_one_gpu_is_reported_while_another_is_lost(nvidia: Nvidia) -> None:
    readings = nvidia(Scenario().gpus(2, "H100").xid(0, 79, 0.6).lost(0, 0.7).xid(1, 31, 1.2), WATCH % 1.6)
    assert told(readings) == [("xid", 0), ("gpu_lost", 0), ("xid", 1)]
    assert readings[-1]["lines"][1]["xid_errors"] == 1


LOSE = """
import json, pathlib, sys, time

runs, lost = map(pathlib.Path, sys.argv[1:])

def recorded(up):
    while True:
        texts = [file.read_text() for file in runs.glob("*/*/gpu_metrics_*.jsonl")]
        lines = [json.loads(line) for text in texts for line in text.split("\\n")[:-1]]
        if [line["up"] for line in lines if line["gpu_index"] == 1][-1:] == [up]:
            return
        time.sleep(0.1)

recorded(1)
lost.touch()
recorded(0)
lost.unlink()
recorded(1)
"""
"""A command that takes a GPU away once it was recorded, and gives it back once that was."""


def test_a_run_records_a_gpu_that_is_lost_and_comes_back(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    runs, away = tmp_path / "runs", tmp_path / "away"
    command = ("run", "--interval", "0.5", "--dir", str(runs), "--", sys.executable, "-c", LOSE, str(runs), str(away))
    result = pulsetrain(Scenario().gpus(2, "H100").lost_while(1, away), *command)
    assert result.returncode == 0
    assert result.stderr.count("GPU 1 (NVIDIA H100 80GB HBM3) is lost") == 1
    (file,) = (tmp_path / "runs").glob("*/*/gpu_metrics_*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    healthy, lost = ([line for line in lines if line["gpu_index"] == gpu] for gpu in (0, 1))
    assert [line["timestamp"] for line in healthy] == [line["timestamp"] for line in lost]
    assert all(line["up"] == 1 and line["utilization_percent"] == 95 for line in healthy)
    assert [up for up, _ in groupby(line["up"] for line in lost)] == [1, 0, 1]
    for line in lost:
        values = [line[field] for field in CORE_GPU_FIELDS[:-1]]
        assert None not in values if line["up"] else set(values) == {None}
    assert len({line["uuid"] for line in lost}) == 1
    events = [json.loads(line) for line in (file.parent / "events.jsonl").read_text().splitlines()]
    about_gpus = [(event["kind"], event["gpu_index"], event["uuid"]) for event in events if "gpu_index" in event]
    assert about_gpus == [("gpu_lost", 1, lost[0]["uuid"]), ("gpu_back", 1, lost[0]["uuid"])]


def test_a_gpu_lost_at_the_start_of_a_run_is_one_row_and_its_energy_lies_within_the_bound(
    pulsetrain: Pulsetrain, tmp_path: Path
) -> None:
    watts = 400.0
    scenario = Scenario().gpus(1, "H100").lost(0, 0, 2).curve("power", 0, constant(watts))
    command = "until grep -q '\"up\":1' runs/*/*/gpu_metrics_*.jsonl; do sleep 0.2; done 2>/dev/null; sleep 1"
    assert pulsetrain(scenario, "run", "--dir", "runs", "-q", "--", "sh", "-c", command).returncode == 0
    (about,) = tmp_path.glob("runs/*/run.json")
    (host,) = json.loads(about.read_text())["hosts"].values()
    assert [(gpu["gpu_index"], gpu["uuid"][:4]) for gpu in host["gpus"]] == [(0, "GPU-")]
    report = json.loads(pulsetrain(scenario, "report", "last", "--dir", "runs", "--json").stdout)
    (row,) = report["summary"]["gpus"]
    assert row["name"] == "NVIDIA H100 80GB HBM3" and row["lost_samples"] > 0
    (device,) = (device for device in report["energy"]["devices"] if device["device"] == "gpu")
    told, truth = device["total"], watts * report["summary"]["seconds"]
    assert abs(told["joules"] - truth) <= told["error_joules"]


def test_a_sample_shows_a_lost_gpu_beside_the_others(pulsetrain: Pulsetrain) -> None:
    result = pulsetrain(Scenario().gpus(2, "L4").lost(0), "sample")
    assert result.returncode == 0
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "lost" in rows["0"]
    assert "95 %" in rows["1"]
