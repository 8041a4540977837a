"""Sends columns to a server: read and encoded here, packed and posted by a second thread meanwhile."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from pulsetrain.errors import PulsetrainError
from pulsetrain.outputs.backfill.bodies import BackfillRequest, BodyFormat, RemoteWriteFormat, VictoriaMetricsFormat
from pulsetrain.outputs.backfill.columns import HostSeries
from pulsetrain.outputs.backfill.held import HeldSamples
from pulsetrain.outputs.backfill.staleness import NOTHING, SeriesColumn
from pulsetrain.outputs.points import Labels
from pulsetrain.outputs.push import remote_write
from pulsetrain.outputs.push.http import Client, PushError, Refused, Rejected
from pulsetrain.outputs.push.target import PushTarget, with_path

WAITING_REQUESTS = 2
"""So many are ready while one is on its way."""
TRIES = 6
MOST_PARTS = 200
"""The most requests that a refused one is split into."""
FIRST_WAIT_SECONDS = 0.5
"""After the first failure, and twice as long after each further one."""

Progress = Callable[[float, int], None]
"""Told which share of the run has been read, and how many samples have been sent."""


class SeriesGroup(NamedTuple):
    """Series that are counted together: of one name, host and run."""

    name: str
    labels: Labels


class SentTally:
    """What became of the samples."""

    def __init__(self) -> None:
        self.groups: Counter[SeriesGroup] = Counter()
        self.series: set[tuple[str, Labels]] = set()
        self.first = self.last = 0
        """Milliseconds since the epoch."""
        self.samples = 0
        """That the server took, as it says."""
        self.there = 0
        """That the server had already, so that they were not sent again."""
        self.refused = 0
        self.refusal: Refused | None = None
        """The first one."""
        self.unfit = 0
        """Values that the server cannot hold: they are not sent."""

    def note(self, column: SeriesColumn) -> None:
        if len(column.times):
            of = tuple(label for label in column.labels if label[0] in ("host", "run"))
            self.groups[SeriesGroup(column.name, of)] += len(column.times)
            self.series.add((column.name, column.labels))
            self.first = min(self.first or int(column.times.min()), int(column.times.min()))
            self.last = max(self.last, int(column.times.max()))


def send(
    hosts: Sequence[HostSeries],
    target: PushTarget,
    client: Client,
    progress: Progress,
    held: HeldSamples | None,
    *,
    ended: bool,
) -> SentTally:
    """Send all of a run; `ended` when its series are to end with it. `held` knows what is there, where it can be asked.

    The server is greeted with an empty request: a wrong password is reported before anything is read.
    """
    sent = SentTally()
    form = _format(target)
    poster = _Poster(client, sent, form, held)
    for request in form.requests([]):
        poster.post(request, tries=1)
    thread = ThreadPoolExecutor(1, "send")
    waiting: deque[Future[None]] = deque()
    try:
        for request in _requests(hosts, form, sent, progress, ended):
            waiting.append(thread.submit(poster.post, request))
            if len(waiting) > WAITING_REQUESTS:
                waiting.popleft().result()
        for future in waiting:
            future.result()
    finally:
        thread.shutdown(cancel_futures=True)
    return sent


def _format(target: PushTarget) -> BodyFormat:
    if target.kind == "victoriametrics":
        return VictoriaMetricsFormat(target.url)
    return RemoteWriteFormat(with_path(target.url, remote_write.PATH))


def _requests(
    hosts: Sequence[HostSeries], form: BodyFormat, sent: SentTally, progress: Progress, ended: bool
) -> Iterator[BackfillRequest]:
    windows = sum(len(host.windows) for host in hosts)
    read = size = 0
    batch: list[SeriesColumn] = []
    for host in hosts:
        for window in host.windows:
            progress(read / windows, sent.samples)
            for column in host.columns(window):
                fit = form.fit(column)
                sent.unfit += len(column.times) - len(fit.times)
                sent.note(fit)
                batch.append(fit)
                size += len(fit.times)
                if size >= form.samples:
                    yield from form.requests(batch)
                    batch, size = [], 0
            read += 1
        if ended:
            batch += host.end()
    if batch:
        yield from form.requests(batch)


class _Poster:
    """Posts one request after the other."""

    def __init__(self, client: Client, sent: SentTally, form: BodyFormat, held: HeldSamples | None) -> None:
        self._client = client
        self._sent = sent
        self._form = form
        self._held = held

    def post(self, request: BackfillRequest, tries: int = TRIES) -> None:
        """What fails is tried again for some seconds. What is refused is sent again without what is there, in parts."""
        refusal = self._post(request, tries)
        if refusal and self._held and request.columns:
            missing = self._held.missing(request.columns)
            self._sent.there += missing.there
            for columns in (missing.newer, missing.older):
                if columns:
                    self._post_in_parts(columns)
        elif refusal:
            self._refuse(request.samples, refusal)

    def _post_in_parts(self, columns: list[SeriesColumn]) -> None:
        parts, requests = [columns], 0
        while parts:
            part = parts.pop()
            for request in self._form.requests(part):
                requests += 1
                refusal = self._post(request, TRIES)
                if refusal is None:
                    continue
                smaller = _halves(part) if requests < MOST_PARTS else None
                if smaller:
                    parts += reversed(smaller)
                else:
                    self._refuse(request.samples, refusal)

    def _refuse(self, samples: int, refusal: Refused) -> None:
        self._sent.refused += samples
        self._sent.refusal = self._sent.refusal or refusal

    def _post(self, request: BackfillRequest, tries: int) -> Refused | None:
        """Why it was refused, if it was."""
        body = request.pack(request.body)
        for number in range(1, tries + 1):
            try:
                self._client.post(request.url, body, request.headers)
                self._sent.samples += request.samples
                return None
            except Refused as error:
                return error
            except PushError as error:
                if number == tries or isinstance(error, Rejected):
                    raise self._given_up(error) from None
                time.sleep(max(error.wait_seconds, FIRST_WAIT_SECONDS * 2 ** (number - 1)))
        return None

    def _given_up(self, error: PushError) -> PulsetrainError:
        sent = self._sent.samples
        still = f"{sent:,} samples were sent before." if sent else "Nothing was sent."
        return PulsetrainError(error.message, still=still, hint=error.hint)


def _halves(columns: list[SeriesColumn]) -> tuple[list[SeriesColumn], list[SeriesColumn]] | None:
    """Two parts of these series; None when it is a single sample."""
    if len(columns) > 1:
        middle = len(columns) // 2
        return columns[:middle], columns[middle:]
    (one,) = columns
    middle = len(one.times) // 2
    if not middle:
        return None
    first = one._replace(times=one.times[:middle], values=one.values[:middle], ends=NOTHING)
    return [first], [one._replace(times=one.times[middle:], values=one.values[middle:])]
