"""A plain PyTorch loop that also logs its steps by hand, counted from 0."""

import torch

import pulsetrain

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).mean()
    loss.backward()
    optimizer.step()
    pulsetrain.log(step=step, loss=loss, accuracy=step)
print("{}")
