"""A machine as JSON, for scripts: the same names and units as in the run files."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from pulsetrain.catalog import CORE_GPU_FIELDS
from pulsetrain.live import Live


def snapshot_json(live: Live, host: str) -> str:
    """One object: timestamp, host, and a list of objects for each table."""
    time = datetime.fromtimestamp(live.time, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    absent = dict.fromkeys(CORE_GPU_FIELDS)
    document: dict[str, Any] = {
        "timestamp": time,
        "hostname": host,
        "gpus": [{**state.subject.labels, **absent, **state.values} for state in live.table("gpu")],
        "mig": [{**state.subject.labels, **state.values} for state in live.table("mig")],
        "processes": [{**state.subject.labels, **state.values} for state in live.table("process")],
        "host": live.host.values,
    }
    return msgspec.json.encode(document).decode()
