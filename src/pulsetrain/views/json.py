"""A machine as JSON, for scripts: the same names and units as in the run files."""

from typing import Any

import msgspec

from pulsetrain.catalog import CORE_GPU_FIELDS
from pulsetrain.live import Live
from pulsetrain.rules.alert import gravest_first
from pulsetrain.rules.finding import Verdict
from pulsetrain.runs.codec import time_text
from pulsetrain.runs.folder import SCHEMA


def snapshot_json(live: Live, host: str, verdict: Verdict | None = None) -> str:
    """One object: the version of its form, timestamp, host, a list of objects for each table, the run's verdict."""
    absent = dict.fromkeys(CORE_GPU_FIELDS)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "timestamp": time_text(live.time),
        "hostname": host,
        "gpus": [{**state.subject.labels, **absent, **state.values} for state in live.table("gpu")],
        "mig": [{**state.subject.labels, **state.values} for state in live.table("mig")],
        "processes": [{**state.subject.labels, **state.values} for state in live.table("process")],
        "host": live.host.values,
        "alerts": [
            {"severity": alert.severity, "message": alert.message, **alert.details}
            for alert in gravest_first(live.alerts.values())
        ],
    }
    if trainings := live.table("training"):
        document["training"] = [{**state.subject.labels, **state.values} for state in trainings]
    if verdict:
        document["verdict"] = verdict
    return msgspec.json.encode(document).decode()
