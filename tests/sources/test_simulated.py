import math
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from pulsetrain.errors import Unavailable, UsageError
from pulsetrain.snapshot import Sample
from pulsetrain.sources import Options, Source
from pulsetrain.sources.simulated import MODELS, Simulated, open_sources, parse

Read = Callable[[Source], list[Sample]]

HOUR = 3600


class Clock:
    """Time that passes when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def number(sample: Sample, field: str) -> float:
    value = sample.values[field]
    assert isinstance(value, float | int)
    return value


def words(sample: Sample) -> list[str]:
    value = sample.values["throttle_reasons"]
    assert isinstance(value, list)
    return value


def record(spec: str, seconds: float, period: float = 1.0, seed: int = 0) -> Iterator[list[Sample]]:
    """One reading of all GPUs per period, from the start of the job on."""
    clock = Clock()
    source = Simulated(spec, clock=clock, seed=seed)
    for tick in range(round(seconds / period) + 1):
        clock.now = 1000 + tick * period
        yield [item for item in source.read() if isinstance(item, Sample)]


def names(spec: str) -> list[str]:
    return [model.name for model in parse(spec)]


def test_a_count_and_a_model_make_that_many_gpus() -> None:
    assert names("8xH100") == ["NVIDIA H100 80GB HBM3"] * 8
    assert names("2xL4,1xA100") == ["NVIDIA L4", "NVIDIA L4", "NVIDIA A100-SXM4-80GB"]
    assert names("V100") == ["Tesla V100-SXM2-16GB"]


@pytest.mark.parametrize("spec", ["RTX4090", "rtx 4090", "RTX-4090", "1xrtx4090", " 1 X Rtx_4090 "])
def test_case_spaces_and_dashes_do_not_matter(spec: str) -> None:
    assert names(spec) == ["NVIDIA GeForce RTX 4090"]


@pytest.mark.parametrize(
    "spec", ["B300", "2xB300", "L4,B300", "0xL4", "-", "", "L4,", "L4xL4", "2x", "4090x", "1000xL4"]
)
def test_what_cannot_be_simulated_is_refused_with_the_models_there_are(spec: str) -> None:
    with pytest.raises(UsageError) as refused:
        Simulated(spec)
    assert refused.value.message.startswith(f"--simulate {spec}: cannot simulate ")
    assert refused.value.hint is not None
    assert all(name in refused.value.hint for name in ("L4", "A100", "H100", "V100", "RTX 4090"))


def test_the_refusal_names_the_part_that_is_wrong() -> None:
    with pytest.raises(UsageError, match=r"cannot simulate '3xB300'\."):
        parse("2xL4, 3xB300")


def test_without_a_wish_there_are_none() -> None:
    with pytest.raises(Unavailable):
        open_sources(Options())


def test_every_gpu_says_that_it_is_simulated(read: Read) -> None:
    (source,) = open_sources(Options(simulate="2xL4"))
    labels = [sample.subject.labels for sample in read(source)]
    assert [label["gpu_index"] for label in labels] == [0, 1]
    assert [label["name"] for label in labels] == ["NVIDIA L4 (simulated)"] * 2
    assert all(label["simulated"] is True for label in labels)
    assert all(str(label["uuid"]).startswith("SIM-") for label in labels)
    assert len({label["uuid"] for label in labels}) == 2


def test_a_gpu_keeps_its_uuid_from_run_to_run(read: Read) -> None:
    first, again, wider = (
        [sample.subject.key for sample in read(Simulated(spec))] for spec in ("2xL4", "2xL4", "3xL4,1xA100")
    )
    assert first == again == wider[:2]


def test_gpus_are_chosen_by_index(read: Read) -> None:
    (source,) = open_sources(Options(simulate="4xL4", gpus="1,3"))
    assert [sample.subject.labels["gpu_index"] for sample in read(source)] == [1, 3]
    with pytest.raises(UsageError, match="--gpus 4: "):
        open_sources(Options(simulate="4xL4", gpus="4"))


def test_gpus_are_chosen_by_uuid_or_the_start_of_one(read: Read) -> None:
    uuid = read(Simulated("4xL4"))[2].subject.key
    for name in (uuid, uuid[:12]):
        assert [sample.subject.key for sample in read(Simulated("4xL4", name))] == [uuid]


def test_cuda_visible_devices_does_not_hide_simulated_gpus(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert len(read(Simulated("2xL4"))) == 2


def test_a_chosen_gpu_does_what_it_does_among_all() -> None:
    clock = Clock()
    everything, one = Simulated("4xH100", clock=clock), Simulated("4xH100", "2", clock=clock)
    clock.now += 30
    assert list(everything.read())[2] == next(iter(one.read()))


@pytest.mark.parametrize("model", MODELS)
def test_an_hour_stays_within_the_limits_of_the_model(model: str, read: Read) -> None:
    facts = MODELS[model]
    clock = Clock()
    source = Simulated(f"2x{model}", clock=clock)
    hottest = 0.0
    for _ in range(HOUR):
        clock.now += 1
        for sample in read(source):
            value = {field: number(sample, field) for field in sample.values if field != "throttle_reasons"}
            assert facts.idle_watts <= value["power_draw_watts"] <= facts.limit_watts <= value["power_limit_max_watts"]
            assert 20 < value["temperature_celsius"] < facts.hot_celsius + 3
            assert facts.sm_mhz.idle * 1e6 <= value["clock_sm_hertz"] <= value["clock_sm_max_hertz"]
            assert facts.memory_mhz.idle * 1e6 <= value["clock_memory_hertz"] <= value["clock_memory_max_hertz"]
            assert 0 <= value["utilization_percent"] <= 100
            assert 0 < value["memory_used_mb"] <= value["memory_total_mb"]
            assert value["memory_used_mb"] + value["memory_free_mb"] == value["memory_total_mb"]
            assert 0 <= value["memory_percent"] <= 100
            assert 0 <= value.get("fan_speed_percent", 0) <= 100
            assert all(0 <= share <= 1 for field, share in value.items() if field.endswith("_ratio"))
            assert 1 <= value["pcie_generation"] <= value["pcie_max_generation"]
            hottest = max(hottest, value["temperature_celsius"])
    assert hottest > 55


@pytest.mark.parametrize("model", MODELS)
def test_the_energy_counter_agrees_with_power_over_an_hour(model: str) -> None:
    readings = [samples[0] for samples in record(model, HOUR, 0.5)]
    counted = number(readings[-1], "energy_joules") - number(readings[0], "energy_joules")
    integral = sum(number(sample, "power_draw_watts") for sample in readings[1:]) * 0.5
    assert counted == pytest.approx(integral, rel=0.01)


def test_average_power_is_the_mean_of_the_last_second() -> None:
    readings = [samples[0] for samples in record("H100", 120)]
    for before, after in pairwise(readings):
        joules = number(after, "energy_joules") - number(before, "energy_joules")
        assert number(after, "power_average_watts") == pytest.approx(joules, abs=0.01)


def test_means_over_a_second_are_true_after_a_long_gap_too() -> None:
    clock = Clock()
    source = Simulated("H100", clock=clock)
    clock.now += 10 * HOUR
    (after_gap,) = source.read()
    *_, (watched,) = record("H100", 10 * HOUR, 10)
    assert after_gap.values["utilization_percent"] == watched.values["utilization_percent"]
    power = number(watched, "power_average_watts")
    assert number(after_gap, "power_average_watts") == pytest.approx(power, rel=0.03)  # it may be cooler, so leak less


def test_power_moves_each_tenth_of_a_second_and_energy_with_it() -> None:
    readings = [samples[0] for samples in record("H100", 20, 0.1)][50:]
    assert len({number(sample, "power_draw_watts") for sample in readings}) > 100
    energy = [number(sample, "energy_joules") for sample in readings]
    assert energy == sorted(energy)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    assert list(record("2xL4", 90)) == list(record("2xL4", 90))
    assert list(record("2xL4", 90, seed=1)) != list(record("2xL4", 90))


def test_reading_more_often_does_not_change_what_happens() -> None:
    seldom = list(record("2xA100", 300, 10))
    often = list(record("2xA100", 300, 0.5))[::20]
    for left, right in zip(seldom, often, strict=True):
        for a, b in zip(left, right, strict=True):
            joules = (number(a, "energy_joules"), number(b, "energy_joules"))
            assert joules[0] == pytest.approx(joules[1], abs=0.01)
            assert a.values["temperature_celsius"] == b.values["temperature_celsius"]


def test_a_gap_of_an_hour_brings_the_energy_of_an_hour() -> None:
    clock = Clock()
    source = Simulated("A100", clock=clock)
    (first,) = source.read()
    clock.now += HOUR
    (last,) = source.read()
    *_, (stepwise,) = record("A100", HOUR)
    start = number(first, "energy_joules")
    assert number(last, "energy_joules") - start == pytest.approx(number(stepwise, "energy_joules") - start, rel=0.05)


def test_the_job_starts_idle_while_memory_fills_in_steps() -> None:
    readings = [samples[0] for samples in record("L4", 5, 0.1)]
    loading = readings[:20]
    assert {number(sample, "utilization_percent") for sample in loading} == {0.0}
    assert all(words(sample) == ["idle"] for sample in loading)
    assert number(loading[0], "performance_state") == 8
    memory = [number(sample, "memory_used_mb") for sample in readings]
    assert memory == sorted(memory)
    assert 4 <= len(set(memory)) <= 8
    assert number(readings[0], "memory_percent") < 1
    assert number(readings[-1], "memory_percent") > 80
    assert number(readings[-1], "performance_state") == 0


def mean(readings: list[list[Sample]], field: str, first: int, last: int) -> float:
    return sum(number(samples[0], field) for samples in readings[first:last]) / (last - first)


def test_training_is_interrupted_by_validation_and_by_checkpoints() -> None:
    readings = list(record("H100", 320))
    assert mean(readings, "utilization_percent", 10, 50) > 90
    training, validation, checkpoint = (
        mean(readings, "power_average_watts", first, last) for first, last in ((270, 290), (292, 300), (302, 306))
    )
    assert training > 1.4 * validation > 3 * checkpoint
    assert mean(readings, "utilization_percent", 302, 306) < 15
    assert mean(readings, "utilization_percent", 310, 320) > 90


def test_utilization_dips_when_the_loader_is_late_and_power_with_it() -> None:
    training = [samples[0] for samples in record("H100", 49)][5:]
    dips = [sample for sample in training if number(sample, "utilization_percent") < 95]
    steady = [sample for sample in training if number(sample, "utilization_percent") >= 99]
    assert 0 < len(dips) < len(steady)
    lowest_steady = min(number(sample, "power_average_watts") for sample in steady)
    assert number(min(dips, key=lambda s: number(s, "utilization_percent")), "power_average_watts") < lowest_steady


def test_temperature_follows_power_with_a_lag() -> None:
    readings = [samples[0] for samples in record("H100", 49)]
    after_3_s, after_20_s, last = (number(readings[at], "temperature_celsius") for at in (5, 22, 49))
    assert number(readings[5], "power_draw_watts") > 600
    idle = number(readings[0], "temperature_celsius")
    assert after_3_s - idle < (last - idle) / 3
    # After one time constant of 18 s, 63 % of the way to where it would settle.
    settled = 1 - math.exp(-47 / 18)
    assert (after_20_s - idle) / ((last - idle) / settled) == pytest.approx(0.66, abs=0.08)


def test_the_gpus_of_a_job_move_together_and_yet_differ() -> None:
    readings = list(record("8xH100", 300))
    for samples in readings:
        use = [number(sample, "utilization_percent") for sample in samples]
        assert max(use) - min(use) <= 4
    late = readings[280]
    heat = sorted(number(sample, "temperature_celsius") for sample in late)
    assert heat[-1] - heat[-2] >= 3
    use = sorted(number(sample, "utilization_percent") for sample in readings[48])
    assert use[0] < use[1] - 1
    assert len({number(sample, "power_draw_watts") for sample in late}) == 8


def test_a_board_at_its_power_limit_says_so_and_lowers_its_clock() -> None:
    readings = [samples[0] for samples in record("L4", 280)]
    training = [sample for sample in readings[5:48] if words(sample) == ["sw_power_cap"]]
    assert len(training) > 30
    assert all(number(sample, "clock_sm_hertz") < number(sample, "clock_sm_max_hertz") for sample in training)
    # Leakage: the hotter it is, the less clock the same power buys.
    cool, warm = (mean([[s] for s in readings], "clock_sm_hertz", at, at + 40) for at in (5, 245))
    assert warm < cool


def test_a_board_short_of_air_is_slowed_by_heat() -> None:
    slowed = [sample for samples in record("2xRTX4090", 600) for sample in samples if words(sample) == ["sw_thermal"]]
    assert slowed
    assert len({sample.subject.key for sample in slowed}) == 1
    assert all(number(sample, "temperature_celsius") >= 83 for sample in slowed)
    assert all(number(sample, "clock_sm_hertz") < 2745e6 for sample in slowed)


def test_the_fan_rests_when_cool_and_follows_the_heat() -> None:
    readings = [samples[0] for samples in record("RTX4090", 200)]
    assert number(readings[0], "fan_speed_percent") == 0
    warm = [sample for sample in readings if number(sample, "fan_speed_percent") > 0]
    by_heat = sorted(warm, key=lambda sample: number(sample, "temperature_celsius"))
    assert number(by_heat[0], "fan_speed_percent") < number(by_heat[-1], "fan_speed_percent") - 10


ONLY_ON = {
    "fan_speed_percent": {"RTX 4090"},
    "memory_temperature_celsius": {"A100", "H100", "V100"},
    "power_average_watts": {"L4", "H100", "RTX 4090"},
    "ecc_corrected_errors": {"L4", "A100", "H100", "V100"},
    "ecc_uncorrected_errors": {"L4", "A100", "H100", "V100"},
    "remapped_rows_pending": {"L4", "A100", "H100"},
    "nvlink_received_bytes": {"A100", "H100", "V100"},
    "nvlink_sent_bytes": {"A100", "H100", "V100"},
    "sm_active_ratio": {"H100"},
    "sm_occupancy_ratio": {"H100"},
    "tensor_active_ratio": {"H100"},
    "dram_active_ratio": {"H100"},
}


@pytest.mark.parametrize("model", MODELS)
def test_what_a_model_lacks_is_absent(model: str, read: Read) -> None:
    (sample,) = read(Simulated(model))
    assert {field for field in ONLY_ON if field in sample.values} == {f for f, on in ONLY_ON.items() if model in on}
    assert None not in sample.values.values()


def test_nvlink_counts_when_there_is_a_peer_to_talk_to() -> None:
    *_, alone = record("A100", 30)
    *_, together = record("2xA100", 30)
    assert [number(sample, "nvlink_sent_bytes") for sample in alone] == [0]
    assert all(number(sample, "nvlink_sent_bytes") > 1e11 for sample in together)


def lines_executed(action: Callable[[], object]) -> int:
    """How much Python an action runs, the same on a fast and on a busy machine."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[[FrameType, str, Any], Any]:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def cost_after(source: Simulated, clock: Clock, gap: float) -> int:
    clock.now += gap
    return lines_executed(lambda: list(source.read()))


def test_a_week_of_gap_costs_no_more_than_a_few_minutes_of_it() -> None:
    clock = Clock()
    source = Simulated("2xL4", clock=clock)
    minutes = cost_after(source, clock, 100)
    assert cost_after(source, clock, 7 * 24 * HOUR) < 1.3 * minutes


def test_a_reading_costs_the_same_after_a_long_run() -> None:
    clock = Clock()
    source = Simulated("2xL4", clock=clock)
    list(source.read())
    early = max(cost_after(source, clock, 1) for _ in range(60))
    cost_after(source, clock, 100 * HOUR)
    assert max(cost_after(source, clock, 1) for _ in range(60)) < 1.1 * early


def test_cost_grows_with_gpus_at_most_in_proportion() -> None:
    one, eight = (cost_after(Simulated(spec, clock=(clock := Clock())), clock, 5) for spec in ("L4", "8xL4"))
    assert eight < 8 * one
