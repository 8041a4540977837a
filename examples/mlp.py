"""A plain PyTorch training loop: a small network learns to tell two spirals apart.

pulsetrain run -- python examples/mlp.py
pulsetrain run -- python examples/mlp.py --slow     # the same with a data loader that cannot keep up
"""

import argparse
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Spirals(Dataset):
    """Points on two spirals, and on which of them each lies."""

    def __init__(self, size: int, seconds_per_sample: float) -> None:
        angle = torch.rand(size) * 3 * math.pi
        self.side = torch.randint(0, 2, (size,)).float()
        turned = angle + self.side * math.pi
        self.points = torch.stack([angle * turned.cos(), angle * turned.sin()], dim=1) / 5
        self.seconds_per_sample = seconds_per_sample

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.seconds_per_sample:
            time.sleep(self.seconds_per_sample)  # stands for decoding an image, or a slow disk
        return self.points[index], self.side[index]


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--slow", action="store_true", help="take 0.1 ms longer to load each sample")
    arguments.add_argument("--epochs", type=int, default=4)
    options = arguments.parse_args()

    torch.set_num_threads(1)  # more would only get in each other's way in a model this small
    torch.manual_seed(0)
    data = Spirals(size=5120, seconds_per_sample=1e-4 if options.slow else 0.0)
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_of = nn.BCEWithLogitsLoss()

    for epoch in range(options.epochs):
        total = 0.0
        for points, side in loader:
            loss = loss_of(model(points).squeeze(1), side)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
