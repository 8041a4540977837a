"""The alerts of a session: the engine over its snapshots, what the user is silent about, messages and actions."""

from pulsetrain.alerts.actions import Actions
from pulsetrain.alerts.engine import AlertEngine
from pulsetrain.alerts.notifier import Notifier
from pulsetrain.alerts.run_end import EndFigures
from pulsetrain.alerts.silences import SilencesFile, silences_file
from pulsetrain.outputs import Origin
from pulsetrain.snapshot import Snapshot
from pulsetrain.watching.options import WatchOptions


class Alerting:
    """Hands snapshots on with the alerts that begin and end at them, from `start` to `finish`."""

    def __init__(self, options: WatchOptions, origin: Origin) -> None:
        self._origin = origin
        self._notify = options.notify
        self._figures = EndFigures()
        self._silences = SilencesFile(silences_file(), origin.supervisor)
        self._engine = AlertEngine(options.thresholds, origin.labels, self._silences)
        self._actions: Actions | None = None
        if options.on_alert:
            run = origin.run.id if origin.run else None
            self._actions = Actions(options.on_alert, origin.supervisor, run)
        self._notifier: Notifier | None = None
        if options.notify_urls:
            about = f"{origin.run.name} on {origin.host}" if origin.run else origin.host
            self._notifier = Notifier(options.notify, options.notify_urls, about, origin.supervisor)

    def start(self) -> None:
        for part in (self._silences, self._actions, self._notifier):
            if part:
                part.start()

    def watch(self, pid: int | None) -> None:
        """The process that actions are about, while it runs."""
        if self._actions:
            self._actions.pid = pid

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        snapshot = self._engine(snapshot)
        if self._actions:
            snapshot = self._actions(snapshot)
        if self._notifier:
            self._notifier(snapshot)
            self._figures(snapshot)
        return snapshot

    def stop(self) -> None:
        self._silences.stop()
        if self._actions:
            self._actions.stop()

    def finish(self, status: str, exit_code: int | None) -> None:
        """Tell people what is left, and how the run ended. It takes some seconds at most."""
        if not self._notifier:
            return
        run, wanted = self._origin.run, self._notify.finished if status == "finished" else self._notify.failed
        last = self._figures.message(run.name, self._origin.host, status, exit_code) if run and wanted else None
        self._notifier.close(last)
