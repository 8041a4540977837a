"""A writer of segments for tests: numbered, chained, of lines that can be told apart."""

from collections.abc import Sequence
from hashlib import sha256

from pulsetrain.transfer.segments import SegmentHeader, SegmentPart, name_of, write_segment

RUN = "20261116-120000-test-0000"
WRITER = "colab-0a1b2c3d"
HOST = "colab"
LINES = f"{HOST}/gpu_metrics_20261116_120000.jsonl"
RUN_JSON = b'{"id": "%s", "name": "test", "start": "2026-11-16T12:00:00Z", "hosts": {"colab": {}}}' % RUN.encode()


def line(number: int) -> bytes:
    return b'{"timestamp":"2026-11-16T12:00:%02d.000Z","elapsed_seconds":%d,"gpu_index":0}\n' % (number % 60, number)


def segments(
    contents: Sequence[bytes], writer: str = WRITER, run: str = RUN, created: float = 1_800_000_000.0
) -> list[tuple[str, bytes]]:
    """A segment for each content of the file LINES, the first with run.json: names and bytes."""
    made = []
    previous, offset = "", 0
    for number, content in enumerate(contents, start=1):
        parts = [SegmentPart(LINES, offset, len(content))]
        pieces = [content]
        if number == 1:
            parts.insert(0, SegmentPart("run.json", 0, len(RUN_JSON), whole=True))
            pieces.insert(0, RUN_JSON)
        header = SegmentHeader(
            run=run, writer=writer, seq=number, previous=previous, created=created + number, parts=parts
        )
        data = write_segment(header, pieces)
        made.append((name_of(number, data), data))
        previous, offset = sha256(data).hexdigest(), offset + len(content)
    return made
