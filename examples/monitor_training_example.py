"""The three ways to watch a GPU, as in the older tool: a monitor, a dashboard, and a training with a callback.

    python examples/monitor_training_example.py --mode monitor       # readings of a GPU, line by line
    python examples/monitor_training_example.py --mode dashboard     # the same as `pulsetrain top`
    python examples/monitor_training_example.py --mode train         # a loop that calls TrainingMonitorCallback

It needs pulsetrain in its environment and nothing else. Without a GPU, add --simulate 1xL4.
"""

import argparse
import os
import random
import subprocess
import sys
import time

import pulsetrain

FIGURES = ("utilization_percent", "memory_used_mb", "temperature_celsius", "power_draw_watts")


def monitor(gpu_monitor: pulsetrain.GPUMonitor, seconds: float) -> None:
    """Print each new reading."""
    end = time.monotonic() + seconds
    last = None
    with gpu_monitor:
        while time.monotonic() < end:
            reading = gpu_monitor.get_current_metrics()
            if reading and reading["timestamp"] != last:
                last = reading["timestamp"]
                known = [f"{name} {reading[name]:g}" for name in FIGURES if reading.get(name) is not None]
                print(f"{last} GPU {gpu_monitor.gpu_index}: {', '.join(known)}", flush=True)
            time.sleep(gpu_monitor.sample_interval / 2)
    if last is None:
        print(f"error: no reading of GPU {gpu_monitor.gpu_index}", file=sys.stderr)
        print(
            "  hint: `pulsetrain doctor` says what is missing; --simulate 1xL4 tries it without a GPU", file=sys.stderr
        )
        sys.exit(1)


def train(gpu_monitor: pulsetrain.GPUMonitor, seconds: float) -> None:
    """A line through noisy points, by gradient descent; the callback hears of each step."""
    points = [(x / 50, 3 * x / 50 - 1 + random.gauss(0, 0.1)) for x in range(100)]
    slope = shift = 0.0
    callback = pulsetrain.TrainingMonitorCallback(gpu_monitor)
    callback.on_train_begin()
    end, step = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        begin, step = time.monotonic(), step + 1
        callback.on_step_begin()
        errors = [(slope * x + shift - y, x) for x, y in points]
        gradients = [2 * sum(error * x for error, x in errors) / 100, 2 * sum(error for error, _ in errors) / 100]
        slope, shift = slope - 0.1 * gradients[0], shift - 0.1 * gradients[1]
        time.sleep(0.01)
        loss = sum(error**2 for error, _ in errors) / 100
        norm = sum(gradient**2 for gradient in gradients) ** 0.5
        speed = len(points) / (time.monotonic() - begin)
        callback.on_step_end(step=step, epoch=float(step), loss=loss, lr=0.1, grad_norm=norm, throughput=speed)
        if step % 100 == 0:
            print(f"step {step}: loss {loss:.4f}", flush=True)
    callback.on_train_end()
    print(f"{step} steps: y = {slope:.2f} x {shift:+.2f}", flush=True)
    if gpu_monitor.get_current_metrics():
        print("`pulsetrain report last` shows the run", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Watch a GPU: monitor, dashboard, or a training with a callback.")
    parser.add_argument("--mode", choices=("monitor", "dashboard", "train"), default="monitor")
    parser.add_argument("--gpu", type=int, default=0, metavar="N")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between readings; 0.1 to 60")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to monitor or train")
    parser.add_argument("--simulate", metavar="SPEC", help="simulated GPUs, such as 1xL4")
    args = parser.parse_args()
    if args.simulate:
        os.environ["PULSETRAIN_SIMULATE"] = args.simulate
    if args.mode == "dashboard":
        words = ["--gpu", str(args.gpu), "--interval", str(args.interval)]
        sys.exit(subprocess.run([sys.executable, "-m", "pulsetrain", "top", *words], check=False).returncode)
    gpu_monitor = pulsetrain.GPUMonitor(gpu_index=args.gpu, sample_interval=args.interval)
    if args.mode == "monitor":
        monitor(gpu_monitor, args.seconds)
    else:
        train(gpu_monitor, args.seconds)


if __name__ == "__main__":
    main()
