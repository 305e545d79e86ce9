"""Verify: is the ledger what was written, from the first segment to the last?

    part      a stored piece of the ledger: `ledger/{first:020d}.jsonl`, whole segments in order
    finding   one sentence about one place that is not as it was written
    anchor    a hash from outside the ledger that vouches for everything before it: the newest
              manifest's, and the one that the caller noted down

Three things are checked. Each segment by itself: its header against its hash, its lines against the
root, every line as an event. The chain: positions without gaps, each header naming the hash of the
segment before it. And the anchors: somebody who rewrites the chain from some segment on can make it
agree with itself again, but not with a hash that lies elsewhere. Values that facts name (plans,
definitions) are part of the ledger, and are checked against their names.

Manifests are checked as the chain they are: each names the hash of the one before it. Of the newest,
every list of base files and every table file is checked against its hash. Tables can be made again from
the ledger, so these findings stand apart. Not checked: whether the rows are what the ledger folds to,
and files that only older revisions name.

A finding does not end the search: it goes on with the next header that is one. What a torn end is
(`servo.core.segments`) is no finding, unless an anchor says that there was more.

Others may write meanwhile. Anchors are read first, so that the ledger can only be longer than they
say. Parts are listed, which nothing else that has to be right may do: what the listing leaves out is
missed by the chain or by the anchors.
"""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

import msgspec

from servo.core import segments
from servo.core.segments import GENESIS, Header, digest
from servo.errors import Corrupt, Invalid
from servo.events.catalog import DeploymentCreated
from servo.events.envelope import Unknown
from servo.events.execution import TaskFinished
from servo.events.orchestration import RunTriggered
from servo.events.vocabulary import VOCABULARY
from servo.ledger import manifest as manifests
from servo.ledger.manifest import EMPTY, HINT_PATH, File, Manifest
from servo.ledger.objects import value_path
from servo.ports.objects import Objects

_PART = re.compile(r"ledger/(\d{20})\.jsonl\Z")
_MANIFEST = re.compile(r"manifests/(\d{20})\.json\Z")
_HASH = re.compile(r"(?:sha256:)?([0-9a-f]{64})\Z")
_HEADER = b'{"format":'
_BOUNDARY = b"\n" + _HEADER

LISTED = 8
"""How many places one sentence names."""


class Part(NamedTuple):
    name: str
    first: int
    data: bytes


class Report(NamedTuple):
    segments: int
    events: int
    redacted: int
    unknown: int
    """Events of types that this Servo does not know."""
    values: int
    size: int
    position: int
    """Of the last segment."""
    hash: str
    torn: int
    """Bytes of a torn end; 0 if there is none."""
    revision: int
    covered: int
    """The position that the newest manifest vouches for."""
    files: int
    """Table files that the newest manifest names."""
    noted: int | None
    """The position of the hash that the caller noted down."""
    findings: tuple[str, ...]
    """About the ledger, its values and the manifests."""
    table_findings: tuple[str, ...]
    """About files that the ledger can replace."""


async def verify(objects: Objects, *, head: str | None = None) -> Report:
    """Check the whole ledger of a workspace. `head`: a hash that it had at some time."""
    noted = None if head is None else parse_hash(head)
    newest, findings = await _newest_manifest(objects)
    walk = Walk([newest.ledger_hash, *([noted] if noted else [])])
    async for part in parts(objects):
        walk.take(part)
    walk.end()
    findings = [*findings, *walk.findings, *_anchored(walk, newest, noted)]
    for ref, named_by in walk.values.items():
        findings += await _check_value(objects, ref, named_by)
    files, table_findings = await _check_tables(objects, newest)
    return Report(
        segments=walk.segments,
        events=walk.events,
        redacted=walk.redacted,
        unknown=walk.unknown,
        values=len(walk.values),
        size=walk.size,
        position=walk.last.position if walk.last else 0,
        hash=walk.last.hash if walk.last else GENESIS,
        torn=walk.torn,
        revision=newest.revision,
        covered=newest.position,
        files=files,
        noted=walk.found.get(noted) if noted else None,
        findings=tuple(findings),
        table_findings=tuple(table_findings),
    )


def parse_hash(text: str) -> str:
    match = _HASH.match(text.strip().lower())
    if match is None:
        raise Invalid(
            f"{text[:80]!r} is not the hash of a segment; give the one that 'servo ledger verify'"
            " printed, sha256: and 64 hex digits"
        )
    return f"sha256:{match[1]}"


async def parts(objects: Objects) -> AsyncIterator[Part]:
    """The stored pieces of the ledger, in order."""
    names = [info.path async for info in objects.list("ledger/")]
    for name in sorted(names):
        match = _PART.match(name)
        data = await objects.get(name) if match else None
        if match and data:  # an empty one was begun, and its writer did not come further
            yield Part(name, int(match[1]), data)


class Walk:
    """One pass over the parts of a ledger, in order. Pure."""

    def __init__(self, anchors: Iterable[str] = ()) -> None:
        self.findings: list[str] = []
        self.segments = self.events = self.redacted = self.unknown = self.size = 0
        self.last: Header | None = None
        """The segment with the highest position."""
        self.found: dict[str, int] = dict.fromkeys(anchors, 0)
        """The position of each anchor; 0 while it was not met."""
        self.values: dict[str, str] = {}
        """Refs of values, and the event that named each first."""
        self.torn = 0
        self._gaps: list[tuple[int, int, str]] = []
        self._strays: dict[int, str] = {}
        self._part: Part | None = None
        self._torn: tuple[str, int] | None = None

    def take(self, part: Part) -> None:
        if self._torn is not None:
            name, size = self._torn
            self.findings.append(
                f"{name} is cut short: its last {size:,} bytes are no whole segment, and"
                f" {part.name} follows it"
            )
            self._torn = None
        self._part = part
        self.size += len(part.data)
        data, at = part.data, 0
        while at < len(data):
            end = data.find(_BOUNDARY, at) + 1 or len(data)
            try:
                found = segments.parse(data[at:end])
            except Corrupt as error:
                at = self._damaged(data, at, end, error)
                continue
            if at == 0 and found.header.position != part.first:
                self._say(
                    0, f"it begins with segment {found.header.position}, and its name says another"
                )
            self._chain(at, found.header)
            self._lines(found.header, found.lines)
            at = end

    def end(self) -> None:
        """After the last part: what was out of place is not missing."""
        if self._torn is not None:
            self.torn = self._torn[1]
        for first, last, where in self._gaps:
            gone = [n for n in range(first, last + 1) if n not in self._strays]
            moved = [n for n in range(first, last + 1) if n in self._strays]
            if gone:
                self.findings.append(f"{_segments(gone)} missing: {where}")
            self.findings += [
                f"segment {n} is out of place: it lies in {self._strays.pop(n)}" for n in moved
            ]
        self.findings += [
            f"segment {n} lies a second time in {where}" for n, where in self._strays.items()
        ]

    @property
    def _next(self) -> int:
        return self.last.position + 1 if self.last else 1

    def _damaged(self, data: bytes, at: int, end: int, error: Corrupt) -> int:
        """Say what is wrong with the segment at a byte; where to go on."""
        following = _following_header(data, at)
        stop = data.find(b"\n", at)
        try:
            header = segments.parse_header(data[at : stop if stop >= 0 else len(data)])
        except Corrupt:
            if following is None and (stop < 0 or b"\0" in data[at:]):
                return self._tear(at)
            self._say(at, f"{_after(self.last)} {error}")
            return len(data) if following is None else following
        # A line of another Servo may begin like a header: its own count decides.
        exact = _lines_end(data, at, header.count + 1)
        if exact is not None and exact != end:
            try:
                found = segments.parse(data[at:exact])
            except Corrupt:
                pass
            else:
                self._chain(at, found.header)
                self._lines(found.header, found.lines)
                return exact
        if following is None and (exact is None or b"\0" in data[at:]):
            return self._tear(at)
        end = len(data) if following is None else following
        body = data[stop + 1 : end].removesuffix(b"\n").split(b"\n")
        self._say(
            at,
            f"a line of segment {header.position} was changed: the lines do not match their root"
            if len(body) == header.count
            else f"segment {header.position} has {_number(len(body), 'line')}, and its header says"
            f" {header.count}",
        )
        self._chain(at, header)
        self._lines(header, body)
        return end

    def _chain(self, at: int, header: Header) -> None:
        self.segments += 1
        if header.hash in self.found:
            self.found[header.hash] = header.position
        assert self._part is not None
        where = f"{self._part.name} at byte {at:,}"
        if header.position < self._next:
            self._strays[header.position] = f"{where}, behind segment {self._next - 1}"
            return
        if header.position > self._next:
            self._gaps.append(
                (
                    self._next,
                    header.position - 1,
                    f"in {where} segment {header.position} follows {_name(self.last)}",
                )
            )
        else:
            before = self.last.hash if self.last else GENESIS
            if header.prev_hash != before:
                self._say(
                    at,
                    f"segment {header.position} does not follow {_name(self.last)}: it names"
                    f" {_short(header.prev_hash)} as the hash before it, and that is"
                    f" {_short(before)}; one of the two was replaced",
                )
        self.last = header

    def _lines(self, header: Header, body: Sequence[bytes]) -> None:
        self.events += len(body)
        decode = VOCABULARY.decode
        for index, line in enumerate(body):
            try:
                event = decode(line)
            except Corrupt as error:
                if segments.is_redacted(line):
                    self.redacted += 1
                else:
                    self.findings.append(f"event {header.position}:{index}: {error}")
                continue
            fact = event.payload
            kind = type(fact)
            ref = None
            if kind is RunTriggered:
                ref = fact.plan_object
            elif kind is DeploymentCreated:
                ref = fact.manifest_object
            elif kind is TaskFinished:
                ref = fact.error.traceback_object if fact.error is not None else None
            elif kind is Unknown:
                self.unknown += 1
            if ref is not None and ref not in self.values:
                self.values[ref] = f"the {event.event_type} at {header.position}:{index}"

    def _tear(self, at: int) -> int:
        assert self._part is not None
        size = len(self._part.data)
        self._torn = (self._part.name, size - at)
        return size

    def _say(self, at: int, what: str) -> None:
        assert self._part is not None
        self.findings.append(f"{self._part.name} at byte {at:,}: {what}")


def _following_header(data: bytes, at: int) -> int | None:
    """Where the next header is that is one; not only behind a newline, which may be lost."""
    while (at := data.find(_HEADER, at + 1)) >= 0:
        end = data.find(b"\n", at)
        try:
            segments.parse_header(data[at : end if end >= 0 else len(data)])
        except Corrupt:
            continue
        return at
    return None


def _lines_end(data: bytes, at: int, count: int) -> int | None:
    """Where so many lines end; None if there are fewer."""
    for _ in range(count):
        at = data.find(b"\n", at) + 1
        if not at:
            return None
    return at


def _anchored(walk: Walk, newest: Manifest, noted: str | None) -> list[str]:
    findings = []
    end = walk.last.position if walk.last else 0
    if newest.position and walk.found.get(newest.ledger_hash) != newest.position:
        findings.append(
            f"the ledger ends with segment {end}, and revision {newest.revision} covers it up to"
            f" {newest.position}: it was cut short"
            if end < newest.position
            else f"revision {newest.revision} vouches for segment {newest.position} with the hash"
            f" {_short(newest.ledger_hash)}, and the segment there has another: the ledger was"
            " rewritten at or before it"
        )
    if noted is not None and not walk.found.get(noted):
        findings.append(
            f"no segment has the hash {_short(noted)} that was noted down: the ledger was cut short"
            " or rewritten since"
        )
    return findings


async def _newest_manifest(objects: Objects) -> tuple[Manifest, list[str]]:
    """The newest manifest that can be read, and what is wrong with the chain of them."""
    findings: list[str] = []
    hinted = _hinted(await objects.get(HINT_PATH))
    listed = [_MANIFEST.match(info.path) async for info in objects.list("manifests/")]
    there = sorted(int(match[1]) for match in listed if match)
    newest = there[-1] if there else 0
    if hinted > newest:
        findings.append(
            f"{HINT_PATH} names revision {hinted}, and the newest there is {newest}: revision"
            f" {hinted} is gone"
        )
    gone = sorted(set(range(1, newest)) - set(there))
    if gone:
        findings.append(
            f"{_listed('revision', gone)} gone: {manifests.manifest_path(gone[0])} is not there,"
            f" and revision {newest} is"
        )
    best, following = EMPTY, None
    for revision in reversed(there):
        found = None
        try:
            found = await manifests.load(objects, revision)
            if found is not None and following is not None and following.revision == revision + 1:
                manifests.check_follows(found, following)
        except Corrupt as error:
            findings.append(str(error))
        following = found
        if found is not None and not best.revision:
            best = found
    if following is not None and following.revision == 1 and following.parent_hash != GENESIS:
        findings.append("revision 1 names a parent, and there is none before it: it was changed")
    return best, findings


async def _check_tables(objects: Objects, newest: Manifest) -> tuple[int, list[str]]:
    """How many files a revision names, and what is wrong with them."""
    count, findings = 0, []
    for name, table in newest.tables.items():
        base: list[File] = []
        if table.base is not None:
            try:
                base = await manifests.load_base(objects, table.base)
            except (Corrupt, Invalid) as error:
                findings.append(f"table {name!r} of revision {newest.revision}: {error}")
        for file in (*base, *table.l0):
            count += 1
            data = await objects.get(file.path)
            if data is None:
                findings.append(
                    f"{file.path} is gone, and revision {newest.revision} names it for table {name!r}"
                )
            elif digest(data) != file.sha256:
                findings.append(
                    f"{file.path} was changed: it does not match the hash that revision"
                    f" {newest.revision} has for it"
                )
    return count, findings


def _hinted(data: bytes | None) -> int:
    try:
        return int(msgspec.json.decode(data or b"")["revision"])
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, UnicodeError):
        return 0  # a hint may be lost or garbage


async def _check_value(objects: Objects, ref: str, named_by: str) -> list[str]:
    try:
        path = value_path(ref)
    except Invalid:
        return [f"{named_by} names {ref[:80]!r}, which is not the name of a value"]
    data = await objects.get(path)
    if data is None:
        return [f"{path} is gone, and {named_by} names it"]
    if digest(data) != ref:
        return [f"{path} was changed: it does not match its name ({named_by} names it)"]
    return []


def _listed(noun: str, numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:LISTED]))
    more = f" and {len(numbers) - LISTED:,} more" if len(numbers) > LISTED else ""
    return f"{noun}{'s' if len(numbers) > 1 else ''} {shown}{more} {'are' if numbers[1:] else 'is'}"


def _segments(numbers: Sequence[int]) -> str:
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"segments {numbers[0]} to {numbers[-1]} are"
    return _listed("segment", numbers)


def _name(header: Header | None) -> str:
    return f"segment {header.position}" if header else "nothing"


def _after(header: Header | None) -> str:
    return f"behind segment {header.position}," if header else "at the beginning,"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _short(text: str) -> str:
    return text[:19] + "…"
