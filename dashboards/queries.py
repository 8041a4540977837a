"""Which series a panel asks for, in PromQL, by the names of the catalogue."""

from typing import NamedTuple

from pulsetrain import catalog
from pulsetrain.snapshot import Metric

KEYS = {
    "gpu": ("host", "gpu", "uuid"),
    "mig": ("host", "gpu", "mig", "gpu_instance", "compute_instance"),
    "host": ("host",),
    "process": ("host", "pid", "user", "command"),
    "training": ("run", "host", "rank"),
    "account": ("run", "host"),
}
"""What tells the subjects of a table apart. A job, an instance or a pod that scrapes added is none of it."""
PER_SECOND = "[$__rate_interval]"
SECONDS_PER_HOUR = 3600


class Scope(NamedTuple):
    """What a dashboard looks at: the hosts chosen, and where it has these variables the runs and the GPUs.

    Where an agent watches a machine and a run shows its GPUs too, each comes twice. All queries therefore take the
    highest value of a subject, which counts it once.
    """

    run: bool = False
    gpu: bool = False

    def now(self, table: str, field: str) -> str:
        """The value of each subject."""
        metric = catalog.metric(table, field)
        return self._each(metric, f"{metric.name}{self.select(table)}")

    def rate(self, table: str, field: str) -> str:
        """How fast the counter of each subject rises, per second."""
        metric = catalog.metric(table, field)
        return self._each(metric, f"rate({metric.name}{self.select(table)}{PER_SECOND})")

    def over(self, function: str, table: str, field: str) -> str:
        """A function such as avg_over_time or increase of each subject over the dashboard's time range."""
        metric = catalog.metric(table, field)
        return self._each(metric, f"{function}({metric.name}{self.select(table)}[$__range])")

    def select(self, table: str) -> str:
        """The labels to look for. What an agent shows of a machine has no run: it belongs to every run there."""
        chosen = ['host=~"$host"']
        if self.run:
            chosen.append('run=~"$run"' if table in ("training", "account") else 'run=~"$run|"')
        if self.gpu and table in ("gpu", "mig"):
            chosen.append('gpu=~"$gpu"')
        return "{" + ", ".join(chosen) + "}"

    def _each(self, metric: Metric, expr: str) -> str:
        keys = [*KEYS[metric.table]]
        if metric.by:
            keys.append(metric.by)
        elif metric.kind == "words":
            keys.append("reason")
        return f"max by ({', '.join(keys)}) ({expr})"


def step_part(scope: Scope, field: str, by: str = "run") -> str:
    """The mean time that a part of a step takes."""
    part = catalog.metric("training", field).name
    select = scope.select("training")
    steps = f"sum by ({by}) (rate({catalog.STEP_COUNTS.name}_count{select}{PER_SECOND}))"
    return f"sum by ({by}) (rate({part}{select}{PER_SECOND})) / {steps}"


def step_seconds(scope: Scope, by: str = "run") -> str:
    """The mean time of a whole step."""
    name, select = catalog.STEP_COUNTS.name, scope.select("training")
    sums, counts = (f"sum by ({by}) (rate({name}{end}{select}{PER_SECOND}))" for end in ("_sum", "_count"))
    return f"{sums} / {counts}"


def data_wait_share(scope: Scope, by: str = "run") -> str:
    """The share of the training's time in which it waited for data."""
    wait = catalog.metric("training", "data_wait_seconds").name
    select = scope.select("training")
    steps = f"sum by ({by}) (rate({catalog.STEP_COUNTS.name}_sum{select}{PER_SECOND}))"
    return f"sum by ({by}) (rate({wait}{select}{PER_SECOND})) / {steps}"


def step_quantile(scope: Scope, quantile: float) -> str:
    """The time within which that share of the steps was done."""
    name, select = catalog.STEP_COUNTS.name, scope.select("training")
    return f"histogram_quantile({quantile:g}, sum by (run, le) (rate({name}_bucket{select}{PER_SECOND})))"


def idle_hours(scope: Scope) -> str:
    """Hours in which a GPU ran no kernel, of all GPUs in the dashboard's time range, to the minute."""
    return f"sum(sum_over_time(({scope.now('gpu', 'utilization_percent')} == bool 0)[$__range:1m])) / 60"


def idle_cost(scope: Scope) -> str:
    """What the idle time of the runs cost: their cost, by the share of GPU time that was idle."""
    cost = scope.over("increase", "account", "cost")
    idle = scope.over("increase", "account", "gpu_idle_seconds")
    all_time = scope.over("increase", "account", "gpu_seconds")
    return f"sum by (currency) ({cost} * on (run, host) group_left () ({idle} / {all_time}))"
