"""An alert is on every surface with the reading that shows its cause, which is at most two seconds old by design."""

import json
import logging
import urllib.request
from pathlib import Path

import pytest
from tests.alerts.services import Web
from tests.waiting import eventually

from pulsetrain.cli.logs import log_events
from pulsetrain.outputs import OutputOptions
from pulsetrain.rules.alert import FIRING
from pulsetrain.runs.folder import host_name
from pulsetrain.runs.follow import Follow
from pulsetrain.snapshot import Snapshot
from pulsetrain.sources import Options
from pulsetrain.training.loop import CATCH_UP_SECONDS
from pulsetrain.views.live.feeds import LOOK_SECONDS, LocalFeed
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.watching.options import WatchOptions
from pulsetrain.watching.recording import claim_run
from pulsetrain.watching.session import Session

STEP = (
    '{"timestamp":"2026-11-18T01:00:00.000Z","elapsed_seconds":0.1,"rank":0,"step":%d,"step_seconds":0.01,"loss":%s}\n'
)
NAN = STEP % (2, 'null,"nonfinite":{"loss":"nan"}')


def shows_nan(snapshot: Snapshot) -> bool:
    return any(sample.values.get("nonfinite_counts") for sample in snapshot.samples)


def fired(snapshot: Snapshot) -> list[object]:
    return [event.details["rule"] for event in snapshot.events if event.kind == FIRING]


def test_a_loss_that_is_nan_is_an_alert_everywhere_with_the_reading_that_has_it(
    tmp_path: Path, web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    options = WatchOptions(
        sources=Options(simulate="1xL4"),
        interval_seconds=0.2,
        directory=str(tmp_path / "runs"),
        outputs=OutputOptions(prometheus_port=0),
        notify_urls=[f"json://{web.place}/hook"],
    )
    session = Session(options)
    session.open(claim_run(options, ["python", "train.py"]))
    assert session.recording
    seen: list[Snapshot] = []
    session.add(seen.append)
    session.add(log_events)
    top = WatchedMachine(LocalFeed(session))
    followed = Follow(session.recording.folder, host_name())
    reports = session.recording.host_folder / "training_metrics_20261118_010000.jsonl"
    reports.write_text(STEP % (1, "0.5"))
    with caplog.at_level(logging.INFO, "pulsetrain"):
        top.start()
        try:
            assert eventually(lambda: len(seen) > 2)
            with reports.open("a") as file:
                file.write(NAN)
            assert eventually(lambda: any(map(fired, seen)))
            page = urllib.request.urlopen(session.notices[0].split()[-1]).read().decode()
            assert eventually(lambda: web.posts)  # while the run is in progress
            assert eventually(lambda: any(map(fired, followed.read())))
        finally:
            top.stop()
            session.finish()
            followed.close()
    (with_alert,) = [snapshot for snapshot in seen if fired(snapshot)]
    assert with_alert is next(snapshot for snapshot in seen if shows_nan(snapshot))
    assert fired(with_alert) == ["NonFinite"]
    assert [one.event.details["rule"] for one in top.alerts.values()] == ["NonFinite"]
    assert 'pulsetrain_alert{alertname="NonFinite"' in page
    assert web.posts[0].body["title"].startswith("NonFinite (train on ")
    assert [record.levelname for record in caplog.records if "NaN" in record.message] == ["CRITICAL"]
    events = [json.loads(line) for line in (session.recording.host_folder / "events.jsonl").read_text().splitlines()]
    assert [event["rule"] for event in events if event["kind"] == FIRING] == ["NonFinite"]


def test_no_surface_is_more_than_two_seconds_behind_by_design() -> None:
    """The training process hands over, the next reading comes, and the files are looked at twice."""
    assert CATCH_UP_SECONDS + WatchOptions().interval_seconds + 2 * LOOK_SECONDS <= 2.0
