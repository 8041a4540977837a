"""Sends columns to a server: read and encoded here, packed and posted by a second thread meanwhile."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from pulsetrain.errors import PulsetrainError
from pulsetrain.outputs.backfill.bodies import Format, RemoteWrite, Request, VictoriaMetrics
from pulsetrain.outputs.backfill.columns import Recorded
from pulsetrain.outputs.backfill.standing import Column
from pulsetrain.outputs.points import Labels
from pulsetrain.outputs.push import remote_write
from pulsetrain.outputs.push.http import Client, PushError, Refused, Rejected
from pulsetrain.outputs.push.pusher import with_path
from pulsetrain.outputs.push.target import Target

WAITING_REQUESTS = 2
"""So many are ready while one is on its way."""
TRIES = 6
FIRST_WAIT_SECONDS = 0.5
"""After the first failure, and twice as long after each further one."""

Progress = Callable[[float, int], None]
"""Told which share of the run has been read, and how many samples have been sent."""


class Group(NamedTuple):
    """Series that are counted together: of one name, host and run."""

    name: str
    labels: Labels


class Sent:
    """What became of the samples."""

    def __init__(self) -> None:
        self.groups: Counter[Group] = Counter()
        self.series: set[tuple[str, Labels]] = set()
        self.first = self.last = 0
        """Milliseconds since the epoch."""
        self.samples = 0
        """That the server took, as it says."""
        self.refused = 0
        self.refusal: Refused | None = None
        """The first one."""
        self.unfit = 0
        """Values that the server cannot hold: they are not sent."""

    def note(self, column: Column) -> None:
        if len(column.times):
            of = tuple(label for label in column.labels if label[0] in ("host", "run"))
            self.groups[Group(column.name, of)] += len(column.times)
            self.series.add((column.name, column.labels))
            self.first = min(self.first or int(column.times.min()), int(column.times.min()))
            self.last = max(self.last, int(column.times.max()))


def send(hosts: Sequence[Recorded], target: Target, client: Client, progress: Progress, *, ended: bool) -> Sent:
    """Send all of a run; `ended` when its series are to end with it.

    The server is greeted with an empty request: a wrong password is told before anything is read.
    """
    sent = Sent()
    form = _format(target)
    poster = _Poster(client, sent)
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


def _format(target: Target) -> Format:
    if target.kind == "victoriametrics":
        return VictoriaMetrics(target.url)
    return RemoteWrite(with_path(target.url, remote_write.PATH))


def _requests(
    hosts: Sequence[Recorded], form: Format, sent: Sent, progress: Progress, ended: bool
) -> Iterator[Request]:
    windows = sum(len(host.windows) for host in hosts)
    read = size = 0
    batch: list[Column] = []
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

    def __init__(self, client: Client, sent: Sent) -> None:
        self._client = client
        self._sent = sent

    def post(self, request: Request, tries: int = TRIES) -> None:
        """What fails is tried again for some seconds; what is refused is counted."""
        body = request.pack(request.body)
        for number in range(1, tries + 1):
            try:
                self._client.post(request.url, body, request.headers)
                self._sent.samples += request.samples
                return
            except Refused as error:
                self._sent.refused += request.samples
                self._sent.refusal = self._sent.refusal or error
                return
            except PushError as error:
                if number == tries or isinstance(error, Rejected):
                    raise self._given_up(error) from None
                time.sleep(max(error.wait_seconds, FIRST_WAIT_SECONDS * 2 ** (number - 1)))

    def _given_up(self, error: PushError) -> PulsetrainError:
        sent = self._sent.samples
        still = f"{sent:,} samples were sent before." if sent else "Nothing was sent."
        return PulsetrainError(error.message, still=still, hint=error.hint)
