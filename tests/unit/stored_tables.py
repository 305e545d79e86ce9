"""What the tests of stored tables share: a store in memory that fails on demand, and small tables."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Literal

from servo.adapters.memory import MemoryObjects
from servo.errors import Unavailable, Uncertain
from servo.fold.table import Column, Kind, Row, Table, table
from servo.ports.objects import ObjectInfo

RUNS = table(
    "runs",
    "one row for each run",
    ("run_id",),
    Column("run_id", Kind.TEXT, "which run"),
    Column("state", Kind.TEXT, "how it stands", nullable=True),
    Column("tasks", Kind.INTEGER, "how many tasks"),
    Column("done", Kind.BOOLEAN, "whether it ended", nullable=True),
    Column("started_at", Kind.MOMENT, "when it began", nullable=True),
    Column("labels", Kind.JSON, "names and values"),
)
TASKS = table(
    "tasks",
    "one row for each task",
    ("run_id", "task_key"),
    Column("run_id", Kind.TEXT, "which run"),
    Column("task_key", Kind.TEXT, "which task"),
    Column("state", Kind.TEXT, "how it stands"),
)
AUDIT = table(
    "audit",
    "one row for each decision",
    ("position", "index"),
    Column("position", Kind.INTEGER, "where the fact stands"),
    Column("index", Kind.INTEGER, "which of its segment"),
    Column("actor", Kind.TEXT, "who"),
)

Fault = Literal["crash before", "crash after", "lost before", "lost after", "unavailable"]
CRASHES: tuple[Fault, ...] = ("crash before", "crash after")


class Crash(Exception):
    """The process died here."""


class FakeObjects(MemoryObjects):
    """Objects in memory that count their calls. `fail` says which of them fail, and how."""

    def __init__(self, stored: dict[str, bytes] | None = None) -> None:
        self.stored: dict[str, bytes] = {} if stored is None else stored
        super().__init__(self.stored)
        self.calls: list[tuple[str, str]] = []
        self.fail: Callable[[int, str, str], Fault | None] = lambda number, name, path: None

    @contextmanager
    def _call(self, name: str, path: str) -> Iterator[None]:
        self.calls.append((name, path))
        fault = self.fail(len(self.calls), name, path)
        match fault:
            case "crash before":
                raise Crash
            case "lost before":
                raise Uncertain("the answer was lost")
            case "unavailable":
                raise Unavailable("it did not happen")
        yield
        match fault:
            case "crash after":
                raise Crash
            case "lost after":
                raise Uncertain("the answer was lost")

    async def get(self, path: str) -> bytes | None:
        with self._call("get", path):
            return await super().get(path)

    async def head(self, path: str) -> ObjectInfo | None:
        with self._call("head", path):
            return await super().head(path)

    async def put(self, path: str, data: bytes) -> None:
        with self._call("put", path):
            await super().put(path, data)

    async def put_new(self, path: str, data: bytes) -> bool:
        with self._call("put_new", path):
            return await super().put_new(path, data)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        raise AssertionError("nothing here may depend on a listing")
        yield


def fail_once(at: int, fault: Fault) -> Callable[[int, str, str], Fault | None]:
    return lambda number, name, path: fault if number == at else None


def ids(prefix: str = "") -> Callable[[], str]:
    numbers: Iterator[int] = count(1)
    return lambda: f"{prefix}{next(numbers):06d}"


def run_row(name: str, position: int, index: int = 0, *, state: str | None = "running") -> Row:
    return (name, state, position, None, 1_700_000_000_000_000 + position, "{}", position, index)


def task_row(run: str, task: str, position: int, index: int = 0, *, state: str = "ready") -> Row:
    return (run, task, state, position, index)


def hash_at(position: int) -> str:
    """A made-up hash of the ledger at a position."""
    return f"sha256:{position:064x}"


def older(made: Table, *missing: str) -> Table:
    """A table as an earlier version of it was: without some columns."""
    columns = tuple(column for column in made.columns if column.name not in missing)
    return made._replace(columns=columns, schema_version=made.schema_version)


def newer(made: Table, *added: Column) -> Table:
    """A table as a later version of it will be: with more columns, and the place last."""
    columns = (*made.columns[:-2], *added, *made.columns[-2:])
    return made._replace(columns=columns, schema_version=made.schema_version + 1)
