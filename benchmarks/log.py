"""What logging a step of five scalars costs the training loop: one call, and 20,000 with everything written."""

import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.processes import Machine, here, in_rounds, spread
from benchmarks.results import Limit, Report, Result, beside

Log = Callable[[int], object]
"""Takes the step; what is logged of it is the same for all."""
Contestant = tuple[Log, Callable[[], object]]
"""How to log, and how to finish so that everything is written."""

MODULES = {"tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb", "aim": "aim", "mlflow": "mlflow"}
CALLS = {"pulsetrain": 20_000, "csv": 20_000, "tensorboard": 20_000, "trackio": 4_000, "wandb": 2_000}
"""Slow ones are asked less often; all figures are for one call."""
FEWEST_CALLS = 500
TIMES_CHEAPER = {"csv": 1, "tensorboard": 5, "trackio": 5, "wandb": 50, "aim": 50, "mlflow": 50}


def run(machine: Machine, quick: bool) -> Report:
    contestants, notes = here(("pulsetrain", "csv", *MODULES), MODULES)
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1"}
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}

    def measure(name: str) -> float:
        answers[name].append(machine.ask("benchmarks.log", name, environment=environment))
        return answers[name][-1]["total_us"]

    totals = in_rounds(contestants, 1 if quick else 5, measure, needed=("pulsetrain",))
    best = {name: {key: min(a[key] for a in answers[name]) for key in answers[name][0]} for name in totals.figures}
    ours = best.pop("pulsetrain")
    results = [
        Result("log", "one call, p50", ours["p50_us"], "us", target=Limit(1.0)),
        Result("log", "one call, p99", ours["p99_us"], "us", target=Limit(5.0)),
    ]
    written = Result(
        "log",
        "a call with its share of the writing",
        ours["total_us"],
        "us",
        spread=spread(totals.figures["pulsetrain"]),
    )
    targets = {peer: Limit(1 / times, "ratio") for peer, times in TIMES_CHEAPER.items()}
    results += beside(written, {peer: figures["total_us"] for peer, figures in best.items()}, totals.failed, targets)
    return Report(results, notes)


def main(name: str) -> dict[str, float]:
    """What one contestant takes for a call, in microseconds."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        log, finish = globals()[f"_{name}"](Path(folder))
        count = CALLS.get(name, FEWEST_CALLS)
        log(0)  # what the first call sets up is not what a call costs
        seconds = []
        begin = time.perf_counter()
        for step in range(1, count + 1):
            called = time.perf_counter()
            log(step)
            seconds.append(time.perf_counter() - called)
        finish()
        total = time.perf_counter() - begin
    seconds.sort()
    found = {"p50_us": seconds[count // 2], "p99_us": seconds[int(count * 0.99)], "total_us": total / count}
    return {key: value * 1e6 for key, value in found.items()}


def _figures(step: int) -> dict[str, float]:
    return {"loss": 2.3 / (step + 1), "learning_rate": 1e-4, "accuracy": step / 30_000, "gradient_norm": 1.5}


def _pulsetrain(folder: Path) -> Contestant:
    import pulsetrain
    from pulsetrain.training import process

    process.record_into(str(folder), "20261116_013054", time.monotonic())

    def log(step: int) -> None:
        pulsetrain.log(step=step, loss=2.3 / (step + 1), learning_rate=1e-4, accuracy=step / 30_000, gradient_norm=1.5)

    return log, pulsetrain.finish


def _csv(folder: Path) -> Contestant:
    """The same lines: time, step, five figures, and empty columns for what the others would fill."""
    file = (folder / "log.csv").open("w", newline="")
    writer = csv.writer(file)

    def log(step: int) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"
        writer.writerow((stamp, now, 0, step, *_figures(step).values(), None, None, None, None))

    return log, file.close


def _tensorboard(folder: Path) -> Contestant:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))

    def log(step: int) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in _figures(step).items()]
        writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    return log, writer.close


def _trackio(folder: Path) -> Contestant:
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    trackio.init(project="benchmark")
    return lambda step: trackio.log(_figures(step), step=step), trackio.finish


def _wandb(folder: Path) -> Contestant:
    import wandb

    run = wandb.init(project="benchmark", dir=folder, mode="offline", settings=wandb.Settings(silent=True))
    return lambda step: run.log(_figures(step), step=step), run.finish


def _aim(folder: Path) -> Contestant:
    from aim import Run

    run = Run(repo=str(folder), system_tracking_interval=None, log_system_params=False, capture_terminal_logs=False)

    def log(step: int) -> None:
        for name, value in _figures(step).items():
            run.track(value, name=name, step=step)

    return log, run.close


def _mlflow(folder: Path) -> Contestant:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    mlflow.set_tracking_uri(f"file://{folder}/mlruns")
    mlflow.start_run()
    return lambda step: mlflow.log_metrics(_figures(step), step=step), mlflow.end_run


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)  # peers greet on standard output, which is to carry our answer alone
    figures = main(sys.argv[1])
    os.write(answer, json.dumps(figures).encode())
