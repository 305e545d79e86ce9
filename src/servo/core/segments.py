"""Segments: the bytes of the ledger, format 1.

    segment   one group commit: a header line, then one or more event lines; every line ends in \n
    digest    SHA-256 of a line's bytes without the newline
    root      SHA-256 of the concatenated raw digests of the event lines
    hash      SHA-256 of the canonical JSON of the header without `hash`; the header names the hash of
              the segment before it, so that the last one vouches for all
    place     (position, index): where an event stands. Everything that is ordered is ordered by it

The same bytes lie in every kind of log. A line that had to be erased is `{"redacted":"sha256:…"}`,
and the digest it holds stands for the line. Golden vectors: tests/vectors/segments.json.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from servo.core import canonical
from servo.errors import Corrupt, Invalid

FORMAT = 1
GENESIS = "sha256:" + "0" * 64
"""What the first segment names as the hash of the one before it."""

_HASH = re.compile(r"sha256:[0-9a-f]{64}\Z")
_REDACTED = re.compile(rb'\{"redacted":"(sha256:[0-9a-f]{64})"\}\Z')


class Place(NamedTuple):
    """Where an event stands in the ledger."""

    position: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody looks up in a place


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a segment. `written_at` is for people; it decides nothing."""

    format: int
    position: int
    prev_hash: str
    writer_id: str
    nonce: str
    epoch: int
    kind: Literal["leader", "reporter"]
    written_at: str
    count: int
    root: str
    hash: str


class Segment(NamedTuple):
    """A segment that was read and found to be what it says it is."""

    header: Header
    lines: tuple[bytes, ...]


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def encode(
    lines: Sequence[bytes],
    *,
    position: int,
    prev_hash: str,
    writer_id: str,
    nonce: str,
    epoch: int,
    kind: Literal["leader", "reporter"],
    written_at: str,
) -> tuple[Header, bytes]:
    """The header and the bytes of a new segment."""
    if not lines:
        raise Invalid("a segment holds at least one event")
    fields = {
        "format": FORMAT,
        "position": position,
        "prev_hash": prev_hash,
        "writer_id": writer_id,
        "nonce": nonce,
        "epoch": epoch,
        "kind": kind,
        "written_at": written_at,
        "count": len(lines),
        "root": _root(lines),
    }
    header = msgspec.convert({**fields, "hash": _hash(fields)}, Header)
    return header, b"%b\n%b\n" % (_encoder.encode(header), b"\n".join(lines))


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Header)


def _root(lines: Iterable[bytes]) -> str:
    joined = b"".join([_line_digest(line) for line in lines])
    return "sha256:" + hashlib.sha256(joined).hexdigest()


def _line_digest(line: bytes) -> bytes:
    if line.startswith(b'{"redacted"'):
        redacted = _REDACTED.match(line)
        if redacted:
            return bytes.fromhex(redacted[1][7:].decode())
    return hashlib.sha256(line).digest()


def is_redacted(line: bytes) -> bool:
    return _REDACTED.match(line) is not None


def _hash(fields: dict[str, object]) -> str:
    return canonical.fingerprint(fields)


def parse_header(line: bytes) -> Header:
    """The header of a segment; `Corrupt` if the line is something else or was changed."""
    try:
        header = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Corrupt(f"the header of a segment cannot be read ({error})") from None
    if header.format != FORMAT:
        raise Corrupt(
            f"segment {header.position} has format {header.format}, and this Servo reads {FORMAT};"
            " upgrade Servo"
        )
    # Hashed as it is written, so that a field this Servo does not know is covered too.
    fields = msgspec.json.decode(line)
    found = fields.pop("hash")
    try:
        expected = _hash(fields)
    except Invalid as error:
        raise Corrupt(f"the header of segment {header.position} is not plain: {error}") from None
    if found != expected:
        raise Corrupt(
            f"the header of segment {header.position} was changed: it does not match its hash"
        )
    if header.count < 1 or header.position < 1 or not _HASH.match(header.prev_hash):
        raise Corrupt(f"the header of segment {header.position} says what no writer writes")
    return header


def parse(data: bytes, position: int | None = None) -> Segment:
    """A whole segment, with every digest checked. `position`: where it was found."""
    where = "a segment" if position is None else f"segment {position}"
    if not data.endswith(b"\n"):
        raise Corrupt(f"{where} is cut short: its last line has no end")
    first, *lines = data[:-1].split(b"\n")
    header = parse_header(first)
    if position is not None and header.position != position:
        raise Corrupt(f"where {where} should be lies segment {header.position}")
    if len(lines) != header.count:
        raise Corrupt(
            f"segment {header.position} has {len(lines)} lines where its header says {header.count}"
        )
    if _root(lines) != header.root:
        raise Corrupt(
            f"a line of segment {header.position} was changed: the lines do not match their root"
        )
    return Segment(header, tuple(lines))


class Split(NamedTuple):
    """Where the segments of a piece of log begin and end; `rest` begins what is not whole."""

    bounds: tuple[tuple[int, int, int], ...]
    """For each segment its position, and where its bytes start and end."""
    rest: int


def split(data: bytes, start: int = 0) -> Split:
    """Find the whole segments in bytes that begin at a segment's header.

    What is left is a torn end: a header or lines without their newline, or fewer lines than the
    header says. Anything else that is no segment is `Corrupt`. Lines are counted, not checked:
    `parse` does that.
    """
    bounds: list[tuple[int, int, int]] = []
    at, size = start, len(data)
    while at < size:
        end = data.find(b"\n", at)
        if end < 0:
            break
        header = parse_header(data[at:end])
        for _ in range(header.count):
            end = data.find(b"\n", end + 1)
            if end < 0:
                return Split(tuple(bounds), at)
        bounds.append((header.position, at, end + 1))
        at = end + 1
    return Split(tuple(bounds), at)
