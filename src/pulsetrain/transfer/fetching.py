"""Pulls what is new from a store and puts runs together: `pulsetrain fetch`."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home, RunFolder
from pulsetrain.transfer.assemble import Assembly, Gap
from pulsetrain.transfer.segments import BadSegment, Segment, is_word, parse_name, read_segment
from pulsetrain.transfer.store import Store, StoreError

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
"""How long a segment is waited for that others have overtaken."""
AT_ONCE = 16
"""Segments that are fetched beside each other."""
Names = dict[int, list[str]]
"""Names of segments, by their numbers."""


@dataclass
class FetchedRun:
    """What a look at the store has brought of one run."""

    folder: RunFolder
    segments: int = 0
    bytes: int = 0
    gaps: list[Gap] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """What has not arrived, or not whole, in words."""
    refused: str = ""
    """Why nothing was fetched."""
    created: float = 0.0
    """When the newest segment was cut, by the clock of its writer; 0 when none ever came."""
    age_seconds: float = 0.0
    """Age of the newest segment, by both clocks: negative when the other one is ahead."""


class Fetcher:
    """Looks into a store again and again."""

    def __init__(
        self,
        store: Store,
        home: Home,
        *,
        only: Collection[str] = (),
        patience_seconds: float = PATIENCE_SECONDS,
        rebuild: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`only` are ids of runs, or the beginnings of some.

        With `rebuild`, a segment that comes after its gap was named fills it: the store still has all others.
        """
        self._rebuild = rebuild
        self._store = store
        self._home = home
        self._only = tuple(only)
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._missing_since: dict[tuple[str, str, int], float] = {}
        self._looked: set[str] = set()
        """Runs whose old segments are all here."""
        self._bad: set[str] = set()
        """Checksums of segments that cannot be applied."""
        self._executor = ThreadPoolExecutor(AT_ONCE, "fetch")
        self.seconds = 0.0
        """How long the last look took."""

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)
        self._store.close()

    def look(self, *, last: bool = False) -> list[FetchedRun]:
        """Fetch what is new. At the `last` look, nothing that is missing is waited for any longer."""
        began = self._clock()
        runs = sorted(filter(is_word, self._store.list("")))
        found = [self.fetch(run, last=last) for run in runs if not self._only or run.startswith(self._only)]
        self.seconds = self._clock() - began
        return found

    def fetch(self, run: str, *, last: bool = False) -> FetchedRun:
        """Fetch what is new of one run."""
        fetched = FetchedRun(RunFolder(self._home.path / run))
        try:
            with Assembly(fetched.folder) as assembly:
                for writer in sorted(filter(is_word, self._store.list(run))):
                    self._fetch_writer(assembly, fetched, run, writer, last=last)
                    fetched.created = max(fetched.created, assembly.progress(writer).created)
        except StoreError:
            raise
        except PulsetrainError as error:
            fetched.refused = error.message
        except OSError as error:
            fetched.refused = f"{fetched.folder} cannot be written: {error.strerror}."
        self._looked.add(run)
        fetched.age_seconds = time.time() - fetched.created
        return fetched

    def _fetch_writer(self, assembly: Assembly, fetched: FetchedRun, run: str, writer: str, *, last: bool) -> None:
        at = assembly.progress(writer)
        missed = {seq for gap in at.gaps for seq in range(gap.first, gap.last + 1)} if self._rebuild else set()
        names = self._names(run, writer, min([at.next, *missed]))
        if any(self._valid(run, writer, names[seq]) for seq in missed & names.keys()):
            log.warning("segments of %s arrived late: rebuilding the run", run)
            assembly.restart()
            names = self._names(run, writer, 1)
        while (at := assembly.progress(writer)) and (waiting := sorted(seq for seq in names if seq >= at.next)):
            applied = self._apply(assembly, fetched, run, writer, names, waiting[:AT_ONCE])
            if applied:
                continue
            if not self._give_up(assembly, fetched, run, writer, names, waiting, last=last):
                return

    def _apply(
        self, assembly: Assembly, fetched: FetchedRun, run: str, writer: str, names: Names, numbers: Sequence[int]
    ) -> bool:
        """Apply what follows without a gap; whether anything did."""
        applied = False
        candidates = self._executor.map(lambda seq: self._valid(run, writer, names[seq]), numbers)
        for seq, found in zip(numbers, candidates, strict=True):
            fitting = [segment for segment in found if assembly.fits(segment)]
            if seq != assembly.progress(writer).next or not fitting:
                break
            segment = fitting[0] if len(fitting) == 1 else self._named_by_next(run, writer, names, seq, fitting)
            if segment is None:
                break
            try:
                assembly.apply(segment, self._moved(run, segment))
            except BadSegment as error:  # whole, but not of this run: as if it had not come
                log.warning("segment %d of %s: %s", seq, run, error.message)
                self._bad.add(segment.checksum)
                return True
            self._missing_since.pop((run, writer, seq), None)
            fetched.segments += 1
            fetched.bytes += len(segment.content)
            applied = True
        return applied

    def _give_up(
        self,
        assembly: Assembly,
        fetched: FetchedRun,
        run: str,
        writer: str,
        names: Names,
        waiting: Sequence[int],
        *,
        last: bool,
    ) -> bool:
        """Whether the next segment is waited for no longer: then there is a gap, and what follows can be applied."""
        missing = assembly.progress(writer).next
        since = self._missing_since.setdefault((run, writer, missing), self._clock())
        if last or self._clock() - since >= self._patience_seconds:
            following = next(self._after(run, writer, names, [seq for seq in waiting if seq > missing]), None)
            if following:
                fetched.gaps.append(assembly.skip(writer, following))
                return True
        fetched.waiting.append(f"segment {missing} of {writer}")
        return False

    def _after(self, run: str, writer: str, names: Names, numbers: Sequence[int]) -> Iterator[Segment]:
        for seq in numbers:
            found = self._valid(run, writer, names[seq])
            if len(found) > 1:
                named = self._named_by_next(run, writer, names, seq, found)
                found = [named] if named else []
            yield from found

    def _named_by_next(
        self, run: str, writer: str, names: Names, seq: int, candidates: Sequence[Segment]
    ) -> Segment | None:
        """Of several segments with one number, the one that the next segment names; None while there is none."""
        named = {segment.header.previous for segment in self._valid(run, writer, names.get(seq + 1, []))}
        found = [segment for segment in candidates if segment.checksum in named]
        return found[0] if len(found) == 1 else None

    def _names(self, run: str, writer: str, first: int) -> Names:
        """All segments from this number on."""
        names: Names = {}
        for name in self._store.list(f"{run}/{writer}", after=f"{first:08}"):
            parsed = parse_name(name)
            if parsed and parsed.seq >= first:
                names.setdefault(parsed.seq, []).append(name)
        return names

    def _valid(self, run: str, writer: str, names: Sequence[str]) -> list[Segment]:
        """Those that are whole. One that is not may still be on its way."""
        found = {}
        for name in sorted(names):
            try:
                segment = read_segment(self._store.get(f"{run}/{writer}/{name}"), run, writer, name)
            except BadSegment as error:
                log.info("%s", error.message)
                continue
            if segment.checksum not in self._bad:
                found[segment.checksum] = segment
        return list(found.values())

    def _moved(self, run: str, segment: Segment) -> float | None:
        """When files shall seem to have been written: what is old does not make a run seem to live."""
        return None if run in self._looked else min(time.time(), segment.header.created)


def follow(
    fetcher: Fetcher, stopped: Callable[[float], bool], every_seconds: float, told: Callable[[list[FetchedRun]], None]
) -> None:
    """Look again and again until `stopped`, which waits for so many seconds, says so. One that fails is asked again."""
    wait, trouble = every_seconds, ""
    while True:
        try:
            told(fetcher.look())
            if trouble:
                log.warning("fetching works again")
            wait, trouble = every_seconds, ""
        except StoreError as error:
            if error.message != trouble:
                trouble = error.message
                log.warning("%s", error)
            wait = max(min(2 * wait, 60.0), error.wait_seconds)
        if stopped(wait):
            return
