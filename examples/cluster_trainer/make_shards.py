"""Make small synthetic shards in WebDataset form: tar files of KEY.ppm, an image, and KEY.cls, its class.

python make_shards.py FOLDER --form cifar10 --shards 8 --samples 512

The classes can be learned: each has a color, and the images are noise around it.
"""

import argparse
import io
import random
import tarfile
from pathlib import Path

FORMS = {"cifar10": (32, 10), "imagenet": (224, 1000)}
"""Pixels along a side, and classes."""


def make_sample(size: int, label: int, noise: random.Random) -> bytes:
    """A binary PPM image."""
    color = random.Random(label)
    channels = [color.randrange(64, 192) for _ in range(3)]
    pixels = bytearray(noise.randbytes(3 * size * size))
    for channel, level in enumerate(channels):
        pixels[channel::3] = bytes((value + 3 * level) // 4 for value in pixels[channel::3])
    return b"P6 %d %d 255\n" % (size, size) + bytes(pixels)


def write_shard(file: Path, samples: int, size: int, classes: int, seed: int) -> None:
    noise = random.Random(seed)
    with tarfile.open(file, "w") as shard:
        for number in range(samples):
            label = noise.randrange(classes)
            for suffix, content in (("ppm", make_sample(size, label, noise)), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{seed:06d}{number:06d}.{suffix}")
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make small synthetic shards in WebDataset form.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--form", choices=FORMS, default="cifar10")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--samples", type=int, default=512, help="in each shard")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    size, classes = FORMS[given.form]
    for number in range(given.shards):
        write_shard(given.folder / f"train-{number:06d}.tar", given.samples, size, classes, number)
    print(f"{given.folder}/train-{{000000..{given.shards - 1:06d}}}.tar: {given.samples} samples each")


if __name__ == "__main__":
    main()
