"""What the record of a run tells of a benchmark."""

from collections.abc import Callable

from tests.bench_results import START, bench_result

from pulsetrain.bench.results import Results, figures_of
from pulsetrain.insight.report import make_report
from pulsetrain.runs.folder import RunFolder
from pulsetrain.views.bench.text import result_lines, suite_lines
from pulsetrain.views.text import PLAIN


def test_gpu_memory_is_that_of_its_own_processes_where_the_driver_lists_them(
    make_run: Callable[..., RunFolder],
) -> None:
    gpu = [{"gpu_index": 0, "uuid": "GPU-0", "name": "L4", "up": 1, "memory_used_mb": 900.0}]
    host = [{"job_processes": 1}]
    own = {"pid": 7, "command": "train"}
    processes = [
        own,
        {**own, "uuid": "GPU-0", "gpu_index": 0, "gpu_memory_mb": 100.0, "elapsed_seconds": 1.0},
        {**own, "uuid": "GPU-1", "gpu_index": 1, "gpu_memory_mb": 50.0, "elapsed_seconds": 1.0},
        {"pid": 8, "uuid": "GPU-0", "gpu_index": 0, "gpu_memory_mb": 700.0, "elapsed_seconds": 1.0},
    ]
    with_processes = make_run(gpu=gpu, host=host, process=processes)
    assert figures_of(with_processes, make_report(with_processes))["gpu_memory_bytes"] == 150 * 2**20
    without = make_run("20261116-130000-test-0001", gpu=gpu, host=host)
    assert figures_of(without, make_report(without))["gpu_memory_bytes"] == 900 * 2**20


def test_a_row_and_a_column_have_one_unit() -> None:
    short = bench_result("short", seconds=[0.9, 1.1, 1.2, 1.3], joules=[700.0] * 4, cpu_seconds=[0.0] * 4)
    long = bench_result("long", seconds=[60.0] * 4, joules=[7200.0] * 4, cpu_seconds=[0.25] * 4)
    rows = [line.split() for line in result_lines(short, PLAIN)]
    assert ["time", "1.15", "s", "±", "12.9", "%", "0.900", "s", "1.30", "s"] in rows
    assert ["CPU", "time", "0", "s", "0", "s", "0", "s"] in rows
    table = "\n".join(suite_lines(Results(start=START, benchmarks=[short, long]), PLAIN))
    assert "0.194 Wh" in table
    assert "2.00 Wh" in table
    assert "700 J" not in table
