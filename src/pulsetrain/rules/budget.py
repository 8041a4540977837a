"""Rules about what a run may cost, use and emit. None applies until its limit is set."""

from pulsetrain.rules.expression import Threshold, highest, signal, total
from pulsetrain.rules.rule import Rule
from pulsetrain.units import JOULES_PER_KWH, SECONDS_PER_HOUR

_GRAMS_PER_KG = 1000


_COST, _COST_PROJECTED = (
    total(highest(signal("account", field), "run", "host", "currency"), "run", "currency")
    for field in ("cost", "cost_projected")
)
_ENERGY_JOULES = total(highest(signal("account", "energy_joules"), "run", "host", "device"), "run")
_ENERGY_PROJECTED_JOULES = total(highest(signal("account", "energy_projected_joules"), "run", "host"), "run")
_CARBON_GRAMS, _CARBON_PROJECTED_GRAMS = (
    total(highest(signal("account", field), "run", "host"), "run")
    for field in ("carbon_grams", "carbon_projected_grams")
)
_SECONDS, _PROJECTED_SECONDS = (highest(signal("account", field), "run") for field in ("seconds", "projected_seconds"))

RULES = (
    Rule(
        name="CostAboveLimit",
        topic="budget",
        severity="critical",
        when=_COST > Threshold("cost_limit"),
        summary="Run {run} has cost {value:.2f} {currency}",
        description="Above the limit of {cost_limit}.",
        advice="Save a checkpoint and stop it, or raise the limit.",
    ),
    Rule(
        name="CostProjectedAboveLimit",
        topic="budget",
        severity="warning",
        when=_COST_PROJECTED > Threshold("cost_limit"),
        hold="10m",
        summary="Run {run} will cost {value:.2f} {currency} by its end",
        description="At the current pace, the planned steps exceed the limit of {cost_limit}.",
        advice="Plan fewer steps, use a cheaper machine, or use this one better: waste and data wait show where the "
        "money goes.",
    ),
    Rule(
        name="EnergyAboveLimit",
        topic="budget",
        severity="warning",
        when=_ENERGY_JOULES / JOULES_PER_KWH > Threshold("energy_limit_kwh"),
        summary="Run {run} has used {value:.1f} kWh",
        description="Above the limit of {energy_limit_kwh} kWh.",
        advice="Save a checkpoint and stop it, or raise the limit.",
    ),
    Rule(
        name="CarbonAboveLimit",
        topic="budget",
        severity="warning",
        when=_CARBON_GRAMS / _GRAMS_PER_KG > Threshold("carbon_limit_kg"),
        summary="Run {run} has emitted {value:.1f} kg of CO2 equivalents",
        description="Above the limit of {carbon_limit_kg} kg.",
        advice="Save a checkpoint and continue when the grid is cleaner, or raise the limit.",
    ),
    Rule(
        name="EnergyProjectedAboveLimit",
        topic="budget",
        severity="warning",
        when=_ENERGY_PROJECTED_JOULES / JOULES_PER_KWH > Threshold("energy_limit_kwh"),
        hold="10m",
        summary="Run {run} will use {value:.1f} kWh by its end",
        description="At the current pace, the planned steps exceed the limit of {energy_limit_kwh} kWh.",
        advice="Plan fewer steps, lower the power limit (nvidia-smi -pl), or use the GPUs better.",
    ),
    Rule(
        name="CarbonProjectedAboveLimit",
        topic="budget",
        severity="warning",
        when=_CARBON_PROJECTED_GRAMS / _GRAMS_PER_KG > Threshold("carbon_limit_kg"),
        hold="10m",
        summary="Run {run} will emit {value:.1f} kg of CO2 equivalents by its end",
        description="At the current pace and carbon intensity, the planned steps exceed the limit of "
        "{carbon_limit_kg} kg.",
        advice="Plan fewer steps, use a cleaner region, or run at hours when the grid is cleaner.",
    ),
    Rule(
        name="TimeAboveLimit",
        topic="budget",
        severity="critical",
        when=_SECONDS / SECONDS_PER_HOUR > Threshold("time_limit_hours"),
        summary="Run {run} has taken {value:.1f} hours",
        description="Above the limit of {time_limit_hours} hours.",
        advice="Save a checkpoint and stop it, or raise the limit.",
    ),
    Rule(
        name="TimeProjectedAboveLimit",
        topic="budget",
        severity="warning",
        when=_PROJECTED_SECONDS / SECONDS_PER_HOUR > Threshold("time_limit_hours"),
        hold="10m",
        summary="Run {run} will take {value:.1f} hours",
        description="At the current pace, the planned steps exceed the limit of {time_limit_hours} hours.",
        advice="Plan fewer steps, use a faster machine, or use this one better. Save checkpoints before the limit.",
    ),
)
