"""Families as text, in both formats: what is negotiated, how it is spelled, and what promtool says to it."""

import math
import subprocess
from collections.abc import Iterator

import pytest
from tests.servers import program

from pulsetrain.catalog import METRICS, SAMPLE_TABLES
from pulsetrain.live import Live
from pulsetrain.outputs.exposition import accepts_gzip, negotiate, number, render
from pulsetrain.outputs.families import RunInfo, families
from pulsetrain.outputs.points import Family, Point
from pulsetrain.runs.reports import merge
from pulsetrain.snapshot import Event, Metric, Sample, Snapshot, Subject, Value

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
IN_MEBIBYTES = {
    "gpu_memory_used_mb",
    "gpu_memory_free_mb",
    "gpu_memory_total_mb",
    "gpu_mig_memory_used_mb",
    "gpu_mig_memory_free_mb",
    "gpu_mig_memory_total_mb",
    "memory_allocation_mb",
    "process_gpu_memory_mb",
    "training_memory_reserved_mb",
}
"""Spelled as older tools spell them, whose dashboards people have: promtool would rather have bytes."""


@pytest.mark.parametrize(
    ("accept", "format"),
    [
        (PROMETHEUS_2, "openmetrics"),
        (PROMETHEUS_3, "openmetrics"),
        ("", "text"),
        ("*/*", "text"),
        ("text/html,*/*;q=0.8", "text"),
        ("text/plain;version=0.0.4;q=0.9, application/openmetrics-text;q=0.5", "text"),
        ("application/openmetrics-text;version=2.0.0", "text"),
        ("application/openmetrics-text;q=nonsense", "text"),
    ],
)
def test_the_format_is_the_one_that_the_client_prefers(accept: str, format: str) -> None:
    assert negotiate(accept) == format


def test_gzip_is_for_those_who_accept_it() -> None:
    assert accepts_gzip("gzip, deflate, br")
    assert accepts_gzip("deflate, *;q=0.1")
    assert not accepts_gzip("")
    assert not accepts_gzip("gzip;q=0, identity")


def test_labels_and_help_are_escaped() -> None:
    family = Family("a", "gauge", "", 'back\\slash and "quote"\nline', [Point((("command", 'x "y"\\\n'),), 1.5)])
    text = render([family], "text").decode()
    assert text == '# HELP a back\\\\slash and "quote"\\nline\n# TYPE a gauge\na{command="x \\"y\\"\\\\\\n"} 1.5\n'
    assert '# HELP a back\\\\slash and \\"quote\\"\\nline\n' in render([family], "openmetrics").decode()


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (3, "3"), (0.1 + 0.2, repr(0.1 + 0.2))],
)
def test_numbers_keep_all_their_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_openmetrics_names_families_without_the_suffix_of_their_kind_and_has_an_end() -> None:
    found = [
        Family("energy_joules_total", "counter", "joules", "Energy.", [Point((), 2)]),
        Family("gpu_info", "info", "", "Which.", [Point((("name", "L4"),), 1)]),
        Family("memory_mb", "gauge", "MiB", "Memory.", [Point((), 3)]),
        Family("DCGM_ENERGY", "counter", "", "Theirs.", [Point((), 4)]),
    ]
    assert render(found, "openmetrics").decode().splitlines() == [
        "# TYPE energy_joules counter",
        "# UNIT energy_joules joules",
        "# HELP energy_joules Energy.",
        "energy_joules_total 2",
        "# TYPE gpu info",
        "# HELP gpu Which.",
        'gpu_info{name="L4"} 1',
        "# TYPE memory_mb gauge",
        "# HELP memory_mb Memory.",
        "memory_mb 3",
        "# TYPE DCGM_ENERGY unknown",
        "# HELP DCGM_ENERGY Theirs.",
        "DCGM_ENERGY 4",
        "# EOF",
    ]


def everything() -> Live:
    """A state in which every metric of the catalog has a value."""
    live = Live()
    live(Snapshot(1.8e9, 1.0, tuple(_samples()), (Event("gap", "missed"),)))
    return live


def _samples() -> Iterator[Sample]:
    for table in SAMPLE_TABLES:
        values: dict[str, Value] = {m.field: _value(m) for m in METRICS if m.table == table.name}
        if table.name == "training":
            merge(values, {"step_seconds": 0.5, "accuracy": 0.5})
        yield Sample(Subject(table.name, "7", {label.name: 7 for label in table.labels}), values)


def _value(metric: Metric) -> Value:
    if metric.by:
        return {"a": 1.0, "b": 2.0}
    return {"text": "words", "words": ["idle"]}.get(metric.kind, 1.0)  # type: ignore[return-value]


def test_promtool_has_nothing_to_say_but_of_names_that_older_tools_have_spelled() -> None:
    found = families(everything(), {"host": "gpu01", "run": "r1"}, run_info=RunInfo(1.7e9, {"name": "x"}))
    told = subprocess.run([program("promtool"), "check", "metrics"], input=render(found, "text"), capture_output=True)
    lines = (told.stdout + told.stderr).decode().splitlines()
    assert {line.split()[0] for line in lines} == IN_MEBIBYTES
    assert all(line.endswith("metric names should not contain abbreviated units") for line in lines)


def test_every_declared_metric_but_text_is_exported() -> None:
    names = {family.name for family in families(everything(), {})}
    assert {metric.name for metric in METRICS if metric.kind != "text"} <= names


def test_bytes_that_are_no_text_in_a_label_cost_that_label_alone() -> None:
    family = Family("a", "gauge", "", "", [Point((("uuid", "\udce9"),), 1.0), Point((("uuid", "x"),), 2.0)])
    assert render([family], "text").splitlines()[-2:] == [b'a{uuid="?"} 1.0', b'a{uuid="x"} 2.0']
