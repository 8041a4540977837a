"""A device of a run, as a figure and over time."""

from dataclasses import dataclass

import numpy as np

from pulsetrain.insight.energy.curve import EnergyCurve
from pulsetrain.insight.energy.figures import DeviceEnergy, Energy, Origin


@dataclass
class MeteredDevice:
    """What one device used."""

    figure: DeviceEnergy
    curve: EnergyCurve | None = None
    """None where nothing is known."""


def total_of(curve: EnergyCurve, origin: Origin, method: str) -> Energy:
    """All that a curve holds."""
    error = float(curve.error_between(curve.times[0], curve.times[-1]))
    return Energy(
        joules=float(curve.joules[-1]),
        error_joules=None if np.isnan(error) else error,
        origin=origin,
        method=method,
    )
