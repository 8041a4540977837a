"""What operators do with vectors, as in PromQL: a subject that one side lacks has no value in the result."""

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Sequence

from pulsetrain.rules.expression import AggregateFunction, Junction, Order, Sign
from pulsetrain.rules.labels import NOBODY, LabelSet, Vector


def quotient(dividend: float, divisor: float) -> float:
    """IEEE division, without an exception."""
    if divisor:
        return dividend / divisor
    if dividend == 0 or math.isnan(dividend) or math.isnan(divisor):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


SIGNS: dict[Sign, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": quotient,
}
ORDERS: dict[Order, Callable[[float, float], bool]] = {
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def calculated(
    calculate: Callable[[float, float], float], left: Vector, right: Vector, on: tuple[str, ...], bring: tuple[str, ...]
) -> Vector:
    """Arithmetic of two vectors."""
    if not on:
        return {labels: calculate(value, right[labels]) for labels, value in left.items() if labels in right}
    partners = _partners(right, on)
    found = {}
    for labels, value in left.items():
        partner = partners.get(labels.only(on))
        if partner is not None:
            own = labels.without(bring).adding(partner.only(bring)) if bring else labels
            found[own] = calculate(value, right[partner])
    return found


def compared(holds: Callable[[float, float], bool], left: Vector, right: Vector, on: tuple[str, ...]) -> Vector:
    """The values on the left for which a comparison with the right holds."""
    if not on:
        return {labels: value for labels, value in left.items() if labels in right and holds(value, right[labels])}
    partners = _partners(right, on)
    return {
        labels: value
        for labels, value in left.items()
        if (partner := partners.get(labels.only(on))) is not None and holds(value, right[partner])
    }


def _partners(right: Vector, on: tuple[str, ...]) -> dict[LabelSet, LabelSet]:
    """The one subject on the right for these labels. Where there are several, none is meant."""
    found: dict[LabelSet, LabelSet] = {}
    several = set()
    for labels in right:
        key = labels.only(on)
        if key in found:
            several.add(key)
        found[key] = labels
    for key in several:
        del found[key]
    return found


def combined(junction: Junction, left: Vector, right: Vector, on: tuple[str, ...]) -> Vector:
    """Set operations on subjects."""
    if junction == "or":
        return {**right, **left}
    there = {labels.only(on) for labels in right} if on else right.keys()
    wanted = junction == "and"
    if on:
        return {labels: value for labels, value in left.items() if (labels.only(on) in there) is wanted}
    return {labels: value for labels, value in left.items() if (labels in there) is wanted}


def aggregated(function: AggregateFunction, of: Vector, by: tuple[str, ...], without: tuple[str, ...]) -> Vector:
    """One value for each group of subjects."""
    if not of:
        return NOBODY
    groups: dict[LabelSet, list[float]] = defaultdict(list)
    for labels, value in of.items():
        groups[labels.without(without) if without else labels.only(by)].append(value)
    summarize = AGGREGATES[function]
    return {labels: summarize(values) for labels, values in groups.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def lowest(values: Sequence[float]) -> float:
    """Of the numbers; NaN where there are none."""
    return min((value for value in values if not math.isnan(value)), default=math.nan)


def highest(values: Sequence[float]) -> float:
    """Of the numbers; NaN where there are none."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _median(values: Sequence[float]) -> float:
    """As Prometheus has it: NaN sorts below every number, and what is not finite may spoil its neighbor."""
    ordered = sorted(values, key=lambda value: (not math.isnan(value), value))
    middle = (len(ordered) - 1) / 2
    below = math.floor(middle)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] * (1 - middle + below) + ordered[above] * (middle - below)


AGGREGATES: dict[AggregateFunction, Callable[[Sequence[float]], float]] = {
    "mean": _mean,
    "sum": sum,
    "count": len,
    "min": lowest,
    "max": highest,
    "median": _median,
    "group": lambda values: 1.0,
}
