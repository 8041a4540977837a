"""Results of benchmarks, as if they had been run."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pulsetrain.bench.declaration import Benchmark
from pulsetrain.bench.results import BenchmarkResult, RepeatResult, Surroundings, summarize_figures

START = datetime(2026, 11, 18, tzinfo=UTC)


def bench_result(
    name: str = "a", status: Any = "finished", gpus: tuple[str, ...] = (), score_better: Any = "higher", **figures: Any
) -> BenchmarkResult:
    """`bench_result("a", seconds=[1.0, 1.1], joules=[...])`: one run for each value."""
    count = len(next(iter(figures.values())))
    repeats = [
        RepeatResult(
            number=place + 1,
            warm_up=False,
            folder=f"repeat-{place + 1}",
            run=f"run-{place}",
            path="",
            status=status,
            exit_code=0,
            reason="exit code 3" if status == "failed" else "",
            start=START,
            end=START + timedelta(seconds=1),
            figures={key: values[place] for key, values in figures.items()},
        )
        for place in range(count)
    ]
    return BenchmarkResult(
        benchmark=Benchmark(name=name, command=("true",), repeat=count, score_better=score_better),
        surroundings=Surroundings(gpus=list(gpus)),
        repeats=repeats,
        figures=summarize_figures(repeats),
    )
