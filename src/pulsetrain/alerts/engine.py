"""The live engine: evaluates the rules over the snapshots of a machine, and adds alerts to them as events.

A condition that is true of a subject is *pending* until it has held as long as its rule says, then the alert *fires*
until the condition, with the margin of its rule, has not been true for `CLEAR`: then it is *resolved*. While it fires
it is one alert, however often it is evaluated. One that is silenced by the user, or by a graver one about the same, is
not shown.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass

from pulsetrain.alerts.inhibitions import inhibited
from pulsetrain.alerts.present import LiveSignals
from pulsetrain.alerts.silences import Silence
from pulsetrain.catalog import ACCOUNT
from pulsetrain.live import Live
from pulsetrain.rules.alert import FIRING, RESOLVED, SILENCED, alert_details
from pulsetrain.rules.declared import RULES
from pulsetrain.rules.evaluate import Evaluator
from pulsetrain.rules.expression import Signal, walk
from pulsetrain.rules.labels import LabelSet, Vector
from pulsetrain.rules.rule import CLEAR, Rule
from pulsetrain.rules.text import filled
from pulsetrain.rules.thresholds import Thresholds, duration_seconds
from pulsetrain.snapshot import Event, Label, Sample, Snapshot

HELD_RULES_SECONDS = 10.0
"""Rules that must hold for minutes are looked at so often."""
MOST_ALERTS = 500
"""So many pending and firing ones are kept for each kind of rules; whatever is wrong then is seen without more."""
_CLEAR_SECONDS = duration_seconds(CLEAR)
_Key = tuple[str, str, LabelSet]
"""A rule's name and severity, and the subject. A subject's set of labels is one object."""


@dataclass(slots=True, eq=False)
class LiveAlert:
    """What the engine knows of one rule and one subject."""

    rule: Rule
    labels: LabelSet
    since: float
    """When its condition became true, in elapsed seconds."""
    true_at: float
    """When it was last true."""
    value: float
    fired_at: float | None = None
    """None while it is pending."""
    shown: bool = False
    """Whether it was recorded as firing, and nothing since."""

    @property
    def series_labels(self) -> dict[str, str]:
        """As Prometheus labels its alerts."""
        return {**self.labels.mapping, "alertname": self.rule.name, "severity": self.rule.severity}


class AlertEngine:
    """Hands snapshots on, with the alerts that begin and end at them. Memory is bounded by rules and subjects."""

    def __init__(
        self,
        thresholds: Thresholds,
        scope: dict[str, str],
        silences: Callable[[], Sequence[Silence]] = tuple,
        rules: Sequence[Rule] = RULES,
    ) -> None:
        """`scope` are the labels of all series: the host, and the run if one is recorded.

        `silences` is asked at each tick and gives the same object until the user changes them.
        """
        self._thresholds = thresholds
        self._run = scope.get("run")
        self._silences_now = silences
        self._silences: Sequence[Silence] = ()
        self._live = Live(rates=False)
        signals = LiveSignals(self._live, scope)
        self._watches = [
            _RuleWatch(some, thresholds, signals, every_seconds, table)
            for some, every_seconds, table in _by_pace(rules, thresholds)
        ]
        self._wanted = _fields(rules)
        self._evaluated_at = -1.0
        self._quiet_until = 0.0
        """When a silence ends; the wall clock says."""

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        self._live(snapshot._replace(samples=tuple(self._needed(snapshot))))
        if snapshot.elapsed <= self._evaluated_at:  # a late reading
            return snapshot
        self._evaluated_at = snapshot.elapsed
        tables = {sample.subject.table for sample in snapshot.samples}
        changed = [watch.look(snapshot.elapsed, tables) for watch in self._watches]
        if not (any(changed) or self._silences_changed(snapshot.time)):
            return snapshot
        events = tuple(self._news(snapshot))
        return snapshot._replace(events=(*snapshot.events, *events)) if events else snapshot

    @property
    def size(self) -> int:
        """How many alerts and past samples it keeps."""
        return sum(len(watch.alerts) + watch.evaluator.kept_samples for watch in self._watches)

    def _needed(self, snapshot: Snapshot) -> Iterator[Sample]:
        """What the rules read: most of a sample is of no use to them, and to keep it up costs more than they do."""
        for subject, values in snapshot.samples:
            wanted = self._wanted.get(subject.table)
            if wanted is not None:
                yield Sample(subject, {field: values[field] for field in wanted if field in values})

    def _silences_changed(self, time: float) -> bool:
        now = self._silences_now()
        if now is self._silences and time < self._quiet_until:
            return False
        self._silences = now
        ends = [silence.until for silence in now if silence.until is not None and silence.until > time]
        self._quiet_until = min(ends, default=float("inf"))
        return True

    def _news(self, snapshot: Snapshot) -> Iterator[Event]:
        """What has changed in what is shown."""
        now = snapshot.elapsed
        for watch in self._watches:
            for alert in watch.take_resolved():
                if alert.shown:
                    yield self._event(RESOLVED, alert, seconds=round(now - (alert.fired_at or now), 3))
        firing = {alert: alert.series_labels for watch in self._watches for alert in watch.firing()}
        quiet = {alert: by.rule.name for alert, by in inhibited(firing).items()}
        for alert in firing:
            silence = next((one for one in self._silences if one.applies(alert.rule, self._run, snapshot.time)), None)
            by = "the user" if silence else quiet.get(alert)
            if by is None and not alert.shown:
                alert.shown = True
                yield self._event(FIRING, alert, advice=alert.rule.advice, seconds=round(now - alert.since, 3))
            elif by is not None and alert.shown:
                alert.shown = False
                yield self._event(SILENCED, alert, silenced_by=by)

    def _event(self, kind: str, alert: LiveAlert, **more: Label | float) -> Event:
        rule = alert.rule
        text = filled(rule.summary, alert.labels.mapping, alert.value, self._thresholds)
        before = {FIRING: "", RESOLVED: "Resolved: ", SILENCED: f"Silenced by {more.get('silenced_by')}: "}[kind]
        details = {**alert_details(rule, alert.labels), "value": alert.value, **more}
        return Event(kind, before + text, rule.severity if kind == FIRING else "info", details)


class _RuleWatch:
    """Rules that are evaluated equally often, and the alerts they make."""

    def __init__(
        self,
        rules: Sequence[Rule],
        thresholds: Thresholds,
        signals: LiveSignals,
        every_seconds: float,
        table: str | None = None,
    ) -> None:
        """`table` is the one that all of them read, if it is one: nothing is new without a line of it."""
        self.evaluator = Evaluator(rules, thresholds)
        self.alerts: dict[_Key, LiveAlert] = {}
        self._signals = signals
        self._every_seconds = every_seconds
        self._table = table
        self._due = 0.0
        self._resolved: list[LiveAlert] = []
        self._hold_seconds = {
            (rule.name, rule.severity): duration_seconds(rule.hold_in(thresholds)) for rule in self.evaluator.rules
        }

    def look(self, now: float, tables: Set[str]) -> bool:
        """Evaluate the rules if it is time; whether an alert begins to fire or is resolved.

        `tables` are those of which there are new lines.
        """
        if now < self._due or (self._table is not None and self._table not in tables):
            return False
        self._due = now + 0.99 * self._every_seconds
        before = len(self._resolved)
        fired = self._note(now, self.evaluator.evaluate(now, self._signals))
        self._forget(now)
        return fired or len(self._resolved) > before

    def firing(self) -> list[LiveAlert]:
        return [alert for alert in self.alerts.values() if alert.fired_at is not None]

    def take_resolved(self) -> list[LiveAlert]:
        """Those since the last call."""
        resolved, self._resolved = self._resolved, []
        return resolved

    def _note(self, now: float, found: Sequence[tuple[Rule, Vector]]) -> bool:
        fired = False
        for rule, vector in found:
            hold_seconds = self._hold_seconds[rule.name, rule.severity]
            for labels, value in vector.items():
                key = (rule.name, rule.severity, labels)
                alert = self.alerts.get(key)
                if alert is None:
                    if len(self.alerts) >= MOST_ALERTS:
                        continue
                    alert = self.alerts[key] = LiveAlert(rule, labels, now, now, value)
                alert.true_at, alert.value = now, value
                if alert.fired_at is None and now - alert.since >= hold_seconds:
                    alert.fired_at, fired = now, True
        for alert in self.firing():
            if alert.true_at < now and alert.rule.margin:
                still = self.evaluator.still_true(alert.rule)
                if alert.labels in still:
                    alert.true_at, alert.value = now, still[alert.labels]
        return fired

    def _forget(self, now: float) -> None:
        """A pending alert ends with its condition, a firing one some time later."""
        for key, alert in [(key, alert) for key, alert in self.alerts.items() if alert.true_at < now]:
            if alert.fired_at is None:
                del self.alerts[key]
            elif now - alert.true_at >= _CLEAR_SECONDS:
                del self.alerts[key]
                self._resolved.append(alert)


def _by_pace(rules: Sequence[Rule], thresholds: Thresholds) -> list[tuple[list[Rule], float, str | None]]:
    """Rules that fire soon, those that must hold for long, and those about what a run has used.

    Each with the seconds between two looks at them, and the table that has to bring something new for it.
    """
    quick: list[Rule] = []
    held: list[Rule] = []
    of_account: list[Rule] = []
    for rule in rules:
        if {part.metric.table for part in walk(rule.when) if isinstance(part, Signal)} == {ACCOUNT.table}:
            of_account.append(rule)
        elif duration_seconds(rule.hold_in(thresholds)) >= HELD_RULES_SECONDS:
            held.append(rule)
        else:
            quick.append(rule)
    return [(quick, 0.0, None), (held, HELD_RULES_SECONDS, None), (of_account, 0.0, ACCOUNT.table)]


def _fields(rules: Sequence[Rule]) -> dict[str, tuple[str, ...]]:
    """The fields that rules read, by table. Steps are counted from their buckets."""
    found: dict[str, dict[str, None]] = {"training": {"step_counts": None, "step_seconds": None}}
    for rule in rules:
        for part in walk(rule.when):
            if isinstance(part, Signal) and part.metric.table:
                found.setdefault(part.metric.table, {})[part.metric.field] = None
    return {table: tuple(fields) for table, fields in found.items()}
