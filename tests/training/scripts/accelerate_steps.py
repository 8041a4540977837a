# mypy: ignore-errors
"""A loop of the user's own with Accelerate; the last line tells the losses and steps that it saw itself."""

import json

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import pulsetrain

told = {}


def train(name, batches_per_step):
    pulsetrain.set_training(name)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=batches_per_step)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps, losses = [], []
    for _ in range(2):
        for (x,) in loader:
            with accelerator.accumulate(model):
                loss = model(x).square().mean()
                losses.append(loss.item())
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    steps.append(sum(losses) / len(losses))
                    losses = []
                optimizer.step()
                optimizer.zero_grad()
    told[name] = steps


torch.manual_seed(0)
train("accumulated", 3)  # ten batches an epoch, so its last step has but one
train("plain", 1)
print(json.dumps(told))
