"""Trainings that do not do what one expects. All of them must run as if nobody watched."""

import inspect
import json
import multiprocessing
import threading
import time
import traceback

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import pulsetrain
from pulsetrain.training import gradient_norm, loop

told = {}
gradient_norm.SHARE = 0  # on a busy machine a norm may look expensive


def part(name, **facts):
    loop.current().finish()
    pulsetrain.set_training(name)
    told[name] = facts
    return facts


def data(count=12):
    return TensorDataset(torch.ones(count, 8), torch.ones(count, 1))


def model():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def step(net, optimizer, features, *arguments, **options):
    optimizer.zero_grad()
    net(features).square().mean().backward()
    optimizer.step(*arguments, **options)


def train(batches, net=None, optimizer=None):
    net = net or model()
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.01)
    for features, _ in batches:
        step(net, optimizer, features)


def patched_backward():
    original, calls = torch.Tensor.backward, []

    def backward(self, *args, **kwargs):
        calls.append(self.item())
        return original(self, *args, **kwargs)

    facts = part("patched backward")
    torch.Tensor.backward = backward
    train(DataLoader(data(), batch_size=4))
    torch.Tensor.backward = original
    facts["losses"] = calls


def patched_iterator():
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    original, calls = iterator.__next__, []

    def __next__(self):
        calls.append(self)
        return original(self)

    facts = part("patched iterator")
    iterator.__next__ = __next__
    train(DataLoader(data(), batch_size=4))
    iterator.__next__ = original
    facts["calls"] = len(calls)


class Pairs(DataLoader):
    """Gives two batches at a time, as one."""

    def __iter__(self):
        batches = super().__iter__()
        for first in batches:
            yield [torch.cat(both) for both in zip(first, next(batches), strict=True)]


class Numbers(IterableDataset):
    def __iter__(self):
        for number in range(6):
            yield torch.full((8,), float(number)), torch.ones(1)


def iterables():
    part("pairs")
    train(Pairs(data(), batch_size=2))
    part("generator")
    train((torch.ones(2, 8), None) for _ in range(3))
    part("iterable data set")
    train(DataLoader(Numbers(), batch_size=2))
    part("workers")
    train(DataLoader(data(), batch_size=4, num_workers=2))
    facts = part("workers that persist")
    loader = DataLoader(data(), batch_size=4, num_workers=2, persistent_workers=True, multiprocessing_context="fork")
    for _ in range(2):
        train(loader)
    facts["type"] = type(iter(loader)).__name__
    del loader
    part("spawned workers")
    train(DataLoader(data(), batch_size=4, num_workers=1, multiprocessing_context="spawn"))


def kept_as_they_were():
    loader = DataLoader(data(), batch_size=6)
    batches = iter(loader)
    next(batches)
    next(batches)
    told["kept"] = {
        "type": type(batches).__name__,
        "default": next(batches, "over"),
        "signature": str(inspect.signature(torch.autograd.backward)),
        "name": torch.autograd.backward.__name__,
        "clip": list(inspect.signature(nn.utils.clip_grad_norm_).parameters),
        "scale": list(inspect.signature(torch.amp.GradScaler.scale).parameters),
    }


class Bare:
    """Not PyTorch's, but used like one."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def step(self):
        with torch.no_grad():
            for parameter in self.parameters:
                parameter.sub_(parameter.grad)


class Unborn(torch.optim.SGD):
    """Never calls the constructor of its parents."""

    def __init__(self, parameters):
        self.param_groups = [{"params": list(parameters)}]

    def zero_grad(self):
        pass

    def step(self):
        self.stepped = True


class Odd(torch.optim.SGD):
    def step(self, one, two=2, *, three):
        self.seen = one, two, three
        return super().step()


def optimizers():
    part("bare optimizer")
    net = model()
    train(DataLoader(data(), batch_size=4), net, Bare(net.parameters()))
    part("unborn optimizer")
    train(DataLoader(data(), batch_size=4), net, Unborn(net.parameters()))
    part("unused optimizer")
    unused = torch.optim.SGD(net.parameters(), lr=0.01)
    train(DataLoader(data(), batch_size=4), net, Bare(net.parameters()))
    del unused
    facts = part("odd arguments")
    odd = Odd(net.parameters(), lr=0.01)
    for _ in range(3):
        step(net, odd, torch.ones(4, 8), 1, three=3)
    facts["seen"] = odd.seen
    part("no parameter groups")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    optimizer.register_step_post_hook(lambda *_: delattr(optimizer, "param_groups"))
    groups = optimizer.param_groups
    for _ in range(3):
        optimizer.param_groups = groups
        net(torch.ones(4, 8)).mean().backward()
        optimizer.step()


def raised(function):
    """The error that comes out of it, and where the program's own code stands in its traceback."""
    try:
        function()
    except Exception as error:  # noqa: BLE001 - the one that is expected is told
        return [type(error).__name__, str(error)[:40], traceback.extract_tb(error.__traceback__)[-1].name]
    return None


class Broken(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise KeyError(f"row {index}")


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(context, value):
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        raise ValueError("no gradient today")


def errors():
    facts = part("errors")
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=1)

    def closure():
        raise ArithmeticError("in the closure")

    def evaluate():
        loss = net(torch.ones(4, 8)).square().mean()
        loss.backward()
        return loss

    facts["closure"] = raised(lambda: optimizer.step(closure))
    facts["data"] = raised(lambda: next(iter(DataLoader(Broken()))))
    facts["backward"] = raised(lambda: Refuses.apply(net(torch.ones(4, 8)).mean()).backward())
    loss = net(torch.ones(4, 8)).square().mean()
    loss.backward()
    facts["vector"] = raised(net(torch.ones(4, 8)).backward)
    facts["twice"] = raised(loss.backward)
    facts["arguments"] = raised(lambda: loss.backward(1, 2, 3, 4, 5, 6))
    facts["clip"] = raised(lambda: nn.utils.clip_grad_norm_(net.parameters()))
    facts["scaler"] = raised(lambda: torch.amp.GradScaler("cpu").step(optimizer))
    part("after errors")
    for _ in range(3):
        optimizer.step(evaluate)


def elsewhere():
    part("thread")
    thread = threading.Thread(target=train, args=(DataLoader(data(), batch_size=4),))
    thread.start()
    thread.join()
    facts = part("child")
    child = multiprocessing.get_context("fork").Process(target=child_trains)
    child.start()
    child.join()
    facts["code"] = child.exitcode


def child_trains():
    train(DataLoader(data(), batch_size=4))


@torch.jit.script
def scripted(value: torch.Tensor):
    torch.autograd.backward([value])


def other_gradients():
    part("meta device")
    with torch.device("meta"):
        train([(torch.ones(4, 8), None)] * 3, model())
    part("checkpoints")
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(3):
        features = torch.ones(4, 8, requires_grad=True)
        checkpoint(net, features, use_reentrant=True).mean().backward()
        optimizer.step()
    part("functional")
    for _ in range(3):
        gradients = torch.autograd.grad(net(torch.ones(4, 8)).mean(), list(net.parameters()))
        for parameter, gradient in zip(net.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
    facts = part("scripted")
    weight = torch.ones(1, requires_grad=True)
    scripted(weight * 2)
    facts["gradient"] = weight.grad.item()
    facts = part("vectors")
    for _ in range(3):
        optimizer.zero_grad()
        output = net(torch.ones(4, 8))
        output.backward(torch.ones(4, 1), retain_graph=True)
        torch.autograd.backward([output.sum()], inputs=list(net.parameters()))
        optimizer.step()
    time.sleep(1.1)  # when the norm of the gradients may be computed again
    part("sparse")
    embedding = nn.Embedding(8, 4, sparse=True)
    sparse = torch.optim.SparseAdam(embedding.parameters())
    for _ in range(3):
        sparse.zero_grad()
        embedding(torch.tensor([1, 2])).mean().backward()
        sparse.step()


def sharded():
    part("sharded")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    net = model()
    fully_shard(net, mesh=init_device_mesh("cpu", (1,)))
    time.sleep(1.1)
    train(DataLoader(data(), batch_size=4), net)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    patched_backward()
    patched_iterator()
    iterables()
    kept_as_they_were()
    optimizers()
    errors()
    elsewhere()
    other_gradients()
    sharded()
    print(json.dumps(told))
