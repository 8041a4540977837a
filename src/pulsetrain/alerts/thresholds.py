"""The values that decide when an alert fires, and a file of one's own for them."""

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from pulsetrain.alerts.rules import ALERTS
from pulsetrain.errors import UsageError

Duration = Annotated[str, Meta(pattern=r"^([0-9]+(ms|[smhdwy]))+$|^0$")]
"""As Prometheus writes it: 30s, 5m, 1h30m."""


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every value that a rule compares with. A rule whose limit is None does not exist."""

    gpu_hot_celsius: Annotated[float, Meta(description="A GPU is hot above this.")] = 80.0
    gpu_too_hot_celsius: Annotated[float, Meta(description="A GPU is in danger above this.")] = 90.0
    gpu_memory_full_percent: Annotated[float, Meta(description="GPU memory is nearly full above this.")] = 90.0
    fan_needed_celsius: Annotated[float, Meta(description="A fan must turn above this.")] = 60.0
    throttled_ratio: Annotated[float, Meta(description="Share of 10 minutes in which the clocks were held down.")] = 0.5
    busy_percent: Annotated[float, Meta(description="A GPU that does more is at work.")] = 50.0
    slow_clock_ratio: Annotated[float, Meta(description="A GPU is slow below this share of its peers' clock.")] = 0.8
    idle_percent: Annotated[float, Meta(description="A GPU that does no more is idle.")] = 1.0
    held_memory_percent: Annotated[float, Meta(description="Somebody holds a GPU with more memory in use.")] = 5.0
    underused_percent: Annotated[float, Meta(description="A run uses its GPU badly below this.")] = 30.0
    stalled_steps: Annotated[float, Meta(description="A loop stalls when it is silent for so many usual steps,")] = 20.0
    stalled_seconds: Annotated[float, Meta(description="and for at least so long.")] = 300.0
    loss_window: Annotated[Duration, Meta(description="The loss must fall within this time,")] = "2h"
    loss_fall_ratio: Annotated[float, Meta(description="by at least this share.")] = 0.005
    exploding_gradient_norm: Annotated[float, Meta(description="Gradients explode above this.")] = 10.0
    data_wait_ratio: Annotated[float, Meta(description="Share of the step that may go into waiting for data.")] = 0.3
    straggler_ratio: Annotated[
        float, Meta(description="Share of the step by which a rank may work longer than the median rank.")
    ] = 0.1
    slowed_ratio: Annotated[float, Meta(description="A training slowed down below this share of its usual pace.")] = 0.7
    host_memory_ratio: Annotated[float, Meta(description="Share of a machine's memory that must stay available.")] = (
        0.05
    )
    data_age_seconds: Annotated[float, Meta(description="Readings of a machine are late beyond this.")] = 60.0
    cost_limit: Annotated[float | None, Meta(description="What a run may cost, in the currency of its price.")] = None
    energy_limit_kwh: Annotated[float | None, Meta(description="What energy a run may use.")] = None
    carbon_limit_kg: Annotated[float | None, Meta(description="What a run may emit, in CO2 equivalents.")] = None
    hold: Annotated[
        dict[str, Duration], Meta(description="How long a condition must hold before the alert of that name fires.")
    ] = {}
    off: Annotated[frozenset[str], Meta(description="Names of alerts that are not wanted.")] = frozenset()


def load(path: Path) -> Thresholds:
    """The thresholds in a TOML file; what it leaves out keeps its default."""
    try:
        thresholds = msgspec.convert(tomllib.loads(path.read_text()), Thresholds)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from None
    except msgspec.ValidationError as error:
        known = ", ".join(Thresholds.__struct_fields__)
        raise UsageError(f"{path}: {error}.", hint=f"Known thresholds: {known}.") from None
    names = {alert.name for alert in ALERTS}
    if unknown := (thresholds.off | thresholds.hold.keys()) - names:
        raise UsageError(
            f"{path}: no alert is called {', '.join(sorted(unknown))}.", hint=f"Alerts: {', '.join(sorted(names))}."
        )
    return thresholds
