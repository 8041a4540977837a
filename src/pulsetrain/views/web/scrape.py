"""What Prometheus finds at /metrics of `serve`: machines in view, runs in progress, and the server's own figures."""

import time
from collections import Counter
from collections.abc import Mapping

from pulsetrain import catalog
from pulsetrain.live import HOLD_SECONDS
from pulsetrain.outputs.families import RunInfo, families, joined, run_info_of
from pulsetrain.outputs.points import Family, Point, make_labels
from pulsetrain.runs.folder import host_name
from pulsetrain.snapshot import Metric
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.views.web.site import Site

MOST_RUNS = 8
"""In progress, that are followed for a scrape."""
SILENT_SECONDS = 2 * HOLD_SECONDS
"""A machine that says nothing for this long is away: only the age of its readings is served."""


def families_of(site: Site) -> list[Family]:
    """Every family, with all its series."""
    groups = [
        _families(machine, {"host": host_name() if machine.local else machine.title}) for machine in site.machines
    ]
    runs = site.runs()
    in_progress = [id for id, run in runs if run.status == "running"][:MOST_RUNS]
    for id in in_progress:
        followed = site.open(id)
        for host, machine in zip(followed.run.hosts, followed.machines, strict=False) if followed else ():
            about = run_info_of(followed.run) if followed else None
            groups.append(_families(machine, {"host": host, "run": id}, about))
    return joined([*groups, _own(site, Counter(run.status for _, run in runs))])


def _families(machine: WatchedMachine, scope: Mapping[str, str], run_info: RunInfo | None = None) -> list[Family]:
    with machine.lock:
        live = machine.history.live
        now = time.time()
        if machine.now is None:
            return []
        found = families(live, scope, run_info=run_info, now=now)
    if now - live.time < SILENT_SECONDS:
        return found
    return [family for family in found if family.name == catalog.DATA_AGE.name]


def _own(site: Site, statuses: Mapping[str, int]) -> list[Family]:
    return [
        _family(catalog.WEB_RUNS, [Point(make_labels({"status": name}), count) for name, count in statuses.items()]),
        _family(catalog.WEB_VIEWERS, [Point((), site.streams.viewers)]),
        _family(catalog.WEB_OPEN_BYTES, [Point((), site.open_bytes)]),
    ]


def _family(metric: Metric, points: list[Point]) -> Family:
    return Family(metric.name, "gauge", metric.unit, metric.help, points)
