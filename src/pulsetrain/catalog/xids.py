"""The XID errors of NVIDIA's drivers that are known by name: how grave they are, and what NVIDIA's list says to do.

https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html is that list. Every other number is counted as
`other`.
"""

from typing import NamedTuple

OTHER_XIDS = "other"


class Xid(NamedTuple):
    """One number of NVIDIA's list."""

    meaning: str
    critical: bool
    """Whether the GPU, its memory or its links have failed: not the program, and not what the driver has put right."""
    action: str


_RESTART = "restart the program from a checkpoint, and debug it"
_RESET = "take the GPU out of use and reset it; if it recurs, have the board checked"
_RESET_SOFTWARE = "take the GPU out of use and reset it; if it recurs, look into driver and firmware"

XIDS = {
    13: Xid("graphics engine exception", False, _RESTART),
    31: Xid("GPU memory page fault", False, _RESTART),
    43: Xid("GPU stopped processing for a program", False, "the GPU is fine; restart the program, and debug it"),
    45: Xid("preemptive cleanup after an earlier error", False, "look at the XID error that came with it"),
    46: Xid("GPU stopped processing", True, _RESET),
    48: Xid("double bit ECC error", True, _RESET),
    61: Xid("internal microcontroller breakpoint", True, _RESET),
    62: Xid("internal microcontroller halt", True, _RESET),
    63: Xid("memory row remapping recorded", False, "nothing now; the next GPU reset applies it"),
    64: Xid("memory row remapping failed", True, _RESET),
    68: Xid("video decoder exception", False, _RESTART),
    69: Xid("graphics engine class error", False, _RESTART),
    74: Xid("NVLink error", True, "reset the GPU; if it recurs, have its NVLink connections and the board checked"),
    79: Xid("GPU has fallen off the bus", True, "reboot the machine; check the board's power, seating and cooling"),
    92: Xid("high single bit ECC error rate", False, "nothing now; if it recurs, have the board checked"),
    94: Xid("contained memory error", True, "restart the program, and reset the GPU when it can be spared"),
    95: Xid("uncontained memory error", True, _RESET),
    109: Xid("context switch timeout", True, _RESET),
    119: Xid("GPU system processor timeout", True, _RESET_SOFTWARE),
    120: Xid("GPU system processor error", True, _RESET_SOFTWARE),
    140: Xid("unrecovered ECC error", True, _RESET),
    143: Xid("GPU initialization error", True, _RESET),
    154: Xid("the GPU's recovery action changed", False, "do what the GPU's recovery action says"),
    158: Xid("GPU fatal timeout", True, _RESET),
}


def xid_label(number: int) -> str:
    """The value of the label that tells these errors apart."""
    return str(number) if number in XIDS else OTHER_XIDS


def xid_labels(*, critical: bool) -> tuple[str, ...]:
    """The numbers that are critical; or all others, those that have no name among them."""
    named = tuple(str(number) for number, xid in XIDS.items() if xid.critical is critical)
    return named if critical else (*named, OTHER_XIDS)


def xid_advice(*, critical: bool) -> str:
    """What NVIDIA's list says to do, with the numbers that it says it of."""
    numbers: dict[str, list[str]] = {}
    for number, xid in XIDS.items():
        if xid.critical is critical:
            numbers.setdefault(xid.action, []).append(str(number))
    return ". ".join(f"{', '.join(those)}: {action}" for action, those in numbers.items()) + "."
