"""Runs with a known fault, recorded by `pulsetrain run`, and what the verdict must say of each."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.nvml.scenario import Scenario, constant

from pulsetrain.insight.report import Report, make_report
from pulsetrain.runs.folder import Home

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
THERMAL, BRAKE = 0x20, 0x80
"""Reasons to throttle, as NVML numbers them."""


@dataclass(frozen=True)
class FaultyRun:
    """One kind of run."""

    fault: str
    """As `train.py` calls it."""
    rule: str = ""
    """What must come first in the verdict; empty for a healthy run, which gets no warning."""
    device: Scenario | None = None
    """What its GPU goes through, on the simulated NVML."""
    ranks: int = 1

    @property
    def name(self) -> str:
        return f"{self.rule or 'healthy'}-{self.fault}"


def throttled(mask: int, watts: float) -> Scenario:
    """A board that is busy and held down all the time."""
    gpu = Scenario().gpus(1, "L4")
    gpu.lines += [f"reasons 0 {mask:#x}", f"util 0 {constant(96)}", f"sm_clock 0 {constant(1100)}"]
    gpu.lines += [f"temperature 0 {constant(88 if mask == THERMAL else 66)}", f"power 0 {constant(watts)}"]
    return gpu


RUNS = (
    FaultyRun("slow_loader", "InputBound"),
    FaultyRun("starved_workers", "InputBound"),
    FaultyRun("checkpoints", "CheckpointHeavy"),
    FaultyRun("evaluation", "EvaluationHeavy"),
    FaultyRun("logging", "LoggingHeavy"),
    FaultyRun("tiny_batch", "BatchTooSmall"),
    FaultyRun("leak", "MemoryGrowth"),
    FaultyRun("nan", "NonFinite"),
    FaultyRun("exploding", "GradientExplosion"),
    FaultyRun("plateau", "LossNotDecreasing"),
    FaultyRun("vanishing", "VanishingGradient"),
    FaultyRun("stall", "Stalled"),
    FaultyRun("slow_down", "SlowedDown"),
    FaultyRun("slow_rank", "Straggler", ranks=2),
    FaultyRun("overfit", "Overfit"),
    FaultyRun("padding", "PaddingWaste"),
    FaultyRun("none", "ThermalThrottle", device=throttled(THERMAL, 60)),
    FaultyRun("none", "PowerCap", device=throttled(BRAKE, 40)),
    FaultyRun("none"),
    FaultyRun("accumulation"),
    FaultyRun("light_evaluation"),
    FaultyRun("scheduled"),
    FaultyRun("two_ranks", ranks=2),
    FaultyRun("validated"),
    FaultyRun("packed"),
)
BY_NAME = {run.name: run for run in RUNS}


def record(
    run: FaultyRun,
    python: str,
    folder: Path,
    nvml: Path | None,
    *,
    size: float = 1.0,
    seed: int = 0,
    forward: float = 0.0,
    most_seconds: float | None = None,
) -> Report:
    """Run it, with forward passes that take so many seconds longer, and read its report."""
    launch = [python]
    if run.ranks > 1:
        launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={run.ranks}"]
    script = [str(HERE / "scripts/train.py"), "--fault", run.fault, "--size", str(size), "--seed", str(seed)]
    script += ["--forward", str(forward)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULSETRAIN_", "PYTHON"))}
    kept |= {"OMP_NUM_THREADS": "1", "PULSETRAIN_HOME": str(folder / "home"), "PYTHONPATH": str(SOURCE)}
    if run.device is not None and nvml is not None:
        kept |= run.device.environment(nvml, folder / "scenario")
    command = [sys.executable, "-m", "pulsetrain", "run", "--interval", "0.2", "--", *launch, *script]
    with subprocess.Popen(
        command, cwd=folder, env=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=most_seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # which ends the training too
            raise
    assert process.returncode == 0, output
    return make_report(Home(folder / "home/runs").resolve("last"))
