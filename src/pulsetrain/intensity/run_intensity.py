"""The carbon intensities of a run, in its folder: looked up during the run, and again when a report asks for them."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from pulsetrain.intensity.cache import FRESH, Cache, keeps, write_json
from pulsetrain.intensity.slots import IntensityError, Provider, ProviderFacts, Slot, gaps, merged
from pulsetrain.regular_files import read_description
from pulsetrain.supervise import Supervisor, Worker
from pulsetrain.untrusted import showable_json

CARBON_JSON = "carbon.json"
REFRESH_SECONDS = 1800.0
RETRY_SECONDS = 300.0
"""After a failure."""
STUCK_AFTER_SECONDS = 300.0
"""Providers are given up long before this."""
NEAR = timedelta(hours=24)
"""How far from a run a value may lie that stands in when there is no other."""
AHEAD = timedelta(hours=48)

log = logging.getLogger(__name__)


class RunIntensity(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What `carbon.json` holds: all that is needed to count a run, wherever its folder is taken."""

    provider: ProviderFacts
    slots: list[Slot] = []
    """Of the run's time and, where it is foreseen, of the two days after; in order of time."""
    problem: str = ""
    """Why the last question had no answer."""


def look_up(
    provider: Provider,
    start: datetime,
    end: datetime,
    *,
    before: RunIntensity | None = None,
    cache: Cache | None = None,
) -> RunIntensity:
    """The intensities of a run: what is known already, and from the provider what is missing or may have changed.

    It takes as long as the provider does. A failure becomes a `problem`, not an exception, and what is known stays.
    """
    about = provider.about
    if not provider.has_slots:
        return RunIntensity(provider=about)
    cache = cache or Cache()
    now = datetime.now(UTC)
    known = merged(cache.load(about.spec), before.slots if before and before.provider.spec == about.spec else [])
    problem = ""
    try:
        new = _ask(provider, known, start, end, now)
    except IntensityError as error:
        new, problem = [], " ".join(filter(None, (error.message, error.hint)))
    if new:
        cache.store(about.spec, new)
    margin = NEAR if problem else timedelta(0)
    wanted = (start - margin, max(end + margin, now + AHEAD))
    kept = [slot for slot in merged(known, new) if slot.end > wanted[0] and slot.start < wanted[1]]
    return RunIntensity(provider=about, slots=kept, problem=problem)


def _ask(provider: Provider, known: list[Slot], start: datetime, end: datetime, now: datetime) -> list[Slot]:
    """One question for all between the first and the last moment without a lasting value, and one for the forecast."""
    missing = list(gaps((slot for slot in known if keeps(slot, now)), start, min(end, now)))
    new = provider.slots(missing[0][0], missing[-1][1]) if missing else []
    foreseen = any(slot.start > now and now - slot.fetched < FRESH for slot in known)
    if provider.has_forecast and not foreseen:
        try:
            new = merged(provider.forecast(), new)
        except IntensityError as error:  # not every account may see it, and the run can be counted without
            log.debug("no forecast of carbon intensity: %s", error)
    return new


def load_run_intensity(folder: Path) -> RunIntensity | None:
    """What a run folder has; None if it has none, or one that cannot be read."""
    file = folder / CARBON_JSON
    try:
        return showable_json(read_description(file), RunIntensity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("%s cannot be read, and is not used: %s", file, error)
        return None


def refresh_run_intensity(
    folder: Path, provider: Provider, start: datetime, end: datetime, *, cache: Cache | None = None
) -> RunIntensity:
    """Ask again for a recorded run, and keep the answer with it: what was a forecast has become actual."""
    intensity = look_up(provider, start, end, before=load_run_intensity(folder), cache=cache)
    _save(folder, intensity)
    return intensity


def _save(folder: Path, intensity: RunIntensity) -> None:
    """A folder that is gone or cannot be written does not end a run or a report."""
    try:
        write_json(folder / CARBON_JSON, intensity)
    except OSError as error:
        log.warning("the carbon intensities could not be written to %s: %s", folder, error.strerror)


class IntensityUpdater:
    """Keeps carbon.json of a run in progress up to date. A thread asks the provider: a slow answer delays nothing."""

    def __init__(
        self,
        folder: Path,
        provider: Provider,
        start: datetime,
        *,
        cache: Cache | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._folder, self._provider, self._start_time, self._cache = folder, provider, start, cache
        self._part = (supervisor or Supervisor()).part("carbon", STUCK_AFTER_SECONDS)
        self._worker = Worker(
            self._part, self._update, every_seconds=RETRY_SECONDS, what=f"asking {provider.about.source}"
        )
        self.latest = RunIntensity(provider=provider.about)
        """What is known by now."""

    def start(self) -> None:
        _save(self._folder, self.latest)
        if self._provider.has_slots:
            self._worker.start()

    def stop(self, seconds: float = 1.0) -> None:
        """Wait for an answer that is on its way, but not for long."""
        self._worker.stop(seconds)

    def _update(self) -> float:
        """Ask once; returns when to ask again."""
        before, now = self.latest, datetime.now(UTC)
        start = min(self._start_time, now)  # the clock may have been set back
        self.latest = look_up(self._provider, start, now, before=before, cache=self._cache)
        if self.latest.problem and not before.problem:
            log.warning("carbon intensity: %s", self.latest.problem)
        elif before.problem and not self.latest.problem:
            log.info("carbon intensity: %s answers again", self._provider.about.source)
        if not self.latest.problem:
            self._part.recover()
        elif before.problem:  # at least twice in a row
            self._part.fail(self.latest.problem, logged=True)
        _save(self._folder, self.latest)
        return RETRY_SECONDS if self.latest.problem else REFRESH_SECONDS
