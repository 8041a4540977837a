"""Rules evaluated in Python, live and on records, with the meaning that their PromQL has.

An `Evaluator` is asked at intervals, as Prometheus scrapes: each time it reads what every metric shows, keeps the past
that the windows of its rules need, and returns the subjects of which each rule is true.
"""

import math
from collections.abc import Callable, Iterable

from pulsetrain.rules import vectors
from pulsetrain.rules.expression import (
    Absolute,
    Aggregate,
    Arithmetic,
    Condition,
    Earlier,
    Expression,
    Foreign,
    Logic,
    Number,
    OverTime,
    RecordingRule,
    SeriesExpression,
    Signal,
    Threshold,
    WindowLength,
    walk,
)
from pulsetrain.rules.history import SeriesHistory
from pulsetrain.rules.labels import NOBODY, Vector
from pulsetrain.rules.present import Present
from pulsetrain.rules.rule import Rule
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds, duration_seconds
from pulsetrain.snapshot import Metric

Step = Callable[[], Vector]
"""A part of an expression, ready to be evaluated at the moment that the evaluator is at."""


class Evaluator:
    """Evaluates rules again and again. What it keeps is bounded by their windows and by the series there are."""

    def __init__(self, rules: Iterable[Rule], thresholds: Thresholds = DEFAULTS) -> None:
        self.rules = [rule for rule in rules if rule.wanted(thresholds)]
        self._thresholds = thresholds
        self._time = 0.0
        self._read: Callable[[Metric], Vector] = lambda metric: NOBODY
        self._steps: dict[Expression, Step] = {}
        self._histories: dict[SeriesExpression, SeriesHistory] = {}
        """Each after those that it is made from."""
        self._seen: set[str] = set()
        self._conditions = [(rule, self._step(rule.when)) for rule in self.rules]
        self._stays = {(rule.name, rule.severity): self._step(rule.stays) for rule in self.rules if rule.margin}
        self._recorded = [(self._steps[series], history) for series, history in self._histories.items()]

    def evaluate(self, time: float, present: Present) -> list[tuple[Rule, Vector]]:
        """The rules that are true of some subject, with a value for each. Times must rise."""
        self._time, self._read = time, present.read
        for series, history in self._recorded:
            history.add(time, series())
        return [(rule, found) for rule, condition in self._conditions if (found := condition())]

    def still_true(self, rule: Rule) -> Vector:
        """Of which subjects a rule that fires would be true now: within its margin."""
        stays = self._stays.get((rule.name, rule.severity))
        return stays() if stays else NOBODY

    @property
    def kept_samples(self) -> int:
        """How much of the past it keeps."""
        return sum(history.kept_samples for history in self._histories.values())

    def missing(self, rule: Rule) -> list[str]:
        """The metrics of a rule that have shown nothing so far, by their Prometheus names: why it abstains."""
        needed = (part.metric.name for part in walk(rule.when) if isinstance(part, Signal))
        return [name for name in dict.fromkeys(needed) if name not in self._seen]

    def _step(self, expression: Expression) -> Step:
        """What evaluates an expression; the same for the same expression."""
        if expression not in self._steps:
            self._steps[expression] = self._compiled(expression)
        return self._steps[expression]

    def _compiled(self, expression: Expression) -> Step:  # noqa: PLR0911 - one for each kind
        match expression:
            case Signal():
                return self._shared(self._signal(expression))
            case RecordingRule(_, of):
                return self._shared(self._step(of))
            case Foreign():
                return lambda: NOBODY
            case OverTime():
                return self._shared(self._over_time(expression))
            case Earlier():
                return self._shared(self._earlier(expression))
            case Aggregate(function, of, by, without):
                inner = self._step(of)
                return lambda: vectors.aggregated(function, inner(), by, without)
            case Absolute(of):
                inner = self._step(of)
                return lambda: {labels: abs(value) for labels, value in inner().items()}
            case Arithmetic():
                return self._arithmetic(expression)
            case Condition():
                return self._condition(expression)
            case Logic(operator, left, right, on):
                first, second = self._step(left), self._step(right)
                return lambda: vectors.combined(operator, first(), second(), on)
        raise TypeError(f"{type(expression).__name__} has no values of its own")

    def _shared(self, step: Step) -> Step:
        """A part that several rules use is evaluated once at each moment."""
        moment, found = -math.inf, NOBODY

        def once() -> Vector:
            nonlocal moment, found
            if moment != self._time:
                moment, found = self._time, step()
            return found

        return once

    def _signal(self, signal: Signal) -> Step:
        metric, filters = signal.metric, [(one.label, frozenset(one.values)) for one in signal.filters]

        def read() -> Vector:
            found = self._read(metric)
            if found:
                self._seen.add(metric.name)
            for label, wanted in filters:
                found = {
                    labels: value
                    for labels, value in found.items()
                    if (labels.mapping.get(label, "") in wanted if wanted else label in labels.mapping)
                }
            return found

        return read

    def _over_time(self, over: OverTime) -> Step:
        window = self._seconds(over.window)
        offset = self._seconds(over.offset) if over.offset is not None else 0.0
        history = self._history(over.series, window, offset)
        function = over.function
        return lambda: history.over(function, self._time - offset - window, self._time - offset)

    def _earlier(self, earlier: Earlier) -> Step:
        offset = self._seconds(earlier.offset)
        history = self._history(earlier.series, 0.0, offset)
        return lambda: history.at(self._time - offset)

    def _history(self, series: SeriesExpression, window: float, offset: float) -> SeriesHistory:
        self._step(series)
        history = self._histories.setdefault(series, SeriesHistory())
        history.need(window, offset)
        return history

    def _arithmetic(self, expression: Arithmetic) -> Step:
        calculate = vectors.SIGNS[expression.operator]
        left, right = self._constant(expression.left), self._constant(expression.right)
        if right is not None:
            number, inner = right, self._step(expression.left)
            return lambda: {labels: calculate(value, number) for labels, value in inner().items()}
        if left is not None:
            number, inner = left, self._step(expression.right)
            return lambda: {labels: calculate(number, value) for labels, value in inner().items()}
        first, second = self._step(expression.left), self._step(expression.right)
        return lambda: vectors.calculated(calculate, first(), second(), expression.on, expression.bring)

    def _condition(self, expression: Condition) -> Step:
        holds, first = vectors.ORDERS[expression.operator], self._step(expression.left)
        number = self._constant(expression.right)
        if number is not None:
            limit = number
            return lambda: {labels: value for labels, value in first().items() if holds(value, limit)}
        second = self._step(expression.right)
        return lambda: vectors.compared(holds, first(), second(), expression.on)

    def _constant(self, expression: Expression) -> float | None:
        match expression:
            case Number(value):
                return value
            case Threshold(name):
                return float(getattr(self._thresholds, name))
            case Arithmetic(operator, left, right):
                first, second = self._constant(left), self._constant(right)
                return None if first is None or second is None else vectors.SIGNS[operator](first, second)
        return None

    def _seconds(self, length: WindowLength) -> float:
        return duration_seconds(length if isinstance(length, str) else getattr(self._thresholds, length.name))
