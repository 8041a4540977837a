# mypy: ignore-errors
"""Trains small language models on batches of several kinds; the last line has the tokens of each step."""

import json

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import pulsetrain

ROWS, LENGTH, WORDS = 3, 10, 16
told = {}


class Model(nn.Module):
    """Gives its own loss, as nanoGPT's does."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.head = nn.Linear(8, WORDS)

    def forward(self, ids, targets, ignored=-1):
        scores = self.head(self.embedding(ids))
        return functional.cross_entropy(scores.view(-1, WORDS), targets.view(-1), ignore_index=ignored)


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def part(name):
    optimizer.zero_grad()
    pulsetrain.set_training(name)
    return told.setdefault(name, [])


def ids(rows=ROWS):
    return torch.randint(0, WORDS, (rows, LENGTH))


def own_batches():
    tokens = part("own batches")
    for _ in range(4):
        for _ in range(2):
            targets = ids()
            targets[0, 4:] = -1
            (model(ids(), targets) / 2).backward()
        tokens.append(2 * (ROWS * LENGTH - 6))
        optimizer.step()
        optimizer.zero_grad()


def classes():
    tokens = part("classes")
    layer = nn.Linear(4, 5)
    for _ in range(3):
        functional.cross_entropy(layer(torch.ones(6, 4)), torch.ones(6, dtype=torch.long)).backward()
        optimizer.step()
        tokens.append(None)


def pairs():
    tokens = part("pairs")
    for x, y in DataLoader(TensorDataset(ids(8), ids(8)), batch_size=ROWS):
        model(x, y).backward()
        optimizer.step()
        tokens.append(x.numel())


def rows_of_numbers():
    tokens = part("rows of numbers")
    layer = nn.Linear(4, 1)
    for (x,) in DataLoader(TensorDataset(torch.ones(6, 4)), batch_size=3):
        layer(x).mean().backward()
        optimizer.step()
        tokens.append(None)


def dictionaries(name, field):
    """Rows of 10, 9, 8, ... tokens, and padding."""
    tokens = part(name)
    padding = told.setdefault(name + ", padding", [])
    lengths = [LENGTH - row for row in range(6)]
    labels = torch.stack([torch.tensor([1] * length + [-100] * (LENGTH - length)) for length in lengths])
    labels[:, 0] = -100  # not to be learned, and yet a token
    mask = torch.stack([torch.tensor([1] * length + [0] * (LENGTH - length)) for length in lengths])
    rows = [{"input_ids": ids(1)[0], field: {"labels": labels, "attention_mask": mask}[field][row]} for row in range(6)]
    for number, batch in enumerate(DataLoader(rows, batch_size=ROWS)):
        model(batch["input_ids"], batch["input_ids"]).backward()
        optimizer.step()
        tokens.append(sum(lengths[number * ROWS : (number + 1) * ROWS]))
        padding.append(ROWS * LENGTH - tokens[-1])


own_batches()
classes()
pairs()
rows_of_numbers()
dictionaries("masked", "attention_mask")
dictionaries("labeled", "labels")
print(json.dumps(told))
