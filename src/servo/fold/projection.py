"""A table that facts change row by row: what one file has to say to add one.

State keeps the records, asks which of them a fact needs, and takes changes back; a projection only
knows how its own facts join. `fold/tables/__init__.py` lists them all.
"""

import enum
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar

from servo.core.canonical import dumps
from servo.events.envelope import Event, Fact
from servo.fold.records import Mark
from servo.fold.table import Column, Key, Kind, Row, Table

R = TypeVar("R")


class Memory(enum.Enum):
    """What the engine holds of a table."""

    ALL = "all"
    """Every record, from the start: few, and asked for all the time."""
    ACTIVE = "active"
    """What changed since the last publish; the rest is loaded when a fact needs it."""
    NEW = "new"
    """What changed since the last publish; nothing ever needs an older one."""


class Projection(Generic[R]):
    table: ClassVar[Table]
    memory: ClassVar[Memory] = Memory.ACTIVE
    facts: ClassVar[tuple[type[Fact], ...]] = ()

    def keys(self, fact: Any, mark: Mark) -> Iterable[Key]:
        """The rows that a fact changes."""
        raise NotImplementedError

    def join(self, key: Key, known: R | None, fact: Any, mark: Mark, event: Event) -> R:
        """What is known with one more fact. The same object if it changes nothing."""
        raise NotImplementedError

    def row(self, key: Key, record: R) -> Row:
        raise NotImplementedError

    def load(self, row: Row) -> tuple[Key, R]:
        """The key and the record of a row, which holds all of it."""
        raise NotImplementedError


def mark_columns(name: str, about: str, *, nullable: bool = True) -> tuple[Column, ...]:
    """Where and when something happened."""
    return (
        Column(f"{name}_position", Kind.INTEGER, f"position of the fact: {about}", nullable),
        Column(f"{name}_index", Kind.INTEGER, f"index of the fact: {about}", nullable),
        Column(f"{name}_at", Kind.MOMENT, f"when: {about}", nullable),
    )


NO_MARK = (None, None, None)


def mark_values(mark: Mark | None) -> tuple[int | None, int | None, int | None]:
    return NO_MARK if mark is None else mark


def read_mark(values: tuple[Any, ...]) -> Mark | None:
    return None if values[0] is None else (values[0], values[1], values[2])


def text(value: Any) -> str:
    """Plain data for a column of JSON."""
    return dumps(value).decode()
