"""The tables that runs are read as, and what each of their columns is. The catalog declares most of them."""

from pulsetrain import catalog
from pulsetrain.catalog import Column
from pulsetrain.snapshot import Metric

LINE_TABLES = tuple(catalog.TABLES)
"""Those made of the lines of a run."""
TABLES = (*LINE_TABLES, "runs", "config")

_TIMES = (
    Column("timestamp", "TIMESTAMP", "UTC", "Time of the line, by the machine's clock."),
    Column("elapsed_seconds", "DOUBLE", "seconds", "Since the run began on this host, by a monotonic clock."),
)
_WHERE = (
    Column("run", "VARCHAR", "", "The run: the name of its folder."),
    Column("host", "VARCHAR", "", "The machine that wrote the line."),
)
OTHER = Column("other", "JSON", "", "Fields of the line that have no column.")

_RUNS = (
    _WHERE[0],
    Column("id", "VARCHAR", "", "Its id in run.json: the same, unless the folder was renamed."),
    Column("name", "VARCHAR", "", "Name of the run."),
    Column("command", "VARCHAR", "", "What was run."),
    Column("directory", "VARCHAR", "", "Where it was run."),
    Column("project", "VARCHAR", "", "The project it belongs to."),
    Column("tags", "MAP(VARCHAR, VARCHAR)", "", "Its tags: tags['lr'] is one of them."),
    Column("config", "JSON", "", "The settings of the training: config->>'lr' is one of them."),
    Column("start_time", "TIMESTAMP", "UTC", "When it began."),
    Column("end_time", "TIMESTAMP", "UTC", "When it ended; null while it is running, and if it died."),
    Column("seconds", "DOUBLE", "seconds", "From start to end."),
    Column(
        "status",
        "VARCHAR",
        "",
        "running, finished, failed, interrupted, detached or died; null when run.json is damaged.",
    ),
    Column("exit_code", "INTEGER", "", "Exit code of the command."),
    Column("hosts", "VARCHAR[]", "", "The machines of the run."),
    Column("gpus", "INTEGER", "", "How many GPUs were watched."),
    Column("gpu_names", "VARCHAR[]", "", "Their models."),
    Column("simulated", "BOOLEAN", "", "True when its GPUs are simulated."),
    Column("interval_seconds", "DOUBLE", "seconds", "Time between readings."),
    Column("lost_samples", "BIGINT", "samples", "Lines that could not be written."),
)


_CONFIG = (
    _WHERE[0],
    Column("kind", "VARCHAR", "", "config, versions, training (what was seen of it), code, place or environment."),
    Column("name", "VARCHAR", "", "Dotted name, such as model.depth."),
    Column("value", "VARCHAR", "", "The value as text."),
    Column("number", "DOUBLE", "", "The value as a number; null if it is not one."),
)
"""What a run was, a row for each setting and fact."""
_OF_RUNS = {"runs": _RUNS, "config": _CONFIG}


def columns(table: str) -> tuple[Column, ...]:
    """Every column of a table that is declared, as a query sees them."""
    return _OF_RUNS.get(table) or (*_WHERE, *line_columns(table), OTHER)


def line_columns(table: str) -> tuple[Column, ...]:
    """The declared columns that come from the lines themselves."""
    declared = catalog.TABLES[table]
    labels = {label.name: label.column for label in declared.labels}
    metrics = [_column(metric) for metric in catalog.metrics_of(table) if metric.field not in labels]
    return (*_TIMES, *labels.values(), *metrics, *declared.columns)


def _column(metric: Metric) -> Column:
    plain = {"text": "VARCHAR", "words": "VARCHAR[]"}.get(metric.kind, "DOUBLE")
    help = f"{metric.help} One value for each {metric.by}." if metric.by else metric.help
    return Column(metric.field, "MAP(VARCHAR, DOUBLE)" if metric.by else plain, metric.unit, help)
