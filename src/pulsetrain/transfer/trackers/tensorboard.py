"""Event files of TensorBoard: each folder that has some is a run. TensorBoard's own reader opens them."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pulsetrain.errors import UsageError
from pulsetrain.transfer.trackers.old_run import OldPoint, OldRun

PATTERN = "*tfevents*"
_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
"""Of the numbers in a tensor: float, double, int32, int64."""


def old_runs(place: str) -> Iterator[OldRun]:
    root = Path(place).expanduser()
    if not root.is_dir():
        raise UsageError(f"{place} is not a folder.")
    folders = sorted({file.parent for file in root.rglob(PATTERN) if file.is_file() and not file.is_symlink()})
    for folder in folders:
        name = root.resolve().name if folder == root else str(folder.relative_to(root))
        points = [point for file in sorted(folder.glob(PATTERN)) for point in _points(file)]
        if points:
            # The writer's first moment is in its file: the same run is found again wherever its folder is moved to.
            first = min(point.time for point in points)
            yield OldRun("tensorboard", f"{name}@{first:.6f}", name, points, project=root.resolve().name)


def _points(file: Path) -> Iterator[OldPoint]:
    """The scalars of one file, as far as it can be read: the last event may be cut off."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    try:
        for event in LegacyEventFileLoader(str(file)).Load():
            if event.HasField("summary"):
                values = {value.tag: number for value in event.summary.value if (number := _number(value)) is not None}
                if values:
                    yield OldPoint(float(event.wall_time), int(event.step), values)
    except Exception:  # noqa: BLE001 - the reader raises whatever its library does for a damaged file
        return


def _number(value: Any) -> float | None:
    """A scalar, as PyTorch writes it, or as TensorFlow 2 does."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or value.metadata.plugin_data.plugin_name not in ("", "scalars"):
        return None
    tensor = value.tensor
    for numbers in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(numbers) == 1:
            return float(numbers[0])
    form = _FORMATS.get(tensor.dtype)
    if form and len(tensor.tensor_content) == struct.calcsize(form):
        return float(struct.unpack(form, tensor.tensor_content)[0])
    return None
