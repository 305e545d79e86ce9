"""Segments: the bytes of the ledger, format 1.

    segment   one group commit: a header line, then one or more event lines; every line ends in \n
    digest    SHA-256 of a line's bytes without the newline
    root      SHA-256 of the concatenated raw digests of the event lines
    hash      SHA-256 of the canonical JSON of the header without `hash`; the header names the hash of
              the segment before it, so that the last one vouches for all
    place     (position, index): where an event stands. Everything that is ordered is ordered by it

The same bytes lie in every kind of log. A line that had to be erased is `{"redacted":"sha256:…"}`,
and the digest it holds stands for the line. Golden vectors: tests/vectors/segments.json.

A **torn end** is what a crash leaves of the one segment that was being appended: its beginning, or
all of its length with NUL bytes where a file system had not yet written the blocks (no line holds a
NUL: JSON escapes it, and `encode` refuses it). No header stands behind a torn end. Whatever else is
no segment is `Corrupt`, so that bytes which were durable once are never taken for a torn end while
something durable follows them.
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
    body = b"\n".join(lines)
    if body.count(b"\n") != len(lines) - 1 or b"\0" in body:
        raise Invalid(
            f"an event of segment {position} holds a line break or a NUL byte; write it as JSON,"
            " which escapes both"
        )
    count, root = len(lines), _root(lines)
    try:
        hashed = _hash(
            count, epoch, FORMAT, kind, nonce, position, prev_hash, root, writer_id, written_at
        )
        header = Header(
            format=FORMAT,
            position=position,
            prev_hash=prev_hash,
            writer_id=writer_id,
            nonce=nonce,
            epoch=epoch,
            kind=kind,
            written_at=written_at,
            count=count,
            root=root,
            hash=hashed,
        )
        return header, b"%b\n%b\n" % (_encoder.encode(header), body)
    except UnicodeEncodeError:
        raise Invalid(
            f"the header of segment {position} holds a lone surrogate, which UTF-8 cannot carry;"
            " replace the broken character"
        ) from None


class _Hashed(msgspec.Struct):
    """What `hash` covers. The fields are in order, so that this encodes as canonical JSON does;
    tests/unit/test_segments.py compares the two."""

    count: int
    epoch: int
    format: int
    kind: str
    nonce: str
    position: int
    prev_hash: str
    root: str
    writer_id: str
    written_at: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Header)


def _hash(*fields: *tuple[int, int, int, str, str, int, str, str, str, str]) -> str:
    return "sha256:" + hashlib.sha256(_encoder.encode(_Hashed(*fields))).hexdigest()


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
    if _encoder.encode(header) == line:
        expected = _hash(
            header.count,
            header.epoch,
            header.format,
            header.kind,
            header.nonce,
            header.position,
            header.prev_hash,
            header.root,
            header.writer_id,
            header.written_at,
        )
    else:
        expected = _foreign_hash(line, header.position)
    if header.hash != expected:
        raise Corrupt(
            f"the header of segment {header.position} was changed: it does not match its hash"
        )
    if header.count < 1 or header.position < 1 or not _HASH.match(header.prev_hash):
        raise Corrupt(f"the header of segment {header.position} says what no writer writes")
    return header


def _foreign_hash(line: bytes, position: int) -> str:
    """The hash of a header that another Servo spelled: a field that this one does not know is
    covered too."""
    fields = msgspec.json.decode(line)
    del fields["hash"]
    try:
        return canonical.fingerprint(fields)
    except Invalid as error:
        raise Corrupt(f"the header of segment {position} is not plain: {error}") from None


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


def split(data: bytes) -> Split:
    """Find the whole segments in bytes that begin at a segment's header.

    What is left is a torn end. Anything else that is no segment is `Corrupt`, which names the byte.
    Lines are counted, not checked: `parse` does that.
    """
    bounds: list[tuple[int, int, int]] = []
    at, size = 0, len(data)
    while at < size:
        end = data.find(b"\n", at)
        if end < 0:
            break
        try:
            header = parse_header(data[at:end])
        except Corrupt as error:
            if b"\0" in data[at:] and not _followed(data, at):
                break
            raise Corrupt(f"at byte {at}{_after(bounds)}: {error}") from None
        for _ in range(header.count):
            end = data.find(b"\n", end + 1)
            if end < 0:
                if _followed(data, at):
                    raise Corrupt(
                        f"at byte {at}{_after(bounds)}: a line of segment {header.position} is"
                        " missing, and another segment follows it"
                    )
                return Split(tuple(bounds), at)
        bounds.append((header.position, at, end + 1))
        at = end + 1
    if bounds and at == size and b"\0" in data[bounds[-1][1] :]:
        at = bounds.pop()[1]
    return Split(tuple(bounds), at)


def _after(bounds: Sequence[tuple[int, int, int]]) -> str:
    return f", behind segment {bounds[-1][0]}" if bounds else ""


def _followed(data: bytes, at: int) -> bool:
    """Whether a header begins anywhere after `at`; not only after a newline, which may be lost."""
    while (at := data.find(b'{"format":', at + 1)) >= 0:
        end = data.find(b"\n", at)
        try:
            parse_header(data[at : end if end >= 0 else len(data)])
        except Corrupt:
            continue
        return True
    return False


def check_framing(position: int, data: bytes) -> None:
    """Refuse to append what a log could not find again: for an adapter, before it writes."""
    if not data.startswith(b'{"format":%d,"position":%d,' % (FORMAT, position)):
        raise Invalid(
            f"what is to be appended as segment {position} does not begin with its header"
        )
    if not data.endswith(b"\n"):
        raise Invalid(f"what is to be appended as segment {position} does not end its last line")
