"""A training loop to be timed, run by the interpreter that users train with: loop_script.py MODEL STEPS."""

import itertools
import json
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def mlp(width: int) -> "tuple[nn.Module, TensorDataset, int]":
    model = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
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


MODELS = {"1 ms": lambda: mlp(128), "10 ms": lambda: mlp(1024), "transformer": transformer}
"""About so long on a core of today."""


def main(name: str, steps: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, data, batch = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = nn.CrossEntropyLoss()
    batches = itertools.chain.from_iterable(iter(lambda: DataLoader(data, batch_size=batch, shuffle=False), None))
    warm_up = steps // 4
    for step, (inputs, targets) in enumerate(batches):
        if step == warm_up:
            wall, cpu = time.perf_counter(), time.process_time()
        if step == warm_up + steps:
            break
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"wall_us": 1e6 * wall / steps, "cpu_us": 1e6 * cpu / steps}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
