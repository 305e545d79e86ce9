"""Manifests: numbered snapshots of all tables, format 1.

    revision    the number of a manifest, from 1, without gaps: `manifests/{revision:020d}.json`
    hash        SHA-256 of a manifest's bytes; the next one names it, so the newest vouches for all
    L0          files with the latest changes of a table, listed in the manifest itself
    base        a table's merged files: a list of them is a value (`servo.ledger.objects`), because it
                is long, changes seldom, and is shared by many revisions
    hint        `manifests/_hint`, a revision near the newest. It may be lost, old, wrong or garbage

A manifest is created once and never changes; its bytes are canonical JSON. Along the chain revision
grows by one, and position, epoch and `published_at` never decrease. One manifest names the files of all
tables, so all of them become visible at one instant. Only `servo.ledger.publisher` creates manifests.

The newest one is found by probing, without a listing: revisions have no gaps, so "there is one" is
true up to the newest and false after it. Nothing removes a manifest yet; whoever will must first make
a durable floor, from which this search begins.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec

from servo.core import canonical
from servo.core.segments import GENESIS, digest
from servo.errors import Corrupt, Unavailable
from servo.fold.table import Key
from servo.ledger.objects import get_value, put_value
from servo.ports.objects import Objects

FORMAT = 1
HINT_PATH = "manifests/_hint"
_MAX_REVISION = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z")


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of one table. Ranges include both ends."""

    path: str
    sha256: str
    rows: int
    bytes: int
    key_range: tuple[Key, Key]
    position_range: tuple[int, int]


class TableFiles(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int
    base: str | None = None
    l0: tuple[File, ...] = ()
    l0_since: str | None = None
    """`published_at` of the revision that listed the oldest L0 file first."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    revision: int
    parent_hash: str
    epoch: int
    published_at: str
    position: int
    ledger_hash: str
    packs: str | None = None
    tables: Mapping[str, TableFiles]
    hash: str = ""
    """Of the bytes, and therefore not among them."""


EMPTY = Manifest(
    format=FORMAT,
    revision=0,
    parent_hash=GENESIS,
    epoch=0,
    published_at="1970-01-01T00:00:00.000000Z",
    position=0,
    ledger_hash=GENESIS,
    tables={},
    hash=GENESIS,
)
"""What there is before anything was published: the parent of revision 1. It is not stored."""

_decoder = msgspec.json.Decoder(Manifest)
_files_decoder = msgspec.json.Decoder(list[File])


def moment_text(moment: int) -> str:
    """Microseconds since 1970 as RFC 3339 in UTC; texts of this form sort like the moments."""
    when = _EPOCH + timedelta(microseconds=moment)
    return when.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def moment_of(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def manifest_path(revision: int) -> str:
    return f"manifests/{revision:020d}.json"


def encode(manifest: Manifest) -> bytes:
    fields = msgspec.to_builtins(manifest)
    del fields["hash"]
    return canonical.dumps(fields)


def sealed(manifest: Manifest) -> tuple[Manifest, bytes]:
    """A new manifest with its hash, and its bytes."""
    data = encode(manifest)
    return msgspec.structs.replace(manifest, hash=digest(data)), data


def parse(data: bytes, revision: int) -> Manifest:
    """The manifest found at the place of `revision`."""
    try:
        manifest = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Corrupt(
            f"revision {revision} cannot be read: {manifest_path(revision)} holds no manifest"
            f" ({error}); restore it from a copy"
        ) from None
    if manifest.format != FORMAT:
        raise Corrupt(
            f"revision {revision} has format {manifest.format}, and this Servo reads {FORMAT};"
            " upgrade Servo"
        )
    if manifest.revision != revision:
        raise Corrupt(
            f"where revision {revision} should be lies revision {manifest.revision};"
            f" restore {manifest_path(revision)} from a copy"
        )
    if not _MOMENT.match(manifest.published_at) or manifest.position < 0 or manifest.epoch < 0:
        raise Corrupt(f"revision {revision} says what no publisher writes")
    return msgspec.structs.replace(manifest, hash=digest(data))


def check_follows(parent: Manifest, child: Manifest) -> None:
    """That one manifest is the next in the chain after the other."""
    if child.parent_hash != parent.hash:
        raise Corrupt(
            f"revision {child.revision} names {child.parent_hash} as its parent, but revision"
            f" {parent.revision} hashes to {parent.hash}: one of the two was changed"
        )
    if (
        child.position < parent.position
        or child.epoch < parent.epoch
        or child.published_at < parent.published_at
    ):
        raise Corrupt(
            f"revision {child.revision} goes back behind revision {parent.revision} in position,"
            " epoch or time, which no publisher does"
        )


async def load(objects: Objects, revision: int) -> Manifest | None:
    """The manifest of a revision, or None if there is none."""
    data = await objects.get(manifest_path(revision))
    return None if data is None else parse(data, revision)


async def find_newest(objects: Objects) -> Manifest:
    """The newest manifest, or `EMPTY`. With a good hint: three calls."""
    hint = await _read_hint(objects)
    newest = await load(objects, hint) if hint else None
    if newest is None:
        low = await _last_existing(objects, 0, hint or None)
    elif await objects.head(manifest_path(hint + 1)) is None:
        return newest
    else:
        low = await _last_existing(objects, hint + 1, None)
    newest = await load(objects, low) if low else EMPTY
    if newest is None:
        raise Corrupt(f"revision {low} was there a moment ago and is gone; restore it from a copy")
    # Others publish while we search, and theirs count if they are there when we look.
    while (following := await load(objects, newest.revision + 1)) is not None:
        check_follows(newest, following)
        newest = following
    return newest


async def _last_existing(objects: Objects, low: int, high: int | None) -> int:
    """The last revision that exists: `low` does (or is 0), and `high`, if given, does not."""
    step = 1
    while high is None:
        if await objects.head(manifest_path(low + step)) is None:
            high = low + step
        else:
            low += step
            step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if await objects.head(manifest_path(middle)) is None:
            high = middle
        else:
            low = middle
    return low


class _Hint(msgspec.Struct):
    revision: int


async def _read_hint(objects: Objects) -> int:
    """The hinted revision, or 0 where there is no sensible one."""
    data = await objects.get(HINT_PATH)
    try:
        revision = msgspec.json.decode(data or b"", type=_Hint).revision
    except (msgspec.DecodeError, UnicodeError):
        return 0
    return revision if 0 < revision < _MAX_REVISION else 0


async def write_hint(objects: Objects, revision: int) -> None:
    """Best effort: without it the newest is found all the same, only later."""
    with suppress(Unavailable):
        await objects.put(HINT_PATH, canonical.dumps({"revision": revision}))


async def load_base(objects: Objects, ref: str) -> list[File]:
    """The files that a base list names, sorted by key."""
    data = await get_value(objects, ref)
    try:
        return _files_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Corrupt(f"the list of base files {ref} cannot be read ({error})") from None


async def store_base(objects: Objects, files: Sequence[File]) -> str:
    return await put_value(objects, canonical.dumps(msgspec.to_builtins(files)))
