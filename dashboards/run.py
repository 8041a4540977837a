"""The dashboard of a training run: is it learning, how fast, what do the GPUs do, and what has it cost."""

from dashboards import queries, tables
from dashboards.board import RUN, Board, Row, gpus_variable, hosts_variable, run_variable
from dashboards.panels import (
    BLUE,
    GRAY,
    GREEN,
    LOST,
    ORANGE,
    PURPLE,
    SKY,
    UNITS,
    Column,
    Key,
    Line,
    Panel,
    chart,
    chart_of,
    help_of,
    number,
    rows,
    states,
    time_ledger,
)
from pulsetrain import catalog
from pulsetrain.catalog import metric

SCOPE = queries.Scope(run=True, gpu=True)
GPU = "{{host}}/{{gpu}}"
PARTS = {
    "data_wait_seconds": ("data wait", ORANGE),
    "forward_seconds": ("forward", SKY),
    "backward_seconds": ("backward", BLUE),
    "optimizer_seconds": ("optimizer", GREEN),
    "other_seconds": ("other", GRAY),
}


def board() -> Board:
    return Board(
        uid=RUN,
        title="Training run",
        description="One training run, or several to compare: loop, GPUs, energy, carbon and cost.",
        variables=[run_variable(), hosts_variable(f'{catalog.RUN_INFO.name}{{run=~"$run"}}'), gpus_variable()],
        header=_header(),
        rows=[
            Row("Training", _training()),
            Row("GPUs", [*_gpus(), tables.gpus(SCOPE)]),
            Row("Energy, carbon and cost", _account()),
            Row("The command and its machine", _job()),
        ],
        events='run=~"$run", host=~"$host"',
    )


def _header() -> list[Panel]:
    progress, remaining = metric("account", "progress_ratio"), metric("account", "remaining_seconds")
    return [
        _runs(),
        tables.alerts('run=~"$run|", host=~"$host|"'),
        number(
            "Progress",
            f"max by (run) ({_so_far('progress_ratio')})",
            help=f"Now, or when it was last seen. {help_of(progress)}",
            unit="percentunit",
            legend="{{run}}",
            empty="steps not planned",
        ),
        number(
            "Time left",
            f"max by (run) ({SCOPE.now('account', 'remaining_seconds')})",
            help=help_of(remaining),
            unit="s",
            legend="{{run}}",
        ),
        number(
            "Loss",
            queries.by_run_name(f"avg by (run) ({SCOPE.now('training', 'loss')})"),
            help=f"Now, mean of all ranks. {help_of(metric('training', 'loss'))}",
            unit="short",
            legend="{{name}}",
            decimals=4,
            empty="none, or NaN",
        ),
        number(
            "NaN or infinite",
            f"sum({queries.nonfinite(SCOPE, 'run')})",
            help=f"Reports in the time range with such a value, in the loss or elsewhere. {help_of(catalog.NONFINITE)}",
            unit="short",
            decimals=0,
            limits=LOST,
            empty="no report",
        ),
        number(
            "Throughput",
            queries.by_run_name(f"sum by (run) ({SCOPE.rate('training', 'samples')})"),
            help="Samples per second, of all ranks together.",
            unit=UNITS["samples/s"],
            legend="{{name}}",
            empty="none now",
        ),
        number(
            "Energy",
            queries.by_run_name(f"sum by (run) ({_so_far('energy_joules')}) / {queries.SECONDS_PER_HOUR}"),
            help=f"Now, or when it was last seen. {help_of(metric('account', 'energy_joules'))}",
            unit="watth",
            legend="{{name}}",
        ),
        number(
            "Carbon",
            queries.by_run_name(f"sum by (run) ({_so_far('carbon_grams')})"),
            help=f"Now, or when it was last seen. {help_of(metric('account', 'carbon_grams'))}",
            unit="massg",
            legend="{{name}}",
            empty="no --carbon-region",
        ),
        number(
            "Cost",
            f"sum by (run, currency) ({_so_far('cost')})",
            help=f"Now, or when it was last seen. {help_of(metric('account', 'cost'))}",
            unit="short",
            legend="{{currency}}",
            decimals=2,
            named=True,
            empty="no --price",
        ),
    ]


def _so_far(field: str) -> str:
    """What a run has added up, also when it has ended in the time range."""
    return SCOPE.over("last_over_time", "account", field)


def _runs() -> Panel:
    """Which runs these are, and whether they are still there."""
    info, start = (f"{one.name}{SCOPE.select('account')}" for one in (catalog.RUN_INFO, catalog.RUN_START))
    return rows(
        "Runs",
        [Key("name", "Name"), Key("run", "Run", width=260)],
        [
            Column("State", queries.run_state(SCOPE), words=tables.RUN_STATES, width=150),
            Column("Began", f"1000 * min by (run) (last_over_time({start}[$__range]))", "dateTimeAsIso", width=160),
            Column("Hosts", f"count by (run) (group by (run, host) ({info}))", width=60),
            Column("Steps", f"max by (run) ({SCOPE.over('last_over_time', 'training', 'step')})", width=75),
        ],
        help="The runs that are chosen, and whether they are seen now.",
        sort=["-Began"],
        empty="No run in this time range.",
        height=4,
    )


def _named(expr: str) -> Line:
    """A line for each run, by its name."""
    return Line(queries.by_run_name(expr), "{{name}}")


def _training() -> list[Panel]:
    loss, norm, rate = (
        metric("training", "loss"),
        metric("training", "gradient_norm"),
        metric("training", "learning_rate"),
    )
    return [
        chart(
            "Loss",
            _named(f"avg by (run) ({SCOPE.now('training', 'loss')})"),
            help=f"Mean of all ranks; a gap where it is NaN or infinite. {help_of(loss)}",
            unit="short",
            minimum=None,
            empty="none, or NaN",
            last="last",
        ),
        chart(
            "NaN or infinite",
            Line(queries.nonfinite_rate(SCOPE), "{{value}}"),
            help=f"Reports with such a value per second: a chart of the value itself has a gap there. "
            f"{help_of(catalog.NONFINITE)}",
            unit="short",
            width=6,
            empty="No report of a training.",
        ),
        chart(
            "Learning rate",
            _named(f"max by (run) ({SCOPE.now('training', 'learning_rate')})"),
            help=help_of(rate),
            unit="sci",
            empty="No learning rate is reported.",
            width=6,
        ),
        chart(
            "Where a step's time goes",
            *(Line(queries.step_part(SCOPE, part), legend, color) for part, (legend, color) in PARTS.items()),
            help="Mean time of each part of a step. A long data wait means that the input pipeline holds the "
            "GPUs back.",
            unit="s",
            stacked=True,
            width=8,
            empty="Needs the hooks or callbacks: pulsetrain.log reports no parts of a step.",
        ),
        chart(
            "Step time",
            Line(queries.step_seconds(SCOPE), "mean", GREEN),
            Line(queries.step_quantile(SCOPE, 0.5), "50 % within", BLUE),
            Line(queries.step_quantile(SCOPE, 0.95), "95 % within", ORANGE),
            Line(queries.step_quantile(SCOPE, 0.99), "99 % within", PURPLE),
            help="The mean is exact; where reports have no durations, it comes from step numbers. The others "
            f"are estimated from histogram buckets. {help_of(catalog.STEP_COUNTS)}",
            unit="s",
            width=8,
            empty="No step is reported.",
        ),
        chart(
            "Step time by rank",
            Line(queries.step_seconds(SCOPE, "run, rank"), "rank {{rank}}"),
            help="Mean step time. Ranks that exchange gradients take equally long: *Cluster profiler* shows "
            "which of them the others wait for.",
            unit="s",
            width=8,
            empty="No step is reported.",
        ),
        chart(
            "Gradient norm",
            _named(f"max by (run) ({SCOPE.now('training', 'gradient_norm')})"),
            help=f"The highest of all ranks. {help_of(norm)}",
            unit="short",
            empty="Needs gradient_norm, which the program or a sample reports.",
            width=6,
        ),
        chart(
            "Samples",
            _named(f"sum by (run) ({SCOPE.rate('training', 'samples')})"),
            help="Samples per second, of all ranks together.",
            unit=UNITS["samples/s"],
            empty="Needs samples: the hooks count them, pulsetrain.log(samples=...) reports them.",
            width=6,
        ),
        chart(
            "Tokens",
            _named(f"sum by (run) ({SCOPE.rate('training', 'tokens')})"),
            help="Tokens per second, of all ranks together.",
            unit=UNITS["tokens/s"],
            empty="Needs tokens: pulsetrain.log(tokens=...), or a text model that the hooks know.",
            width=6,
        ),
        chart_of(
            metric("training", "mfu_ratio"),
            "Model FLOPs utilization",
            _named(f"avg by (run) ({SCOPE.now('training', 'mfu_ratio')})"),
            width=6,
            empty="Needs FLOPs of the step and a GPU whose peak is known.",
        ),
        chart(
            "Training memory",
            Line(f"max by (run) ({SCOPE.now('training', 'memory_allocated_mb')})", "tensors", BLUE),
            Line(f"max by (run) ({SCOPE.now('training', 'memory_reserved_mb')})", "allocator", ORANGE),
            help="GPU memory as the framework sees it, of the rank that holds the most.",
            unit="mbytes",
            width=6,
            empty="Needs a framework that reports its GPU memory.",
        ),
        time_ledger(
            Line(queries.time_shares(SCOPE), "{{class}}"),
            Line(queries.time_untold(SCOPE), "not reported", GRAY),
            help=f"Share of each class in the time of all ranks. {help_of(catalog.TRAINING_TIME)}",
            width=8,
        ),
        chart(
            "Epoch",
            _named(f"max by (run) ({SCOPE.now('training', 'epoch')})"),
            help=help_of(metric("training", "epoch")),
            unit="short",
            width=4,
            empty="Needs an epoch: hooks on a data loader, or pulsetrain.log(epoch=...).",
        ),
        chart(
            "What else the program logs",
            Line(f"avg by (run, name) ({catalog.TRAINING_VALUE.name}{SCOPE.select('training')})", "{{name}}"),
            help=help_of(catalog.TRAINING_VALUE),
            unit="short",
            width=6,
            minimum=None,
            empty="pulsetrain.log(accuracy=...) draws here.",
        ),
    ]


def _gpus() -> list[Panel]:
    return [
        *tables.gpu_charts(SCOPE, GPU),
        states(
            "Throttled by",
            Line(queries.held_back(SCOPE), "{{host}}/{{gpu}}: {{reason}}"),
            help=help_of(metric("gpu", "throttle_reasons")),
            width=24,
            empty="No GPU was throttled in this time range.",
        ),
    ]


def _account() -> list[Panel]:
    return [
        chart(
            "Energy so far",
            Line(
                f"sum by (device) ({SCOPE.now('account', 'energy_joules')}) / {queries.SECONDS_PER_HOUR}", "{{device}}"
            ),
            help=help_of(metric("account", "energy_joules")),
            unit="watth",
            width=6,
            stacked=True,
        ),
        chart_of(
            metric("account", "carbon_grams"),
            "Carbon so far",
            _named(f"sum by (run) ({SCOPE.now('account', 'carbon_grams')})"),
            width=6,
            empty="Needs --carbon-region.",
        ),
        chart_of(
            metric("account", "carbon_grams_per_kwh"),
            "Carbon intensity",
            Line(f"max by (host) ({SCOPE.now('account', 'carbon_grams_per_kwh')})", "{{host}}"),
            width=6,
            empty="Needs --carbon-region.",
        ),
        chart(
            "Cost",
            Line(f"sum by (run, currency) ({SCOPE.now('account', 'cost')})", "{{currency}} so far", BLUE),
            Line(
                f"sum by (run, currency) ({SCOPE.now('account', 'cost_projected')})",
                "{{currency}} at the end",
                ORANGE,
                True,
            ),
            help="Cost so far, and at the end of the planned steps.",
            unit="short",
            width=6,
            decimals=2,
            empty="Needs --price.",
        ),
        chart(
            "Power of everything counted",
            Line(f"sum by (device) ({SCOPE.rate('account', 'energy_joules')})", "{{device}}"),
            help="How fast the energy of the run rises.",
            unit="watt",
            width=12,
            stacked=True,
        ),
        chart(
            "Idle share of GPU time",
            _named(
                f"sum by (run) ({SCOPE.now('account', 'gpu_idle_seconds')})"
                f" / sum by (run) ({SCOPE.now('account', 'gpu_seconds')})"
            ),
            help=f"Of all GPU time so far. {help_of(metric('account', 'gpu_idle_seconds'))}",
            unit="percentunit",
            maximum=1,
        ),
    ]


def _job() -> list[Panel]:
    return [
        chart_of(
            metric("host", "job_cpu_cores"), "CPU cores", Line(SCOPE.now("host", "job_cpu_cores"), "{{host}}"), width=6
        ),
        chart_of(
            metric("host", "job_memory_bytes"),
            "Memory",
            Line(SCOPE.now("host", "job_memory_bytes"), "{{host}}"),
            width=6,
        ),
        chart(
            "Storage",
            Line(f"sum({SCOPE.rate('host', 'job_read_bytes')})", "read", BLUE),
            Line(f"sum({SCOPE.rate('host', 'job_written_bytes')})", "written", ORANGE),
            help="What the command reads from storage and writes to it.",
            unit="binBps",
            width=6,
        ),
        rows(
            "Events",
            [Key("kind", "Event"), Key("severity", "Severity", width=90)],
            [
                Column("Count", f"sum by (kind, severity) ({_EVENTS})", width=80),
                Column("Hosts", f"count by (kind, severity) ({_EVENTS})", width=60),
            ],
            help=help_of(catalog.EVENTS),
            sort=["Severity", "-Count"],
            empty="No event in this time range.",
            width=6,
            height=8,
        ),
    ]


_EVENTS = f"max by (kind, severity, host) (last_over_time({catalog.EVENTS.name}{SCOPE.select('training')}[$__range]))"
