"""partitions: the latest version of each partition of each asset."""

from typing import Any

import msgspec

from servo.fold.projection import Memory, Projection
from servo.fold.records import Mark
from servo.fold.table import Column, Key, Kind, Row, table


class Version(msgspec.Struct, frozen=True):
    """What is worth knowing of a version without reading its own row."""

    mark: Mark
    materialization_id: str
    asset_key: str
    run_id: str
    task_key: str
    code_version: str
    row_count: int | None
    byte_size: int
    committed: Mark


class Versions(msgspec.Struct, frozen=True):
    """Those that count and are in memory, by the place where they began to; the last is the latest.

    Facts come in the order of their places, so that an older version, which is only in Parquet, is
    never the latest again: nothing has to be loaded to fold a new one.
    """

    versions: tuple[Version, ...]


class Partitions(Projection[Versions]):
    """No fact of its own: the state says when a version begins to count."""

    table = table(
        "partitions",
        "The latest version of each partition of each asset.",
        ("asset_id", "partition_key"),
        Column("asset_id", Kind.TEXT, "the asset"),
        Column("partition_key", Kind.TEXT, "canonical partition key; empty without partitions"),
        Column("asset_key", Kind.TEXT, "namespace/name at that time"),
        Column("materialization_id", Kind.TEXT, "the latest version"),
        Column("run_id", Kind.TEXT, "the run that made it"),
        Column("task_key", Kind.TEXT, "the task that made it"),
        Column("code_version", Kind.TEXT, "fingerprint of the code that made it"),
        Column("row_count", Kind.INTEGER, "rows, where they were counted", nullable=True),
        Column("byte_size", Kind.INTEGER, "bytes of its files"),
        Column("reported_position", Kind.INTEGER, "position of the version's report"),
        Column("reported_index", Kind.INTEGER, "index of the version's report"),
        Column("reported_at", Kind.MOMENT, "when the version was reported"),
        Column("committed_at", Kind.MOMENT, "when the version began to count"),
    )
    memory = Memory.NEW

    def row(self, key: Key, record: Versions) -> Row:
        version = record.versions[-1]
        return (
            key[0],
            key[1],
            version.asset_key,
            version.materialization_id,
            version.run_id,
            version.task_key,
            version.code_version,
            version.row_count,
            version.byte_size,
            *version.mark,
            version.committed[2],
            version.committed[0],
            version.committed[1],
        )

    def load(self, row: Row) -> tuple[Key, Versions]:
        values: tuple[Any, ...] = row
        version = Version(
            mark=values[9:12],
            materialization_id=values[3],
            asset_key=values[2],
            run_id=values[4],
            task_key=values[5],
            code_version=values[6],
            row_count=values[7],
            byte_size=values[8],
            committed=(values[13], values[14], values[12]),
        )
        return self.table.row_key(row), Versions((version,))
