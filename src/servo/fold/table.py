"""What a table is: its columns, its key, and what they mean. A public contract.

A row is a tuple of plain values in the order of the columns: text, whole numbers, truth values, and
moments as microseconds since 1970 in UTC. Every table ends with `row_position` and `row_index`, the
place that last changed the row; of two rows with one key, the one with the higher place is the newer.
"""

import enum
from typing import NamedTuple

Value = str | int | bool | None
Row = tuple[Value, ...]
Key = tuple[str | int, ...]


class Kind(enum.StrEnum):
    TEXT = "text"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    MOMENT = "moment"
    JSON = "json"
    """Text that holds canonical JSON: lists and maps that nobody joins on."""


class Column(NamedTuple):
    name: str
    kind: Kind
    about: str
    nullable: bool = False


class Table(NamedTuple):
    name: str
    about: str
    key: tuple[str, ...]
    """Names of its first columns, in order. Never null."""
    columns: tuple[Column, ...]
    schema_version: int = 1

    def row_key(self, row: Row) -> Key:
        return row[: len(self.key)]  # type: ignore[return-value]  # key columns are never null

    def row_place(self, row: Row) -> tuple[int, int]:
        return row[-2:]  # type: ignore[return-value]  # the last two columns are whole numbers


PLACE_COLUMNS = (
    Column("row_position", Kind.INTEGER, "position of the segment that last changed the row"),
    Column(
        "row_index", Kind.INTEGER, "index in that segment of the fact that last changed the row"
    ),
)


def table(name: str, about: str, key: tuple[str, ...], *columns: Column) -> Table:
    """A table, with the columns that every table ends with."""
    made = Table(name, about, key, (*columns, *PLACE_COLUMNS))
    names = [column.name for column in made.columns]
    assert key == tuple(names[: len(key)]), f"{name}: the key is not what the columns begin with"
    assert len(set(names)) == len(names), f"{name}: two columns have one name"
    return made
