"""A training of several ranks on gloo, by torchrun. One rank may be slow from some step on, or fail once.

python train.py STEPS [--slow RANK STEP SECONDS] [--fail RANK STEP] [--pace SECONDS]
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int)
parser.add_argument("--slow", nargs=3, type=float, default=(-1, 0, 0))
parser.add_argument("--fail", nargs=2, type=int, default=(-1, 0))
parser.add_argument("--pace", type=float, default=0.02)
options = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
slow_rank, slow_from, slow_seconds = options.slow
fail_rank, fail_at = options.fail
first_start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
        self.seconds = options.pace

    def forward(self, batch):
        time.sleep(self.seconds)
        return self.layer(batch)


plain = Model()
model = DistributedDataParallel(plain)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_of = torch.nn.MSELoss()
for step in range(1, options.steps + 1):
    plain.seconds = options.pace + (slow_seconds if rank == slow_rank and step >= slow_from else 0)
    if first_start and (rank, step) == (fail_rank, fail_at):
        sys.exit(3)
    batch = torch.randn(16, 64)
    loss = loss_of(model(batch), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} done", flush=True)
dist.destroy_process_group()
