"""What a run used in energy: measured by counters, else estimated from power, with an error bound.

Each device has one rising curve of joules over time (`meter`, `curve`). Every figure is a difference of it, so that
parts add up to the whole (`portions`); `account` reads the lines of a run and puts it all together.
"""

from pulsetrain.insight.energy.account import EnergyAccount, run_energy, steps_energy, total_curve
from pulsetrain.insight.energy.curve import Clock, Curve
from pulsetrain.insight.energy.figures import DeviceEnergy, Energy, Origin, Portion, RunEnergy
from pulsetrain.insight.energy.meter import Meter, Method, Readings, Stretch

__all__ = [
    "Clock",
    "Curve",
    "DeviceEnergy",
    "Energy",
    "EnergyAccount",
    "Meter",
    "Method",
    "Origin",
    "Portion",
    "Readings",
    "RunEnergy",
    "Stretch",
    "run_energy",
    "steps_energy",
    "total_curve",
]
