"""Our log lines, on standard error: for people, or as JSON. Each carries the run's id, so that they can be joined."""

import json
import logging
import sys
from datetime import UTC, datetime

from pulsetrain.snapshot import Snapshot
from pulsetrain.training.masking import masked_message
from pulsetrain.untrusted import printable

log = logging.getLogger("pulsetrain")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.CRITICAL}


class _Formatter(logging.Formatter):
    as_json = False
    run_id: str | None = None

    def format(self, record: logging.LogRecord) -> str:
        trace = printable(self.formatException(record.exc_info)) if record.exc_info else None
        if self.as_json:
            return self._json(record, trace)
        run = f" [{self.run_id}]" if self.run_id else ""
        text = f"pulsetrain{run}: {record.levelname.lower()}: {printable(record.getMessage())}"
        return f"{text}\n{trace}" if trace else text

    def _json(self, record: logging.LogRecord, trace: str | None) -> str:
        fields: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": masked_message(record.getMessage()),
            "run": self.run_id,
            **getattr(record, "fields", {}),
        }
        return json.dumps(fields | ({"exception": trace} if trace else {}), default=str)


_formatter = _Formatter()


def configure(*, log_format: str | None = None, level: str | None = None, run_id: str | None = None) -> None:
    """Set up logging, or change one thing of it."""
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_formatter)
        log.addHandler(handler)
        log.propagate = False
    if log_format is not None:
        _formatter.as_json = log_format == "json"
    if run_id is not None:
        _formatter.run_id = run_id
    if level is not None:
        log.setLevel(level.upper())


def log_events(snapshot: Snapshot) -> None:
    """A consumer that shows events as log lines, but for the trouble of a part, which logs it itself."""
    for event in snapshot.events:
        if event.kind in ("part_degraded", "part_down"):
            continue
        log.log(_LEVELS[event.severity], event.message, extra={"fields": {"event": event.kind, **event.details}})
