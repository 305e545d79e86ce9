"""Files of rows: other readers read the same, other versions are readable, wrong values are named."""

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet  # type: ignore[import-untyped]  # has no types of its own
import pytest

from servo.errors import Corrupt, Invalid
from servo.fold.table import Column, Kind, Row, Table
from servo.ledger import parquet
from tests.unit.stored_tables import AUDIT, RUNS, TASKS, newer, older, run_row, task_row

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FULL: list[Row] = [
    ("", None, -(2**63), None, None, "", 0, 0),
    ("a\x00b", "x" * 10_000, 2**63 - 1, True, 0, '{"a":[1,"é"]}', 2**63 - 1, 2**31),
    ("run_1", "日本語 🚀", 0, False, 1_700_000_000_123_456, "null", 7, 1),
    ("run_2", "", 1, None, -1, "[]", 7, 2),
]
CASES: list[tuple[Table, list[Row]]] = [
    (RUNS, FULL),
    (RUNS, []),
    (TASKS, [task_row("r", f"t{n:03d}", n) for n in range(300)]),
    (AUDIT, [(n, n % 3, "someone", n, 0) for n in range(1, 50)]),
]


def as_others_see_it(table: Table, rows: list[Row]) -> list[dict[str, Any]]:
    def seen(column: Column, value: Any) -> Any:
        if column.kind is Kind.MOMENT and value is not None:
            return EPOCH + timedelta(microseconds=value)
        return value

    return [
        {column.name: seen(column, value) for column, value in zip(table.columns, row, strict=True)}
        for row in rows
    ]


@pytest.mark.parametrize(("table", "rows"), CASES)
def test_rows_come_back_equal(table: Table, rows: list[Row]) -> None:
    back = parquet.decode(table, parquet.encode(table, rows))
    assert back == rows
    assert [[type(value) for value in row] for row in back] == [
        [type(value) for value in row] for row in rows
    ]


@pytest.mark.parametrize(("table", "rows"), CASES)
def test_pyarrow_reads_the_same_rows_and_types(table: Table, rows: list[Row]) -> None:
    read = pyarrow.parquet.read_table(io.BytesIO(parquet.encode(table, rows)))
    assert read.to_pylist() == as_others_see_it(table, rows)
    types = {
        Kind.TEXT: "string",
        Kind.JSON: "string",
        Kind.INTEGER: "int64",
        Kind.BOOLEAN: "bool",
        Kind.MOMENT: "timestamp[us, tz=UTC]",
    }
    assert [(field.name, str(field.type), field.nullable) for field in read.schema] == [
        (column.name, types[column.kind], column.nullable) for column in table.columns
    ]
    assert read.schema.metadata == {
        b"servo.table": table.name.encode(),
        b"servo.schema_version": str(table.schema_version).encode(),
    }


@pytest.mark.parametrize(("table", "rows"), CASES)
def test_duckdb_reads_the_same_rows_and_types(
    table: Table, rows: list[Row], tmp_path: Path
) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(parquet.encode(table, rows))
    # Moments as microseconds: DuckDB needs pytz to make Python values of them.
    columns = ", ".join(
        f'epoch_us("{column.name}")' if column.kind is Kind.MOMENT else f'"{column.name}"'
        for column in table.columns
    )
    connection = duckdb.connect()
    read = connection.execute(f"SELECT {columns} FROM '{path}'").fetchall()
    assert read == rows
    types = {
        Kind.TEXT: "VARCHAR",
        Kind.JSON: "VARCHAR",
        Kind.INTEGER: "BIGINT",
        Kind.BOOLEAN: "BOOLEAN",
        Kind.MOMENT: "TIMESTAMP WITH TIME ZONE",
    }
    described = connection.execute(f"DESCRIBE FROM '{path}'").fetchall()
    assert [(name, kind) for name, kind, *_ in described] == [
        (column.name, types[column.kind]) for column in table.columns
    ]


def test_files_are_compressed_and_carry_statistics_of_the_key() -> None:
    data = parquet.encode(RUNS, [run_row(f"run_{n:04d}", n) for n in range(1000)])
    group = pyarrow.parquet.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    assert {group.column(n).compression for n in range(group.num_columns)} == {"ZSTD"}
    statistics = group.column(0).statistics
    assert (statistics.min, statistics.max) == ("run_0000", "run_0999")


def test_rows_are_sorted_by_key_and_the_newest_of_a_key_is_kept() -> None:
    rows = [run_row("b", 5), run_row("a", 9), run_row("b", 7), run_row("b", 6, 3), run_row("a", 2)]
    data = parquet.encode(RUNS, rows)
    assert parquet.decode(RUNS, data) == [run_row("a", 9), run_row("b", 7)]


def test_whole_numbers_in_keys_are_sorted_as_numbers() -> None:
    rows: list[Row] = [(10, 0, "x", 10, 0), (9, 2, "x", 9, 2), (9, 1, "x", 9, 1)]
    assert [row[:2] for row in parquet.decode(AUDIT, parquet.encode(AUDIT, rows))] == [
        (9, 1),
        (9, 2),
        (10, 0),
    ]


def test_frames_are_merged_to_the_newest_row_of_each_key() -> None:
    batches = [
        [run_row("b", 5), run_row("a", 9)],
        [run_row("b", 7), run_row("c", 1)],
        [run_row("a", 3), run_row("b", 7, state="derived anew")],
    ]
    frames = [parquet.arrow(RUNS, parquet.encode(RUNS, rows)) for rows in batches]
    merged = parquet.merge(RUNS, frames)
    assert parquet.rows_of(RUNS, merged) == [
        run_row("a", 9),
        run_row("b", 7, state="derived anew"),
        run_row("c", 1),
    ]
    assert parquet.rows_of(RUNS, parquet.merge(RUNS, [])) == []


def test_a_frame_is_read_by_pyarrow_without_copying_through_a_file() -> None:
    frame = parquet.arrow(RUNS, parquet.encode(RUNS, FULL))
    assert pyarrow.table(frame).to_pylist() == as_others_see_it(RUNS, FULL)


def test_a_file_of_an_older_version_has_null_where_it_lacks_a_column() -> None:
    old = older(RUNS, "started_at", "done")
    data = parquet.encode(old, [("r", "running", 3, "{}", 3, 0)])
    assert parquet.decode(RUNS, data) == [("r", "running", 3, None, None, "{}", 3, 0)]
    assert parquet.arrow(RUNS, data).column_names == [column.name for column in RUNS.columns]


def test_a_file_of_a_newer_version_is_read_without_what_is_unknown() -> None:
    new = newer(RUNS, Column("owner", Kind.TEXT, "whose it is", nullable=True))
    data = parquet.encode(new, [("r", "running", 3, None, None, "{}", "ann", 3, 0)])
    assert parquet.decode(RUNS, data) == [("r", "running", 3, None, None, "{}", 3, 0)]


def test_files_of_all_versions_are_merged() -> None:
    old = older(RUNS, "started_at")
    frames = [
        parquet.arrow(RUNS, parquet.encode(old, [("r", "running", 3, True, "{}", 3, 0)])),
        parquet.arrow(RUNS, parquet.encode(RUNS, [run_row("s", 4)])),
    ]
    assert parquet.rows_of(RUNS, parquet.merge(RUNS, frames)) == [
        ("r", "running", 3, True, None, "{}", 3, 0),
        run_row("s", 4),
    ]


def test_a_file_without_a_column_that_is_never_null_is_corrupt() -> None:
    data = parquet.encode(older(RUNS, "tasks"), [("r", None, None, None, "{}", 3, 0)])
    with pytest.raises(Corrupt, match="'runs' has no value in column 'tasks'"):
        parquet.decode(RUNS, data)


def test_a_file_with_a_column_of_another_kind_is_corrupt() -> None:
    columns = tuple(
        column._replace(kind=Kind.TEXT) if column.name == "tasks" else column
        for column in RUNS.columns
    )
    data = parquet.encode(
        RUNS._replace(columns=columns), [("r", None, "3", None, None, "{}", 3, 0)]
    )
    with pytest.raises(Corrupt, match="'tasks' as Utf8, and not as Int64"):
        parquet.decode(RUNS, data)


@pytest.mark.parametrize(
    "row",
    [
        ("r", 1, 0, None, None, "{}", 1, 0),
        ("r", None, "0", None, None, "{}", 1, 0),
        ("r", None, 2**63, None, None, "{}", 1, 0),
        ("r", None, 0, 1, None, "{}", 1, 0),
        ("r", None, 0, None, "2025-01-01", "{}", 1, 0),
        ("r", None, 0, None, None, {}, 1, 0),
        ("\ud800", None, 0, None, None, "{}", 1, 0),
    ],
)
def test_a_value_of_another_kind_is_refused_by_column(row: Any) -> None:
    with pytest.raises(Invalid, match=r"table 'runs': column '\w+' holds what is no"):
        parquet.encode(RUNS, [row])


def test_null_where_it_may_not_be_is_refused_by_column() -> None:
    with pytest.raises(Invalid, match="column 'tasks' is null in a row"):
        parquet.encode(RUNS, [("r", None, None, None, None, "{}", 1, 0)])


def test_a_row_of_another_width_is_refused() -> None:
    with pytest.raises(Invalid, match="does not have its 8 columns"):
        parquet.encode(RUNS, [("r", None, 1, 0)])


def test_keys_that_cannot_be_compared_are_refused() -> None:
    rows: list[Row] = [(1, 0, "x", 1, 0), ("1", 0, "x", 1, 0)]
    with pytest.raises(Invalid, match="table 'audit': its keys cannot be put in order"):
        parquet.encode(AUDIT, rows)


@pytest.mark.parametrize("keep", [0, 3, 12, 100, -1])
def test_a_file_that_is_cut_short_is_corrupt(keep: int) -> None:
    data = parquet.encode(RUNS, FULL)
    with pytest.raises(Corrupt, match="a file of table 'runs'"):
        parquet.decode(RUNS, data[:keep])


def test_a_footer_that_makes_the_library_panic_is_corrupt() -> None:
    data = parquet.encode(RUNS, FULL)
    with pytest.raises(Corrupt, match="'runs' cannot be read as Parquet"):
        parquet.decode(RUNS, data[:20] + data[-8:])
