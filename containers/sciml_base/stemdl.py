"""Classifies simulated electron diffraction patterns by a small ResNet, one process for each GPU.

The patterns have the size and the number of classes of the STEMDL benchmark, whose data are too large for an image;
each class is a lattice of its own, with noise.
"""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES, SIZE, BATCH, STEPS = 231, 128, 64, 300


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around = nn.Conv2d(inputs, outputs, 1, stride=2, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.around(images))


def patterns(device: torch.device, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of lattices, and the class of each."""
    labels = torch.randint(CLASSES, (BATCH,), device=device, generator=generator)
    axis = torch.linspace(-1, 1, SIZE, device=device)
    first, second = (4 + labels % 15)[:, None, None], (4 + labels // 15)[:, None, None]
    images = torch.cos(first * 3 * axis[:, None]) * torch.cos(second * 3 * axis[None, :])
    noise = 0.3 * torch.randn(BATCH, SIZE, SIZE, device=device, generator=generator)
    return (images + noise)[:, None].expand(-1, 3, -1, -1), labels


def main() -> None:
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    generator = torch.Generator(device).manual_seed(rank)
    blocks = [Block(inputs, outputs) for inputs, outputs in ((3, 64), (64, 128), (128, 256), (256, 512))]
    network = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES)).to(device)
    model = DistributedDataParallel(network, device_ids=[rank] if cuda else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began = time.perf_counter()
    for step in range(STEPS):
        images, labels = patterns(device, generator)
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 50 == 49:
            print(f"step {step + 1}, loss {loss.item():.4f}")
    if rank == 0:
        seconds = time.perf_counter() - began
        print(f"patterns per second: {STEPS * BATCH * dist.get_world_size() / seconds:.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
