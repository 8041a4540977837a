"""A small residual network for images of any size."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride=2, padding=1, bias=False),
            nn.GroupNorm(4, outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.GroupNorm(4, outside),
        )
        self.shortcut = nn.Conv2d(inside, outside, 1, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def make_model(classes: int, width: int, size: int) -> nn.Module:
    """Large images are made smaller at once, as ResNet does."""
    stem = nn.Conv2d(3, width, 7, stride=4, padding=3) if size > 64 else nn.Conv2d(3, width, 3, padding=1)
    blocks = [Block(width << depth, width << (depth + 1)) for depth in range(3)]
    return nn.Sequential(
        stem, nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width << 3, classes)
    )
