"""Verify finds every change of a stored ledger, names it, and finds nothing where nothing is wrong."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servo.adapters.memory import MemoryObjects
from servo.core import segments
from servo.core.segments import GENESIS, digest
from servo.errors import Invalid
from servo.events.envelope import Event, Fact, encode, moment
from servo.events.execution import TaskStarted
from servo.events.orchestration import RunTriggered
from servo.ledger.manifest import (
    EMPTY,
    File,
    TableFiles,
    manifest_path,
    parse,
    sealed,
    store_base,
    write_hint,
)
from servo.ledger.verify import Report, Walk, verify

PLAN = b'{"plan":1}'
REF = digest(PLAN)


def line(fact: Fact, number: int) -> bytes:
    return encode(
        Event(
            event_id=f"{number:026d}",
            event_type=type(fact).__name__,
            event_version=1,
            timestamp=moment(1_700_000_000_000_000 + number),
            source="test",
            tenant_id="t",
            workspace_id="w",
            domain=fact.domain,
            idempotency_key=fact.key(),
            payload=fact,
        )
    )


def started(number: int) -> bytes:
    return line(
        TaskStarted(
            run_id="R",
            task_key="a/b:materialize",
            attempt=1,
            attempt_id=f"a_{number}",
            worker_id="W",
        ),
        number,
    )


TRIGGER = line(
    RunTriggered(run_id="R", plan_object=REF, fingerprint="f", code_ref="c", request_hash="h"), 0
)


def chain(bodies: Sequence[Sequence[bytes]], start: int = 1, before: str = GENESIS) -> list[bytes]:
    """Segments with these lines, one after the other."""
    made = []
    for position, lines in enumerate(bodies, start):
        header, data = segments.encode(
            lines,
            position=position,
            prev_hash=before,
            writer_id="W",
            nonce=f"n{position}",
            epoch=1,
            kind="leader",
            written_at="2024-01-01T00:00:00.000000Z",
        )
        before = header.hash
        made.append(data)
    return made


LEDGER = chain([[TRIGGER], *([started(10 * n + i) for i in range(3)] for n in range(1, 8))])
HASHES = [segments.parse(data).header.hash for data in LEDGER]


def stored(
    files: dict[int, Sequence[bytes]], *, covered: int = len(LEDGER), revisions: int = 1
) -> dict[str, bytes]:
    """What lies in a workspace: parts by the position in their name, and manifests."""
    backing = {f"ledger/{first:020d}.jsonl": b"".join(some) for first, some in files.items()}
    backing[f"objects/{REF[7:]}"] = PLAN
    parent = EMPTY
    for revision in range(1, revisions + 1):
        last = revision == revisions
        parent, data = sealed(
            msgspec.structs.replace(
                EMPTY,
                revision=revision,
                parent_hash=parent.hash,
                position=covered if last else 0,
                ledger_hash=HASHES[covered - 1] if last and covered else GENESIS,
                hash="",
            )
        )
        backing[manifest_path(revision)] = data
    asyncio.run(write_hint(MemoryObjects(backing), revisions))
    return backing


def check(backing: dict[str, bytes], head: str | None = None) -> Report:
    return asyncio.run(verify(MemoryObjects(backing), head=head))


def whole() -> dict[str, bytes]:
    return stored({1: LEDGER[:5], 6: LEDGER[5:]})


def test_a_ledger_that_is_whole_has_no_findings() -> None:
    report = check(whole())
    assert report.findings == ()
    assert (report.segments, report.events, report.values) == (8, 22, 1)
    assert (report.position, report.hash) == (8, HASHES[-1])
    assert (report.revision, report.covered, report.torn) == (1, 8, 0)


def test_one_object_per_segment_is_a_ledger_too() -> None:
    assert check(stored({n: [data] for n, data in enumerate(LEDGER, 1)})).findings == ()


def test_an_empty_workspace_has_no_findings() -> None:
    report = check({})
    assert (report.findings, report.segments, report.hash) == ((), 0, GENESIS)


Change = Callable[[dict[str, bytes]], object]


def edit(name: str, change: Callable[[bytes], bytes]) -> Change:
    def apply(backing: dict[str, bytes]) -> None:
        backing[name] = change(backing[name])

    return apply


ONE, TWO = f"ledger/{1:020d}.jsonl", f"ledger/{6:020d}.jsonl"
MANIFEST = manifest_path(1)
REWRITTEN = chain([[started(n)] for n in range(99, 105)], start=3, before=HASHES[1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edit(ONE, lambda d: d.replace(b"a_11", b"a_19")), "a line of segment 2 was changed"),
        (
            edit(ONE, lambda d: d.replace(b'"nonce":"n3"', b'"nonce":"n9"')),
            "the header of segment 3 was changed",
        ),
        (
            edit(ONE, lambda d: d.replace(b'{"format":1,"position":3', b'{"format":1,"pos', 1)),
            "behind segment 2, the header of a segment cannot be read",
        ),
        (
            edit(ONE, lambda d: d.replace(started(21) + b"\n", b"")),
            "segment 3 has 2 lines, and its header says 3",
        ),
        (
            edit(ONE, lambda d: d.replace(started(21), started(21) + b"\n" + started(21))),
            "segment 3 has 4 lines, and its header says 3",
        ),
        (edit(ONE, lambda d: d.replace(LEDGER[2], b"")), "segment 3 is missing"),
        (
            edit(ONE, lambda d: d.replace(LEDGER[1] + LEDGER[2] + LEDGER[3], b"")),
            "segments 2 to 4 are missing",
        ),
        (
            edit(ONE, lambda d: d.replace(LEDGER[1] + LEDGER[2], LEDGER[2] + LEDGER[1])),
            "segment 2 is out of place",
        ),
        (edit(ONE, lambda d: d + LEDGER[1]), "segment 2 lies a second time"),
        (edit(ONE, lambda d: d[:-10]), "is cut short"),
        (
            edit(TWO, lambda d: d[:-10]),
            "the ledger ends with segment 7, and revision 1 covers it up to 8",
        ),
        (
            edit(TWO, lambda d: d + b"{}\n"),
            "behind segment 8, the header of a segment cannot be read",
        ),
        (lambda b: b.pop(ONE), "segments 1 to 5 are missing"),
        (lambda b: b.pop(TWO), "the ledger ends with segment 5, and revision 1 covers it up to 8"),
        (lambda b: b.update({ONE: b[TWO], TWO: b[ONE]}), "its name says another"),
        (
            lambda b: b.update(
                {ONE: b"".join(LEDGER[:2] + REWRITTEN[:3]), TWO: b"".join(REWRITTEN[3:])}
            ),
            "the ledger was rewritten at or before it",
        ),
        (
            edit(TWO, lambda d: d.replace(LEDGER[6], REWRITTEN[4])),
            "segment 8 does not follow segment 7",
        ),
        (
            lambda b: b.pop(f"objects/{REF[7:]}"),
            f"objects/{REF[7:]} is gone, and the RunTriggered at 1:0 names it",
        ),
        (edit(f"objects/{REF[7:]}", lambda d: d + b" "), "was changed: it does not match its name"),
        (lambda b: b.pop(MANIFEST), "names revision 1, and the newest there is 0"),
        (edit(MANIFEST, lambda d: b"{"), "revision 1 cannot be read"),
    ],
)
def test_what_was_changed_is_named(change: Change, said: str) -> None:
    backing = whole()
    change(backing)
    findings = check(backing).findings
    assert any(said in finding for finding in findings), findings


def test_a_revision_that_is_missing_is_named() -> None:
    backing = stored({1: LEDGER}, revisions=4)
    del backing[manifest_path(2)]
    [finding] = check(backing).findings
    assert finding.startswith("revision 2 is gone: ")


def test_all_that_is_wrong_is_listed() -> None:
    backing = whole()
    backing[ONE] = backing[ONE].replace(b"a_11", b"a_19").replace(LEDGER[3], b"")
    backing[TWO] = backing[TWO].replace(b"a_61", b"a_69")
    del backing[f"objects/{REF[7:]}"]
    assert len(check(backing).findings) == 4


@given(st.data())
def test_any_change_of_a_byte_that_is_covered_is_found(data: st.DataObject) -> None:
    backing = whole()
    name = data.draw(st.sampled_from([ONE, TWO]))
    at = data.draw(st.integers(0, len(backing[name]) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != backing[name][at]))
    backing[name] = backing[name][:at] + bytes([other]) + backing[name][at + 1 :]
    assert check(backing).findings


@given(st.data())
def test_any_cut_that_is_covered_is_found(data: st.DataObject) -> None:
    backing = whole()
    name = data.draw(st.sampled_from([ONE, TWO]))
    backing[name] = backing[name][: data.draw(st.integers(0, len(backing[name]) - 1))]
    assert check(backing).findings


@given(st.integers(1, len(LEDGER[-1]) - 1), st.booleans())
def test_a_torn_end_is_no_finding_until_somebody_vouched_for_it(cut: int, zeros: bool) -> None:
    torn = LEDGER[-1][:cut] + (b"\0" * (len(LEDGER[-1]) - cut) if zeros else b"")
    report = check(stored({1: [*LEDGER[:-1], torn]}, covered=7))
    assert (report.findings, report.torn, report.position) == ((), len(torn), 7)
    assert check(stored({1: [*LEDGER[:-1], torn]}, covered=8)).findings


def test_a_hash_that_was_noted_down_vouches_for_what_is_before_it() -> None:
    backing = stored({1: LEDGER}, covered=0)
    assert check(backing, HASHES[4]).noted == 5
    assert check(backing, HASHES[4].removeprefix("sha256:")).findings == ()
    backing[ONE] = b"".join(LEDGER[:4])
    assert check(backing).findings == ()
    [finding] = check(backing, HASHES[4]).findings
    assert "was noted down: the ledger was cut short or rewritten since" in finding
    with pytest.raises(Invalid, match="is not the hash of a segment"):
        check(backing, "nope")


def test_a_redacted_line_still_verifies_and_is_counted() -> None:
    backing = whole()
    gone = b'{"redacted":"sha256:' + hashlib.sha256(started(11)).hexdigest().encode() + b'"}'
    backing[ONE] = backing[ONE].replace(started(11), gone)
    report = check(backing)
    assert (report.findings, report.redacted, report.events) == ((), 1, 22)


def test_events_of_unknown_types_are_counted_and_no_finding() -> None:
    unknown = started(5).replace(b"TaskStarted", b"CheckPassed")
    report = check(stored({1: chain([[unknown]])}, covered=0))
    assert (report.findings, report.unknown) == ((), 1)


def test_a_line_that_is_no_event_is_named_though_its_hash_is_right() -> None:
    report = check(stored({1: chain([[started(1), b'{"x":1}']])}, covered=0))
    [finding] = report.findings
    assert finding.startswith("event 1:1: a line of the ledger is no event")


def test_a_line_may_begin_like_a_header() -> None:
    odd = b'{"format":9,' + started(1)[1:]
    report = check(stored({1: chain([[odd, odd], [started(2)]])}, covered=0))
    assert (report.findings, report.segments, report.events) == ((), 2, 3)


def test_a_walk_needs_no_store() -> None:
    walk = Walk()
    walk.end()
    assert (walk.findings, walk.last) == ([], None)


# Tables


def file(path: str, data: bytes) -> File:
    return File(
        path=path,
        sha256=digest(data),
        rows=1,
        bytes=len(data),
        key_range=(("a",), ("b",)),
        position_range=(1, 8),
    )


def with_tables() -> dict[str, bytes]:
    """A ledger, and a revision with a base file and two L0 files in two tables."""
    backing = whole()
    backing |= {"tables/a/1.parquet": b"one", "tables/a/2.parquet": b"two"}
    backing |= {"tables/b/3.parquet": b"three"}
    base = asyncio.run(store_base(MemoryObjects(backing), [file("tables/a/1.parquet", b"one")]))
    newest = parse(backing[MANIFEST], 1)
    _, backing[MANIFEST] = sealed(
        msgspec.structs.replace(
            newest,
            tables={
                "a": TableFiles(
                    schema_version=1, base=base, l0=(file("tables/a/2.parquet", b"two"),)
                ),
                "b": TableFiles(schema_version=1, l0=(file("tables/b/3.parquet", b"three"),)),
            },
        )
    )
    return backing


def base_list(backing: dict[str, bytes]) -> str:
    [path] = [p for p in backing if p.startswith("objects/") and p != f"objects/{REF[7:]}"]
    return path


def test_files_of_the_newest_revision_are_counted() -> None:
    report = check(with_tables())
    assert (report.findings, report.table_findings, report.files) == ((), (), 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda b: b.pop("tables/a/1.parquet"),
            "tables/a/1.parquet is gone, and revision 1 names it for table 'a'",
        ),
        (
            lambda b: b.pop("tables/b/3.parquet"),
            "tables/b/3.parquet is gone, and revision 1 names it for table 'b'",
        ),
        (
            edit("tables/a/2.parquet", lambda d: d + b" "),
            "tables/a/2.parquet was changed: it does not match the hash that revision 1 has for it",
        ),
        (lambda b: b.pop(base_list(b)), "table 'a' of revision 1: the stored value objects/"),
        (
            lambda b: b.update({base_list(b): b"[]"}),
            "table 'a' of revision 1: the stored value objects/",
        ),
    ],
)
def test_a_table_file_that_was_changed_is_named(change: Change, said: str) -> None:
    backing = with_tables()
    change(backing)
    report = check(backing)
    [finding] = report.table_findings
    assert finding.startswith(said)
    assert report.findings == ()  # the ledger is what was written, and can replace them


def test_a_revision_that_does_not_follow_the_one_before_is_named() -> None:
    backing = stored({1: LEDGER}, revisions=4)
    older = parse(backing[manifest_path(2)], 2)
    _, backing[manifest_path(2)] = sealed(msgspec.structs.replace(older, epoch=7))
    findings = check(backing).findings
    assert any(f.startswith("revision 3 names ") and "as its parent" in f for f in findings)


def test_a_first_revision_with_a_parent_is_named() -> None:
    backing = stored({1: LEDGER})
    first = parse(backing[MANIFEST], 1)
    _, backing[MANIFEST] = sealed(msgspec.structs.replace(first, parent_hash=HASHES[0]))
    assert any(f.startswith("revision 1 names a parent") for f in check(backing).findings)


def test_an_older_revision_that_cannot_be_read_is_named() -> None:
    backing = stored({1: LEDGER}, revisions=3)
    backing[manifest_path(1)] = b"{"
    report = check(backing)
    [finding] = report.findings
    assert finding.startswith("revision 1 cannot be read")
    assert (report.revision, report.covered) == (3, 8)
