"""A device of a run, as a figure and over time."""

from dataclasses import dataclass

import numpy as np

from pulsetrain.insight.energy.curve import Curve
from pulsetrain.insight.energy.figures import DeviceEnergy, Energy, Origin


@dataclass
class Device:
    """What one device used."""

    figure: DeviceEnergy
    curve: Curve | None = None
    """None where nothing can be told."""


def total_of(curve: Curve, origin: Origin, method: str) -> Energy:
    """All that a curve holds."""
    error = float(curve.error_between(curve.times[0], curve.times[-1]))
    return Energy(
        joules=float(curve.joules[-1]),
        error_joules=None if np.isnan(error) else error,
        origin=origin,
        method=method,
    )
