# mypy: ignore-errors
"""The older tools' callback for the Trainer, given a monitor; the last line tells what it logged."""

import json
import logging
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import pulsetrain

logged = []
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger("pulsetrain").addHandler(handler)
logging.getLogger("pulsetrain").setLevel("INFO")

monitor = pulsetrain.GPUMonitor()
monitor.start()
begin = time.monotonic()
while not monitor.get_current_metrics() and time.monotonic() - begin < 30:
    time.sleep(0.1)

rows = torch.randint(0, 32, (32, 16))
size = {"vocab_size": 32, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
Trainer(
    GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)),
    TrainingArguments(output_dir="out", max_steps=6, report_to="none", disable_tqdm=True, save_strategy="no"),
    train_dataset=[{"input_ids": row, "labels": row} for row in rows],
    callbacks=[pulsetrain.GPUMonitoringCallback(monitor, log_interval=2)],
).train()
print("\n" + json.dumps(logged))
