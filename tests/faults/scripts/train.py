"""A small PyTorch training on the CPU, with one fault, or none: `train.py --fault slow_loader --seed 1`.

Every fault is one function below, named in FAULTS; the healthy ones do the same kinds of things as they should be done.
`--size` scales what the fault adds, so that it can be tried at values that no threshold was chosen by. `--forward`
makes each forward pass longer without computing: long against the turns of other programs on the CPU.
"""

import argparse
import io
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

FEATURES = 128
CLASSES = 8
VOCABULARY = 64


class Samples(Dataset[Any]):
    """Points whose class is that of the nearest of a few centers; with `noise`, of a random one."""

    def __init__(self, count: int, seed: int, *, noise: float = 0.0, work: float = 0.0) -> None:
        draw = torch.Generator().manual_seed(seed)
        centers = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(7))
        self.labels = torch.randint(CLASSES, (count,), generator=draw)
        self.points = centers[self.labels] + 2.5 * torch.randn(count, FEATURES, generator=draw)
        wrong = torch.rand(count, generator=draw) < noise
        self.labels[wrong] = torch.randint(CLASSES, (int(wrong.sum()),), generator=draw)
        self.work = work
        """Seconds of computing for each sample."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, places: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """A whole batch: one by one, loading takes longer than learning."""
        spin(self.work * len(places))
        return self.points[places], self.labels[places]


class Pause(nn.Module):
    """Takes its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return batch


class Fault:
    """What a kind of run does differently. The defaults are those of a healthy one."""

    steps = 160
    batch = 64
    workers = 0
    width = 384
    learning_rate = 1e-3

    def __init__(self, size: float, seed: int, forward: float = 0.0) -> None:
        self.size, self.seed, self.forward = size, seed, forward
        self.kept: list[Any] = []

    def data(self) -> Dataset[Any]:
        return Samples(self.steps * self.batch, self.seed)

    def model(self) -> nn.Module:
        layers = nn.Sequential(
            nn.Linear(FEATURES, self.width), nn.ReLU(), nn.Linear(self.width, self.width), nn.ReLU(),
            nn.Linear(self.width, CLASSES),
        )  # fmt: skip
        return nn.Sequential(Pause(self.forward), layers) if self.forward else layers

    def collate(self, batch: Any) -> Any:
        return batch

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        points, labels = batch
        return nn.functional.cross_entropy(model(points), labels)

    def before_backward(self, step: int, loss: torch.Tensor) -> torch.Tensor:
        return loss

    def after_step(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        """Once for each step."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), self.learning_rate)

    def train(self) -> None:
        torch.manual_seed(self.seed)
        torch.set_num_threads(1)
        model = self.wrapped(self.model())
        optimizer = self.optimizer(model)
        for step, batch in enumerate(self.batches(self.loader()), 1):
            loss = self.before_backward(step, self.loss(model, batch))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1e9)  # its norm is recorded; nothing is cut
            optimizer.step()
            self.after_step(step, model, optimizer, loss)

    def loader(self) -> DataLoader[Any]:
        data: Any = self.data()
        places = BatchSampler(RandomSampler(data), self.batch, drop_last=True)
        return DataLoader(data, None, sampler=places, num_workers=self.workers, collate_fn=self.collate)

    def wrapped(self, model: nn.Module) -> nn.Module:
        return model

    def batches(self, loader: DataLoader[Any]) -> Iterator[Any]:
        count = 0
        while count < self.steps:
            for batch in loader:
                if count < self.steps:
                    yield batch
                count += 1


def spin(seconds: float) -> None:
    """Compute for so long, of this thread's own time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


class SlowLoader(Fault):
    """Each batch comes late from somewhere far away."""

    def collate(self, batch: Any) -> Any:
        time.sleep(0.04 * self.size)
        return super().collate(batch)


class StarvedWorkers(Fault):
    """One loading process that has more to compute than it can."""

    workers = 1
    steps = 120

    def data(self) -> Dataset[Any]:
        return Samples(self.steps * self.batch, self.seed, work=0.0005 * self.size)


class SlowDisk(io.BytesIO):
    seconds = 0.0

    def close(self) -> None:
        pass

    def write(self, data: Any) -> int:
        time.sleep(self.seconds)
        return super().write(data)


class Checkpoints(Fault):
    """A checkpoint every few steps, on a slow disk."""

    def after_step(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        if step % 20 == 0:
            disk = SlowDisk()
            disk.seconds = 0.006 * self.size
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, disk)


class Evaluation(Fault):
    """Evaluations that take longer than the training, and, at any size over 0.4, well over a second in all."""

    every, seconds = 20, 0.35

    def after_step(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        if step % self.every:
            return
        if not self.kept:
            self.kept.append(Samples(self.batch * 4, self.seed + 1000))
        model.eval()
        with torch.no_grad():
            until = time.perf_counter() + self.seconds * self.size
            while True:
                for batch in DataLoader(self.kept[0], None, sampler=BatchSampler(range(256), self.batch, False)):
                    self.loss(model, batch)
                if time.perf_counter() >= until:
                    break
        model.train()


class LightEvaluation(Evaluation):
    """A healthy one."""

    every, seconds = 40, 0.0


class Logging(Fault):
    """Every weight of the first layers in a line of JSON, each step."""

    steps = 80

    def after_step(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        with Path("chatty.log").open("a") as file:
            for _ in range(max(1, round(2 * self.size))):
                weights = {name: value.flatten()[:2000].tolist() for name, value in model.state_dict().items()}
                json.dump({"step": step, "loss": loss.item(), "weights": weights}, file)


class TinyBatch(Fault):
    batch = 1
    steps = 1500

    def data(self) -> Dataset[Any]:
        self.batch = max(1, round(self.size))
        return Samples(self.steps * self.batch, self.seed)


class Leak(Fault):
    """Outputs that are kept for later."""

    steps = 400

    def after_step(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        self.kept.append(torch.ones(int(self.size * 1.5 * 2**18)))  # 1.5 MiB

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        spin(0.015)
        return super().loss(model, batch)


class NotANumber(Fault):
    def before_backward(self, step: int, loss: torch.Tensor) -> torch.Tensor:
        return loss * float("nan") if step > self.steps // (2 * self.size) else loss


class Exploding(Fault):
    """A learning rate at which a quadratic loss grows without end, from the middle of the run on."""

    def model(self) -> nn.Module:
        return nn.Linear(FEATURES, 1)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.001)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        points, labels = batch
        spin(0.004)
        return ((model(points)[:, 0] - labels) ** 2).mean()

    def after_step(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        if step == self.steps // 2:
            optimizer.param_groups[0]["lr"] = 0.06 * self.size
        if step > self.steps // 2 and loss.item() > 1e12:
            optimizer.param_groups[0]["lr"] = 0.0


class Plateau(Fault):
    """Labels that say nothing about the points, new ones for each batch."""

    steps = 240

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        points, labels = batch
        return nn.functional.cross_entropy(model(points), torch.randint(CLASSES, labels.shape))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 1e-3)


class Vanishing(Fault):
    def before_backward(self, step: int, loss: torch.Tensor) -> torch.Tensor:
        return loss * 1e-10 * self.size


class Stall(Fault):
    def after_step(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        if step == self.steps // 2:
            time.sleep(4 * self.size)


class SlowDown(Fault):
    steps = 200

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        self.kept.append(None)
        if len(self.kept) > self.steps // 2:
            time.sleep(0.05 * self.size)
        return super().loss(model, batch)


class TwoRanks(Fault):
    """Two processes, by torchrun and gloo."""

    def loader(self) -> DataLoader[Any]:
        data: Any = self.data()
        places = BatchSampler(RandomSampler(data), self.batch, drop_last=True)
        return DataLoader(data, None, sampler=places, num_workers=self.workers, collate_fn=self.collate)

    def wrapped(self, model: nn.Module) -> nn.Module:
        torch.distributed.init_process_group("gloo")
        return nn.parallel.DistributedDataParallel(model)

    def train(self) -> None:
        super().train()
        torch.distributed.destroy_process_group()


class SlowRank(TwoRanks):
    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        if os.environ["RANK"] == "1":
            time.sleep(0.04 * self.size)
        return super().loss(model, batch)


class Overfit(Fault):
    """Few samples, half of them with wrong labels, learned by heart."""

    steps = 400
    batch = 32
    held_out, held_out_noise = 512, 0.4

    def data(self) -> Dataset[Any]:
        return Samples(self.batch * max(2, round(6 / self.size)), self.seed, noise=0.4)

    def after_step(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        if step % 40 == 0:
            import pulsetrain

            points = Samples(self.held_out, self.seed + 1000, noise=self.held_out_noise)
            model.eval()
            with torch.no_grad():
                pulsetrain.log(val_loss=self.loss(model, (points.points, points.labels)).item())
            model.train()


class Validated(Overfit):
    """A healthy one: as many samples as it learns from, and labels that are right."""

    held_out_noise = 0.0

    def data(self) -> Dataset[Any]:
        return Samples(self.steps * self.batch, self.seed)


class Padding(Fault):
    """Short sequences, filled up to the length of the longest there is."""

    longest = 96

    def length(self) -> int:
        return max(4, round(self.longest / (4 * self.size)))

    def data(self) -> Dataset[Any]:
        draw = torch.Generator().manual_seed(self.seed)
        rows: Any = []
        for _ in range(self.steps * self.batch):
            count = int(torch.randint(self.length() // 2, self.length() + 1, (1,), generator=draw))
            rows.append(torch.arange(count) * int(torch.randint(1, 9, (1,), generator=draw)) % VOCABULARY)
        return rows

    def loader(self) -> DataLoader[Any]:
        return DataLoader(self.data(), self.batch, shuffle=True, collate_fn=self.collate, drop_last=True)

    def collate(self, batch: Any) -> Any:
        ids = torch.zeros(len(batch), self.padded(batch), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        return {"input_ids": ids, "attention_mask": mask}

    def padded(self, batch: list[Any]) -> int:
        return self.longest

    def model(self) -> nn.Module:
        # Wide enough that computing takes much longer than to put batches together.
        return nn.Sequential(nn.Embedding(VOCABULARY, 160), nn.Linear(160, 160), nn.ReLU(), nn.Linear(160, VOCABULARY))

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        ids, mask = batch["input_ids"], batch["attention_mask"]
        found = nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        kept = mask[:, 1:].flatten()
        return (found * kept).sum() / kept.sum()


class Packed(Padding):
    """A healthy one: each batch is as long as its longest sequence."""

    def padded(self, batch: list[Any]) -> int:
        return max(len(tokens) for tokens in batch)


class Accumulation(Fault):
    """A healthy one: an update every 4 batches."""

    steps = 400

    def train(self) -> None:
        torch.manual_seed(self.seed)
        torch.set_num_threads(1)
        model = self.model()
        optimizer = self.optimizer(model)
        for step, batch in enumerate(self.batches(self.loader()), 1):
            (self.loss(model, batch) / 4).backward()
            if step % 4 == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()


class Scheduled(Fault):
    """A healthy one: a warm-up of the learning rate, then half a cosine."""

    steps = 200

    def train(self) -> None:
        self.schedule: Any = None
        super().train()

    def after_step(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        if self.schedule is None:
            self.schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, self.steps)
        self.schedule.step()


FAULTS: dict[str, type[Fault]] = {
    "slow_loader": SlowLoader,
    "starved_workers": StarvedWorkers,
    "checkpoints": Checkpoints,
    "evaluation": Evaluation,
    "logging": Logging,
    "tiny_batch": TinyBatch,
    "leak": Leak,
    "nan": NotANumber,
    "exploding": Exploding,
    "plateau": Plateau,
    "vanishing": Vanishing,
    "stall": Stall,
    "slow_down": SlowDown,
    "slow_rank": SlowRank,
    "overfit": Overfit,
    "padding": Padding,
    "none": Fault,
    "accumulation": Accumulation,
    "light_evaluation": LightEvaluation,
    "scheduled": Scheduled,
    "two_ranks": TwoRanks,
    "validated": Validated,
    "packed": Packed,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--size", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--forward", type=float, default=0.0, metavar="SECONDS")
    asked = parser.parse_args()
    FAULTS[asked.fault](asked.size, asked.seed, asked.forward).train()
