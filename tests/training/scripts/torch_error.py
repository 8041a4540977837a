"""Batches that cannot be looked at: we fail, the training does not."""

import json

import torch
from torch import nn
from torch.utils.data import DataLoader


class Secret:
    def __init__(self, features):
        self.features = features

    @property
    def shape(self):
        raise PermissionError("not for your eyes")


net = nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for batch in DataLoader([torch.ones(8)] * 8, batch_size=2, collate_fn=lambda rows: Secret(torch.stack(rows))):
    net(batch.features).mean().backward()
    optimizer.step()
print(json.dumps({"trained": True}))
