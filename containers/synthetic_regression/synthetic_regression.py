"""Fits a multi-layer perceptron to made-up data: synthetic_regression.py [--steps 2000] [--width 1024]."""

import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--batch-size", type=int, default=1024)
parser.add_argument("--width", type=int, default=1024)
arguments = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
generator = torch.Generator(device).manual_seed(0)
weights = torch.randn(64, 8, device=device, generator=generator)
model = nn.Sequential(
    *(nn.Linear(64, arguments.width), nn.ReLU()),
    *(nn.Linear(arguments.width, arguments.width), nn.ReLU()),
    nn.Linear(arguments.width, 8),
).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

began = time.perf_counter()
for step in range(1, arguments.steps + 1):
    inputs = torch.randn(arguments.batch_size, 64, device=device, generator=generator)
    loss = nn.functional.mse_loss(model(inputs), torch.sin(inputs @ weights))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % max(1, arguments.steps // 20) == 0:
        print(f"\rstep {step}/{arguments.steps}, loss {loss.item():.4f}", end="", flush=True)
seconds = time.perf_counter() - began
print(f"\nsamples per second: {arguments.steps * arguments.batch_size / seconds:.1f}")
