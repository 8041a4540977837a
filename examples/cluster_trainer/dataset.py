"""Samples from tar shards over HTTP, each shard read by exactly one process of one node, and once in an epoch."""

import io
import random
import re
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import torch
from torch.utils.data import IterableDataset, get_worker_info

TRIES = 4
"""For a shard whose server does not answer."""


def expand(pattern: str) -> list[str]:
    """`train-{000000..000007}.tar` as eight names."""
    found = re.search(r"\{(\d+)\.\.(\d+)\}", pattern)
    if not found:
        return [pattern]
    first, last = found.groups()
    return [
        f"{pattern[: found.start()]}{number:0{len(first)}d}{pattern[found.end() :]}"
        for number in range(int(first), int(last) + 1)
    ]


class ShardDataset(IterableDataset):
    """Images as float tensors of 3 x size x size, and their classes."""

    def __init__(self, urls: list[str], rank: int, world_size: int, seed: int = 0) -> None:
        super().__init__()
        if len(urls) < world_size:
            raise SystemExit(
                f"error: {len(urls)} shards are too few for {world_size} processes: make more, smaller ones"
            )
        self._urls = urls
        self._rank, self._world_size = rank, world_size
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Another order of shards, the same in all processes."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        for url in self._own():
            for files in samples(url):
                suffix = next((name for name in files if name in DECODERS), None)
                if suffix is not None and "cls" in files:
                    yield DECODERS[suffix](files[suffix]), int(files["cls"])

    def _own(self) -> list[str]:
        """The shards of this process, and of this worker of its data loader."""
        worker = get_worker_info()
        workers, index = (worker.num_workers, worker.id) if worker else (1, 0)
        order = self._urls[:]
        random.Random(f"{self._seed} {self._epoch}").shuffle(order)
        return order[self._rank * workers + index :: self._world_size * workers]


def samples(url: str) -> Iterator[dict[str, bytes]]:
    """The files of each key in a shard, by suffix. Files of a key are next to each other."""
    key, files = "", {}
    with tarfile.open(fileobj=io.BytesIO(fetch(url))) as shard:
        for member in shard:
            if not member.isfile():
                continue
            name, _, suffix = member.name.partition(".")
            if name != key and files:
                yield files
                files = {}
            opened = shard.extractfile(member)
            assert opened is not None
            key, files[suffix] = name, opened.read()
    if files:
        yield files


def fetch(url: str) -> bytes:
    """A whole shard: one that breaks off is fetched again, before any of it is used."""
    for attempt in range(1, TRIES + 1):
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                content: bytes = answer.read()
                if len(content) == int(answer.headers.get("Content-Length", len(content))):
                    return content
        except urllib.error.HTTPError as error:
            if error.code < 500 or attempt == TRIES:
                raise
        except OSError:
            if attempt == TRIES:
                raise
        time.sleep(attempt)
    raise OSError(f"{url} breaks off each time")


def _ppm(content: bytes) -> torch.Tensor:
    """Binary PPM, as make_shards.py writes it."""
    head = re.match(rb"P6\s+(\d+)\s+(\d+)\s+255\s", content)
    if not head:
        raise ValueError("not a binary PPM image")
    width, height = int(head[1]), int(head[2])
    pixels = torch.frombuffer(bytearray(content[head.end() :]), dtype=torch.uint8)
    return pixels.reshape(height, width, 3).permute(2, 0, 1).float() / 255


def _pillow(content: bytes) -> torch.Tensor:
    """What real CIFAR-10 and ImageNet shards hold. Needs Pillow."""
    from PIL import Image

    image = Image.open(io.BytesIO(content)).convert("RGB")
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.reshape(image.height, image.width, 3).permute(2, 0, 1).float() / 255


DECODERS = {"ppm": _ppm, "png": _pillow, "jpg": _pillow, "jpeg": _pillow}
