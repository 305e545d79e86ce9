"""Rows as Parquet bytes, and back: the one module that knows arro3.

    row     a tuple of plain values, in the order of the table's columns (`servo.fold.table`)
    file    one Parquet file: rows of one table, sorted by key, each key at most once
    frame   the same rows as an Arrow table, with exactly the table's columns

Columns become Arrow types: text and JSON are utf8, whole numbers int64, truth values bool, moments
timestamp[us, UTC]; a column that may not be null is declared so. The schema's metadata names the
table and its version. Everything written here is read back by pyarrow and DuckDB in
tests/unit/test_parquet.py.

A reader takes files of other versions of a table: a column that the file lacks is null, one that the
table does not know is left out. So a newer version may add nullable columns and nothing else.

The newest row of a key is the one with the highest place. Frames are merged without making Python
values of anything but keys and places.

Callers check a file's hash before they hand it in: arro3 panics on bytes that are no Parquet file.
"""

import functools
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from servo.errors import Corrupt, Invalid
from servo.fold.table import Column, Key, Kind, Row, Table

if TYPE_CHECKING:
    from arro3.core import DataType, Schema
    from arro3.core import Table as Frame

COMPRESSION = "zstd(1)"
"""Level 3, zstd's own default, made no file smaller: dictionaries have done the work before it."""

MAGIC = b"PAR1"


def encode(table: Table, rows: Sequence[Row]) -> bytes:
    """One file of these rows, sorted by key. Of two rows with one key the newer one is kept."""
    return encode_frame(table, frame_of(table, newest(table, rows)))


def newest(table: Table, rows: Sequence[Row]) -> list[Row]:
    """The newest row of each key, sorted by key."""
    width = len(table.key)
    found: dict[Key, Row] = {}
    for row in rows:
        key: Key = row[:width]  # type: ignore[assignment]  # key columns are never null
        kept = found.get(key)
        # Of two rows with one place the later one: it was derived by newer code.
        if kept is None or table.row_place(row) >= table.row_place(kept):
            found[key] = row
    try:
        return [found[key] for key in sorted(found)]
    except TypeError:
        raise Invalid(
            f"table {table.name!r}: its keys cannot be put in order; a column of the key"
            f" ({', '.join(table.key)}) holds values of two kinds, or null"
        ) from None


def frame_of(table: Table, rows: Sequence[Row]) -> "Frame":
    """Rows as a frame, in the order given."""
    from arro3.core import Array, DataType, RecordBatch
    from arro3.core import Table as Frame

    schema = _schema(table)
    width = len(table.columns)
    if any(len(row) != width for row in rows):
        raise Invalid(f"a row for table {table.name!r} does not have its {width} columns")
    arrays = []
    values: Sequence[Any]
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * width
    for column, values in zip(table.columns, columns, strict=True):
        try:
            if column.kind is Kind.MOMENT:
                # arro3 builds no timestamps from Python values; the cast reads the same 64 bits.
                array = Array(values, DataType.int64()).cast(_type(column.kind))
            else:
                array = Array(values, _type(column.kind))
        except (TypeError, ValueError, OverflowError) as error:
            raise Invalid(
                f"table {table.name!r}: column {column.name!r} holds what is no {column.kind}"
                f" ({error}); give it plain values of that kind"
            ) from None
        if array.null_count and not column.nullable:
            raise Invalid(
                f"table {table.name!r}: column {column.name!r} is null in a row, and may not be"
            )
        arrays.append(array)
    return Frame.from_batches([RecordBatch.from_arrays(arrays, schema=schema)], schema=schema)


def encode_frame(table: Table, frame: "Frame") -> bytes:
    from arro3.io import write_parquet

    sink = io.BytesIO()
    write_parquet(frame.with_schema(_schema(table)), sink, compression=COMPRESSION)
    return sink.getvalue()


def decode(table: Table, data: bytes) -> list[Row]:
    """The rows of a file; moments as microseconds."""
    return rows_of(table, arrow(table, data))


def arrow(table: Table, data: bytes) -> "Frame":
    """A file as a frame with the table's own columns, whichever version of it wrote the file."""
    from arro3.core import Array, RecordBatch
    from arro3.core import Table as Frame
    from arro3.io import read_parquet

    with _reading(table, data):
        batches = read_parquet(data, batch_size=2**20).read_all().to_batches()
    schema = _schema(table)
    if all(batch.schema == schema for batch in batches):
        return Frame.from_batches(batches, schema=schema)
    made = []
    for batch in batches:
        names = set(batch.column_names)
        arrays = []
        for column in table.columns:
            kind = _type(column.kind)
            if column.name not in names:
                array = Array([None] * batch.num_rows, _type(Kind.INTEGER)).cast(kind)
            else:
                array = batch.column(column.name)
                if array.type != kind:
                    raise Corrupt(
                        f"a file of table {table.name!r} holds column {column.name!r} as"
                        f" {_spelled(array.type)}, and not as {_spelled(kind)}"
                    )
            if array.null_count and not column.nullable:
                raise Corrupt(
                    f"a file of table {table.name!r} has no value in column {column.name!r},"
                    " which is never null"
                )
            arrays.append(array)
        made.append(RecordBatch.from_arrays(arrays, schema=schema))
    return Frame.from_batches(made, schema=schema)


def merge(table: Table, frames: Sequence["Frame"]) -> "Frame":
    """The newest row of each key among frames that are given in the order they were written,
    sorted by key."""
    from arro3.core import Array, DataType
    from arro3.core import Table as Frame

    schema = _schema(table)
    batches = [batch for frame in frames for batch in frame.to_batches() if batch.num_rows]
    joined = Frame.from_batches(batches, schema=schema)
    found: dict[Key, tuple[tuple[int, int], int]] = {}
    places = zip(*(_values(joined, column) for column in table.columns[-2:]), strict=True)
    for at, (key, place) in enumerate(zip(keys_of(table, joined), places, strict=True)):
        kept = found.get(key)
        if kept is None or place >= kept[0]:
            found[key] = (place, at)
    order = [found[key][1] for key in sorted(found)]
    if order == list(range(joined.num_rows)):
        return joined
    whole = joined.combine_chunks().to_batches()[0]
    return Frame.from_batches([whole.take(Array(order, DataType.int64()))], schema=schema)


def take(table: Table, frame: "Frame", indices: Sequence[int]) -> list[Row]:
    """Some rows of a frame."""
    from arro3.core import Array, DataType
    from arro3.core import Table as Frame

    whole = frame.combine_chunks().to_batches()[0]
    chosen = whole.take(Array(indices, DataType.int64()))
    return rows_of(table, Frame.from_batches([chosen], schema=frame.schema))


def rows_of(table: Table, frame: "Frame") -> list[Row]:
    return list(zip(*(_values(frame, column) for column in table.columns), strict=True))


def keys_of(table: Table, frame: "Frame") -> list[Key]:
    width = len(table.key)
    return list(zip(*(_values(frame, column) for column in table.columns[:width]), strict=True))


def positions_of(table: Table, frame: "Frame") -> list[int]:
    """The position that last changed each row."""
    return _values(frame, table.columns[-2])


def _values(frame: "Frame", column: Column) -> list[Any]:
    values = frame.column(column.name)
    if column.kind is Kind.MOMENT:
        # A datetime each would take ten times as long, and rows hold microseconds.
        values = values.cast(_type(Kind.INTEGER))
    return values.to_pylist()  # type: ignore[no-any-return]  # its stub says numpy; it is a list


@functools.cache  # one for each version of each table, asked for several times for each file
def _schema(table: Table) -> "Schema":
    from arro3.core import Field, Schema

    return Schema(
        [
            Field(column.name, _type(column.kind), nullable=column.nullable)
            for column in table.columns
        ],
        metadata={"servo.table": table.name, "servo.schema_version": str(table.schema_version)},
    )


def _type(kind: Kind) -> "DataType":
    from arro3.core import DataType

    match kind:
        case Kind.TEXT | Kind.JSON:
            return DataType.utf8()
        case Kind.INTEGER:
            return DataType.int64()
        case Kind.BOOLEAN:
            return DataType.bool()
        case Kind.MOMENT:
            return DataType.timestamp("us", tz="UTC")


def _spelled(kind: "DataType") -> str:
    return str(kind).strip().removeprefix("arro3.core.DataType<").removesuffix(">")


@contextmanager
def _reading(table: Table, data: bytes) -> Iterator[None]:
    """Turn whatever a broken file does to the reader into `Corrupt`."""
    # The ends are looked at first, because a panic also prints itself.
    if len(data) < 12 or not (data.startswith(MAGIC) and data.endswith(MAGIC)):
        raise Corrupt(f"a file of table {table.name!r} is no Parquet file, or is cut short")
    try:
        yield
    except Exception as error:  # noqa: BLE001 - arro3 raises plain Exception
        raise _broken(table, error) from None
    except BaseException as error:
        # A panic of arro3 is no Exception, but it is about these bytes and nothing else.
        if type(error).__name__ != "PanicException":
            raise
        raise _broken(table, error) from None


def _broken(table: Table, error: BaseException) -> Corrupt:
    return Corrupt(f"a file of table {table.name!r} cannot be read as Parquet ({error})")
