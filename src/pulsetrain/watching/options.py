"""How to watch: the same for a command, a process and the machine alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pulsetrain.alerts.actions import AlertAction
from pulsetrain.outputs import OutputOptions
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds
from pulsetrain.runs.folder import CountingOptions
from pulsetrain.settings import Notify
from pulsetrain.sources import Options


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """What is read and how often, what its run is called and where it is kept, and where readings go beside it."""

    sources: Options = field(default_factory=Options)
    interval_seconds: float = 1.0
    """Time between two ticks."""
    name: str | None = None
    """Of the run; by default it is derived from the command."""
    project: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the training, as `pulsetrain.init` got them."""
    directory: str | None = None
    """Where runs are kept; by default $PULSETRAIN_HOME/runs."""
    to: Sequence[str] = ()
    """Where the run is sent while it is recorded: a store (docs/transfer.md), and trackers (docs/trackers.md)."""
    shared: bool = False
    """Whether the user's group may read the run."""
    private: bool = False
    """Whether to record neither the command line nor anything of the code."""
    account: CountingOptions = field(default_factory=CountingOptions)
    thresholds: Thresholds = DEFAULTS
    """What values are compared with, live."""
    outputs: OutputOptions = field(default_factory=OutputOptions)
    notify: Notify = field(default_factory=Notify)
    """What is sent to people."""
    notify_urls: Sequence[str] = field(default=(), repr=False)
    """To whom; secrets."""
    on_alert: Sequence[AlertAction] = ()
    """What is done when an alert fires."""
