"""One stretch of watching: sources, their sampler, and all that gets its snapshots."""

from collections.abc import Mapping, Sequence

from pulsetrain.errors import PulsetrainError, Unavailable
from pulsetrain.outputs import Origin, Output, open_outputs
from pulsetrain.runs.folder import host_name
from pulsetrain.sampler import Consumer, Sampler
from pulsetrain.sources import Source
from pulsetrain.sources.opening import open_sources
from pulsetrain.supervise import Supervisor
from pulsetrain.watching.alerting import Alerting
from pulsetrain.watching.destinations import Destinations
from pulsetrain.watching.options import WatchOptions
from pulsetrain.watching.recording import RunClaim, RunRecording


class Session:
    """Reads this machine, and hands each snapshot to a run folder, to outputs, and to whoever is added.

    Its life: made (sources are opened), `open` (the run folder and the outputs are), `add` for views, `start`, `stop`,
    `finish`. Without a claim on a run nothing is recorded.
    """

    def __init__(self, options: WatchOptions, sources: Sequence[Source] = ()) -> None:
        """Opens every source that works on this machine, late ones while it runs; `sources` are read beside them."""
        self.options = options
        self.recording: RunRecording | None = None
        self.supervisor = Supervisor()
        """How the parts of this session are doing."""
        self._opened = open_sources(options.sources)
        self._sources = [*self._opened.sources, *sources]
        self._consumers: list[Consumer] = []
        self._sampler: Sampler | None = None
        self._outputs: list[Output] = []
        self._alerting: Alerting | None = None
        self._destinations: Destinations | None = None

    @property
    def unavailable(self) -> Mapping[str, Unavailable]:
        """The sources that do not work here, or not yet, and why, as of now."""
        return self._opened.unavailable

    @property
    def notices(self) -> list[str]:
        """Where what is served and sent can be found, for the user."""
        sending = self._destinations.notices if self._destinations else []
        return [output.notice for output in self._outputs if output.notice] + sending

    def open(self, claim: RunClaim | None = None) -> None:
        """Begin the run, and open the outputs. An error leaves nothing behind."""
        try:
            self._outputs = open_outputs(self.options.outputs, self.options.interval_seconds)
            if claim and self.options.to:
                self._destinations = Destinations(self.options.to)
            if claim:
                self.recording = RunRecording(claim, self.options, self._opened, self.supervisor)
                self._sources += self.recording.sources
                self._consumers.append(self.recording)
                if self._destinations:
                    alone = not claim.is_sent_by_another
                    self._destinations.open(
                        claim.folder,
                        self.supervisor,
                        owner=claim.is_new and alone,
                        tracks=claim.writes_run and alone,
                    )
        except PulsetrainError:
            self.close()
            if claim:
                claim.give_up()
            raise
        self._consumers += self._outputs

    def close(self) -> None:
        """Close the sources and outputs of a session that will not start after all."""
        self._opened.close()
        for output in self._outputs:
            output.close()

    def add(self, consumer: Consumer) -> None:
        """Give each snapshot to a view as well; before `start`."""
        self._consumers.append(consumer)

    def start(self) -> None:
        """Read sources from now on, in threads of their own."""
        recording = self.recording
        run, folder = (recording.run, recording.host_folder) if recording else (None, None)
        origin = Origin(host_name(), run, folder, self.supervisor)
        for output in self._outputs:
            output.start(origin)
        if self._destinations:
            self._destinations.start()
        self._alerting = Alerting(self.options, origin)
        self._alerting.start()
        self._sampler = Sampler(
            self._sources,
            self.options.interval_seconds,
            self._consumers,
            started=recording.started if recording else None,
            stages=[recording.account, self._alerting] if recording else [self._alerting],
            supervisor=self.supervisor,
            opened=self._opened,
        )
        self._sampler.start()

    def watch_process(self, pid: int | None) -> None:
        """The process that actions on alerts are about, while it runs."""
        if self._alerting:
            self._alerting.watch(pid)

    def stop(self) -> None:
        """Read every source once more, and then no longer."""
        if self._sampler:
            self._sampler.stop()
        if self._alerting:
            self._alerting.stop()

    def finish(self, status: str = "finished", exit_code: int | None = None) -> None:
        """Write how the run ended, then close the outputs, which send what is left for a few seconds; after `stop`."""
        if self.recording:
            self.recording.finish(status, exit_code)
        part = self.supervisor.part("outputs")
        if self._destinations:
            with part.attempt("the end of sending"):
                self._destinations.finish()
        if self._alerting:
            with part.attempt("the last notification"):
                self._alerting.finish(status, exit_code)
        for output in self._outputs:
            with part.attempt("the end of an output"):  # the exit code of a command matters more
                output.close()
