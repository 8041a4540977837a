"""Expressions of rules as PromQL."""

import re

from pulsetrain import catalog
from pulsetrain.rules.expression import (
    Absolute,
    Aggregate,
    Arithmetic,
    Condition,
    Earlier,
    Expression,
    Foreign,
    LabelFilter,
    Logic,
    Number,
    OverTime,
    RecordingRule,
    Signal,
    Threshold,
    WindowLength,
)
from pulsetrain.rules.text import number_text
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.snapshot import Metric

_OVER_TIME = {
    "mean": "avg_over_time",
    "sum": "sum_over_time",
    "count": "count_over_time",
    "min": "min_over_time",
    "max": "max_over_time",
    "increase": "increase",
    "rate": "rate",
}
_AGGREGATED = {"mean": "avg", "median": "quantile"}
_BINDING = {"or": 1, "unless": 2, "and": 2, "==": 3, ">": 3, ">=": 3, "<": 3, "<=": 3, "+": 4, "-": 4, "*": 5, "/": 5}
"""How tightly an operator binds."""


def promql(expression: Expression, thresholds: Thresholds | None = None) -> str:  # noqa: PLR0911 - one for each kind
    """An expression as PromQL; without thresholds, with their names in the place of their values."""
    match expression:
        case Number(value):
            return number_text(value)
        case Threshold(name):
            return number_text(getattr(thresholds, name)) if thresholds else name
        case Signal(metric, filters):
            return series_name(metric) + (f"{{{', '.join(map(_filter, filters))}}}" if filters else "")
        case RecordingRule(name):
            return name
        case Foreign(text):
            return text
        case OverTime(function, series, window, offset):
            samples = f"{promql(series, thresholds)}[{_length(window, thresholds)}]{_offset(offset, thresholds)}"
            return f"{_OVER_TIME[function]}({samples})"
        case Earlier(series, offset):
            return promql(series, thresholds) + _offset(offset, thresholds)
        case Aggregate(function, of):
            quantile = "0.5, " if function == "median" else ""
            inner = promql(of, thresholds).replace("\n", " ")
            return f"{_AGGREGATED.get(function, function)}{_grouping(expression)}({quantile}{inner})"
        case Absolute(of):
            return f"abs({promql(of, thresholds)})"
        case Arithmetic() | Condition() | Logic():
            return _binary(expression, thresholds)
    raise TypeError(f"{type(expression).__name__} has no form in PromQL")


def series_name(metric: Metric) -> str:
    """The series that holds a metric's values. Of steps' durations, a histogram, it is their sum or their count."""
    if metric.name != catalog.STEP_COUNTS.name:
        return metric.name
    return f"{metric.name}_{'count' if metric.field == catalog.STEP_COUNTS.field else 'sum'}"


def _binary(expression: Arithmetic | Condition | Logic, thresholds: Thresholds | None) -> str:
    left, right = promql(expression.left, thresholds), promql(expression.right, thresholds)
    own, before, after = _BINDING[expression.operator], _binding(expression.left), _binding(expression.right)
    if before < own or (before == own and not isinstance(expression, Arithmetic)):
        left = _parenthesized(left)
    if after <= own or after <= _BINDING["and"]:
        right = _parenthesized(right)
    between = "\n" if isinstance(expression, Logic) else " "
    return f"{left}{between}{expression.operator} {_pairing(expression)}{right}"


def _binding(expression: Expression) -> int:
    """How tightly an expression holds together; one without an operator needs no parentheses."""
    return _BINDING[expression.operator] if isinstance(expression, Arithmetic | Condition | Logic) else 9


def _parenthesized(text: str) -> str:
    return f"({text})".replace("\n", " ")


def _pairing(expression: Arithmetic | Condition | Logic) -> str:
    """By which labels the subjects of both sides are paired."""
    if not expression.on:
        return ""
    on = f"on ({', '.join(expression.on)}) "
    match expression:
        case Arithmetic(bring=bring):
            return f"{on}group_left ({', '.join(bring)}) "
        case Condition():
            return f"{on}group_left () "
        case _:
            return on


def _grouping(aggregate: Aggregate) -> str:
    if aggregate.without:
        return f" without ({', '.join(aggregate.without)}) "
    return f" by ({', '.join(aggregate.by)}) " if aggregate.by else ""


def _filter(filter: LabelFilter) -> str:
    match filter.values:
        case ():
            return f'{filter.label}!=""'
        case (value,):
            return f'{filter.label}="{value}"'
        case values:
            return f'{filter.label}=~"{"|".join(map(re.escape, values))}"'


def _length(length: WindowLength, thresholds: Thresholds | None) -> str:
    return length if isinstance(length, str) else promql(length, thresholds)


def _offset(offset: WindowLength | None, thresholds: Thresholds | None) -> str:
    return "" if offset is None else f" offset {_length(offset, thresholds)}"
