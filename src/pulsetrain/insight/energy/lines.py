"""What the lines of a run tell about energy: their columns, and what power is taken for where nothing measures it.

Imports nothing heavy: the running account needs it in the watching process.
"""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pulsetrain.insight.energy.curve import Array

COLUMNS = {
    "counter": "energy_joules",
    "exact": "energy_interpolated_joules",
    "exact_error": "energy_interpolation_error_joules",
    "power": "power_draw_watts",
    "utilization": "utilization_percent",
    "polled": "polled_energy_joules",
    "variance": "polled_energy_variance_joules2",
    "unseen": "polled_energy_unseen_joules",
    "gap": "polled_energy_gap_seconds",
    "edge": "polled_energy_edge_joules",
}
"""The columns of a meter's readings, in a GPU's lines."""

IDLE_WATTS_PER_CORE, BUSY_WATTS_PER_CORE = 1.0, 4.0
"""Of a logical core with its share of the package: between large servers (about 1 and 3) and desktops (2 and 8)."""
DRAM_WATTS_PER_GIB = 0.3
RAPL_UPDATE_SECONDS = 0.001

Amount = TypeVar("Amount", float, "Array")


def load_watts(cores: Amount, load: Amount) -> Amount:
    """What the CPUs draw at a load from 0 to 1."""
    return cores * (IDLE_WATTS_PER_CORE + (BUSY_WATTS_PER_CORE - IDLE_WATTS_PER_CORE) * load)


def size_watts(gib: Amount) -> Amount:
    """What so much memory draws."""
    return DRAM_WATTS_PER_GIB * gib
