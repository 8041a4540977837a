"""Train on shards over HTTP, with one process or many, on one node or many; continue from the last checkpoint.

pulsetrain run -- torchrun --nproc-per-node 2 train.py --shards 'http://127.0.0.1:8080/train-{000000..000007}.tar'
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from dataset import ShardDataset, expand
from model import make_model
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

FORMS = {"cifar10": (32, 10), "imagenet": (224, 1000)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on shards over HTTP.")
    cache = os.environ.get("PULSETRAIN_CACHE_URL", "http://127.0.0.1:8080")
    parser.add_argument("--shards", default=f"{cache}/train-{{000000..000007}}.tar", help="a URL with {first..last}")
    parser.add_argument("--form", choices=FORMS, default="cifar10")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64, help="of each process")
    parser.add_argument("--workers", type=int, default=0, help="of each process' data loader")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--checkpoints", type=Path, help="a folder that outlives this process")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    on_gpu = torch.cuda.is_available()
    if "RANK" not in os.environ:  # not under torchrun: one process
        os.environ |= {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0",
        }
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    torch.manual_seed(0)

    size, classes = FORMS[given.form]
    dataset = ShardDataset(expand(given.shards), rank, dist.get_world_size())
    loader = DataLoader(dataset, batch_size=given.batch_size, num_workers=given.workers, pin_memory=on_gpu)
    model = DistributedDataParallel(make_model(classes, given.width, size).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=given.learning_rate, momentum=0.9)
    first = load(given.checkpoints, model, optimizer, device)
    if rank == 0 and first:
        print(f"continuing after epoch {first}", flush=True)
    for epoch in range(first, given.epochs):
        dataset.set_epoch(epoch)
        loss, seen = train_epoch(model, optimizer, loader, device)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f}, {seen} samples", flush=True)
            save(given.checkpoints, model, optimizer, epoch + 1)
        dist.barrier()
    dist.destroy_process_group()


def train_epoch(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer, loader: DataLoader, device: torch.device
) -> tuple[float, int]:
    """The mean loss and number of samples of all processes. One that has fewer batches waits for the others."""
    total = torch.zeros(2, device=device)
    with Join([model]):
        for batch in loader:
            images, labels = (part.to(device, non_blocking=True) for part in batch)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.stack([loss.detach() * len(labels), torch.tensor(float(len(labels)), device=device)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item(), int(total[1].item())


def load(folder: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """The number of epochs that are done."""
    file = folder / "last.pt" if folder else None
    if file is None or not file.exists():
        return 0
    state = torch.load(file, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epochs"])


def save(folder: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
    """A checkpoint is there as a whole or not at all."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / "new.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epochs}, new)
    new.replace(folder / "last.pt")


if __name__ == "__main__":
    main()
