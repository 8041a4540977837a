"""A segment: a closed, immutable, numbered piece of a run, on its way from the machine that records it.

    RUN_ID/WRITER_ID/00000007-3f9c1b20d4e5a687.seg

A line of JSON says which bytes of which files it holds; the bytes follow, compressed. The name has the number and the
beginning of the SHA-256 of the whole, and each segment names the checksum of the one before: a piece that is missing,
damaged, or not from here is noticed. Whatever is read here may have been written by anybody.
"""

import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import DIFF_FILE, PACKAGES_FILE

SCHEMA = 1
MOST_SEGMENT_BYTES = 8 * 2**20
"""Of a segment as it is sent."""
MOST_CONTENT_BYTES = 32 * 2**20
"""Of all parts of a segment together."""
MOST_HEADER_BYTES = 256 * 2**10
COMPRESSION_LEVEL = 1
"""Level 6 takes three times as long, for a fifth fewer bytes."""
GZIP = 16 + zlib.MAX_WBITS

_NAME = re.compile(r"(\d{8})-([0-9a-f]{16})\.seg")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}\.(?:json|jsonl|parquet)")


class SegmentPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bytes of one file of the run folder."""

    path: str
    """`run.json`, or `HOST/gpu_metrics_20261116_013054.jsonl`."""
    offset: Annotated[int, msgspec.Meta(ge=0)]
    length: Annotated[int, msgspec.Meta(ge=0)]
    whole: bool = False
    """Whether the file is these bytes and nothing more, whatever it was before."""
    size: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Of a file that is of use only when all of it is there, such as Parquet."""


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment says of itself."""

    schema: int = SCHEMA
    run: str
    writer: str
    seq: Annotated[int, msgspec.Meta(ge=1, le=99_999_999)]
    """1, 2, 3, ... without a gap, for each writer."""
    previous: str
    """SHA-256 of the segment before; empty for the first."""
    created: float
    """When it was cut, in seconds since the epoch, by the clock of its writer."""
    parts: list[SegmentPart]


class Segment(NamedTuple):
    """A segment that has been read and found whole."""

    header: SegmentHeader
    checksum: str
    """SHA-256 of the whole, in hexadecimal digits."""
    content: bytes
    """The bytes of all parts, one after the other."""

    def pieces(self) -> Iterator[tuple[SegmentPart, bytes]]:
        begin = 0
        for part in self.header.parts:
            yield part, self.content[begin : begin + part.length]
            begin += part.length


class SegmentName(NamedTuple):
    """What the name of a segment says."""

    seq: int
    checksum: str
    """The first 16 digits of it."""

    def __str__(self) -> str:
        return f"{self.seq:08}-{self.checksum}.seg"


class BadSegment(PulsetrainError):
    """Bytes that are no segment, not a whole one, or not the one that was asked for."""


def is_word(text: str) -> bool:
    """Whether a text can be the id of a run or of a writer, or the name of a host: a safe name of a folder."""
    return _WORD.fullmatch(text) is not None


def is_run_file(path: str) -> bool:
    """Whether a path is that of a file of a run folder which may be sent: nothing hidden, nothing outside."""
    if path in (DIFF_FILE, PACKAGES_FILE):
        return True
    folder, _, name = path.rpartition("/")
    return _FILE.fullmatch(name) is not None and (not folder or is_word(folder))


def is_replaced(path: str) -> bool:
    """Whether a file of a run folder is written whole each time, and not appended to or sealed."""
    return not path.endswith((".jsonl", ".parquet"))


def parse_name(name: str) -> SegmentName | None:
    """None for what is not the name of a segment."""
    found = _NAME.fullmatch(name)
    return SegmentName(int(found[1]), found[2]) if found and int(found[1]) else None


def name_of(seq: int, data: bytes) -> str:
    return str(SegmentName(seq, hashlib.sha256(data).hexdigest()[:16]))


def write_segment(header: SegmentHeader, pieces: Sequence[bytes]) -> bytes:
    """The segment as it is sent. The same content gives the same bytes."""
    compressor = zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, GZIP)
    body = [compressor.compress(piece) for piece in pieces]
    return b"".join((msgspec.json.encode(header), b"\n", *body, compressor.flush()))


def read_segment(data: bytes, run: str, writer: str, name: str) -> Segment:
    """Read what was found under this name; raises BadSegment for all that a writer of ours has not written there."""
    known = parse_name(name)
    if known is None or not is_word(run) or not is_word(writer):
        raise BadSegment(f"{name!r} is not the name of a segment.")
    if len(data) > MOST_SEGMENT_BYTES:
        raise BadSegment(f"{name} is too large for a segment.")
    checksum = hashlib.sha256(data).hexdigest()
    if not checksum.startswith(known.checksum):
        raise BadSegment(f"{name} is damaged or incomplete: its checksum does not match its name.")
    line, newline, body = data.partition(b"\n")
    if not newline or len(line) > MOST_HEADER_BYTES:
        raise BadSegment(f"{name} has no header.")
    try:
        header = msgspec.json.decode(line, type=SegmentHeader)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadSegment(f"the header of {name} cannot be read: {error}.") from None
    _check(header, run, writer, known.seq, name)
    return Segment(header, checksum, _decompressed(body, sum(part.length for part in header.parts), name))


def _check(header: SegmentHeader, run: str, writer: str, seq: int, name: str) -> None:
    if header.schema != SCHEMA:
        raise BadSegment(
            f"{name} has format version {header.schema}, but this pulsetrain reads version {SCHEMA}.",
            hint="Update pulsetrain.",
        )
    if (header.run, header.writer, header.seq) != (run, writer, seq):
        raise BadSegment(f"{name} belongs elsewhere: its header names another run, writer or number.")
    if not all(is_run_file(part.path) for part in header.parts):
        raise BadSegment(f"{name} names a file that cannot be part of a run.")
    if any(part.whole and part.offset for part in header.parts):
        raise BadSegment(f"{name} has a whole file that does not start at offset 0.")


def _decompressed(body: bytes, length: int, name: str) -> bytes:
    if length > MOST_CONTENT_BYTES:
        raise BadSegment(f"{name} holds too much data for a segment.")
    decompressor = zlib.decompressobj(GZIP)
    try:
        content = decompressor.decompress(body, length + 1)
    except zlib.error as error:
        raise BadSegment(f"{name} cannot be decompressed: {error}.") from None
    if len(content) != length or not decompressor.eof or decompressor.unused_data:
        raise BadSegment(f"the content of {name} does not match its header.")
    return content
