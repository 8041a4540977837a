"""TensorBoard: an event file in a folder of its own for each run."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from pulsetrain.outputs.trackers.tracker import Ending, Memory, Row, flat_config
from pulsetrain.runs.folder import Run, host_name

VERSION = "brain.Event:2"


def open_tracker(place: str, memory: Memory) -> "TensorboardTracker":
    return TensorboardTracker(Path(place).expanduser(), memory)


class TensorboardTracker:
    """Appends to one event file. After a restart, what was written and not noted as sent is cut off."""

    def __init__(self, folder: Path, memory: Memory) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._proto: Any = (event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2)
        self._record_writer: Any = RecordWriter
        self._folder = folder
        self._memory = memory
        self._file: BinaryIO | None = None
        self._writer: Any = None

    def open(self, run: Run) -> None:
        path = Path(self._memory.setdefault("file", str(self._new_file(run))))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._file.truncate(self._memory.get("size", 0))
        self._file.seek(0, os.SEEK_END)
        self._writer = self._record_writer(self._file)
        if not self._memory.get("size"):
            self._write(run.start.timestamp(), 0, file_version=VERSION)
            self._keep()

    def describe(self, run: Run) -> None:
        rows = [f"|{name}|{value}|" for name, value in {**flat_config(run.config), **run.tags}.items()]
        if rows:
            self._text("config", "\n".join(["|name|value|", "|---|---|", *rows]))

    def send(self, rows: Sequence[Row], *, again: bool) -> None:
        _, summary_pb2, *_ = self._proto
        for row in rows:
            values = [summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in row.values.items()]
            self._write(row.time, row.step, summary=summary_pb2.Summary(value=values))
        self._keep()

    def finish(self, ending: Ending) -> None:
        words: Mapping[str, str] = ending.words
        self._text("pulsetrain", "\n\n".join(f"**{name}**: {word}" for name, word in words.items()))
        end = ending.run.end.timestamp() if ending.run.end else time.time()
        self.send([Row(0, end, 0, dict(ending.figures), True)], again=False)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _new_file(self, run: Run) -> Path:
        name = f"events.out.tfevents.{int(run.start.timestamp())}.{host_name()}.pulsetrain"
        return (self._folder / run.id / name).absolute()

    def _text(self, tag: str, text: str) -> None:
        _, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2 = self._proto
        shape = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[text.encode()], tensor_shape=shape)
        about = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"))
        value = summary_pb2.Summary.Value(tag=tag, metadata=about, tensor=tensor)
        self._write(time.time(), 0, summary=summary_pb2.Summary(value=[value]))
        self._keep()

    def _write(self, when: float, step: int, **what: Any) -> None:
        event_pb2, *_ = self._proto
        self._writer.write(event_pb2.Event(wall_time=when, step=step, **what).SerializeToString())

    def _keep(self) -> None:
        assert self._file is not None
        self._writer.flush()
        self._file.flush()
        self._memory["size"] = self._file.tell()
