"""A training loop to be timed, run by the interpreter that users train with: loop_script.py MODEL STEPS."""

import json
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def tiny() -> "tuple[nn.Module, TensorDataset, int]":
    """Steps so short that what is added to them stands out."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    return model, TensorDataset(torch.randn(4096, 8), torch.randint(2, (4096,))), 8


def mlp() -> "tuple[nn.Module, TensorDataset, int]":
    """Steps of a few milliseconds."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return model, TensorDataset(torch.randn(4096, 256), torch.randint(10, (4096,))), 64


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.embedding = nn.Embedding(256, 64)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.encoder(self.embedding(tokens)).mean(dim=1))
        return result


def transformer() -> "tuple[nn.Module, TensorDataset, int]":
    return Transformer(), TensorDataset(torch.randint(256, (2048, 32)), torch.randint(256, (2048,))), 8


def main(name: str, steps: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, data, batch = {"tiny": tiny, "mlp": mlp, "transformer": transformer}[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = nn.CrossEntropyLoss()
    times: list[float] = []
    while len(times) < steps:
        mark = time.perf_counter()
        for inputs, targets in DataLoader(data, batch_size=batch, shuffle=False):
            optimizer.zero_grad()
            loss = loss_of(model(inputs), targets)
            loss.backward()
            optimizer.step()
            now = time.perf_counter()
            times.append(now - mark)
            mark = now
    times = sorted(times[steps // 10 :])
    print(json.dumps({"p50_us": times[len(times) // 2] * 1e6, "p10_us": times[len(times) // 10] * 1e6}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
