"""Segments: the bytes of the ledger. What a log does with torn ends is in tests/contract."""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servo.core import canonical, segments
from servo.core.segments import GENESIS, Header, encode, is_redacted, parse, parse_header, split
from servo.errors import Corrupt, Invalid
from tests.vectors import make_segments

Row = dict[str, Any]
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "segments.json").read_text())
CASES = VECTORS["cases"]
FIELDS: Row = {
    "position": 7,
    "prev_hash": GENESIS,
    "writer_id": "w",
    "nonce": "n",
    "epoch": 1,
    "kind": "leader",
    "written_at": "2025-01-15T00:00:00.000000Z",
}


def made(*lines: bytes, **fields: Any) -> bytes:
    return encode(lines or (b'{"a":1}', b'{"b":2}'), **{**FIELDS, **fields})[1]


def resealed(data: bytes, **changes: Any) -> bytes:
    """The segment with another header, whose hash is right."""
    first, _, rest = data.partition(b"\n")
    header = {**json.loads(first), **changes}
    header.pop("hash")
    header["hash"] = canonical.fingerprint(header)
    return json.dumps(header).encode() + b"\n" + rest


# ---------------------------------------------------------------- golden vectors


def test_file_of_vectors_is_what_its_maker_writes() -> None:
    path = Path(__file__).parents[1] / "vectors" / "segments.json"
    assert path.read_text() == make_segments.text()
    assert len(VECTORS["about"]) > 200


@pytest.mark.parametrize("row", CASES, ids=lambda row: row["name"])
def test_segment_has_exactly_these_bytes(row: Row) -> None:
    header, data = encode([line.encode() for line in row["lines"]], **row["fields"])
    assert data == row["bytes"].encode()
    assert (header.root, header.hash) == (row["root"], row["hash"])


@pytest.mark.parametrize("row", CASES, ids=lambda row: row["name"])
def test_segment_is_read_from_these_bytes(row: Row) -> None:
    header, lines = parse(row["bytes"].encode(), row["fields"]["position"])
    assert (header.root, header.hash) == (row["root"], row["hash"])
    assert [line.decode() for line in lines] == row["lines"]
    assert {key: getattr(header, key) for key in row["fields"]} == row["fields"]


# ---------------------------------------------------------------- writing

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LINES = st.lists(
    st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"").replace(b"\0", b"")), min_size=1
)


@given(
    LINES,
    TEXTS,
    TEXTS,
    st.integers(1, 2**63),
    st.integers(0, 2**63),
    st.sampled_from(["leader", "reporter"]),
)
def test_segment_reads_back_as_what_was_written(
    lines: list[bytes], writer: str, nonce: str, position: int, epoch: int, kind: str
) -> None:
    fields = {**FIELDS, "position": position, "writer_id": writer, "nonce": nonce}
    header, data = encode(lines, **{**fields, "epoch": epoch, "kind": kind})
    assert parse(data, position) == (header, tuple(lines))
    assert split(data + data[:-1]) == (((position, 0, len(data)),), len(data))


@given(TEXTS, TEXTS, st.integers(1, 2**63), TEXTS)
def test_hash_covers_the_canonical_json_of_the_header(
    writer: str, nonce: str, position: int, written_at: str
) -> None:
    fields = {"writer_id": writer, "nonce": nonce, "position": position, "written_at": written_at}
    header, _ = encode([b"{}"], **{**FIELDS, **fields})
    plain = msgspec.to_builtins(header)
    assert plain.pop("hash") == canonical.fingerprint(plain)


def test_empty_segment_is_refused() -> None:
    with pytest.raises(Invalid, match="at least one event"):
        encode([], **FIELDS)


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"a\nb", b"\0", b"{\0}"])
def test_line_that_could_not_be_told_apart_is_refused(line: bytes) -> None:
    with pytest.raises(Invalid, match="an event of segment 7 holds a line break or a NUL"):
        made(b"{}", line)


def test_lone_surrogate_in_a_header_is_refused() -> None:
    with pytest.raises(Invalid, match="lone surrogate"):
        made(writer_id="\ud800")


# ---------------------------------------------------------------- redaction


def test_redacted_line_stands_for_the_line_it_replaced() -> None:
    data = made(b'{"a":1}', b'{"secret":1}')
    stub = b'{"redacted":"sha256:%s"}' % hashlib.sha256(b'{"secret":1}').hexdigest().encode()
    found = parse(data.replace(b'{"secret":1}', stub))
    assert [is_redacted(line) for line in found.lines] == [False, True]
    assert found.header == parse(data).header


@pytest.mark.parametrize(
    "line",
    [
        b'{"redacted":"sha256:' + b"0" * 64 + b'"}',
        b'{"redacted":"sha256:' + b"0" * 63 + b'"}',
        b'{"redacted": "sha256:' + b"0" * 64 + b'"}',
        b'{"redacted":"sha256:' + b"0" * 64 + b'"} ',
        b'{"redacted":true}',
    ],
)
def test_wrong_redaction_is_a_changed_line(line: bytes) -> None:
    with pytest.raises(Corrupt, match="a line of segment 7 was changed"):
        parse(made(b'{"a":1}', b'{"secret":1}').replace(b'{"secret":1}', line))


# ---------------------------------------------------------------- damage


def test_every_changed_byte_is_found() -> None:
    data = made()
    for at in range(len(data)):
        for flip in (0x01, 0x80):
            changed = bytearray(data)
            changed[at] ^= flip
            with pytest.raises(Corrupt):
                parse(bytes(changed), 7)


def test_every_cut_is_found() -> None:
    data = made()
    for end in range(len(data)):
        with pytest.raises(Corrupt):
            parse(data[:end])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a segment is cut short"),
        (b"\n", "cannot be read"),
        (b"{}\n{}\n", "cannot be read"),
        (b"[]\n{}\n", "cannot be read"),
        (made()[:-1], "cut short: its last line has no end"),
        (made().replace(b'"epoch":1', b'"epoch":2'), "header of segment 7 was changed"),
        (made() + b"{}\n", "segment 7 has 3 lines where its header says 2"),
        (made().replace(b'{"a":1}\n', b""), "segment 7 has 1 lines where its header says 2"),
        (made().replace(b'{"a":1}', b'{"a":2}'), "a line of segment 7 was changed"),
        (made(b"1", b"2").replace(b"\n1\n2\n", b"\n2\n1\n"), "a line of segment 7 was changed"),
        (resealed(made(), format=2), "segment 7 has format 2, and this Servo reads 1; upgrade"),
        (resealed(made(), position=0), "segment 0 says what no writer writes"),
        (resealed(made(), count=0), "says what no writer writes"),
        (resealed(made(), prev_hash="x"), "says what no writer writes"),
        (resealed(made(), kind="boss"), "cannot be read"),
        (made().replace(b'"format":1', b'"format":1,"x":0.5'), "is not plain"),
    ],
)
def test_damage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(Corrupt, match=message):
        parse(data)


def test_segment_in_the_place_of_another_is_named() -> None:
    with pytest.raises(Corrupt, match="where segment 8 should be lies segment 7"):
        parse(made(), 8)


def test_field_that_a_newer_servo_added_is_kept_under_the_hash() -> None:
    data = resealed(made(), added={"x": [1]})
    assert isinstance(parse(data).header, Header)
    with pytest.raises(Corrupt, match="was changed"):
        parse(data.replace(b'"x": [1]', b'"x": [2]'))


def test_header_that_another_servo_spelled_differently_is_read() -> None:
    data = resealed(made())
    assert data != made()
    assert parse(data) == parse(made())


@given(st.binary(max_size=60))
def test_hostile_bytes_are_corrupt_and_nothing_else(data: bytes) -> None:
    for read in (parse, parse_header):
        with pytest.raises(Corrupt):
            read(data)


@given(st.integers(0, len(made()) - 1), st.binary(max_size=4), st.integers(0, 4))
def test_damaged_segment_is_corrupt_and_nothing_else(at: int, put: bytes, cut: int) -> None:
    data = made()
    damaged = data[:at] + put + data[at + cut :]
    try:
        assert parse(damaged) == parse(data)
    except Corrupt as why:
        assert "\n" not in str(why)


# ---------------------------------------------------------------- a piece of log


def chain(*positions: int) -> bytes:
    return b"".join(made(position=position) for position in positions)


def test_whole_segments_are_found() -> None:
    size = len(made())
    found = split(chain(7, 8, 9))
    assert found.bounds == ((7, 0, size), (8, size, 2 * size), (9, 2 * size, 3 * size))
    assert found.rest == 3 * size
    assert split(b"") == ((), 0)


def test_torn_end_is_left_over_at_every_byte() -> None:
    data, size = chain(7, 8), len(made())
    for end in range(size, 2 * size):
        assert split(data[:end]) == (((7, 0, size),), size)


def test_end_with_blocks_that_were_never_written_is_left_over() -> None:
    data, size = chain(7, 8), len(made())
    for start in range(size, 2 * size):
        for end in range(start + 1, 2 * size + 1):
            holed = data[:start] + bytes(end - start) + data[end:]
            assert split(holed) == (((7, 0, size),), size)


def test_unwritten_block_before_a_segment_is_corrupt() -> None:
    data, size = chain(7, 8), len(made())
    for start in range(size):
        holed = data[:start] + bytes(size - start) + data[size:]
        try:
            found = split(holed)
        except Corrupt:
            continue
        # The lines are counted, not checked: framing that survived leaves it to `parse`.
        assert len(found.bounds) == 2
        with pytest.raises(Corrupt):
            parse(holed[:size])


def test_place_of_the_damage_is_named() -> None:
    size = len(made())
    with pytest.raises(Corrupt, match=f"at byte {size}, behind segment 7: the header"):
        split(chain(7) + b"nonsense\n" + chain(8))
    with pytest.raises(Corrupt, match="at byte 0: a line of segment 7 is missing, and another"):
        split(made(b"1", b"2", b"3", b"4", b"5")[: -len("2.3.4.5.")] + chain(8))


@pytest.mark.parametrize("data", [b"", b"{}\n", made(position=8), made()[:-1], b"\n" + made()])
def test_log_refuses_what_it_could_not_find_again(data: bytes) -> None:
    with pytest.raises(Invalid, match="appended as segment 7 does not"):
        segments.check_framing(7, data)


def test_log_takes_a_segment() -> None:
    segments.check_framing(7, made())
