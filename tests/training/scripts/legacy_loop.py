# mypy: ignore-errors
"""A loop that calls the older tools' classes; the last line tells what they answered."""

import json
import sys
import time

import pulsetrain

monitor = pulsetrain.GPUMonitor(gpu_index=0, sample_interval=0.1)
told = {"before": monitor.get_current_metrics()}
callback = pulsetrain.TrainingMonitorCallback(monitor)
callback.on_train_begin()
for step in range(1, 4):
    callback.on_step_begin()
    callback.on_step_end(step=step, epoch=step / 10, loss=1.0 / step, lr=0.01, grad_norm=2.0, throughput=100.0)
begin = time.monotonic()
while not monitor.get_current_metrics() and time.monotonic() - begin < 30:
    time.sleep(0.1)
told["during"] = monitor.get_current_metrics()
callback.on_train_end()
monitor.stop()
told["after"] = monitor.get_current_metrics()
pulsetrain.log(step=4, loss=0.1)  # recorded if the run goes on

alone = pulsetrain.TrainingMonitorCallback(None)
alone.on_train_begin()
alone.on_step_begin()
alone.on_step_end(loss=0.5)
alone.on_train_end()

told["imported"] = sorted({"torch", "transformers", "keras", "lightning"} & set(sys.modules))
told["without transformers"] = type(pulsetrain.GPUMonitoringCallback(None, log_interval=5)).__mro__[-1] is object
print(json.dumps(told))
