"""A training with a known sleep in each thing that a time ledger tells apart. Prints what a stopwatch says of each."""

import gc
import io
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

SLEEP = 0.4
told: dict[str, float] = {}


def slept(name: str) -> None:
    time.sleep(SLEEP)
    told[name] = told.get(name, 0.0) + SLEEP


class SlowPickle:
    """Takes its time to be saved, and to be loaded."""

    def __getstate__(self) -> dict[str, int]:
        slept("checkpoint")
        return {"a": 1}

    def __setstate__(self, state: dict[str, int]) -> None:
        slept("checkpoint")


class Slow(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 20:
            slept("data_wait")
        return torch.ones(4)


class Unwanted:
    """Takes its time to be collected."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        slept("garbage_collection")


def main() -> None:
    buffer = io.BytesIO()
    torch.save(SlowPickle(), buffer)
    buffer.seek(0)
    torch.load(buffer, weights_only=False)  # before there is any step
    gc.disable()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, batch in enumerate(torch.utils.data.DataLoader(Slow(), batch_size=1)):
        if number == 25:
            Unwanted()
            gc.collect()
        loss = model(batch).sum()
        if number == 28:
            slept("forward")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number == 30:
            with tempfile.TemporaryDirectory() as folder:
                torch.save({"model": model.state_dict(), "slow": SlowPickle()}, Path(folder) / "model.pt")
        if number == 35:
            slept("unknown")
    slept("tail")
    json.dump(told, sys.stdout)


main()
