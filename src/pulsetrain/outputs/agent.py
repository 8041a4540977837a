"""The exporter of a whole machine: its own readings, and every run on it, whoever started it."""

from collections.abc import Sequence

from pulsetrain.outputs import Origin
from pulsetrain.outputs.prometheus import Exporter
from pulsetrain.runs.node import Node
from pulsetrain.snapshot import Snapshot


class Agent:
    """An output that shows other processes' runs, found in folders, beside what it is called with."""

    def __init__(self, exporter: Exporter, run_folders: Sequence[str]) -> None:
        self._exporter = exporter
        self._run_folders = run_folders
        self._node: Node | None = None

    @property
    def notice(self) -> str:
        return self._exporter.notice

    def start(self, origin: Origin) -> None:
        self._exporter.start(origin)
        own = origin.run.id if origin.run else None
        self._node = Node(self._run_folders, self._exporter.follow, but=own)
        self._node.start()

    def __call__(self, snapshot: Snapshot) -> None:
        self._exporter(self._node.attributed(snapshot) if self._node else snapshot)

    def close(self) -> None:
        if self._node:
            self._node.stop()
        self._exporter.close()
