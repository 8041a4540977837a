"""A training whose model is compiled in its first step, by a compiler that takes its time."""

import json
import time

import torch

compiled = []


def slow(graph: torch.fx.GraphModule, inputs: object) -> object:
    time.sleep(0.4)
    compiled.append(0.4)
    return graph.forward


model = torch.nn.Linear(4, 1)
forward = torch.compile(model, backend=slow)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in torch.utils.data.DataLoader(torch.ones(10, 4), batch_size=2):
    forward(batch).sum().backward()
    optimizer.step()
print(json.dumps({"compile": sum(compiled)}))
