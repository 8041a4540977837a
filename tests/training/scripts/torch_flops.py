"""Trains with the device's peak given in the environment; the last line tells what a step computes."""

import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

way = sys.argv[1]
net = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 1))
if way == "tokens":
    rows = [{"input_ids": torch.ones(8, dtype=torch.long)}] * 64
else:
    rows = [torch.ones(8, dtype=torch.long)] * 64
called = torch.compile(net, backend="eager") if way == "compiled" else net
first, second = torch.optim.SGD(net[:3].parameters(), lr=0.01), torch.optim.SGD(net[3:].parameters(), lr=0.01)


def step(batch, called):
    loss = called(batch["input_ids"] if way == "tokens" else batch).square().mean()
    loss.backward()
    first.step()
    second.step()


with FlopCounterMode(display=False) as counter:
    step(next(iter(DataLoader(rows, batch_size=4))), net)
flops = counter.get_total_flops()
for number, batch in enumerate(DataLoader(rows, batch_size=4)):
    if way == "own mode" and number == 3:
        mode = FlopCounterMode(display=False)
        mode.__enter__()
    step(batch, called)
    if way == "own mode" and number == 7:
        mode.__exit__(None, None, None)
told = {"flops": flops, "parameters": sum(p.numel() for p in net.parameters())}
if way == "own mode":
    told["own"] = mode.get_total_flops()
told["modes"] = torch._C._len_torch_dispatch_stack()
print(json.dumps(told))
