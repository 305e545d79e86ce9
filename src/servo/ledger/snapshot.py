"""Snapshots: all tables as of one revision, for readers.

A snapshot never changes: it is one manifest and the immutable files it names. Reading it needs the
object store and nothing else: no ledger, no leader, no lock. Opening the newest one takes three calls;
files are read when they are asked for, and those just read are kept, up to `CACHE_BYTES`.

Of several rows with one key the newest counts, wherever it lies (`servo.ledger.parquet`). Every file
is checked against the hash in its manifest; one that is changed or gone is `Corrupt`, by name, and is
never read as empty.

Look-ups by key read only files whose key range can hold the key. Keys and prefixes compare like tuples.

Queries run in an in-memory DuckDB that sees the tables and nothing else: no files, no network, no
extensions, no settings. One SELECT (or EXPLAIN of one) at a time. Tables whose names are written in
the query are loaded; the others are there with their columns, and fail when they are read, because
an empty answer would be a wrong one.
"""

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from servo.core.segments import digest
from servo.errors import Corrupt, Invalid, did_you_mean
from servo.fold.table import Key, Kind, Row, Table
from servo.ledger import parquet
from servo.ledger.manifest import File, Manifest, TableFiles, find_newest, load, load_base
from servo.ports.objects import Objects

if TYPE_CHECKING:
    from arro3.core import Table as Frame
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

CACHE_BYTES = 64 * 2**20
"""Of files as stored; decoded they take several times as much."""

READS_AT_ONCE = 16

_NO_FILES = TableFiles(schema_version=1)
_NO_TABLE = re.compile(r'Table with name "?([^"\s]+)"? does not exist')
_EXPLAIN = re.compile(r"\s*explain\b(?:\s+analyze\b)?(?:\s*\([^)]*\))?", re.IGNORECASE)
_SQL_TYPES = {
    Kind.TEXT: "VARCHAR",
    Kind.JSON: "VARCHAR",
    Kind.INTEGER: "BIGINT",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.MOMENT: "TIMESTAMP WITH TIME ZONE",
}


class Result(NamedTuple):
    """What a query gave. Moments are datetimes in UTC."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class _Part(NamedTuple):
    """A file that was read: its rows, and their keys, which are sorted."""

    frame: "Frame"
    keys: list[Key]


async def read_frames(objects: Objects, table: Table, files: Sequence[File]) -> list["Frame"]:
    """Files of a table, each checked against its hash, in the order given."""
    frames: list[Frame] = []
    for start in range(0, len(files), READS_AT_ONCE):
        some = files[start : start + READS_AT_ONCE]
        frames += await asyncio.gather(*(_read_frame(objects, table, file) for file in some))
    return frames


async def _read_frame(objects: Objects, table: Table, file: File) -> "Frame":
    data = await objects.get(file.path)
    if data is None:
        raise Corrupt(
            f"table {table.name!r}: its file {file.path} is gone; restore it from a copy, or,"
            " while nothing runs, remove the folders tables and manifests of the workspace; the next"
            " 'servo run' rebuilds them from the ledger"
        )
    if digest(data) != file.sha256:
        raise Corrupt(
            f"table {table.name!r}: its file {file.path} was changed: it does not match its hash;"
            " restore it from a copy, or, while nothing runs, remove the folders tables and manifests"
            " of the workspace; the next 'servo run' rebuilds them from the ledger"
        )
    return parquet.arrow(table, data)


class Snapshot:
    def __init__(
        self,
        objects: Objects,
        tables: Sequence[Table],
        manifest: Manifest,
        *,
        warm: "Snapshot | None" = None,
    ) -> None:
        """`warm`: another of the same tables; files that it has read need not be read again."""
        self.manifest = manifest
        self.revision = manifest.revision
        self.position = manifest.position
        self.epoch = manifest.epoch
        self.ledger_hash = manifest.ledger_hash
        self._objects = objects
        self._tables = {table.name: table for table in tables}
        self._parts: OrderedDict[str, tuple[_Part, int]] = OrderedDict(warm._parts if warm else ())
        self._held: int = warm._held if warm else 0
        named = {files.base for files in manifest.tables.values()}
        self._bases: dict[str, list[File]] = {
            ref: files for ref, files in (warm._bases if warm else {}).items() if ref in named
        }
        self._connection: DuckDBPyConnection | None = None
        self._loaded: set[str] = set()
        self._asking = asyncio.Lock()

    @classmethod
    async def open(
        cls, objects: Objects, tables: Sequence[Table], revision: int | None = None
    ) -> "Snapshot":
        """The newest revision, or the one that is asked for. Before anything was published the
        newest is revision 0, in which all tables are empty."""
        if revision is None:
            return cls(objects, tables, await find_newest(objects))
        manifest = await load(objects, revision) if revision > 0 else None
        if manifest is None:
            newest = (await find_newest(objects)).revision
            raise Invalid(
                f"there is no revision {revision}: "
                + (f"the newest is {newest}" if newest else "nothing was published yet")
            )
        return cls(objects, tables, manifest)

    async def rows(self, table: Table) -> list[Row]:
        """All rows of a table, sorted by key."""
        return parquet.rows_of(table, await self.arrow(table))

    async def arrow(self, table: Table) -> "Frame":
        """All rows of a table as an arro3 table, sorted by key."""
        parts = await self._read(table, await self._files(table))
        return parquet.merge(table, [part.frame for part in parts])

    async def find(self, table: Table, prefixes: Iterable[Key]) -> list[Row]:
        """The rows whose keys begin with any of the prefixes, sorted by key."""
        wanted: dict[int, list[Key]] = {}
        for prefix in sorted(set(prefixes)):
            wanted.setdefault(len(prefix), []).append(prefix)
        within = {file: _within(file, wanted) for file in await self._files(table)}
        files = [file for file, some in within.items() if some]
        found: list[Row] = []
        for file, part in zip(files, await self._read(table, files), strict=True):
            indices = _matching(part.keys, within[file])
            if indices:
                found += parquet.take(table, part.frame, indices)
        return parquet.newest(table, found)

    async def _files(self, table: Table) -> list[File]:
        """In the order they were written: base before L0."""
        listed = self.manifest.tables.get(table.name, _NO_FILES)
        if listed.base is None:
            return list(listed.l0)
        if listed.base not in self._bases:
            self._bases[listed.base] = await load_base(self._objects, listed.base)
        return [*self._bases[listed.base], *listed.l0]

    async def _read(self, table: Table, files: Sequence[File]) -> list[_Part]:
        parts: dict[str, _Part] = {}
        for file in files:
            if file.path in self._parts:
                self._parts.move_to_end(file.path)
                parts[file.path] = self._parts[file.path][0]
        missing = [file for file in files if file.path not in parts]
        frames = await read_frames(self._objects, table, missing)
        for file, frame in zip(missing, frames, strict=True):
            part = _Part(frame, parquet.keys_of(table, frame))
            parts[file.path] = part
            self._keep(file, part)
        return [parts[file.path] for file in files]

    def _keep(self, file: File, part: _Part) -> None:
        if file.path in self._parts or file.bytes > CACHE_BYTES:
            return
        self._parts[file.path] = (part, file.bytes)
        self._held += file.bytes
        while self._held > CACHE_BYTES:
            _, (_, size) = self._parts.popitem(last=False)
            self._held -= size

    async def sql(self, query: str) -> Result:
        """Ask in DuckDB's SQL. Whatever is wrong with the query is `Invalid`, in one line."""
        async with self._asking:
            connection = self._connection
            if connection is None:
                connection = self._connection = await asyncio.to_thread(
                    _connect, list(self._tables.values())
                )
            words = {word.lower() for word in re.findall(r"\w+", query)}
            for name in sorted(words & self._tables.keys() - self._loaded):
                frame = await self.arrow(self._tables[name])
                connection.execute(f'DROP VIEW "{name}"')
                connection.register(name, frame)
                self._loaded.add(name)
            asked = asyncio.ensure_future(
                asyncio.to_thread(_ask, connection, query, sorted(self._tables))
            )
            try:
                return await asyncio.shield(asked)
            except asyncio.CancelledError:
                # Nobody else may use the connection while the thread is in it. Asked again and
                # again, because one that has not begun cannot be interrupted yet.
                self._connection = None
                self._loaded.clear()
                while not asked.done():
                    connection.interrupt()
                    await asyncio.wait([asked], timeout=0.01)
                asked.exception()  # it was interrupted, which is no news
                raise


def _within(file: File, wanted: Mapping[int, Sequence[Key]]) -> list[Key]:
    """Of sorted prefixes, by their length, those that keys of a file can begin with."""
    first, last = file.key_range
    return [
        prefix
        for width, some in wanted.items()
        for prefix in some[bisect_left(some, first[:width]) : bisect_right(some, last[:width])]
    ]


def _matching(keys: Sequence[Key], prefixes: Sequence[Key]) -> list[int]:
    """Where in sorted keys those are that begin with any of the prefixes."""
    if len(prefixes) > len(keys) // 8:
        # So many that looking at every key is less work than searching for each prefix.
        wanted, widths = set(prefixes), {len(prefix) for prefix in prefixes}
        return [at for at, key in enumerate(keys) if any(key[:width] in wanted for width in widths)]
    found = set()
    for prefix in prefixes:
        width = len(prefix)
        at = bisect_left(keys, prefix)
        while at < len(keys) and keys[at][:width] == prefix:
            found.add(at)
            at += 1
    return sorted(found)


def _connect(tables: Sequence[Table]) -> "DuckDBPyConnection":
    """A database with a stand-in for each table, closed to the world."""
    import duckdb

    connection = duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
            "temp_directory": "",  # what does not fit into memory fails instead of filling a disk
        },
    )
    for table in tables:
        columns = ", ".join(
            f'NULL::{_SQL_TYPES[column.kind]} AS "{column.name}"' for column in table.columns
        )
        message = (
            f"table {table.name} is not loaded, because its name is not written in the query;"
            " write it out"
        )
        connection.execute(
            f'CREATE VIEW "{table.name}" AS SELECT * FROM (SELECT {columns})'
            f" WHERE error('{message}')::BOOLEAN"
        )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection


def _ask(connection: "DuckDBPyConnection", query: str, names: Sequence[str]) -> Result:
    import duckdb

    try:
        _check_only_reads(connection, query)
        relation = connection.sql(query)
        columns = tuple(relation.columns)
        moments, plain = _without_zones(relation)
        rows = plain.fetchall()
    except duckdb.Error as error:
        raise Invalid(_said(str(error), names)) from None
    if moments:
        rows = [
            tuple(
                value.replace(tzinfo=UTC)
                if at in moments and isinstance(value, datetime)
                else value
                for at, value in enumerate(row)
            )
            for row in rows
        ]
    return Result(columns, rows)


def _check_only_reads(connection: "DuckDBPyConnection", query: str) -> None:
    import duckdb

    statements = connection.extract_statements(query)
    if len(statements) != 1:
        raise Invalid(
            f"a query is one SELECT statement, and this holds {len(statements) or 'none'};"
            " ask one at a time"
        )
    kind = statements[0].type
    if kind == duckdb.StatementType.EXPLAIN:
        # EXPLAIN ANALYZE runs what it explains.
        explained = connection.extract_statements(_EXPLAIN.sub("", statements[0].query, count=1))
        kind = explained[0].type if len(explained) == 1 else kind
    if kind != duckdb.StatementType.SELECT:
        raise Invalid(
            f"a query may only read, and this is a statement of kind {kind.name};"
            " write a SELECT, or DESCRIBE, SUMMARIZE or SHOW TABLES"
        )


def _without_zones(relation: "DuckDBPyRelation") -> tuple[set[int], "DuckDBPyRelation"]:
    """Which columns are moments, and the relation with them as plain times in UTC.

    DuckDB makes Python values of times with a zone only by way of pytz, which nothing else here
    needs. Inside lists and the like they become text.
    """
    moments = set()
    shown = []
    for at, kind in enumerate(map(str, relation.types)):
        if kind == "TIMESTAMP WITH TIME ZONE":
            moments.add(at)
            shown.append(f"#{at + 1}::TIMESTAMP")
        elif "WITH TIME ZONE" in kind:
            shown.append(f"#{at + 1}::VARCHAR")
        else:
            shown.append(f"#{at + 1}")
    if any("::" in text for text in shown):
        return moments, relation.project(", ".join(shown))
    return moments, relation


def _said(error: str, names: Sequence[str]) -> str:
    missing = _NO_TABLE.search(error)
    if missing:
        name = missing[1].lower()
        return (
            f"there is no table {name!r}{did_you_mean(name, names)}"
            f"{'' if did_you_mean(name, names) else ';'} there are {', '.join(names) or 'none'}"
        )
    return f"the query cannot be answered: {error.strip().splitlines()[0]}"
