"""A small language for rules: expressions over the catalog's metrics, as data.

Python evaluates them (`evaluate.py`), live and on records, and `alerts/promql.py` renders them as PromQL; both mean the
same. An expression has a value for each subject, told apart by labels (host, run, gpu, uuid, rank), or none: a subject
without the signal has no value, so a rule abstains. A comparison keeps the values for which it is true.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal

from pulsetrain import catalog
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.snapshot import Metric

Sign = Literal["+", "-", "*", "/"]
Order = Literal["==", ">", ">=", "<", "<="]
Junction = Literal["and", "or", "unless"]
WindowFunction = Literal["mean", "sum", "count", "min", "max", "increase", "rate"]
AggregateFunction = Literal["mean", "sum", "count", "min", "max", "median", "group"]


class Expression:
    """Anything that has values. Python's operators make larger expressions of smaller ones."""

    __slots__ = ()

    def __add__(self, other: "Operand") -> "Arithmetic":
        return Arithmetic("+", self, _expression(other))

    def __sub__(self, other: "Operand") -> "Arithmetic":
        return Arithmetic("-", self, _expression(other))

    def __mul__(self, other: "Operand") -> "Arithmetic":
        return Arithmetic("*", self, _expression(other))

    def __truediv__(self, other: "Operand") -> "Arithmetic":
        return Arithmetic("/", self, _expression(other))

    def __gt__(self, other: "Operand") -> "Condition":
        return Condition(">", self, _expression(other))

    def __ge__(self, other: "Operand") -> "Condition":
        return Condition(">=", self, _expression(other))

    def __lt__(self, other: "Operand") -> "Condition":
        return Condition("<", self, _expression(other))

    def __le__(self, other: "Operand") -> "Condition":
        return Condition("<=", self, _expression(other))

    def equals(self, other: "Operand") -> "Condition":
        return Condition("==", self, _expression(other))

    def __bool__(self) -> bool:
        raise TypeError("an expression is not true or false: use both(), either() and unless(), and no a < b < c")


Operand = Expression | float


@dataclass(frozen=True, slots=True)
class Number(Expression):
    """A constant."""

    value: float


@dataclass(frozen=True, slots=True)
class Threshold(Expression):
    """A value of `[thresholds]`, by its name."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in Thresholds.__struct_fields__:
            raise ValueError(f"no threshold is called {self.name}")


@dataclass(frozen=True, slots=True)
class LabelFilter:
    """Keeps the series whose label has one of these values, "" for none; any but the empty one if there are none."""

    label: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Signal(Expression):
    """The values of one metric now. Amounts are added up over all reports: they count as counters do."""

    metric: Metric
    filters: tuple[LabelFilter, ...] = ()


@dataclass(frozen=True, slots=True)
class Foreign(Expression):
    """PromQL that only Prometheus can answer. Python has no value for it, so its rules abstain."""

    promql: str


@dataclass(frozen=True, slots=True)
class RecordingRule(Expression):
    """An expression that is evaluated once for all that use it, and whose past is kept: level:metric:operations."""

    name: str
    expression: Expression
    help: str


SeriesExpression = Signal | RecordingRule
"""What has a past."""
WindowLength = str | Threshold
"""A duration such as 10m, or the threshold that says it."""


@dataclass(frozen=True, slots=True)
class OverTime(Expression):
    """One figure of a series' samples over a window that ends now, or `offset` ago."""

    function: WindowFunction
    series: SeriesExpression
    window: WindowLength
    offset: WindowLength | None = None


@dataclass(frozen=True, slots=True)
class Earlier(Expression):
    """The value of a series some time ago."""

    series: SeriesExpression
    offset: WindowLength


@dataclass(frozen=True, slots=True)
class Aggregate(Expression):
    """One value for all subjects that agree in the labels `by`, or in all labels but those in `without`."""

    function: AggregateFunction
    of: Expression
    by: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Absolute(Expression):
    """Values without their sign."""

    of: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic(Expression):
    """Two values of the same subject.

    With `on`, subjects are paired by these labels alone: several on the left may share one on the right, from which
    they get the labels in `bring`.
    """

    operator: Sign
    left: Expression
    right: Expression
    on: tuple[str, ...] = ()
    bring: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition(Expression):
    """A comparison: the values on the left for which it is true. Subjects are paired as in Arithmetic."""

    operator: Order
    left: Expression
    right: Expression
    on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.left, Number | Threshold):
            raise TypeError("what is compared goes on the left of a comparison: it has the values that are kept")


@dataclass(frozen=True, slots=True)
class Logic(Expression):
    """`and`: those on the left that are also on the right; `unless`: that are not; `or`: both, the left first."""

    operator: Junction
    left: Expression
    right: Expression
    on: tuple[str, ...] = ()
    """The labels that say what is the same subject; all of them if there are none."""


def signal(table: str, field: str, **having: str | tuple[str, ...]) -> Signal:
    """A metric of the catalog, of the series whose labels have these values; `run=()` asks for any run."""
    return Signal(catalog.metric(table, field), _filters(having))


def gpu(field: str, **having: str | tuple[str, ...]) -> Signal:
    return signal("gpu", field, **having)


def training(field: str, **having: str | tuple[str, ...]) -> Signal:
    return signal("training", field, **having)


def data_age(data: Literal["machine", "training"], **having: str | tuple[str, ...]) -> Signal:
    """Seconds since the newest reading of a machine, or the newest report of a training."""
    return Signal(catalog.DATA_AGE, _filters({"data": data, **having}))


def mean_over(window: WindowLength, series: SeriesExpression, offset: WindowLength | None = None) -> OverTime:
    return OverTime("mean", series, window, offset)


def increase_over(window: WindowLength, series: SeriesExpression) -> OverTime:
    """How much a counter rose, resets aside, as if its samples reached from end to end of the window."""
    return OverTime("increase", series, window)


def rate_over(window: WindowLength, series: SeriesExpression) -> OverTime:
    """The same per second."""
    return OverTime("rate", series, window)


def risen(window: WindowLength, counter: Signal) -> Logic:
    """Where a counter rose within a window, also by its very first sample: what rises once begins at 1."""
    return either(increase_over(window, counter) > 0, unless(counter > 0, Earlier(counter, window)))


def highest(of: Expression, *by: str) -> Aggregate:
    return Aggregate("max", of, by)


def lowest(of: Expression, *by: str) -> Aggregate:
    return Aggregate("min", of, by)


def total(of: Expression, *by: str) -> Aggregate:
    return Aggregate("sum", of, by)


def average(of: Expression, *by: str) -> Aggregate:
    return Aggregate("mean", of, by)


def count(of: Expression, *by: str) -> Aggregate:
    return Aggregate("count", of, by)


def group(of: Expression, *by: str) -> Aggregate:
    """1 for each group that has a value."""
    return Aggregate("group", of, by)


def median_of_peers(of: Expression, *by: str) -> Aggregate:
    """What is usual among those that share these labels, such as the GPUs of one run."""
    return Aggregate("median", of, by)


def share_of_samples(present: Signal, among: Signal, window: WindowLength, *without: str) -> Arithmetic:
    """Of the samples of `among` over a window, the share at which `present` was there and 1.

    `without` are labels that only `present` has; the largest of such series counts.
    """
    return Aggregate("max", OverTime("sum", present, window), without=without) / OverTime("count", among, window)


def joined(left: Expression, operator: Sign, right: Operand, on: tuple[str, ...], *bring: str) -> Arithmetic:
    """Arithmetic of several subjects on the left with the one on the right that shares the labels `on`."""
    return Arithmetic(operator, left, _expression(right), on, bring)


def compared(left: Expression, operator: Order, right: Operand, on: tuple[str, ...]) -> Condition:
    """A comparison of several subjects on the left with the one on the right that shares the labels `on`."""
    return Condition(operator, left, _expression(right), on)


def both(left: Expression, right: Expression, on: tuple[str, ...] = ()) -> Logic:
    return Logic("and", left, right, on)


def either(left: Expression, right: Expression) -> Logic:
    return Logic("or", left, right)


def unless(left: Expression, right: Expression, on: tuple[str, ...] = ()) -> Logic:
    return Logic("unless", left, right, on)


def having(expression: Expression, **labels: str | tuple[str, ...]) -> Expression:
    """The same expression, of those series alone whose labels have these values."""
    if isinstance(expression, Signal):
        return replace(expression, filters=(*expression.filters, *_filters(labels)))
    parts = {field.name: getattr(expression, field.name) for field in fields(expression)}  # type: ignore[arg-type]
    narrowed = {name: having(part, **labels) for name, part in parts.items() if isinstance(part, Expression)}
    return replace(expression, **narrowed)  # type: ignore[type-var]  # every kind of expression is a dataclass


def loosened(expression: Expression, margin: float) -> Expression:
    """The same expression, with each comparison with a threshold true a little longer: by this share of its limit."""
    if isinstance(expression, RecordingRule):
        return expression
    if isinstance(expression, Condition) and any(isinstance(part, Threshold) for part in walk(expression.right)):
        share = {">": 1 - margin, ">=": 1 - margin, "<": 1 + margin, "<=": 1 + margin, "==": 1.0}[expression.operator]
        # Rounded as a person writes it, not as 1 - 0.05 is stored.
        return replace(expression, right=expression.right * round(share, 6))
    parts = {field.name: getattr(expression, field.name) for field in fields(expression)}  # type: ignore[arg-type]
    wider = {name: loosened(part, margin) for name, part in parts.items() if isinstance(part, Expression)}
    return replace(expression, **wider)  # type: ignore[type-var]  # every kind of expression is a dataclass


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and all that it is made of."""
    yield expression
    for field in fields(expression):  # type: ignore[arg-type]  # every kind of expression is a dataclass
        part = getattr(expression, field.name)
        if isinstance(part, Expression):
            yield from walk(part)


def _filters(having: dict[str, str | tuple[str, ...]]) -> tuple[LabelFilter, ...]:
    return tuple(
        LabelFilter(label, (values,) if isinstance(values, str) else values) for label, values in having.items()
    )


def _expression(operand: Operand) -> Expression:
    return operand if isinstance(operand, Expression) else Number(float(operand))
