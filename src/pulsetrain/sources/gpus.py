"""What the GPU sources say in the same words: whom a line is about, and that a GPU was lost or came back."""

from pulsetrain.catalog import CORE_GPU_FIELDS
from pulsetrain.snapshot import Event, Subject, Value


def subject(index: int, uuid: str, name: str) -> Subject:
    """The subject of a GPU's lines."""
    return Subject("gpu", uuid, {"gpu_index": index, "uuid": uuid, "name": name})


def lost_values() -> dict[str, Value]:
    """The values of a line about a lost GPU: down, and nothing else known."""
    return {"up": 0, **dict.fromkeys(CORE_GPU_FIELDS)}


def lost(index: int, uuid: str, name: str, reason: str) -> Event:
    return Event("gpu_lost", f"GPU {index} ({name}) is lost: {reason}", "error", {"gpu_index": index, "uuid": uuid})


def back(index: int, uuid: str, name: str) -> Event:
    return Event("gpu_back", f"GPU {index} ({name}) is back", "info", {"gpu_index": index, "uuid": uuid})


def complete(values: dict[str, Value]) -> dict[str, Value]:
    """Add what follows from other values: the power draw that the catalogue means, and the shares of memory."""
    for power in ("power_average_watts", "power_instant_watts"):
        if power in values:
            values["power_draw_watts"] = values[power]
    used, total = values.get("memory_used_mb"), values.get("memory_total_mb")
    if isinstance(used, float) and isinstance(total, float) and total > 0:
        values.setdefault("memory_free_mb", total - used)
        values["memory_percent"] = 100 * used / total
    return values
