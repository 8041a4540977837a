"""Every table, declared once: what its lines are about, how they are kept, shown and exported.

A new table is one `Table` here and its metrics in `metrics.py`. Files, database, readers, exporters and docs follow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pulsetrain.snapshot import Label, Subject

CORE_GPU_FIELDS = (
    "utilization_percent",
    "memory_used_mb",
    "memory_total_mb",
    "memory_percent",
    "temperature_celsius",
    "power_draw_watts",
    "fan_speed_percent",
)
"""In every GPU line, null where the device has none, so that scripts for the older tools keep working."""


class Column(NamedTuple):
    """A column that a table always has, whatever the runs hold."""

    name: str
    type: str
    """As DuckDB calls it."""
    unit: str
    help: str


class LabelColumn(NamedTuple):
    """A field at the front of a table's lines that says what each is about."""

    name: str
    type: str
    help: str
    exported: str = ""
    """Its name in Prometheus, where it is a label of every series of the table."""
    of_info: bool = False
    """Whether it is a label of the one series that describes a subject, such as `gpu_info`."""

    @property
    def is_number(self) -> bool:
        return self.type in ("INTEGER", "BIGINT")

    @property
    def column(self) -> Column:
        return Column(self.name, self.type, "", self.help)


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of line."""

    name: str
    title: str
    """Heading of its metrics in the docs."""
    lines: str
    """Which lines it has, in words."""
    labels: tuple[LabelColumn, ...] = ()
    key: tuple[str, ...] = ()
    """What tells its subjects apart, as formats of labels: the first whose labels are all known counts."""
    always: tuple[str, ...] = ()
    """Fields that are in every line, null where there is no value."""
    columns: tuple[Column, ...] = ()
    """Columns beside those of labels and metrics."""
    held: bool = False
    """Whether values count until the next ones come, however long that takes: a run's own, not its machine's."""
    outlined: bool = True
    """Whether the past of a long run is shown with it."""
    from_training: bool = False
    """Whether the training processes write its files. All others are written by the watching process, at ticks."""
    segmented: bool = True
    """Whether a full file is continued in another and sealed; otherwise all lines are in one file."""

    @property
    def files(self) -> str:
        """Pattern of the names of its files, without their suffix."""
        return f"{self.name}_metrics_*" if self.segmented else self.name

    def subject(self, labels: Mapping[str, Label]) -> Subject:
        """The subject with these labels."""
        known = {name: label for name, label in labels.items() if label is not None}
        for form in self.key:
            try:
                return Subject(self.name, form.format_map(known), labels)
            except KeyError:
                continue
        return Subject(self.name, "", labels)


_GPU_INDEX = LabelColumn("gpu_index", "INTEGER", "The GPU's number on its host.", "gpu")
_UUID = LabelColumn("uuid", "VARCHAR", "The GPU's own name, the same in every run.", "uuid")
_MODEL = LabelColumn("name", "VARCHAR", "The GPU's model.", of_info=True)
_RANK = LabelColumn("rank", "INTEGER", "Rank of the training process.", "rank")
_TRAINING = LabelColumn("training", "VARCHAR", "The name the program gave to this training.")

SAMPLE_TABLES: tuple[Table, ...] = (
    Table(
        "gpu",
        "GPUs",
        "one line for each GPU and tick",
        labels=(
            _GPU_INDEX,
            _UUID,
            _MODEL,
            LabelColumn("simulated", "BOOLEAN", "True for a simulated GPU.", of_info=True),
        ),
        key=("{uuid}", "index {gpu_index}"),
        always=CORE_GPU_FIELDS,
    ),
    Table(
        "mig",
        "MIG instances",
        "one line for each instance, separate from those of its GPU",
        labels=(
            _GPU_INDEX,
            _UUID,
            _MODEL,
            LabelColumn("mig_uuid", "VARCHAR", "The instance's own name.", "mig"),
            LabelColumn("gpu_instance", "INTEGER", "Number of the GPU instance.", "gpu_instance"),
            LabelColumn("compute_instance", "INTEGER", "Number of the compute instance in it.", "compute_instance"),
        ),
        key=("{mig_uuid}",),
    ),
    Table("host", "The machine", "one line for each tick"),
    Table(
        "process",
        "Processes",
        "one line for each process, every 2 to 5 seconds",
        labels=(
            LabelColumn("pid", "BIGINT", "Process id.", "pid"),
            LabelColumn("parent_pid", "BIGINT", "Process id of its parent."),
            LabelColumn("user", "VARCHAR", "The user it runs as.", "user"),
            LabelColumn("command", "VARCHAR", "Its command line.", "command"),
            LabelColumn("container", "VARCHAR", "The container it runs in.", "container"),
            _GPU_INDEX,
            _UUID,
        ),
        key=("{pid}@{uuid}", "{pid}"),
        outlined=False,  # they come and go: nobody asks for those of last week
    ),
    Table(
        "training",
        "The training loop",
        "one line for each report of the training",
        labels=(_RANK, _TRAINING),
        key=("rank {rank}", "rank 0"),
        columns=(Column("nonfinite", "MAP(VARCHAR, VARCHAR)", "", "Fields that were nan, inf or -inf."),),
        held=True,
        from_training=True,
    ),
    Table(
        "account",
        "What a run has used",
        "one line for each tick: everything every 15 seconds and at the end, otherwise only energy",
        held=True,
    ),
)
"""Those whose lines are samples."""

EVENT_TABLE = Table(
    "events",
    "Events",
    "one line for each event",
    columns=(
        Column("kind", "VARCHAR", "", "What happened: gap, xid, gpu_lost, phase_end, ..."),
        Column("severity", "VARCHAR", "", "info, warning or critical."),
        Column("message", "VARCHAR", "", "The event in words."),
        *(label.column for label in (_GPU_INDEX, _UUID, _RANK, _TRAINING)),
        Column("phase", "VARCHAR", "", "The phase that began or ended."),
        Column("seconds", "DOUBLE", "seconds", "How long it took, or how much time is missing."),
        Column("source", "VARCHAR", "", "The source that missed ticks, failed or came back."),
        Column("ticks", "DOUBLE", "ticks", "How many readings were missed."),
        Column("xid", "DOUBLE", "", "Number of the driver's XID error."),
        Column("counter", "VARCHAR", "", "The energy counter concerned."),
        Column("pci_bus_id", "VARCHAR", "", "Address of a GPU that has no other name."),
        Column("lost_samples", "DOUBLE", "samples", "Lines that could not be written."),
        Column("rule", "VARCHAR", "", "The rule of an alert."),
        Column("alert", "VARCHAR", "", "Which alert: its rule, severity and subject."),
        Column("value", "DOUBLE", "", "The value that the rule found."),
        Column("advice", "VARCHAR", "", "What to do about it."),
        Column("silenced_by", "VARCHAR", "", "The alert that silenced this one, or the user."),
        Column("dropped_reports", "DOUBLE", "reports", "Reports of the training that were dropped."),
    ),
    segmented=False,  # they are few, and read by eye
)

TICK_TABLES = tuple(table.name for table in SAMPLE_TABLES if not table.from_training)
"""Those with a line for each reading: the watching process writes them."""
TABLES: dict[str, Table] = {table.name: table for table in (*SAMPLE_TABLES, EVENT_TABLE)}
"""All that a run's files hold, by name."""


HOST = TABLES["host"].subject({})
"""The subject of all lines of the machine."""
ACCOUNT = TABLES["account"].subject({})
"""The subject of all lines about what a run has used."""


def subject(table: str, labels: Mapping[str, Label]) -> Subject:
    """A subject of a table; what tells it apart from the others follows from its labels."""
    return TABLES[table].subject(labels)
