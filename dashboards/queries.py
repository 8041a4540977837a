"""Which series a panel asks for, in PromQL, by the names of the catalog."""

from collections.abc import Iterable
from typing import NamedTuple

from pulsetrain import catalog
from pulsetrain.rules.recording import RECORDING_RULES
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
MACHINE = frozenset({"gpu", "mig", "host"})
"""Tables of which both the agent of a machine and each run on it may show the same subjects."""
PER_SECOND = "[$__rate_interval]"
SECONDS_PER_HOUR = 3600
SHORT_NAME = "(?:[0-9]{8}-[0-9]{6}-)?(.+)"
"""Of the id of a run: without the time it began, which is all that a narrow legend would show of it."""


class Scope(NamedTuple):
    """What a dashboard looks at: the hosts chosen, and where it has these variables the runs and the GPUs.

    Where an agent watches a machine and runs show its GPUs too, each GPU comes several times, read at different
    moments: the highest of them would overstate all that fluctuates. One exporter counts for each subject, the agent if
    there is one (on a run's own dashboard, the run). Where only several runs show it, their mean does.
    """

    run: bool = False
    gpu: bool = False

    def now(self, table: str, field: str, *having: str) -> str:
        """The value of each subject; of those series that have further labels, such as `reason="sw_thermal"`."""
        metric = catalog.metric(table, field)
        fluctuates = metric.kind == "gauge" and metric.unit != "bool"
        return self._each(metric, "avg" if fluctuates else "max", "{}", having)

    def rate(self, table: str, field: str) -> str:
        """How fast the counter of each subject rises, per second."""
        return self._each(catalog.metric(table, field), "avg", f"rate({{}}{PER_SECOND})")

    def over(self, function: str, table: str, field: str) -> str:
        """A function such as avg_over_time or increase of each subject over the dashboard's time range."""
        aggregate = "avg" if function == "avg_over_time" else "max"
        return self._each(catalog.metric(table, field), aggregate, f"{function}({{}}[$__range])")

    def interval(self, function: str, table: str, field: str) -> str:
        """A function such as max_over_time of each subject between two points of a chart: no sample is skipped."""
        return self._each(catalog.metric(table, field), "max", f"{function}({{}}[$__interval])")

    def select(self, table: str) -> str:
        """The labels to look for. What an agent shows of a machine has no run: it belongs to every run there."""
        chosen = 'run=~"$run"' if table in ("training", "account") else 'run=~"$run|"'
        return self._select(table, [chosen] if self.run else [])

    def _select(self, table: str, exporter: Iterable[str]) -> str:
        chosen = ['host=~"$host"', *exporter]
        if self.gpu and table in ("gpu", "mig"):
            chosen.append('gpu=~"$gpu"')
        return "{" + ", ".join(chosen) + "}"

    def _each(self, metric: Metric, aggregate: str, form: str, having: Iterable[str] = ()) -> str:
        keys = [*KEYS[metric.table]]
        if metric.by:
            keys.append(metric.by)
        elif metric.kind == "words":
            keys.append("reason")

        def series(select: str) -> str:
            return f"{aggregate} by ({', '.join(keys)}) ({form.format(metric.name + select)})"

        if metric.table not in MACHINE:
            return series(self.select(metric.table))
        agent = series(self._select(metric.table, ['run=""', *having]))
        runs = series(self._select(metric.table, ['run=~"$run"' if self.run else 'run!=""', *having]))
        return f"({runs} or {agent})" if self.run else f"({agent} or {runs})"


def recorded(name: str) -> str:
    """A recording rule of the hosts chosen: one series for each, where single GPUs would be many.

    Without its name as a label: a table would give each such column rows of its own.
    """
    return f"max by (host) ({_recorded(name)})"


def _recorded(name: str) -> str:
    assert any(rule.name == name for rule in RECORDING_RULES), name
    return f'{name}{{host=~"$host"}}'


def by_run_name(expr: str) -> str:
    """The same, with a label `name` for legends: the run's id without the time it began."""
    return f'label_replace({expr}, "name", "$1", "run", "{SHORT_NAME}")'


def hosts(scope: Scope) -> str:
    """How many hosts are seen now."""
    return f"count({_hosts_now(scope)}) or vector(0)"


def hosts_gone(scope: Scope) -> str:
    """How many hosts were seen in the time range, and are not now."""
    return f"count({_hosts_in_range(scope)} unless {_hosts_now(scope)}) or vector(0)"


def host_state(scope: Scope) -> str:
    """1 for each host that is seen now, 0 for those that were seen in the time range."""
    return f"{_hosts_now(scope)} or 0 * {_hosts_in_range(scope)}"


def host_seen_seconds(scope: Scope) -> str:
    """How long ago each host of the time range was last seen."""
    seen = f"timestamp({catalog.BUILD_INFO.name}{scope.select('host')})"
    return f"time() - max by (host) (max_over_time({seen}[$__range:1m]))"


def run_state(scope: Scope) -> str:
    """1 for each run that is seen now, 0 for the others of the time range; with its name."""
    info = f"{catalog.RUN_INFO.name}{scope.select('account')}"
    return f"group by (run, name) ({info}) or 0 * group by (run, name) (last_over_time({info}[$__range]))"


def gpus(scope: Scope) -> str:
    """How many GPUs answer now."""
    return f"sum({scope.now('gpu', 'up')}) or vector(0)"


def gpus_lost(scope: Scope) -> str:
    """How many GPUs are there for their exporter and do not answer; nothing where no GPU is seen at all."""
    up = scope.now("gpu", "up")
    return f"count({up} == 0) or 0 * count({up})"


def gpus_gone(scope: Scope) -> str:
    """How many GPUs were seen in the time range, and nobody speaks of now."""
    seen = scope.over("last_over_time", "gpu", "up")
    return f"count({seen} unless on (host, uuid) {scope.now('gpu', 'up')}) or vector(0)"


def gpus_missing(scope: Scope) -> str:
    """How many GPUs of the time range do not answer now, or nobody speaks of."""
    return f"({gpus_lost(scope)} or vector(0)) + ({gpus_gone(scope)})"


def gpu_state(scope: Scope) -> str:
    """2 for each GPU that answers, 1 for one that is lost, 0 for one of the time range of which nobody speaks now."""
    up = f"max by (host, gpu) ({scope.now('gpu', 'up')})"
    return f"{up} + 1 or 0 * max by (host, gpu) ({scope.over('last_over_time', 'gpu', 'up')})"


def gpu_description(scope: Scope) -> str:
    """1 for each GPU, with its model and driver as the labels `name` and `version`."""
    info = (
        f"max by (host, gpu, name) (last_over_time({catalog.DEVICE_INFO['gpu'].name}{scope.select('gpu')}[$__range]))"
    )
    driver = catalog.metric("host", "gpu_driver_versions").name
    version = f"max by (host, version) (last_over_time({driver}{scope.select('host')}[$__range]))"
    return f"{info} * on (host) group_left (version) topk by (host) (1, {version}) or on (host, gpu) {info}"


def held_back(scope: Scope) -> str:
    """1 for each GPU and what held its clocks down between two points of a chart; 0 for a host where nothing did.

    So a time in which no GPU was held back differs from one of which nothing is known.
    """
    held = scope.interval("max_over_time", "gpu", "throttle_reasons")
    free = f"0 * group by (host) ({scope.interval('max_over_time', 'gpu', 'up')})"
    for label, word in (("gpu", "all"), ("reason", "not throttled")):
        free = f'label_replace({free}, "{label}", "{word}", "", "")'
    return f"{held} or ({free} unless on (host) {held})"


HOLDS = {
    1: ("power limit", "sw_power_cap"),
    2: ("heat", "sw_thermal|hw_thermal"),
    3: ("hardware slowdown", "hw_slowdown|hw_power_brake"),
}
"""Why clocks are held down, in words and as reasons, by how grave it is."""


def gpu_holds(scope: Scope) -> str:
    """For each GPU the gravest of what holds its clocks down, as a key of HOLDS; 0 where nothing does."""
    held = (
        f'{grave} * {scope.now("gpu", "throttle_reasons", f"""reason=~"{reasons}" """.strip())}'
        for grave, (_, reasons) in HOLDS.items()
    )
    return f"max by (host, gpu) ({' or '.join(held)} or 0 * ({scope.now('gpu', 'up')} == 1))"


def _hosts_now(scope: Scope) -> str:
    return f"group by (host) ({catalog.BUILD_INFO.name}{scope.select('host')})"


def _hosts_in_range(scope: Scope) -> str:
    return f"group by (host) (last_over_time({catalog.BUILD_INFO.name}{scope.select('host')}[$__range]))"


def nonfinite(scope: Scope, by: str) -> str:
    """How often the training reported values that are NaN or infinite, in the time range."""
    return f"sum by ({by}) (increase({catalog.NONFINITE.name}{scope.select('training')}[$__range]))"


def nonfinite_rate(scope: Scope) -> str:
    """How many such reports come per second, by which value it is."""
    return f"sum by (value) (rate({catalog.NONFINITE.name}{scope.select('training')}{PER_SECOND}))"


def step_part(scope: Scope, field: str, by: str = "run") -> str:
    """The mean time that a part of a step takes."""
    part = catalog.metric("training", field).name
    return f"{_rise(scope, part, by)} / {_rise(scope, f'{catalog.STEP_COUNTS.name}_count', by)}"


def step_seconds(scope: Scope, by: str = "run") -> str:
    """The mean time of a whole step, also where the program reports no more than the number of the step."""
    name = catalog.STEP_COUNTS.name
    steps = f"max by ({by}) (rate({catalog.metric('training', 'step').name}{scope.select('training')}{PER_SECOND}))"
    return f"{_rise(scope, f'{name}_sum', by)} / {_rise(scope, f'{name}_count', by)} or 1 / ({steps} > 0)"


def time_shares(scope: Scope) -> str:
    """The share of each class of the time ledger in the time of all ranks.

    What is reported after it is over, such as a long evaluation, comes at once: shares then add up to all of the time.
    """
    return f"{_rise(scope, catalog.TRAINING_TIME.name, 'class')} / scalar({_ranks_seconds(scope)})"


def time_share_of_runs(scope: Scope, classes: Iterable[str]) -> str:
    """The share of some classes of the time ledger in the reported time of each run, in the time range; 0 is none."""

    def seconds(select: str) -> str:
        return f"sum by (run) (increase({catalog.TRAINING_TIME.name}{select}[$__range]))"

    select = scope.select("training")
    some = select.removesuffix("}") + f', class=~"{"|".join(classes)}"}}'
    return f"({seconds(some)} or 0 * {seconds(select)}) / ({seconds(select)} > 0)"


def time_untold(scope: Scope) -> str:
    """The share of the ranks' time of which no report tells."""
    return f"1 - {_rise(scope, catalog.TRAINING_TIME.name, '')} / {_ranks_seconds(scope)}"


def _ranks_seconds(scope: Scope) -> str:
    """How much time of the ranks passes per second, or is reported if that is more."""
    ranks = f"count({_rise(scope, catalog.TRAINING_TIME.name, 'run, host, rank')})"
    return f"({_rise(scope, catalog.TRAINING_TIME.name, '')} > {ranks} or {ranks})"


def data_wait_share(scope: Scope, by: str = "run") -> str:
    """The share of the training's time in which it waited for data."""
    wait = catalog.metric("training", "data_wait_seconds").name
    return f"{_rise(scope, wait, by)} / {_rise(scope, f'{catalog.STEP_COUNTS.name}_sum', by)}"


def behind_seconds(scope: Scope) -> str:
    """How much longer than the median rank of its run a rank works on its own in each step.

    That is the time before it meets the others in the backward pass: the whole step takes equally long on all of them.
    """
    by = "run, host, rank"
    wait, forward = (catalog.metric("training", f"{part}_seconds").name for part in ("data_wait", "forward"))
    steps = _rise(scope, f"{catalog.STEP_COUNTS.name}_count", by)
    own = f"(({_rise(scope, wait, by)} + {_rise(scope, forward, by)}) / {steps})"
    return f"{own} - on (run) group_left () quantile by (run) (0.5, {own})"


def step_quantile(scope: Scope, quantile: float) -> str:
    """The time within which that share of the steps was done."""
    name, select = catalog.STEP_COUNTS.name, scope.select("training")
    return f"histogram_quantile({quantile:g}, sum by (run, le) (rate({name}_bucket{select}{PER_SECOND})))"


def _rise(scope: Scope, name: str, by: str) -> str:
    """How fast a counter of the training rises."""
    return f"sum by ({by}) (rate({name}{scope.select('training')}{PER_SECOND}))"


def idle_hours() -> str:
    """Hours in which a GPU ran no kernel, of all GPUs in the dashboard's time range, to the minute."""
    return f"sum(sum_over_time({_recorded('host:gpus_idle:count')}[$__range:1m])) / 60"


def idle_cost(scope: Scope) -> str:
    """What the idle time of the runs cost: their cost, by the share of GPU time that was idle."""
    cost = scope.over("increase", "account", "cost")
    idle = scope.over("increase", "account", "gpu_idle_seconds")
    all_time = scope.over("increase", "account", "gpu_seconds")
    return f"sum by (currency) ({cost} * on (run, host) group_left () ({idle} / {all_time}))"
