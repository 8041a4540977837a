"""Segments: what is read is what was written, and nothing else is taken for a segment."""

import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transfer.sending import LINES, RUN, WRITER, line, segments

from pulsetrain.transfer.segments import (
    GZIP,
    MOST_CONTENT_BYTES,
    BadSegment,
    SegmentHeader,
    SegmentPart,
    is_run_file,
    is_word,
    name_of,
    parse_name,
    read_segment,
    write_segment,
)


def header(**changed: Any) -> SegmentHeader:
    given: dict[str, Any] = {"run": RUN, "writer": WRITER, "seq": 1, "previous": "", "created": 0.0, "parts": []}
    return SegmentHeader(**(given | changed))


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_what_is_read_is_what_was_written(pieces: list[bytes]) -> None:
    parts = [SegmentPart(LINES, number, len(piece)) for number, piece in enumerate(pieces)]
    data = write_segment(header(parts=parts), pieces)
    segment = read_segment(data, RUN, WRITER, name_of(1, data))
    assert [piece for _, piece in segment.pieces()] == pieces
    assert segment.header.parts == parts


@given(st.data())
def test_a_segment_that_is_damaged_or_torn_is_never_read(data: st.DataObject) -> None:
    ((name, whole),) = segments([line(1)])
    position = data.draw(st.integers(0, len(whole) - 1))
    flip = data.draw(st.integers(1, 255))
    damaged = whole[:position] + bytes([whole[position] ^ flip]) + whole[position + 1 :]
    for bad in (damaged, whole[:position], whole + b"\0", b""):
        with pytest.raises(BadSegment):
            read_segment(bad, RUN, WRITER, name)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"schema": 2}, "has format version 2"),
        ({"run": "another"}, "belongs elsewhere"),
        ({"writer": "another"}, "belongs elsewhere"),
        ({"seq": 2}, "belongs elsewhere"),
        ({"parts": [SegmentPart("../run.json", 0, 0)]}, "cannot be part of a run"),
        ({"parts": [SegmentPart("a/b/c.jsonl", 0, 0)]}, "cannot be part of a run"),
        ({"parts": [SegmentPart(".watching", 0, 0)]}, "cannot be part of a run"),
        ({"parts": [SegmentPart("host/code.diff", 0, 0)]}, "cannot be part of a run"),
        ({"parts": [SegmentPart("notes.txt", 0, 0)]}, "cannot be part of a run"),
        ({"parts": [SegmentPart("/etc/a.json", 0, 0)]}, "cannot be part of a run"),
        ({"parts": [SegmentPart("a\0.json", 0, 0)]}, "cannot be part of a run"),
        ({"parts": [SegmentPart("run.json", 7, 0, whole=True)]}, "does not start"),
        ({"parts": [SegmentPart("run.json", 0, 5)]}, "does not match its header"),
        ({"parts": [SegmentPart("run.json", 0, MOST_CONTENT_BYTES + 1)]}, "holds too much"),
    ],
)
def test_a_header_that_no_writer_of_ours_makes_is_refused(changed: dict[str, Any], why: str) -> None:
    data = write_segment(header(**changed), [])
    with pytest.raises(BadSegment, match=why):
        read_segment(data, RUN, WRITER, name_of(1, data))


def test_a_body_that_grows_beyond_its_header_is_not_decompressed() -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, GZIP)
    bomb = compressor.compress(bytes(20 * 2**20)) + compressor.flush()
    data = msgspec.json.encode(header(parts=[SegmentPart("run.json", 0, 10, whole=True)])) + b"\n" + bomb
    with pytest.raises(BadSegment, match="does not match its header"):
        read_segment(data, RUN, WRITER, name_of(1, data))


@given(st.text(st.characters(max_codepoint=255), max_size=20))
def test_names_that_could_lead_elsewhere_are_no_names(text: str) -> None:
    for name in (f"../{text}", f"/{text}", f".{text}", f"{text}/..", f"{text}\0", f"{text}\n"):
        assert not is_word(name)
        assert not is_run_file(f"{name}/a.jsonl")
        assert parse_name(name) is None
