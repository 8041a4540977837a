# mypy: ignore-errors
"""Watches models in several ways; the last line tells what the figures must be."""

import json
import math
import time
import warnings

import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks

import pulsetrain
from pulsetrain.training.torch import MOST_LAYERS, watch

told = {}


def hooks(model):
    """How many hooks there are on modules, and on all optimizers."""
    modules = sum(len(module._forward_hooks) for module in model.modules())
    return [modules, len(_global_optimizer_post_hooks)]


def train(model, steps, optimizer=None, x=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        output = model(torch.randn(8, 4) if x is None else x)
        (output[0] if isinstance(output, tuple) else output).square().mean().backward()
        optimizer.step()


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


torch.manual_seed(0)

pulsetrain.set_training("mlp")
model = mlp()
before = hooks(model)
with watch(model, every=3) as watching:
    first = hooks(model)
    x = torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    train(model, 1, optimizer, x)
    hidden = model[1](model[0](x))
    gradients = torch.cat([parameter.grad.flatten() for parameter in model[0].parameters()])
    weights = torch.cat([parameter.detach().flatten() for parameter in model[0].parameters()])
    after_first = hooks(model)
    train(model, 6, optimizer)
told["mlp"] = {
    "hooks": [before, first, after_first, hooks(model)],
    "gradient_norm/0": gradients.norm().item(),
    "gradient_mean/0": gradients.mean().item(),
    "gradient_std/0": gradients.std(correction=0).item(),
    "gradient_max/0": gradients.abs().max().item(),
    "weight_norm/0": weights.norm().item(),
    "activation_mean/1": hidden.mean().item(),
    "activation_std/1": hidden.std(correction=0).item(),
    "activation_zero_ratio/1": (hidden == 0).float().mean().item(),
}
train(model, 6, optimizer)

# Two models, each with an optimizer of its own: the steps of the one are not those of the other.
pulsetrain.set_training("two")
one, other = mlp(), mlp()
optimizers = [torch.optim.SGD(made.parameters(), lr=0.1) for made in (one, other)]
watches = watch(one, every=2, name="one"), watch(other, optimizers[1], every=2, name="other")
for _ in range(4):
    train(one, 1, optimizers[0])
train(other, 1, optimizers[1])
for watching in watches:
    watching.unwatch()
told["two"] = hooks(one) + hooks(other)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=True)


class KeepsAttention(nn.Module):
    """An attention of the user's own, which keeps its weights and returns only its output."""

    def forward(self, x):
        self.attention_weights = torch.full((8, 5, 5), 0.2)
        return self.attention_weights @ x


pulsetrain.set_training("attention")
block = nn.Sequential(KeepsAttention(), Block())
with watch(block):
    train(block, 1, x=torch.randn(8, 5, 4))
with watch(nn.Sequential(Block()).eval()) as watching:
    pass
told["attention"] = math.log(5)

pulsetrain.set_training("deep")
deep = nn.Sequential(*(nn.Linear(4, 4) for _ in range(100)))
with watch(deep):
    train(deep, 1)
told["deep"] = MOST_LAYERS

# A fused optimizer gets gradients that are still scaled, and undoes that itself.
pulsetrain.set_training("scaled")
scaled = mlp()
optimizer = torch.optim.Adam(scaled.parameters(), lr=0.0, fused=True)
scaler = torch.amp.GradScaler("cpu")
with watch(scaled):
    scaler.scale(scaled(x).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
scaled.zero_grad()
scaled(x).square().mean().backward()
told["scaled"] = torch.cat([parameter.grad.flatten() for parameter in scaled[0].parameters()]).norm().item()

# What wraps a model leaves the names of its layers as they are.
pulsetrain.set_training("wrapped")
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
for wrapped in (nn.DataParallel(mlp()), nn.parallel.DistributedDataParallel(mlp())):
    with watch(wrapped):
        train(wrapped, 1)
torch.distributed.destroy_process_group()
told["wrapped"] = None

pulsetrain.set_training("compiled")
compiled = torch.compile(mlp(), backend="eager")
with watch(compiled, every=2):
    train(compiled, 3)
inner = mlp()
with watch(inner, every=2):  # of which it is not known that it is run compiled
    train(torch.compile(inner, backend="eager"), 3)
told["compiled"] = None

pulsetrain.set_training("odd")
odd = nn.Sequential(nn.EmbeddingBag(10, 4, sparse=True), nn.Linear(4, 1))
odd.append(nn.Linear(1, 1))
odd[2].requires_grad_(False)
with watch(odd):
    train(odd, 1, x=torch.randint(0, 10, (8, 3)))
with warnings.catch_warnings(record=True) as warned, watch("not a model"):
    pass
told["odd"] = [str(warning.message) for warning in warned]

# What it costs in the steps between.
pulsetrain.set_training("cost")
layers = mlp()
optimizer = torch.optim.SGD(layers.parameters(), lr=0.0)
with watch(layers, every=10**9) as watching:
    train(layers, 1, optimizer)
    stepped = next(reversed(_global_optimizer_post_hooks.values()))
    begin = time.perf_counter()
    for _ in range(100_000):
        stepped(optimizer, (), {})
    told["cost"] = (time.perf_counter() - begin) / 100_000

print(json.dumps(told))
