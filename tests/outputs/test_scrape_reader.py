"""What another pulsetrain shows becomes the samples that it was made of."""

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.errors import PulsetrainError
from pulsetrain.live import Live
from pulsetrain.outputs.exposition import Format, render
from pulsetrain.outputs.families import RunInfo, families, joined
from pulsetrain.outputs.scrape_reader import ScrapeReader
from pulsetrain.runs.reports import merge, subject
from pulsetrain.snapshot import Event, Label, Sample, Snapshot, Subject, Value
from pulsetrain.sources import Options
from pulsetrain.sources.opening import open_sources

GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4", "simulated": True})
HOST = Subject("host", "")
START = 1.8e9


class Machine:
    """A machine with its exporter's text."""

    def __init__(self, scope: Mapping[str, str] | None = None, run_info: RunInfo | None = None) -> None:
        self.live = Live()
        self.elapsed = 0.0
        self._scope = {"host": "gpu01", **(scope or {})}
        self._run_info = run_info

    def page(self, *samples: Sample, events: Sequence[Event] = (), age: float = 0.0, format: Format = "text") -> str:
        self.live(Snapshot(START + self.elapsed, self.elapsed, samples, tuple(events)))
        self.elapsed += 1
        found = families(self.live, self._scope, run_info=self._run_info, now=self.live.time + age)
        return render(found, format).decode()


def known(values: Mapping[str, Value]) -> dict[str, Value]:
    return {field: value for field, value in values.items() if value not in (None, [])}


def report(*lines: dict[str, object], rank: int = 0) -> Sample:
    values: dict[str, Value] = {}
    for line in lines:
        merge(values, line)
    return Sample(subject(rank), values)


def test_all_values_of_gpus_and_host_come_back() -> None:
    opened = open_sources(Options(simulate="2xL4,1xH100"))
    samples = [item for source in opened.sources for item in source.read() if isinstance(item, Sample)]
    opened.close()
    host = Sample(HOST, {"cpu_ratio": 0.25, "cpu_core_ratio": {"0": 0.5, "1": 0.0}, "source_up": {"nvidia": 1}})
    samples = [sample for sample in samples if sample.subject.table == "gpu"] + [host]
    again = {sample.subject: sample for sample in ScrapeReader().read(Machine().page(*samples)).samples}
    assert again.keys() == {sample.subject for sample in samples}
    for sample in samples:
        assert known(again[sample.subject].values) == known(sample.values)
        assert again[sample.subject].subject.labels == sample.subject.labels


def test_openmetrics_says_the_same() -> None:
    sample = Sample(GPU, {"up": 1, "energy_joules": 5.5, "throttle_reasons": ["sw_thermal"]})
    assert ScrapeReader().read(Machine().page(sample, format="openmetrics")).samples == (sample,)


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1) | st.just('a"b\\n\n{x="y"} 1'))
def test_a_command_comes_back_with_all_its_characters(command: str) -> None:
    labels: dict[str, Label] = {
        "pid": 7,
        "user": "ann",
        "command": command,
        "container": "pod:u1/c1",
        "gpu_index": 0,
        "uuid": "GPU-1",
    }
    process = Sample(Subject("process", "7@GPU-1", labels), {"gpu_memory_mb": 10.0})
    (found,) = [s for s in ScrapeReader().read(Machine().page(process, Sample(HOST, {}))).samples if s.values]
    assert (found.subject, found.subject.labels) == (process.subject, labels)


def test_a_mig_instance_comes_back() -> None:
    labels: dict[str, Label] = {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA A100 MIG 1g.5gb", "mig_uuid": "MIG-1"}
    labels |= {"gpu_instance": 3, "compute_instance": 0}
    mig = Sample(Subject("mig", "MIG-1", labels), {"memory_used_mb": 5.0})
    (found,) = [
        s for s in ScrapeReader().read(Machine().page(mig, Sample(GPU, {"up": 1}))).samples if s.subject == mig.subject
    ]
    assert (found.values, found.subject.labels) == (mig.values, labels)


def test_a_lost_gpu_keeps_its_name_and_loses_its_values() -> None:
    machine, reader = Machine(), ScrapeReader()
    reader.read(machine.page(Sample(GPU, {"up": 1, "power_draw_watts": 70.0})))
    (lost,) = reader.read(machine.page(Sample(GPU, {"up": 0, "power_draw_watts": None}))).samples
    assert lost.values == {"up": 0, "power_draw_watts": None}
    assert lost.subject.labels["name"] == "NVIDIA L4"


def test_a_gpu_that_was_lost_from_the_beginning_is_shown_without_a_name() -> None:
    (lost,) = ScrapeReader().read(Machine().page(Sample(GPU, {"up": 0}))).samples
    assert (lost.values, lost.subject.labels["name"]) == ({"up": 0}, "unknown")


def test_what_a_training_added_since_the_last_scrape_are_its_amounts() -> None:
    machine, reader = Machine(), ScrapeReader()
    step = {"step_seconds": 0.2, "data_wait_seconds": 0.05}
    first = machine.page(report({**step, "step": 1, "loss": math.nan, "accuracy": 0.5}), Sample(HOST, {}))
    (found,) = [s for s in reader.read(first).samples if s.subject.table == "training"]
    assert found.values.keys() == {"step", "loss", "accuracy"}
    second = machine.page(report({**step, "step": 2}, {**step, "step": 3, "step_seconds": 0.8}), Sample(HOST, {}))
    (found,) = [s for s in reader.read(second).samples if s.subject.table == "training"]
    assert (found.subject.key, found.values["step"]) == ("rank 0", 3)
    assert found.values["step_seconds"] == 1.0
    assert found.values["step_counts"] == {"0.25": 1, "1.0": 1}
    third = machine.page(Sample(HOST, {}))
    (found,) = [s for s in reader.read(third).samples if s.subject.table == "training"]
    assert "step_seconds" not in found.values


def test_of_several_runs_the_latest_is_shown() -> None:
    machine = families(Machine().live, {"host": "gpu01"})
    pages = []
    for number, step in ((1, 10), (2, 20)):
        run_info = RunInfo(START + number, {"name": f"run {number}"})
        run = Machine({"run": f"r{number}"}, run_info)
        run.page(
            report({"step": step}), Sample(Subject("account", ""), {"carbon_grams": float(step)}), Sample(HOST, {})
        )
        pages.append(families(run.live, {"host": "gpu01", "run": f"r{number}"}, run_info=run_info))
    found = ScrapeReader().read(render(joined([machine, *reversed(pages)]), "text").decode()).samples
    values = {sample.subject.table: sample.values for sample in found}
    assert (values["training"]["step"], values["account"]["carbon_grams"]) == (20, 20)


def test_events_are_reported_when_they_come_and_not_those_from_before() -> None:
    machine, reader = Machine(), ScrapeReader()
    old = Event("gap", "long ago")
    assert reader.read(machine.page(Sample(GPU, {"up": 1}), events=[old])).events == ()
    lost = Event("gpu_lost", "GPU 0 is gone", "critical")
    assert reader.read(machine.page(Sample(GPU, {"up": 0}), events=[lost])).events == (
        Event("gpu_lost", "gpu lost", "critical"),
    )
    assert reader.read(machine.page(Sample(GPU, {"up": 0}))).events == ()


def test_the_first_event_of_all_is_reported_too() -> None:
    machine, reader = Machine(), ScrapeReader()
    reader.read(machine.page(Sample(GPU, {"up": 1})))
    assert reader.read(machine.page(Sample(GPU, {"up": 1}), events=[Event("gap", "a tick")])).events


def test_the_age_of_the_figures_is_reported() -> None:
    assert ScrapeReader().read(Machine().page(Sample(GPU, {"up": 1}), age=2.5)).age_seconds == 2.5


@pytest.mark.parametrize("page", ["# HELP up Up.\nup 1\nnode_load1 0.5\n", "<html>not even metrics</html>", ""])
def test_a_server_that_is_not_pulsetrain_is_reported(page: str) -> None:
    with pytest.raises(PulsetrainError, match="not a pulsetrain exporter"):
        ScrapeReader().read(page)
