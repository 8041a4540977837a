# mypy: ignore-errors
"""Trains in two processes, in the way that its argument names; the last line has the losses that each of them saw."""

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

import pulsetrain

warnings.simplefilter("ignore")
STEPS = 12


def steps(model, seed):
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4, generator=generator)).square().mean() + seed
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    return losses


def grouped(index, folder, reports_first):
    """A rank of a group, which is not the place at which its process was started."""
    rank = 1 - index
    if reports_first:
        pulsetrain.log(before_group=rank)
        pulsetrain.training.process.current().flush()
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    tell(folder, rank, steps(DistributedDataParallel(torch.nn.Linear(4, 1)), rank))
    torch.distributed.destroy_process_group()


def hogwild(index, folder, model, both):
    """One of two processes that update the same weights, each on its own."""
    both.wait()
    tell(folder, index, steps(model, index))
    pulsetrain.training.loop.finish()
    pulsetrain.training.process.current().flush()
    both.wait()


def lightning(folder):
    """Runs twice: Lightning starts the second process itself."""
    import lightning as L

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.losses = []

        def training_step(self, batch, index):
            loss = self.layer(batch).square().mean() + self.global_rank
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    model = Model()
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = L.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, **quiet)
    trainer.fit(model, torch.utils.data.DataLoader(torch.randn(2 * STEPS * 8, 4), batch_size=8))
    tell(folder, trainer.global_rank, model.losses)
    trainer.strategy.barrier()
    if trainer.global_rank:
        sys.exit()


def tell(folder, rank, losses):
    Path(folder, str(rank)).write_text(json.dumps(losses))


def main():
    way = sys.argv[1]
    folder = os.environ.setdefault("TEST_RANKS_FOLDER", tempfile.mkdtemp())
    if way == "lightning":
        lightning(folder)
    elif way == "hogwild":
        model = torch.nn.Linear(4, 1).share_memory()
        both = multiprocessing.get_context("spawn").Barrier(2)
        multiprocessing.spawn(hogwild, (folder, model, both), nprocs=2)
    else:
        multiprocessing.spawn(grouped, (folder, way == "late"), nprocs=2)
    print(json.dumps([json.loads(Path(folder, str(rank)).read_text()) for rank in (0, 1)]))


if __name__ == "__main__":
    main()
