"""What the GPU sources say in the same words: whom a line is about, and that a GPU was lost or came back."""

from collections.abc import Iterable

from pulsetrain import catalog
from pulsetrain.catalog import CORE_GPU_FIELDS
from pulsetrain.snapshot import Event, Subject, Value


def subject(index: int, uuid: str, name: str) -> Subject:
    """The subject of a GPU's lines."""
    return catalog.subject("gpu", {"gpu_index": index, "uuid": uuid, "name": name})


def lost_values() -> dict[str, Value]:
    """The values of a line about a lost GPU: down, and nothing else known."""
    return {"up": 0, **dict.fromkeys(CORE_GPU_FIELDS)}


def lost(index: int, uuid: str, name: str, reason: str) -> Event:
    return Event("gpu_lost", f"GPU {index} ({name}) is lost: {reason}", "critical", {"gpu_index": index, "uuid": uuid})


def back(index: int, uuid: str, name: str) -> Event:
    return Event("gpu_back", f"GPU {index} ({name}) is back", "info", {"gpu_index": index, "uuid": uuid})


def memory_percent(used: float, total: float) -> float | None:
    """Memory in use of all there is, with two decimals; None where there is none."""
    return int(10_000 * used / total + 0.5) / 100 if total else None  # a third of round()


def complete(values: dict[str, Value]) -> dict[str, Value]:
    """Add what follows from other values: the power draw that the catalog means, and the shares of memory."""
    for power in ("power_average_watts", "power_instant_watts"):
        if power in values:
            values["power_draw_watts"] = values[power]
    used, total = values.get("memory_used_mb"), values.get("memory_total_mb")
    if isinstance(used, float) and isinstance(total, float) and total > 0:
        values.setdefault("memory_free_mb", total - used)
        values["memory_percent"] = memory_percent(used, total)
    return values


def known_boards(seen: Iterable[Subject]) -> list[Subject]:
    """Each GPU once, by index: one that did not answer at the start was known by that alone until it had a UUID."""
    seen = list(seen)
    named = {gpu.labels.get("gpu_index") for gpu in seen if gpu.labels.get("uuid")}
    boards = [gpu for gpu in seen if gpu.labels.get("uuid") or gpu.labels.get("gpu_index") not in named]
    return sorted(boards, key=lambda gpu: gpu.labels.get("gpu_index") or 0)
