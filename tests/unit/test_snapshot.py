"""Snapshots: revisions, look-ups that read little, broken files by name, and queries in a sandbox."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from servo.core.segments import GENESIS
from servo.errors import Corrupt, Invalid
from servo.fold.table import Key, Row, Table
from servo.ledger import publisher as publishing
from servo.ledger import snapshot as reading
from servo.ledger.manifest import HINT_PATH, manifest_path
from servo.ledger.publisher import Publisher
from servo.ledger.snapshot import Snapshot
from tests.unit.stored_tables import (
    AUDIT,
    RUNS,
    TASKS,
    FakeObjects,
    hash_at,
    ids,
    run_row,
    task_row,
)

TABLES = (RUNS, TASKS, AUDIT)
HOUR = 3600 * 1_000_000


async def stored(*publishes: Mapping[Table, Sequence[Row]], merge: bool = False) -> FakeObjects:
    """A store after these publishes, at positions 10, 20 and so on."""
    objects = FakeObjects()
    publisher = Publisher(objects, ids())
    for n, rows in enumerate(publishes, start=1):
        await publisher.publish(
            position=10 * n, ledger_hash=hash_at(n), epoch=n, published_at=0, rows=rows
        )
    if merge:
        await publisher.publish(
            position=10 * len(publishes),
            ledger_hash=hash_at(len(publishes)),
            epoch=len(publishes),
            published_at=HOUR,
            rows=dict.fromkeys(TABLES, ()),
        )
    objects.calls.clear()
    return objects


def files_read(objects: FakeObjects) -> list[str]:
    return [path for name, path in objects.calls if path.startswith("tables/")]


def ask(query: str, *publishes: Mapping[Table, Sequence[Row]]) -> reading.Result:
    async def scenario() -> reading.Result:
        snapshot = await Snapshot.open(await stored(*publishes), TABLES)
        return await snapshot.sql(query)

    return asyncio.run(scenario())


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_a_snapshot_of_nothing_has_empty_tables() -> None:
    async def scenario() -> None:
        snapshot = await Snapshot.open(FakeObjects(), TABLES)
        assert (snapshot.revision, snapshot.position, snapshot.epoch) == (0, 0, 0)
        assert snapshot.ledger_hash == GENESIS
        assert await snapshot.rows(RUNS) == []
        assert await snapshot.find(RUNS, [("r",)]) == []
        assert (await snapshot.sql("SELECT count(*) FROM runs")).rows == [(0,)]

    run(scenario())


def test_each_revision_stays_as_it_was() -> None:
    async def scenario() -> None:
        objects = await stored(
            {RUNS: [run_row("r", 1)]}, {RUNS: [run_row("r", 11), run_row("s", 12)]}
        )
        first = await Snapshot.open(objects, TABLES, revision=1)
        assert (first.revision, first.position, first.epoch) == (1, 10, 1)
        assert first.ledger_hash == hash_at(1)
        assert await first.rows(RUNS) == [run_row("r", 1)]
        newest = await Snapshot.open(objects, TABLES)
        assert newest.revision == 2
        assert await newest.rows(RUNS) == [run_row("r", 11), run_row("s", 12)]

    run(scenario())


@pytest.mark.parametrize("revision", [-1, 0, 3, 10**9])
def test_a_revision_that_does_not_exist_is_refused_naming_the_newest(revision: int) -> None:
    async def scenario() -> None:
        objects = await stored({}, {})
        with pytest.raises(Invalid, match=f"there is no revision {revision}: the newest is 2"):
            await Snapshot.open(objects, TABLES, revision)

    run(scenario())


def test_asking_for_a_revision_of_nothing_says_that_nothing_was_published() -> None:
    with pytest.raises(Invalid, match="there is no revision 1: nothing was published yet"):
        asyncio.run(Snapshot.open(FakeObjects(), TABLES, 1))


@pytest.mark.parametrize("merge", [False, True])
def test_rows_are_found_by_key_and_by_the_beginning_of_a_key(merge: bool) -> None:
    async def scenario() -> None:
        objects = await stored(
            {TASKS: [task_row(f"r{n}", f"t{m}", n) for n in range(9) for m in range(3)]},
            {TASKS: [task_row("r3", "t1", 15, state="done"), task_row("r30", "t1", 15)]},
            merge=merge,
        )
        snapshot = await Snapshot.open(objects, TABLES)
        everything = await snapshot.rows(TASKS)

        async def check(*prefixes: Key) -> list[Row]:
            found = await snapshot.find(TASKS, prefixes)
            assert found == [row for row in everything if any(row[: len(p)] == p for p in prefixes)]
            return found

        assert len(await check(("r3",))) == 3
        assert await check(("r3", "t1")) == [task_row("r3", "t1", 15, state="done")]
        assert len(await check(("r3",), ("r8", "t0"), ("r3", "t1"), ("no",))) == 4
        assert await check(("r",)) == []
        assert await check() == []
        assert len(await check(())) == 28

    run(scenario())


def test_a_look_up_reads_no_file_that_cannot_hold_the_key() -> None:
    async def scenario() -> None:
        objects = await stored(
            {TASKS: [task_row("a", "t", 1), task_row("c", "t", 1)]},
            {TASKS: [task_row("d", "t", 11), task_row("f", "t", 11)]},
            {TASKS: [task_row("b", "t", 21), task_row("b", "u", 21)]},
        )
        snapshot = await Snapshot.open(objects, TABLES)
        assert await snapshot.find(TASKS, [("e", "t"), ("g",), ("Z",)]) == []
        assert len(files_read(objects)) == 1
        assert len(await snapshot.find(TASKS, [("b",)])) == 2
        assert len(files_read(objects)) == 3
        assert await snapshot.find(TASKS, [("b", "v")]) == []
        assert len(files_read(objects)) == 3, "what was read is kept"

    run(scenario())


@pytest.mark.parametrize(
    ("prefix", "reads"),
    [
        (("run_1",), 1),
        (("run_1", "a"), 1),
        (("run_1", "A"), 0),
        (("run_1", "zz"), 1),
        (("run_15", "anything"), 1),
        (("run_2", "z"), 1),
        (("run_2", "zz"), 0),
        (("run_0",), 0),
        (("run_3",), 0),
        ((), 1),
    ],
)
def test_a_key_range_tells_what_a_file_cannot_hold(prefix: Key, reads: int) -> None:
    async def scenario() -> None:
        objects = await stored({TASKS: [task_row("run_1", "a", 1), task_row("run_2", "z", 1)]})
        snapshot = await Snapshot.open(objects, TABLES)
        await snapshot.find(TASKS, [prefix])
        assert len(files_read(objects)) == reads

    run(scenario())


def test_many_keys_are_found_as_few_are() -> None:
    async def scenario() -> None:
        rows = [task_row(f"r{n:03d}", f"t{m}", 1) for n in range(100) for m in range(2)]
        snapshot = await Snapshot.open(await stored({TASKS: rows}), TABLES)
        prefixes: list[Key] = [(f"r{n:03d}",) for n in range(0, 100, 3)]
        prefixes += [(f"r{n:03d}", "t1") for n in range(0, 100, 4)]
        one_by_one = {row for prefix in prefixes for row in await snapshot.find(TASKS, [prefix])}
        assert await snapshot.find(TASKS, prefixes) == [row for row in rows if row in one_by_one]

    run(scenario())


def test_a_look_up_in_merged_tables_reads_one_of_many_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "BASE_ROWS", 10)

    async def scenario() -> None:
        rows = [run_row(f"r{n:03d}", 1) for n in range(200)]
        objects = await stored({RUNS: rows}, merge=True)
        snapshot = await Snapshot.open(objects, TABLES)
        assert await snapshot.find(RUNS, [("r123",)]) == [rows[123]]
        assert len(files_read(objects)) == 1

    run(scenario())


def test_what_is_kept_of_files_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        objects = await stored(*[{RUNS: [run_row(f"r{n}", 1)]} for n in range(6)])
        snapshot = await Snapshot.open(objects, TABLES)
        sizes = [file.bytes for file in snapshot.manifest.tables["runs"].l0]
        monkeypatch.setattr(reading, "CACHE_BYTES", 2 * max(sizes))
        assert len(await snapshot.rows(RUNS)) == 6
        assert snapshot._held <= 2 * max(sizes)
        objects.calls.clear()
        await snapshot.find(RUNS, [("r5",)])
        assert files_read(objects) == []
        await snapshot.find(RUNS, [("r0",)])
        assert len(files_read(objects)) == 1

    run(scenario())


@pytest.mark.parametrize("how", ["changed", "cut", "gone"])
@pytest.mark.parametrize("merge", [False, True])
def test_a_broken_file_is_named_and_never_read_as_empty(how: str, merge: bool) -> None:
    async def scenario() -> None:
        objects = await stored({RUNS: [run_row("r", 1)]}, merge=merge)
        path = max(path for path in objects.stored if path.startswith("tables/"))
        data = objects.stored[path]
        if how == "gone":
            del objects.stored[path]
        else:
            objects.stored[path] = data[:-9] if how == "cut" else data[:9] + b"\x01" + data[10:]
        snapshot = await Snapshot.open(objects, TABLES)
        for read in (
            snapshot.rows(RUNS),
            snapshot.find(RUNS, [("r",)]),
            snapshot.arrow(RUNS),
            snapshot.sql("SELECT count(*) FROM runs"),
        ):
            with pytest.raises(Corrupt, match=f"table 'runs': its file {path} "):
                await read

    run(scenario())


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_broken_base_list_is_named_and_never_read_as_empty(how: str) -> None:
    async def scenario() -> None:
        objects = await stored({RUNS: [run_row("r", 1)]}, merge=True)
        [path] = [path for path in objects.stored if path.startswith("objects/")]
        if how == "gone":
            del objects.stored[path]
        else:
            objects.stored[path] = b"[]"
        snapshot = await Snapshot.open(objects, TABLES)
        with pytest.raises(Corrupt, match=path):
            await snapshot.rows(RUNS)

    run(scenario())


def test_a_broken_manifest_is_named() -> None:
    async def scenario() -> None:
        objects = await stored({RUNS: [run_row("r", 1)]}, {})
        objects.stored[manifest_path(2)] = b""
        for revision in (None, 2):
            with pytest.raises(Corrupt, match="revision 2 cannot be read"):
                await Snapshot.open(objects, TABLES, revision)

    run(scenario())


@pytest.mark.parametrize("hint", [b"garbage", b'{"revision":1}', b'{"revision":77}', None])
def test_the_newest_is_opened_whatever_the_hint_says(hint: bytes | None) -> None:
    async def scenario() -> None:
        objects = await stored({}, {}, {RUNS: [run_row("r", 1)]})
        del objects.stored[HINT_PATH]
        if hint is not None:
            objects.stored[HINT_PATH] = hint
        assert (await Snapshot.open(objects, TABLES)).revision == 3

    run(scenario())


def test_a_query_sees_the_newest_rows_and_moments_in_utc() -> None:
    result = ask(
        "SELECT r.run_id, started_at, count(*) AS n FROM Runs r JOIN tasks t USING (run_id)"
        " GROUP BY ALL ORDER BY 1 DESC",
        {RUNS: [run_row("r", 1), run_row("s", 2)], TASKS: [task_row("r", "t", 1)]},
        {RUNS: [run_row("r", 11)], TASKS: [task_row("s", "t", 11), task_row("s", "u", 11)]},
    )
    assert result.columns == ("run_id", "started_at", "n")
    assert result.rows == [
        ("s", datetime(2023, 11, 14, 22, 13, 20, 2, tzinfo=UTC), 2),
        ("r", datetime(2023, 11, 14, 22, 13, 20, 11, tzinfo=UTC), 1),
    ]


def test_moments_inside_other_values_become_text() -> None:
    result = ask("SELECT [started_at] FROM runs", {RUNS: [run_row("r", 1)]})
    assert result.rows == [("['2023-11-14 22:13:20.000001+00']",)]


def test_columns_of_one_name_keep_it() -> None:
    result = ask("SELECT 1 AS a, 2 AS a, TIMESTAMPTZ '2025-01-15 00:00:00+02' AS a")
    assert result.columns == ("a", "a", "a")
    assert result.rows == [(1, 2, datetime(2025, 1, 14, 22, tzinfo=UTC))]


def test_only_tables_that_a_query_names_are_read() -> None:
    async def scenario() -> None:
        objects = await stored({RUNS: [run_row("r", 1)], TASKS: [task_row("r", "t", 1)]})
        snapshot = await Snapshot.open(objects, TABLES)
        await snapshot.sql("SELECT * FROM runs")
        await snapshot.sql("SELECT count(*) FROM runs")
        [path] = files_read(objects)
        assert path.startswith("tables/runs/")

    run(scenario())


@pytest.mark.parametrize(
    "query", ["SHOW TABLES", "SELECT table_name FROM information_schema.tables"]
)
def test_all_tables_are_listed_although_none_is_read(query: str) -> None:
    async def scenario() -> None:
        objects = await stored({RUNS: [run_row("r", 1)]})
        snapshot = await Snapshot.open(objects, TABLES)
        assert sorted((await snapshot.sql(query)).rows) == [("audit",), ("runs",), ("tasks",)]
        assert files_read(objects) == []
        await snapshot.sql("SELECT * FROM runs")
        assert sorted((await snapshot.sql(query)).rows) == [("audit",), ("runs",), ("tasks",)]

    run(scenario())


def test_columns_are_listed_with_their_types() -> None:
    result = ask(
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_name = 'ru' || 'ns' ORDER BY ordinal_position"
    )
    assert result.rows == [
        ("run_id", "VARCHAR"),
        ("state", "VARCHAR"),
        ("tasks", "BIGINT"),
        ("done", "BOOLEAN"),
        ("started_at", "TIMESTAMP WITH TIME ZONE"),
        ("labels", "VARCHAR"),
        ("row_position", "BIGINT"),
        ("row_index", "BIGINT"),
    ]


def test_a_table_reached_behind_the_texts_back_is_not_read_as_empty() -> None:
    with pytest.raises(Invalid, match="table runs is not loaded, because its name is not written"):
        ask("SELECT count(*) FROM query_table('ru' || 'ns')", {RUNS: [run_row("r", 1)]})


@pytest.mark.parametrize(
    "query",
    [
        "WITH a AS (SELECT 1 AS x) SELECT * FROM a",
        "VALUES (1), (2)",
        "FROM runs",
        "DESCRIBE runs",
        "SUMMARIZE runs",
        "EXPLAIN SELECT * FROM runs",
        "EXPLAIN ANALYZE SELECT * FROM runs",
        "-- why\nSELECT 1;",
        "SELECT labels->>'a' FROM runs",
    ],
)
def test_whatever_only_reads_is_answered(query: str) -> None:
    assert ask(query, {RUNS: [run_row("r", 1)]}).rows


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE x AS SELECT 1",
        "CREATE MACRO f() AS 1",
        "DROP VIEW runs",
        "INSERT INTO runs VALUES (1)",
        "DELETE FROM runs",
        "COPY runs TO '/tmp/servo-test-leak.csv'",
        "EXPORT DATABASE '/tmp/servo-test-leak'",
        "ATTACH '/tmp/servo-test-leak.db'",
        "SET threads = 1",
        "RESET lock_configuration",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CHECKPOINT",
        "USE x",
        "BEGIN",
        "PREPARE p AS SELECT 1",
        "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1",
        "EXPLAIN ANALYZE COPY runs TO '/tmp/servo-test-leak.csv'",
        "/* SELECT */ EXPLAIN (FORMAT json) DROP VIEW runs",
    ],
)
def test_whatever_does_more_than_read_is_refused(query: str) -> None:
    with pytest.raises(Invalid, match="a query may only read"):
        ask(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_parquet('https://example.com/x.parquet')",
        "SELECT getenv('HOME')",
        "SELECT * FROM objects",  # a variable of the caller
    ],
)
def test_nothing_outside_the_tables_can_be_reached(query: str) -> None:
    objects = [1, 2, 3]
    assert objects
    with pytest.raises(Invalid):
        ask(query)


def test_the_database_is_closed_and_stays_so() -> None:
    closed = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "enable_external_access": "false",
        "lock_configuration": "true",
        "python_enable_replacements": "false",
        "temp_directory": "",
    }
    settings = dict(ask("SELECT name, value FROM duckdb_settings()").rows)
    assert {name: settings[name] for name in closed} == closed


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "a query is one SELECT statement, and this holds none; ask one at a time"),
        (
            "SELECT 1; SELECT 2",
            "a query is one SELECT statement, and this holds 2; ask one at a time",
        ),
        (
            "SELECT * FROM runns",
            "there is no table 'runns'; did you mean 'runs'? there are audit, runs, tasks",
        ),
        ("SELECT * FROM zebras", "there is no table 'zebras'; there are audit, runs, tasks"),
        (
            "SELEC 1",
            'the query cannot be answered: Parser Error: syntax error at or near "SELEC"',
        ),
        (
            "SELECT colour FROM runs",
            (
                "the query cannot be answered: Binder Error: Referenced column"
                ' "colour" not found in FROM clause!'
            ),
        ),
        (
            "SELECT 'r'::INT",
            "the query cannot be answered: Conversion Error: Could not convert string 'r' to INT32",
        ),
    ],
)
def test_what_is_wrong_with_a_query_is_said_in_one_line(query: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        ask(query, {RUNS: [run_row("r", 1)]})
    assert str(caught.value) == message
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_a_snapshot_answers_again_after_a_wrong_query() -> None:
    async def scenario() -> None:
        snapshot = await Snapshot.open(await stored({RUNS: [run_row("r", 1)]}), TABLES)
        for query in (
            "SELEC",
            "SELECT 1; SELECT 2",
            "SELECT run_id::INT FROM runs",
            "DROP VIEW runs",
        ):
            with pytest.raises(Invalid):
                await snapshot.sql(query)
        assert (await snapshot.sql("SELECT run_id FROM runs")).rows == [("r",)]

    run(scenario())


def test_queries_at_the_same_time_are_all_answered() -> None:
    async def scenario() -> None:
        snapshot = await Snapshot.open(await stored({RUNS: [run_row("r", 1)]}), TABLES)
        results = await asyncio.gather(
            *(snapshot.sql(f"SELECT {n}, count(*) FROM runs") for n in range(5))
        )
        assert [result.rows for result in results] == [[(n, 1)] for n in range(5)]

    run(scenario())


@pytest.mark.parametrize("turns", [1, 3, 10, 1000])
def test_a_query_that_is_given_up_is_stopped(turns: int) -> None:
    async def scenario() -> None:
        snapshot = await Snapshot.open(await stored({RUNS: [run_row("r", 1)]}), TABLES)
        await snapshot.sql("SELECT 1")
        endless = asyncio.ensure_future(
            snapshot.sql("SELECT count(*) FROM range(1000000000) a, range(1000000000) b")
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not endless.done()
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        assert (await snapshot.sql("SELECT run_id FROM runs")).rows == [("r",)]

    run(scenario())
