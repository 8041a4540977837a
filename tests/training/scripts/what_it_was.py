"""A small training with all that a run may know of it: options, seeds, autocast, a checkpoint."""

import argparse
import random

import numpy as np
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
args = parser.parse_args()
random.seed(3)
np.random.seed(4)
torch.manual_seed(5)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), args.lr)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
for x, y in torch.utils.data.DataLoader(data, batch_size=16):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
