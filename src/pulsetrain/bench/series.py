"""All runs of one or several benchmarks, in turn; results are saved after each, so that nothing is lost."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pulsetrain.bench import results
from pulsetrain.bench.declaration import Benchmark
from pulsetrain.bench.repeat import OUTPUT_FILE, Handling, Repeated, run_once
from pulsetrain.bench.results import BenchmarkResult, RepeatResult, Results, Surroundings
from pulsetrain.bench.suite import Order, Turn, turns
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import slug
from pulsetrain.training.masking import masked_command, masked_value

RESULT_FILES = ("metrics.yml", "formatted_metrics.txt", "metrics_plot.png", "report.html")


@dataclass
class Series:
    """Which runs there are, which are done, and how long the rest may take."""

    benchmarks: Sequence[Benchmark]
    folder: Path
    order: Order = "interleaved"
    done: list[RepeatResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.results = Results(start=datetime.now(UTC), benchmarks=[_empty(each) for each in self.benchmarks])
        self.total = sum(benchmark.total for benchmark in self.benchmarks)

    def folder_of(self, benchmark: Benchmark) -> Path:
        """One benchmark alone has the folder of results for itself."""
        return self.folder if len(self.benchmarks) == 1 else self.folder / slug(benchmark.name)

    def result_of(self, benchmark: Benchmark) -> BenchmarkResult:
        return next(result for result in self.results.benchmarks if result.name == benchmark.name)

    def remaining_seconds(self, running_seconds: float) -> float | None:
        """How long it may still take, `running_seconds` after the present run has begun; None before one has ended."""
        lengths = [(repeat.end - repeat.start).total_seconds() for repeat in self.done]
        if not lengths:
            return None
        each = sum(lengths) / len(lengths)
        return max(0.0, each - running_seconds) + each * max(0, self.total - len(self.done) - 1)

    def run(self, handling: Handling, ended: Callable[[Benchmark, Repeated], None]) -> Results:
        """Run all of them. A benchmark that fails once is not run again; the others are."""
        given_up: set[str] = set()
        for turn in self._turns(handling):
            name = turn.benchmark.name
            if name in given_up:
                self.total -= 1
                continue
            try:
                repeated = run_once(turn, self.folder_of(turn.benchmark) / turn.folder, handling)
            except PulsetrainError as error:
                if len(self.benchmarks) == 1 and not self.done:
                    raise
                given_up.add(name)
                self._note_failure(turn, error)
                continue
            self._note(turn, repeated)
            ended(turn.benchmark, repeated)
            if repeated.result.status != "finished":
                given_up.add(name)
        return self.results

    def _turns(self, handling: Handling) -> Iterator[Turn]:
        for turn in turns(self.benchmarks, self.order):
            if handling.stop.wanted:
                return
            yield turn

    def _note(self, turn: Turn, repeated: Repeated) -> None:
        if not self.done:
            self._remove_earlier(turn)
        self.done.append(repeated.result)
        result = self.result_of(turn.benchmark)
        result.repeats.append(repeated.result)
        result.figures = results.summarize_figures(result.repeats)
        if repeated.report:
            result.surroundings = results.surroundings_of(repeated.folder, repeated.report)
        results.save(self.results, self.folder)

    def _remove_earlier(self, first: Turn) -> None:
        """Remove what an earlier benchmark left in these folders, now that there is something to take its place."""
        current = self.folder_of(first.benchmark) / first.folder
        for benchmark in self.benchmarks:
            folder = self.folder_of(benchmark)
            for run in (*folder.glob("repeat-*"), *folder.glob("warm-up-*")):
                if run != current and (run / OUTPUT_FILE).exists():
                    shutil.rmtree(run, ignore_errors=True)
            for name in RESULT_FILES:
                (folder / name).unlink(missing_ok=True)

    def _note_failure(self, turn: Turn, error: PulsetrainError) -> None:
        """It could not even be started."""
        moment = datetime.now(UTC)
        failed = RepeatResult(
            number=turn.number,
            warm_up=turn.warm_up,
            folder=turn.folder,
            run="",
            path="",
            status="failed",
            exit_code=error.exit_code,
            reason=error.message,
            start=moment,
            end=moment,
            figures={},
        )
        self.total -= 1
        self.result_of(turn.benchmark).repeats.append(failed)
        results.save(self.results, self.folder)


def _empty(benchmark: Benchmark) -> BenchmarkResult:
    """Secrets in a command or an environment are not kept."""
    shown = msgspec.structs.replace(
        benchmark,
        command=tuple(masked_command(benchmark.command)),
        env={name: masked_value(name, value) for name, value in benchmark.env.items()},
    )
    return BenchmarkResult(benchmark=shown, surroundings=Surroundings(), repeats=[])
