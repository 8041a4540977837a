"""Where a run is sent while it is recorded: at most one store for `pulsetrain fetch`, and any number of trackers."""

import logging
from collections.abc import Sequence

from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.outputs.trackers import EXAMPLES as TRACKERS
from pulsetrain.outputs.trackers import is_tracker, parse_tracker
from pulsetrain.runs.folder import RunFolder
from pulsetrain.supervise import Supervisor
from pulsetrain.training.masking import masked_message
from pulsetrain.transfer.shipper import Shipper
from pulsetrain.transfer.store import EXAMPLES as STORES
from pulsetrain.transfer.store import Store, UnknownStore, open_store
from pulsetrain.watching.tracker_process import TrackerProcess

log = logging.getLogger(__name__)


def store_of(places: Sequence[str]) -> str:
    """The store among these places; empty where there is none."""
    return next((place for place in places if not is_tracker(place)), "")


def check_place(place: str) -> None:
    """UsageError for a place that cannot be used. Nothing is sent or asked yet."""
    if is_tracker(place):
        parse_tracker(place)
    else:
        _opened(place).close()


def _opened(place: str) -> Store:
    try:
        return open_store(place)
    except UnknownStore as error:
        raise UsageError(
            error.message, hint=f"Use one of {', '.join(STORES)}, or a tracker: {', '.join(TRACKERS)}."
        ) from None


class Destinations:
    """All that `--to` names. Made before the run: a place that cannot be used is a UsageError."""

    def __init__(self, places: Sequence[str]) -> None:
        self._trackers = [parse_tracker(place) for place in places if is_tracker(place)]
        stores = [place for place in places if not is_tracker(place)]
        if len(stores) > 1:
            raise UsageError(
                f"a run can be sent to only one store, but {len(stores)} were given.",
                hint=f"Use one of {', '.join(STORES)}, plus any of {', '.join(TRACKERS)}.",
            )
        self._places = [masked_message(place) for place in places]
        self._store_place = masked_message(stores[0]) if stores else ""
        self._store: Store | None = _opened(stores[0]) if stores else None
        self._shipper: Shipper | None = None
        self._processes: list[TrackerProcess] = []

    @property
    def notices(self) -> list[str]:
        return [f"sending the run to {place}" for place in self._places]

    def open(self, folder: RunFolder, supervisor: Supervisor, *, owner: bool, tracks: bool) -> None:
        """Take the run folder to send. One process `tracks` a run of several hosts: the one that writes run.json."""
        try:
            if self._store is not None:
                self._shipper = Shipper(folder, self._store, self._store_place, owner=owner, supervisor=supervisor)
        except OSError as error:
            raise PulsetrainError(f"the run cannot be sent from {folder}: {error.strerror}.") from None
        if tracks:
            self._processes = [TrackerProcess(folder, target, supervisor) for target in self._trackers]

    def start(self) -> None:
        if self._shipper:
            self._shipper.start()
        for process in self._processes:
            process.start()

    def finish(self) -> None:
        """The run has ended and all is in its folder: send what is left, to all at once. Logs what was not sent."""
        for process in self._processes:
            process.end()
        left = [self._shipper.close()] if self._shipper else []
        for words in filter(None, [*left, *(process.wait() for process in self._processes)]):
            log.warning("%s", words)
