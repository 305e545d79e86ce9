"""Publishing: changed rows become files, and one new manifest makes all of them visible.

    parent     the newest manifest that this publisher knows; what it publishes comes after it
    adopt      take another's manifest as the parent: its rows are of the same log
    merge      write a table's L0 files and the base files they touch anew, as base files

Order of writes, each durable before the next:

    L0 files  ──▶  [ merged base files  ──▶  their list ]  ──▶  manifest parent+1  ──▶  hint
    tables/…       tables/…                 objects/…          manifests/…            manifests/_hint

The manifest is created only if its number is free, which is the one instant at which anything changes
for readers. Whatever stops a publisher before it leaves files that nobody names; after it only the
hint is old, which costs readers a few probes. Files have names that nobody else uses.

If the number is taken, what lies there decides:

    our own bytes                           our answer was lost: it is published
    a higher epoch                          Fenced: somebody newer leads
    a position beyond ours                  Conflict: catch up with the ledger, then publish again
    anything else                           adopt it, and try the next number with the same L0 files

A manifest adopted is checked to follow its parent, so the chain has no forks and no gaps. Position,
epoch and `published_at` never decrease along it; a clock that went back is held at the parent's time.
Any order of publishes gives the same tables, because of two rows with one key the newer one counts.

Only the leader publishes; two that believe to lead may race, and rows of neither are lost. A new
leader publishes once, with or without rows: from then on the one before it is fenced.

A table is merged at `MERGE_FILES` L0 files, `MERGE_BYTES` of them, or an hour after the first. Base
files have disjoint key ranges and at most `BASE_ROWS` rows; only those that changes fall into are
written anew, so that the cost of a merge follows the changes and not the history.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from servo.core.segments import digest
from servo.errors import Conflict, Corrupt, Fenced, Invalid
from servo.fold.table import Key, Row, Table
from servo.ledger import parquet
from servo.ledger.manifest import (
    EMPTY,
    FORMAT,
    File,
    Manifest,
    TableFiles,
    check_follows,
    find_newest,
    load,
    load_base,
    manifest_path,
    moment_of,
    moment_text,
    parse,
    sealed,
    store_base,
    write_hint,
)
from servo.ledger.objects import create
from servo.ledger.snapshot import read_frames
from servo.ports.objects import Objects

if TYPE_CHECKING:
    from arro3.core import Table as Frame

MERGE_FILES = 50
MERGE_BYTES = 256 * 2**20
MERGE_AFTER = 3600 * 1_000_000
BASE_ROWS = 65_536
KEPT_BYTES = 64 * 2**20


class Publisher:
    def __init__(self, objects: Objects, new_id: Callable[[], str]) -> None:
        self._objects = objects
        self._new_id = new_id
        self._newest: Manifest | None = None
        # L0 files that we wrote and that are not merged yet, so that a merge need not read them.
        self._kept: dict[str, tuple[Table, Frame]] = {}

    @property
    def newest(self) -> Manifest:
        """The newest manifest that this publisher published, adopted or found."""
        return self._newest or EMPTY

    async def open(self) -> Manifest:
        """Look for the newest manifest. A new leader does this once."""
        self._newest = await find_newest(self._objects)
        return self._newest

    async def publish(
        self,
        *,
        position: int,
        ledger_hash: str,
        epoch: int,
        published_at: int,
        rows: Mapping[Table, Sequence[Row]],
    ) -> Manifest:
        """Make rows visible, as of a position of the ledger.

        A table that is named without rows is only looked at for merging; one that is not named stays
        as it is. After `Unavailable` (and `Uncertain`) the same rows may be published again.
        """
        parent = await self.open() if self._newest is None else self._newest
        ours = _Ours(position, ledger_hash, epoch)
        ours.check(parent)
        _check_schemas(parent, rows)
        changed = {table: parquet.newest(table, some) for table, some in rows.items() if some}
        written = await self._write_changes(changed, parent.revision + 1, position)
        while True:
            now = max(moment_text(published_at), parent.published_at)
            manifest, data = sealed(
                Manifest(
                    format=FORMAT,
                    revision=parent.revision + 1,
                    parent_hash=parent.hash,
                    epoch=epoch,
                    published_at=now,
                    position=position,
                    ledger_hash=ledger_hash,
                    packs=parent.packs,
                    tables=await self._tables(parent, now, list(rows), written),
                )
            )
            found = await create(self._objects, manifest_path(manifest.revision), data)
            if found is None:
                self._newest = manifest
                self._keep(manifest, written)
                await write_hint(self._objects, manifest.revision)
                return manifest
            parent = await self._adopt(parent, parse(found, manifest.revision))
            ours.check(parent)
            _check_schemas(parent, rows)

    async def _adopt(self, parent: Manifest, other: Manifest) -> Manifest:
        """Take over the manifest that was first, and those that came after it."""
        following: Manifest | None = other
        while following is not None:
            check_follows(parent, following)
            self._newest = parent = following
            following = await load(self._objects, parent.revision + 1)
        return parent

    def _keep(self, manifest: Manifest, written: Mapping[Table, tuple[File, "Frame"]]) -> None:
        listed = {file.path for files in manifest.tables.values() for file in files.l0}
        kept = {
            **self._kept,
            **{file.path: (table, frame) for table, (file, frame) in written.items()},
        }
        self._kept = {path: known for path, known in kept.items() if path in listed}
        held = sum(frame.nbytes for _, frame in self._kept.values())
        while held > KEPT_BYTES:
            _, frame = self._kept.pop(next(iter(self._kept)))
            held -= frame.nbytes

    async def _tables(
        self,
        parent: Manifest,
        now: str,
        named: Sequence[Table],
        written: Mapping[Table, tuple[File, "Frame"]],
    ) -> dict[str, TableFiles]:
        """What the manifest after `parent` says of each table."""
        tables = dict(parent.tables)
        for table in named:
            files = tables.get(table.name, TableFiles(schema_version=table.schema_version))
            if table in written:
                file, _ = written[table]
                files = TableFiles(
                    schema_version=table.schema_version,
                    base=files.base,
                    l0=(*files.l0, file),
                    l0_since=files.l0_since or now,
                )
            if _is_due(files, now):
                # A frame of another version of the table has other columns: it is read again.
                known = {path: kept for path, (of, kept) in self._kept.items() if of == table}
                if table in written:
                    known[written[table][0].path] = written[table][1]
                files = await self._merge(table, files, known, parent.revision + 1)
            if table.name in tables or files.l0 or files.base:
                tables[table.name] = files
        return tables

    async def _merge(
        self, table: Table, files: TableFiles, known: Mapping[str, "Frame"], revision: int
    ) -> TableFiles:
        unknown = [file for file in files.l0 if file.path not in known]
        read = await read_frames(self._objects, table, unknown)
        frames = {**known, **{file.path: frame for file, frame in zip(unknown, read, strict=True)}}
        # In a thread: fifty files take most of a second, and the engine has other things to do.
        parts = [frames[file.path] for file in files.l0]
        changes = await asyncio.to_thread(parquet.merge, table, parts)
        keys = await asyncio.to_thread(parquet.keys_of, table, changes)
        base = await load_base(self._objects, files.base) if files.base else []
        # Base file i takes the keys from its first one up to the first one of the next. The first
        # file takes the smaller ones too, and the last one has no end.
        cuts = [0, *(bisect_left(keys, file.key_range[0]) for file in base[1:]), len(keys)]
        merged: list[File] = []
        if not base:
            merged += await self._write_base(table, changes, revision, last=True)
        for file, start, end in zip(base, cuts, cuts[1:], strict=False):
            if start == end:
                merged.append(file)
                continue
            part = changes.slice(start, end - start)
            old = await read_frames(self._objects, table, [file])
            frame = await asyncio.to_thread(parquet.merge, table, [*old, part])
            merged += await self._write_base(table, frame, revision, last=file is base[-1])
        return TableFiles(
            schema_version=max(files.schema_version, table.schema_version),
            base=await store_base(self._objects, merged),
        )

    async def _write_base(
        self, table: Table, frame: "Frame", revision: int, *, last: bool
    ) -> list[File]:
        # At the end full files and a rest: most keys grow with time, so that the rest grows and the
        # full ones are left alone. In the middle even parts, which leave room to grow in each.
        total = frame.num_rows
        size = BASE_ROWS if last else -(-total // -(-total // BASE_ROWS))
        return [
            await self._write(table, frame.slice(at, min(size, total - at)), revision)
            for at in range(0, total, size)
        ]

    async def _write_changes(
        self, changed: Mapping[Table, Sequence[Row]], revision: int, position: int
    ) -> dict[Table, tuple[File, "Frame"]]:
        frames = await asyncio.to_thread(_frames, changed)
        for table, rows in changed.items():
            ahead = max(table.row_place(row)[0] for row in rows)
            if ahead > position:
                raise Invalid(
                    f"table {table.name!r} has a row of position {ahead}, and only position"
                    f" {position} is published; fold no further than what is published"
                )
        # All of them are waited for, also when one fails: a write must not go on behind our back.
        results = await asyncio.gather(
            *(self._write(table, frame, revision) for table, frame in frames.items()),
            return_exceptions=True,
        )
        written = {}
        for (table, frame), result in zip(frames.items(), results, strict=True):
            if isinstance(result, BaseException):
                raise result
            written[table] = (result, frame)
        return written

    async def _write(self, table: Table, frame: "Frame", revision: int) -> File:
        """Write a frame of sorted rows as a file with a name of its own."""
        path = f"tables/{table.name}/{revision:020d}-{self._new_id()}.parquet"
        data, first, last, positions = await asyncio.to_thread(_file, table, frame)
        if await create(self._objects, path, data) is not None:
            raise Corrupt(
                f"table {table.name!r}: its new file {path} was written by somebody else; ids are"
                " not unique on this machine"
            )
        return File(
            path=path,
            sha256=digest(data),
            rows=frame.num_rows,
            bytes=len(data),
            key_range=(first, last),
            position_range=positions,
        )


def _frames(changed: Mapping[Table, Sequence[Row]]) -> dict[Table, "Frame"]:
    return {table: parquet.frame_of(table, rows) for table, rows in changed.items()}


def _file(table: Table, frame: "Frame") -> tuple[bytes, Key, Key, tuple[int, int]]:
    """The bytes of a file, its first and last key, and its lowest and highest position."""
    [first] = parquet.keys_of(table, frame.slice(0, 1))
    [last] = parquet.keys_of(table, frame.slice(frame.num_rows - 1, 1))
    positions = parquet.positions_of(table, frame)
    return parquet.encode_frame(table, frame), first, last, (min(positions), max(positions))


class _Ours(msgspec.Struct, frozen=True):
    """What is about to be published, as far as it may clash with a parent."""

    position: int
    ledger_hash: str
    epoch: int

    def check(self, parent: Manifest) -> None:
        if parent.epoch > self.epoch:
            raise Fenced(
                f"revision {parent.revision} was published in epoch {parent.epoch}, and this leader's"
                f" epoch is {self.epoch}: somebody newer leads; stop"
            )
        if parent.position > self.position:
            raise Conflict(
                f"revision {parent.revision} covers the ledger up to position {parent.position}, and"
                f" ours only up to {self.position}: catch up with the ledger and publish again"
            )
        if parent.position == self.position and parent.ledger_hash != self.ledger_hash:
            raise Corrupt(
                f"revision {parent.revision} covers position {self.position} of the ledger with the"
                f" hash {parent.ledger_hash}, but the ledger there has the hash {self.ledger_hash}:"
                " one of them was changed; run 'servo ledger verify'"
            )


def _check_schemas(parent: Manifest, tables: Mapping[Table, Sequence[Row]]) -> None:
    for table in tables:
        stored = parent.tables.get(table.name)
        if stored and stored.schema_version > table.schema_version:
            raise Invalid(
                f"table {table.name!r} is stored with schema version {stored.schema_version}, and"
                f" this Servo writes {table.schema_version}; upgrade Servo"
            )


def _is_due(files: TableFiles, now: str) -> bool:
    """Whether a table's L0 files are to be merged."""
    if len(files.l0) >= MERGE_FILES or sum(file.bytes for file in files.l0) >= MERGE_BYTES:
        return True
    since = files.l0_since
    return since is not None and moment_of(now) - moment_of(since) >= MERGE_AFTER
