"""The dashboard of a training run: is it learning, how fast, what do the GPUs do, and what has it cost."""

from dashboards import queries
from dashboards.board import RUN, Board, Row, gpus_variable, hosts_variable, run_variable
from dashboards.panels import (
    BLUE,
    GREEN,
    GREY,
    MEMORY,
    ORANGE,
    PURPLE,
    SKY,
    TEMPERATURE,
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
    "other_seconds": ("other", GREY),
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
            Row("GPUs", _gpus()),
            Row("Energy, carbon and cost", _account()),
            Row("The command and its machine", _job()),
        ],
        events='run=~"$run", host=~"$host"',
    )


def _header() -> list[Panel]:
    progress, remaining = metric("account", "progress_ratio"), metric("account", "remaining_seconds")
    loss, used = metric("training", "loss"), metric("gpu", "utilization_percent")
    return [
        number(
            "Progress",
            f"max by (run) ({SCOPE.now('account', 'progress_ratio')})",
            help=help_of(progress),
            unit="percentunit",
            legend="{{run}}",
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
            f"avg by (run) ({SCOPE.now('training', 'loss')})",
            help=help_of(loss),
            unit="short",
            legend="{{run}}",
            decimals=4,
            graph=True,
        ),
        number(
            "Throughput",
            f"sum by (run) ({SCOPE.rate('training', 'samples')})",
            help="Samples per second, of all ranks together.",
            unit=UNITS["samples/s"],
            legend="{{run}}",
            graph=True,
        ),
        number(
            "GPU utilisation",
            f"avg({SCOPE.now('gpu', 'utilization_percent')})",
            help=f"Mean of all GPUs. {help_of(used)}",
            unit="percent",
            decimals=0,
            graph=True,
        ),
        number(
            "Energy",
            f"sum by (run) ({SCOPE.now('account', 'energy_joules')}) / {queries.SECONDS_PER_HOUR}",
            help=help_of(metric("account", "energy_joules")),
            unit="watth",
            legend="{{run}}",
        ),
        number(
            "Carbon",
            f"sum by (run) ({SCOPE.now('account', 'carbon_grams')})",
            help=help_of(metric("account", "carbon_grams")),
            unit="massg",
            legend="{{run}}",
        ),
        number(
            "Cost",
            f"sum by (run, currency) ({SCOPE.now('account', 'cost')})",
            help=help_of(metric("account", "cost")),
            unit="short",
            legend="{{currency}}",
            decimals=2,
            named=True,
        ),
    ]


def _training() -> list[Panel]:
    loss, norm, rate = (
        metric("training", "loss"),
        metric("training", "gradient_norm"),
        metric("training", "learning_rate"),
    )
    return [
        chart(
            "Loss",
            Line(f"avg by (run) ({SCOPE.now('training', 'loss')})", "{{run}}"),
            help=f"Mean of all ranks. {help_of(loss)}",
            unit="short",
            minimum=None,
        ),
        chart(
            "Learning rate",
            Line(f"max by (run) ({SCOPE.now('training', 'learning_rate')})", "{{run}}"),
            help=help_of(rate),
            unit="sci",
            width=6,
        ),
        chart(
            "Gradient norm",
            Line(f"max by (run) ({SCOPE.now('training', 'gradient_norm')})", "{{run}}"),
            help=f"The highest of all ranks. {help_of(norm)}",
            unit="short",
            width=6,
        ),
        chart(
            "Where a step's time goes",
            *(Line(queries.step_part(SCOPE, part), legend, colour) for part, (legend, colour) in PARTS.items()),
            help="Mean time of each part of a step. Much data wait: the input pipeline holds the GPUs back.",
            unit="s",
            stacked=True,
        ),
        chart(
            "Step duration",
            Line(queries.step_quantile(SCOPE, 0.5), "half within", BLUE),
            Line(queries.step_quantile(SCOPE, 0.95), "95% within", ORANGE),
            Line(queries.step_quantile(SCOPE, 0.99), "99% within", PURPLE),
            help=help_of(catalog.STEP_COUNTS),
            unit="s",
            width=6,
        ),
        chart(
            "Step duration by rank",
            Line(queries.step_seconds(SCOPE, "run, rank"), "rank {{rank}}"),
            help="Mean duration of a step. One rank above the others holds all of them back.",
            unit="s",
            width=6,
        ),
        chart(
            "Samples",
            Line(f"sum by (run) ({SCOPE.rate('training', 'samples')})", "{{run}}"),
            help="Samples per second, of all ranks together.",
            unit=UNITS["samples/s"],
            width=6,
        ),
        chart(
            "Tokens",
            Line(f"sum by (run) ({SCOPE.rate('training', 'tokens')})", "{{run}}"),
            help="Tokens per second, of all ranks together, where the program tells them.",
            unit=UNITS["tokens/s"],
            width=6,
        ),
        chart_of(
            metric("training", "mfu_ratio"),
            "Model FLOPs utilisation",
            Line(f"avg by (run) ({SCOPE.now('training', 'mfu_ratio')})", "{{run}}"),
            width=6,
        ),
        chart(
            "Memory of the training",
            Line(f"max by (run) ({SCOPE.now('training', 'memory_allocated_mb')})", "tensors", BLUE),
            Line(f"max by (run) ({SCOPE.now('training', 'memory_reserved_mb')})", "allocator", ORANGE),
            help="GPU memory as the framework sees it, of the rank that holds most.",
            unit="mbytes",
            width=6,
        ),
        chart(
            "Epoch",
            Line(f"max by (run) ({SCOPE.now('training', 'epoch')})", "{{run}}"),
            help=help_of(metric("training", "epoch")),
            unit="short",
            width=6,
        ),
        chart(
            "What else the program logs",
            Line(f"avg by (run, name) ({catalog.TRAINING_VALUE.name}{SCOPE.select('training')})", "{{name}}"),
            help=help_of(catalog.TRAINING_VALUE),
            unit="short",
            width=18,
            minimum=None,
        ),
    ]


def _gpus() -> list[Panel]:
    return [
        chart_of(
            metric("gpu", "utilization_percent"), "Utilisation", Line(SCOPE.now("gpu", "utilization_percent"), GPU)
        ),
        chart_of(
            metric("gpu", "memory_percent"), "Memory", Line(SCOPE.now("gpu", "memory_percent"), GPU), limits=MEMORY
        ),
        chart_of(metric("gpu", "power_draw_watts"), "Power", Line(SCOPE.now("gpu", "power_draw_watts"), GPU)),
        chart_of(
            metric("gpu", "temperature_celsius"),
            "Temperature",
            Line(SCOPE.now("gpu", "temperature_celsius"), GPU),
            limits=TEMPERATURE,
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
            Line(f"sum by (run) ({SCOPE.now('account', 'carbon_grams')})", "{{run}}"),
            width=6,
        ),
        chart_of(
            metric("account", "carbon_grams_per_kwh"),
            "Carbon intensity",
            Line(f"max by (host) ({SCOPE.now('account', 'carbon_grams_per_kwh')})", "{{host}}"),
            width=6,
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
        ),
        chart(
            "Power of all that is counted",
            Line(f"sum by (device) ({SCOPE.rate('account', 'energy_joules')})", "{{device}}"),
            help="How fast the energy of the run rises. It is added up every 15 seconds.",
            shortest="1m",
            unit="watt",
            width=12,
            stacked=True,
        ),
        chart(
            "Idle share of GPU time",
            Line(
                f"sum by (run) ({SCOPE.now('account', 'gpu_idle_seconds')})"
                f" / sum by (run) ({SCOPE.now('account', 'gpu_seconds')})",
                "{{run}}",
            ),
            help=f"Of all GPU time so far. {help_of(metric('account', 'gpu_idle_seconds'))}",
            unit="percentunit",
            maximum=1,
        ),
    ]


def _job() -> list[Panel]:
    return [
        chart_of(metric("host", "job_cpu_cores"), "CPU", Line(SCOPE.now("host", "job_cpu_cores"), "{{host}}"), width=6),
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
            [Key("kind", "Event"), Key("severity", "Severity")],
            [
                Column("Count", f"sum by (kind, severity) ({_EVENTS})"),
                Column("Hosts", f"count by (kind, severity) ({_EVENTS})"),
            ],
            help=help_of(catalog.EVENTS),
            sort="Count",
            width=6,
            height=8,
        ),
    ]


_EVENTS = f"max by (kind, severity, host) (last_over_time({catalog.EVENTS.name}{SCOPE.select('training')}[$__range]))"
