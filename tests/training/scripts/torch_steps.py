"""Trains small models in many ways; the last line tells what each of them did, as the program itself counts it."""

import json
import time

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_ as clip
from torch.utils.data import DataLoader, TensorDataset

import pulsetrain
from pulsetrain.training import gradient_norm, loop

told = {}
gradient_norm.SHARE = 0  # on a busy machine a norm may look expensive
torch.manual_seed(1)


def part(name, **facts):
    """What was told last is over; what follows goes by this name."""
    loop.current().finish()
    pulsetrain.set_training(name)
    told[name] = facts
    return facts


def loader(batches, size=4, **options):
    features = torch.randn(batches * size, 8)
    return DataLoader(TensorDataset(features, features.sum(1, keepdim=True)), batch_size=size, **options)


def model():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def loss_of(network, batch):
    return (network(batch[0]) - batch[1]).square().mean()


def step(network, optimizer, batch):
    optimizer.zero_grad()
    loss = loss_of(network, batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def single():
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    facts = part("single", losses=[], rates=[])
    for batch in loader(6):
        facts["rates"].append(optimizer.param_groups[0]["lr"])
        facts["losses"].append(step(net, optimizer, batch))
        schedule.step()


def accumulation(name, divide):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=torch.tensor(0.25))
    facts = part(name, losses=[])
    losses = []
    for number, batch in enumerate(loader(12), 1):
        loss = loss_of(net, batch)
        losses.append(loss.item())
        divide(loss, 4).backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
            facts["losses"].append(sum(losses) / 4)
            losses.clear()


def gan(name, critics, rounds):
    generator, critic = model(), model()
    generator_optimizer = torch.optim.Adam(generator.parameters())
    critic_optimizer = torch.optim.Adam(critic.parameters())
    part(name)
    batches = iter(loader(critics * rounds))
    for _ in range(rounds):
        for _ in range(critics):
            real, _ = next(batches)
            critic_optimizer.zero_grad()
            critic(real).mean().backward()
            critic(generator(real).detach().expand(-1, 8)).mean().backward()
            critic_optimizer.step()
        generator_optimizer.zero_grad()
        critic(generator(real).expand(-1, 8)).mean().backward()
        generator_optimizer.step()


def in_backward():
    net = model()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.01) for parameter in net.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    part("in backward")
    for batch in loader(5):
        loss_of(net, batch).backward()


def lbfgs():
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)
    facts = part("lbfgs", evaluations=[])
    for batch in loader(3):
        evaluations = 0

        def closure(batch=batch):
            nonlocal evaluations
            evaluations += 1
            optimizer.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            return loss

        optimizer.step(closure)
        facts["evaluations"].append(evaluations)


def scaler():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    scale = torch.amp.GradScaler("cpu", init_scale=1024.0)
    facts = part("scaler", losses=[], norms=[], skipped=[])
    for number, batch in enumerate(loader(6)):
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        scale.scale(loss).backward()
        if number == 2:
            net[0].weight.grad[0, 0] = float("inf")
        scale.unscale_(optimizer)
        facts["norms"].append(nn.utils.clip_grad_norm_(net.parameters(), 0.5).item())
        before = net[0].bias.detach().clone()
        scale.step(optimizer)
        facts["losses"].append(loss.item())
        facts["skipped"].append(bool(torch.equal(before, net[0].bias)))
        scale.update()


def disabled_scaler():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    scale = torch.amp.GradScaler("cpu", enabled=False)
    facts = part("disabled scaler", losses=[])
    for batch in loader(3):
        loss = loss_of(net, batch)
        scale.scale(loss).backward()
        scale.step(optimizer)
        scale.update()
        facts["losses"].append(loss.item())


def combined_after_scaling():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    scale = torch.amp.GradScaler("cpu")
    part("combined after scaling")
    for batch in loader(3):
        loss = loss_of(net, batch)
        (scale.scale(loss) + scale.scale(loss)).backward()
        scale.step(optimizer)
        scale.update()


def compiled_model():
    net = torch.compile(model(), backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    facts = part("compiled model", losses=[])
    for batch in loader(4):
        facts["losses"].append(step(net, optimizer, batch))


def compiled_step():
    net = model()
    optimizer = torch.optim.Adam(net.parameters())

    @torch.compile(backend="eager")
    def compiled(batch):
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    facts = part("compiled step", losses=[])
    for batch in loader(4):
        facts["losses"].append(compiled(batch).item())


def fullgraph_clipping():
    net = model()
    loss_of(net, next(iter(loader(1)))).backward()
    clip = torch.compile(lambda: nn.utils.clip_grad_norm_(net.parameters(), 1.0), backend="eager", fullgraph=True)
    part("fullgraph clipping", norm=clip().item())


def steps_on_one_batch():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    part("steps on one batch")
    for batch in loader(2):
        for _ in range(3):
            step(net, optimizer, batch)


def without_loader():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    batches = [(torch.randn(4, 8), torch.randn(4, 1)) for _ in range(5)]
    part("without loader")
    for batch in batches:
        step(net, optimizer, batch)


def norms(name, make, clip=None):
    """The norm of all gradients is computed for the program, but not more than once in a second."""
    net = model()
    optimizers = make(net)
    facts = part(name, norms=[])
    scale = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for number, batch in enumerate(loader(6)):
        net.zero_grad()
        scale.scale(loss_of(net, batch)).backward()
        if number == 3:
            time.sleep(1.1)
        for optimizer in optimizers:
            scale.unscale_(optimizer)
        facts["norms"].append(nn.utils.get_total_norm([p.grad for p in net.parameters()]).item())
        if clip:
            clip(net)
        for optimizer in optimizers:
            scale.step(optimizer)
        scale.update()


def one_optimizer(net):
    return [torch.optim.SGD(net.parameters(), lr=0.01)]


def two_optimizers(net):
    return [torch.optim.SGD(layer.parameters(), lr=0.01) for layer in (net[0], net[2])]


class Plain(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["lr"] * parameter.grad)


class Louder(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure=None):
        self.inner.step()


def own_optimizers():
    for name, make in (
        ("own optimizer", lambda net: Plain(net.parameters(), 0.5)),
        ("inherited optimizer", lambda net: Louder(net.parameters(), 0.5)),
        ("wrapped optimizer", lambda net: Lookahead(torch.optim.SGD(net.parameters(), 0.5))),
    ):
        net = model()
        optimizer = make(net)
        part(name)
        for batch in loader(3):
            step(net, optimizer, batch)


class Slow(torch.utils.data.Dataset):
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 4

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.randn(8), torch.randn(1)


def fast():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    facts = part("fast", losses=[])
    for batch in loader(1800):
        facts["losses"].append(step(net, optimizer, batch))


def validation():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    part("validation", slept=0.8)
    for number, batch in enumerate(loader(4)):
        if number == 2:
            net.eval()
            for held_out in DataLoader(Slow(0.2), batch_size=2):
                with torch.no_grad():
                    loss_of(net, held_out)
            net.train()
        step(net, optimizer, batch)


def slow_loader():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    part("slow loader", slept=0.1)
    for batch in DataLoader(Slow(0.1)):
        step(net, optimizer, batch)


def kinds_of_batches():
    net = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    part("kinds of batches")
    rows = [{"input_ids": torch.ones(8, dtype=torch.long), "name": "x"}] * 6
    for batch in DataLoader(rows, batch_size=3):
        step(net, optimizer, (batch["input_ids"].float(), torch.ones(3, 1)))
    for images, _ in DataLoader(
        [(torch.ones(3, 8), "x")] * 4, 2, collate_fn=lambda rows: tuple(zip(*rows, strict=True))
    ):
        step(net, optimizer, (torch.stack(images), torch.ones(1)))
    for _ in DataLoader(["a", "b"], batch_size=2):
        step(net, optimizer, (torch.ones(1, 8), torch.ones(1, 1)))


single()
accumulation("accumulation, divided", lambda loss, count: loss / count)
accumulation("accumulation, multiplied", lambda loss, count: loss * (1 / count))
accumulation("accumulation, whole", lambda loss, count: loss)
accumulation("accumulation, mean of samples", lambda loss, count: loss * 32 / 32)
gan("gan", 1, 5)
gan("wgan", 5, 3)
in_backward()
lbfgs()
norms("norm", one_optimizer)
norms("norm of two optimizers", two_optimizers)
norms("norm of clipped layers", two_optimizers, lambda net: [clip(layer.parameters(), 9) for layer in (net[0], net[2])])
norms("other norms", one_optimizer, lambda net: clip(net.parameters(), 9, float("inf")))
scaler()
disabled_scaler()
combined_after_scaling()
compiled_model()
compiled_step()
fullgraph_clipping()
steps_on_one_batch()
without_loader()
own_optimizers()
validation()
slow_loader()
kinds_of_batches()
fast()
print(json.dumps(told))
