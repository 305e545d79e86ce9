"""materializations: the versions that attempts made."""

from collections.abc import Iterable
from typing import Any

import msgspec

from servo.events.envelope import Event
from servo.events.execution import File, MaterializationCompleted
from servo.fold.projection import Projection, mark_columns, mark_values, read_mark, text
from servo.fold.records import Mark, Materialization, latest
from servo.fold.table import Column, Key, Kind, Row, table


class Materializations(Projection[Materialization]):
    """Whether a version counts follows from its task, which the state looks up."""

    table = table(
        "materializations",
        "Versions of assets' partitions: one row per version that an attempt made.",
        ("materialization_id",),
        Column("materialization_id", Kind.TEXT, "id of the version"),
        Column("asset_id", Kind.TEXT, "the asset"),
        Column("asset_key", Kind.TEXT, "namespace/name at that time"),
        Column("partition_key", Kind.TEXT, "canonical partition key; empty without partitions"),
        Column("run_id", Kind.TEXT, "the run"),
        Column("task_key", Kind.TEXT, "the task"),
        Column("attempt", Kind.INTEGER, "the attempt that made it"),
        Column("code_version", Kind.TEXT, "fingerprint of the code that made it"),
        Column("row_count", Kind.INTEGER, "rows, where they were counted", nullable=True),
        Column("byte_size", Kind.INTEGER, "bytes of its files"),
        Column("schema_hash", Kind.TEXT, "fingerprint of its columns", nullable=True),
        Column("files", Kind.JSON, "its files: path, sha256, bytes, rows"),
        Column("counts", Kind.BOOLEAN, "whether its attempt stands as the result of its task"),
        *mark_columns("reported", "it was reported first", nullable=False),
        *mark_columns("committed", "it began to count"),
    )
    facts = (MaterializationCompleted,)

    def keys(self, fact: Any, mark: Mark) -> Iterable[Key]:
        return ((fact.materialization_id,),)

    def join(
        self, key: Key, known: Materialization | None, fact: Any, mark: Mark, event: Event
    ) -> Materialization:
        if known is not None and known.mark <= mark:
            return known
        return Materialization(mark, fact)

    def row(self, key: Key, record: Materialization) -> Row:
        fact = record.fact
        last = latest(record.mark, record.committed)
        assert last is not None
        return (
            fact.materialization_id,
            fact.asset_id,
            fact.asset_key,
            fact.partition_key,
            fact.run_id,
            fact.task_key,
            fact.attempt,
            fact.code_version,
            fact.row_count,
            fact.byte_size,
            fact.schema_hash,
            text(msgspec.to_builtins(fact.files)),
            record.committed is not None,
            *record.mark,
            *mark_values(record.committed),
            last[0],
            last[1],
        )

    def load(self, row: Row) -> tuple[Key, Materialization]:
        values: tuple[Any, ...] = row
        names = [column.name for column in self.table.columns[:11]]
        fact = MaterializationCompleted(
            **dict(zip(names, values[:11], strict=True)),
            files=msgspec.json.decode(values[11], type=tuple[File, ...]),
        )
        mark = read_mark(values[13:16])
        assert mark is not None
        return (fact.materialization_id,), Materialization(mark, fact, read_mark(values[16:19]))
