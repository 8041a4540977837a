"""Why a GPU's clocks are held down: NVIDIA's bit mask in words."""

from functools import lru_cache

_WORDS = {
    0x001: "idle",
    0x002: "applications_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
}

THROTTLING = frozenset({"sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})
"""The words that mean that power or heat holds the GPU back; the others are idleness or a setting."""


@lru_cache(maxsize=256)
def throttle_words(mask: int) -> list[str]:
    """The words for a mask, lowest bit first. One list is shared by all callers, who must not change it."""
    bits = (1 << position for position in range(mask.bit_length()))
    return [_WORDS.get(bit, f"reason_0x{bit:x}") for bit in bits if mask & bit]
