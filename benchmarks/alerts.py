"""CPU time that live alerts add to a tick of eight GPUs, a host and a training: at 1 Hz, a share of one core."""

import json
import os
import time

from benchmarks.processes import Machine, spread
from benchmarks.results import Limit, Report, Result
from pulsetrain.alerts.engine import AlertEngine
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.snapshot import Sample, Snapshot, Subject, Value
from pulsetrain.sources import Options
from pulsetrain.sources.host import open_sources as open_host
from pulsetrain.sources.simulated import open_sources as open_gpus

MOST_CORE_PERCENT = 0.05
TICKS = 2000
BLOCKS = 5
"""A process measures so many times and tells the cheapest: others share the machine."""
MINUTES_BEFORE = 150
"""The past that the windows of the rules need is there before anything is measured."""
START = 1.8e9


def run(machine: Machine, quick: bool) -> Report:
    rounds = [float(machine.ask("benchmarks.alerts", environment=os.environ)) for _ in range(3 if quick else 9)]
    percent = 100 * min(rounds)
    limit = Limit(MOST_CORE_PERCENT)
    return Report(
        [
            Result(
                "alerts",
                "CPU of all rules at 1 Hz, 8 GPUs",
                percent,
                "% of a core",
                target=limit,
                spread=spread(rounds),
            )
        ],
        [f"alerts: a tick of the engine takes {min(rounds) * 1e6:.0f} us; ticks follow each other, with warm caches."],
    )


def main() -> float:
    """Seconds of CPU for a tick."""
    options = Options(simulate="8xH100")
    sources = [*open_gpus(options), *open_host(options)]
    machine = tuple(item for source in sources for item in source.read() if isinstance(item, Sample))
    training = Subject("training", "rank 0", {"rank": 0})
    engine = AlertEngine(
        Thresholds(cost_limit=1e9, energy_limit_kwh=1e9, time_limit_hours=1e9), {"host": "a", "run": "r"}
    )

    def tick(second: int) -> None:
        report: dict[str, Value] = {
            "step": second,
            "loss": 1.0 / (1 + second),
            "gradient_norm": 1.0,
            "step_counts": {"0.5": 2.0},
            "step_seconds": 1.0,
            "data_wait_seconds": 0.1,
            "forward_seconds": 0.3,
        }
        engine(Snapshot(START + second, float(second), (*machine, Sample(training, report))))

    for minute in range(MINUTES_BEFORE):
        tick(60 * minute)
    costs = []
    begin = 60 * MINUTES_BEFORE
    for block in range(BLOCKS):
        before = time.process_time()
        for second in range(TICKS):
            tick(begin + block * TICKS + second)
        costs.append((time.process_time() - before) / TICKS)
    return min(costs)


if __name__ == "__main__":
    print(json.dumps(main()))
