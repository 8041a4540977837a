# mypy: ignore-errors
"""Loops in the shapes of well-known public programs; the last line has what each of them counted itself."""

import gc
import json
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import pulsetrain
from pulsetrain.training import loop

told = {}
torch.manual_seed(1)
LENGTH, WORDS = 8, 16


def part(name, **facts):
    """What is told of each: steps, their losses, norms, samples and tokens, and the phases after each step."""
    gc.collect()  # no optimizer of an earlier part is left
    loop.current().finish()
    pulsetrain.set_training(name)
    told[name] = {"first": loop.current().step, "losses": [], **facts}
    return told[name]


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(8, WORDS)

    def forward(self, ids, targets):
        scores = self.head(self.dropout(self.embedding(ids)))
        return functional.cross_entropy(scores.view(-1, WORDS), targets.view(-1))


def get_batch(rows=4):
    return torch.randint(0, WORDS, (rows, LENGTH)), torch.randint(0, WORDS, (rows, LENGTH))


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))


def loader(batches, size=4):
    features = torch.randn(batches * size, 8)
    return DataLoader(TensorDataset(features, features.sum(1, keepdim=True)), batch_size=size)


def nanogpt():
    """No loader, micro batches, clipping, and an evaluation every third step that is itself without gradients."""
    net = LanguageModel()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    facts = part("nanoGPT", norms=[], tokens=[], phases=[], slept=0.12)

    @torch.no_grad()
    def estimate_loss():
        net.eval()
        for _ in range(4):
            net(*get_batch())
            time.sleep(0.03)
        net.train()

    for number in range(7):
        if number % 3 == 0:
            estimate_loss()
            facts["phases"].append([number, "validation"])
        losses = []
        for _ in range(2):
            loss = net(*get_batch()) / 2
            losses.append(loss.item())
            loss.backward()
        facts["norms"].append(nn.utils.clip_grad_norm_(net.parameters(), 0.1).item())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        facts["losses"].append(sum(losses))
        facts["tokens"].append(2 * 4 * LENGTH)


def mingpt():
    """A callback in the middle of an epoch looks at one batch of another loader."""
    net = LanguageModel()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    facts = part("minGPT", samples=[], tokens=[], phases=[])
    held_out = DataLoader(TensorDataset(*get_batch(12)), batch_size=4)
    for number, (ids, targets) in enumerate(DataLoader(TensorDataset(*get_batch(24)), batch_size=4), 1):
        loss = net(ids, targets)
        net.zero_grad()
        loss.backward()
        optimizer.step()
        facts["losses"].append(loss.item())
        facts["samples"].append(len(ids))
        facts["tokens"].append(ids.numel())
        if number % 2 == 0:
            net.eval()
            with torch.no_grad():
                net(*next(iter(held_out)))
            net.train()
            facts["phases"].append([number, "validation"])


def mnist():
    """Each epoch ends with a test; after the last one nobody calls `train()` again."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    facts = part("MNIST", samples=[], phases=[])
    training, test = loader(3), loader(5)
    for epoch in range(2):
        net.train()
        for features, targets in training:
            optimizer.zero_grad()
            loss = functional.mse_loss(net(features), targets)
            loss.backward()
            optimizer.step()
            facts["losses"].append(loss.item())
            facts["samples"].append(len(features))
        net.eval()
        with torch.no_grad():
            for features, _ in test:
                net(features)
        facts["phases"].append([3 * epoch + 3, "validation"])


def careless():
    """Validates without `eval()`; breaks off its first validation; looks at one batch without any hint."""
    net = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    facts = part("careless", samples=[], phases=[])
    held_out = loader(4)
    for number, (features, targets) in enumerate(loader(9), 1):
        loss = functional.mse_loss(net(features), targets)
        loss.backward()
        optimizer.step()
        facts["losses"].append(loss.item())
        facts["samples"].append(len(features))
        if number == 2:
            with torch.no_grad():
                for place, (other, _) in enumerate(held_out):
                    net(other)
                    if place == 2:
                        break
        elif number == 4:
            for other, _ in held_out:
                net(other)
        elif number == 6:
            net(next(iter(held_out))[0])
            continue
        else:
            continue
        facts["phases"].append([number, "validation"])


def looked_first():
    """Looks at a batch before it makes its model, as in many tutorials."""
    training = loader(3)
    facts = part("looked first", samples=[])
    width = next(iter(training))[0].shape[1]
    net = nn.Linear(width, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for features, targets in training:
        loss = functional.mse_loss(net(features), targets)
        loss.backward()
        optimizer.step()
        facts["losses"].append(loss.item())
        facts["samples"].append(len(features))


def graph():
    """One step an epoch on all of the data, and a test after each."""
    net, (features, targets) = network(), (torch.randn(20, 8), torch.randn(20, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    facts = part("whole graph", phases=[])
    for epoch in range(1, 5):
        net.train()
        optimizer.zero_grad()
        loss = functional.mse_loss(net(features), targets)
        loss.backward()
        optimizer.step()
        facts["losses"].append(loss.item())
        net.eval()
        with torch.no_grad():
            net(features)
        if epoch < 4:  # of the last one nobody knows when it ended
            facts["phases"].append([epoch, "validation"])


def frozen():
    """Trains in evaluation mode, with a teacher that never trains."""
    net, teacher = network(), network().eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    facts = part("frozen", samples=[], phases=[])
    net.eval()
    for features, _ in loader(4):
        loss = functional.mse_loss(net(features), teacher(features).detach())
        loss.backward()
        optimizer.step()
        facts["losses"].append(loss.item())
        facts["samples"].append(len(features))
    net.train()


def dcgan():
    """The discriminator learns from two backward passes on one batch, the generator from a third."""
    generator, discriminator = nn.Linear(8, 8), nn.Linear(8, 1)
    first = torch.optim.Adam(discriminator.parameters(), lr=0.01)
    second = torch.optim.Adam(generator.parameters(), lr=0.02)
    facts = part("DCGAN", samples=[], second_losses=[])
    for real, _ in loader(4):
        discriminator.zero_grad()
        on_real = discriminator(real).square().mean()
        on_real.backward()
        fake = generator(torch.randn(4, 8))
        on_fake = discriminator(fake.detach()).square().mean()
        on_fake.backward()
        first.step()
        generator.zero_grad()
        fooled = discriminator(fake).square().mean()
        fooled.backward()
        second.step()
        facts["losses"].append((on_real + on_fake).item())
        facts["second_losses"].append(fooled.item())
        facts["samples"].append(len(real))


def two_optimizers_one_loss():
    """As with Muon for matrices and AdamW for the rest."""
    net = network()
    optimizers = [
        torch.optim.SGD([p for p in net.parameters() if (p.ndim == 2) is flat], lr=0.01) for flat in (True, False)
    ]
    facts = part("two optimizers, one loss", second_losses=[])
    for features, targets in loader(4):
        loss = functional.mse_loss(net(features), targets)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        facts["losses"].append(loss.item())
        facts["second_losses"].append(None)


def lbfgs():
    net, (features, targets) = nn.Linear(8, 1), (torch.randn(20, 8), torch.randn(20, 1))
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4)
    facts = part("LBFGS", phases=[])

    def closure():
        optimizer.zero_grad()
        loss = functional.mse_loss(net(features), targets)
        loss.backward()
        return loss

    for _ in range(4):
        facts["losses"].append(optimizer.step(closure).item())
        with torch.no_grad():
            net(features)


def word_language_model():
    """Weights are updated by hand, after clipping; an evaluation follows each epoch."""
    net = LanguageModel()
    facts = part("by hand", norms=[], tokens=[], phases=[])
    for _ in range(2):
        net.train()
        for _ in range(3):
            net.zero_grad()
            loss = net(*get_batch())
            loss.backward()
            facts["norms"].append(nn.utils.clip_grad_norm_(net.parameters(), 0.25).item())
            for parameter in net.parameters():
                parameter.data.add_(parameter.grad, alpha=-0.1)
            facts["losses"].append(loss.item())
            facts["tokens"].append(4 * LENGTH)
        net.eval()
        with torch.no_grad():
            net(*get_batch())
    facts["phases"].append([3, "validation"])


def functional_gradients():
    weights, facts = torch.randn(8, requires_grad=True), part("autograd.grad", samples=[])
    for features, _ in loader(4):
        loss = (features @ weights).square().mean()
        (gradient,) = torch.autograd.grad(loss, [weights])
        weights = (weights - 0.01 * gradient).detach().requires_grad_()
        facts["losses"].append(loss.item())
        facts["samples"].append(len(features))


def gradient_penalty():
    """`autograd.grad` beside an optimizer is a part of the loss."""
    net = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    facts = part("gradient penalty", samples=[])
    for features, _ in loader(3):
        features.requires_grad_()
        scores = net(features)
        (slopes,) = torch.autograd.grad(scores.sum(), [features], create_graph=True)
        loss = scores.mean() + (slopes.norm(dim=1) - 1).square().mean()
        loss.backward()
        optimizer.step()
        facts["losses"].append(loss.item())
        facts["samples"].append(len(features))


def mixed_precision():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    facts = part("mixed precision", norms=[], samples=[])
    for features, targets in loader(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.mse_loss(net(features).float(), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        facts["norms"].append(nn.utils.clip_grad_norm_(net.parameters(), 1.0).item())
        scaler.step(optimizer)
        scaler.update()
        facts["losses"].append(loss.item())
        facts["samples"].append(len(features))


def compiled_step():
    """All of a step is compiled, and clips its gradients to a tenth."""
    net = nn.Linear(8, 1)
    optimizer = torch.optim.Adam(net.parameters())

    @torch.compile(backend="eager")
    def step(features, targets):
        optimizer.zero_grad()
        loss = functional.mse_loss(net(features), targets)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        return loss, norm

    facts = part("compiled step", norms=[], samples=[])
    for features, targets in loader(4):
        loss, norm = step(features, targets)
        facts["losses"].append(loss.item())
        facts["norms"].append(norm.item())
        facts["samples"].append(len(features))


def compiled_modes():
    net = network()

    @torch.compile(backend="eager", fullgraph=True)
    def there_and_back(features):
        net.eval()
        result = net(features).sum()
        net.train()
        return result

    part("compiled modes")["sum"] = there_and_back(torch.randn(4, 8)).item()


def with_known_norm():
    """Clips with a norm it has computed before; and by value, of which no norm is known."""
    net = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    facts = part("with known norm", norms=[])
    time.sleep(1.1)  # so that a norm would be computed for the program
    for number, (features, targets) in enumerate(loader(4)):
        optimizer.zero_grad()
        loss = functional.mse_loss(net(features), targets)
        loss.backward()
        if number:
            norm = nn.utils.get_total_norm([parameter.grad for parameter in net.parameters()])
            nn.utils.clip_grads_with_norm_(net.parameters(), 0.1, norm)
        else:
            nn.utils.clip_grad_value_(net.parameters(), 0.01)
        optimizer.step()
        facts["losses"].append(loss.item())
        facts["norms"].append(norm.item() if number else None)


nanogpt()
mingpt()
mnist()
careless()
looked_first()
graph()
frozen()
dcgan()
two_optimizers_one_loss()
lbfgs()
word_language_model()
functional_gradients()
gradient_penalty()
mixed_precision()
compiled_step()
compiled_modes()
with_known_norm()
print(json.dumps(told))
