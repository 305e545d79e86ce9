"""Publishing: one instant for all tables, one winner for each revision, and nothing lost on the way."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from servo.errors import Conflict, Corrupt, Fenced, Invalid, Unavailable, Uncertain
from servo.fold.table import Column, Kind, Row, Table
from servo.ledger import publisher as publishing
from servo.ledger.manifest import (
    EMPTY,
    HINT_PATH,
    Manifest,
    find_newest,
    load_base,
    manifest_path,
    moment_text,
    sealed,
)
from servo.ledger.publisher import Publisher
from servo.ledger.snapshot import Snapshot
from tests.unit.stored_tables import (
    CRASHES,
    RUNS,
    TASKS,
    Crash,
    FakeObjects,
    Fault,
    fail_once,
    hash_at,
    ids,
    newer,
    run_row,
    task_row,
)

HOUR = 3600 * 1_000_000


async def publish(
    publisher: Publisher,
    rows: Mapping[Table, Sequence[Row]],
    *,
    position: int,
    epoch: int = 1,
    at: int = 0,
    ledger_hash: str | None = None,
) -> Manifest:
    return await publisher.publish(
        position=position,
        ledger_hash=ledger_hash or hash_at(position),
        epoch=epoch,
        published_at=at,
        rows=rows,
    )


async def rows_in(objects: FakeObjects, table: Table = RUNS) -> list[Row]:
    # A new handle on the same store: what a reader elsewhere sees.
    snapshot = await Snapshot.open(FakeObjects(objects.stored), [table])
    return await snapshot.rows(table)


def test_rows_of_all_tables_become_visible_with_one_manifest() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        publisher = Publisher(objects, ids())
        made = await publish(
            publisher,
            {RUNS: [run_row("r", 1)], TASKS: [task_row("r", "b", 2), task_row("r", "a", 2, 1)]},
            position=2,
            at=5,
        )
        assert [name for name, _ in objects.calls] == [
            *("get", "head", "get"),  # open: no hint, no revision
            *("put_new", "put_new"),
            *("put_new", "put"),
        ]
        *files, manifest, hint = [path for name, path in objects.calls if name.startswith("put")]
        assert sorted(files) == [  # they are made in threads, side by side
            "tables/runs/00000000000000000001-000001.parquet",
            "tables/tasks/00000000000000000001-000002.parquet",
        ]
        assert (manifest, hint) == (manifest_path(1), HINT_PATH)
        assert (made.revision, made.position, made.epoch) == (1, 2, 1)
        assert made.published_at == "1970-01-01T00:00:00.000005Z"
        [file] = made.tables["tasks"].l0
        assert file.key_range == (("r", "a"), ("r", "b"))
        assert (file.rows, file.position_range) == (2, (2, 2))
        assert file.bytes == len(objects.stored[file.path])
        assert await rows_in(objects, TASKS) == [task_row("r", "a", 2, 1), task_row("r", "b", 2)]
        assert await find_newest(objects) == publisher.newest == made

    asyncio.run(scenario())


def test_a_publish_after_the_first_reads_nothing() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        publisher = Publisher(objects, ids())
        await publish(publisher, {}, position=1)
        objects.calls.clear()
        await publish(publisher, {RUNS: [run_row("r", 2)]}, position=2)
        assert [name for name, _ in objects.calls] == ["put_new", "put_new", "put"]

    asyncio.run(scenario())


def test_a_table_without_changes_keeps_its_files() -> None:
    async def scenario() -> None:
        publisher = Publisher(FakeObjects(), ids())
        first = await publish(publisher, {RUNS: [run_row("r", 1)]}, position=1)
        second = await publish(publisher, {TASKS: [task_row("r", "t", 2)], RUNS: []}, position=2)
        assert second.tables["runs"] == first.tables["runs"]
        assert second.parent_hash == first.hash

    asyncio.run(scenario())


def test_what_the_parent_says_of_packs_is_handed_on() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        packed, data = sealed(msgspec.structs.replace(EMPTY, revision=1, packs=hash_at(7)))
        objects.stored[manifest_path(1)] = data
        made = await publish(Publisher(objects, ids()), {}, position=1)
        assert (made.revision, made.parent_hash, made.packs) == (2, packed.hash, hash_at(7))

    asyncio.run(scenario())


def test_publishing_without_rows_fences_the_leader_before() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        old, new = Publisher(objects, ids("a")), Publisher(objects, ids("b"))
        await publish(old, {RUNS: [run_row("r", 1)]}, position=1, epoch=1)
        await new.open()
        await publish(new, {}, position=2, epoch=2)
        with pytest.raises(Fenced, match=r"revision 2 was published in epoch 2, .* epoch is 1"):
            await publish(old, {RUNS: [run_row("r", 3)]}, position=3, epoch=1)
        calls = len(objects.calls)
        with pytest.raises(Fenced):
            await publish(old, {RUNS: [run_row("r", 3)]}, position=3, epoch=1)
        assert len(objects.calls) == calls, "who is fenced touches nothing more"
        assert await rows_in(objects) == [run_row("r", 1)]

    asyncio.run(scenario())


def test_a_leader_of_an_older_epoch_is_fenced_when_it_opens() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        await publish(Publisher(objects, ids("a")), {}, position=1, epoch=5)
        with pytest.raises(Fenced):
            await publish(Publisher(objects, ids("b")), {}, position=9, epoch=4)

    asyncio.run(scenario())


def test_a_newer_leader_adopts_what_an_older_one_published_last() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        old, new = Publisher(objects, ids("a")), Publisher(objects, ids("b"))
        await new.open()
        await publish(old, {RUNS: [run_row("r", 1), run_row("s", 1)]}, position=1, epoch=1)
        await publish(old, {RUNS: [run_row("r", 2)]}, position=2, epoch=1)
        made = await publish(new, {RUNS: [run_row("r", 3)]}, position=3, epoch=2)
        assert (made.revision, made.epoch) == (3, 2)
        assert await rows_in(objects) == [run_row("r", 3), run_row("s", 1)]
        written = [path for name, path in objects.calls if "-b" in path]
        assert len(written) == 1, "the file that was written already is kept"

    asyncio.run(scenario())


def test_who_is_behind_the_published_position_has_to_catch_up() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        ahead, behind = Publisher(objects, ids("a")), Publisher(objects, ids("b"))
        await behind.open()
        await publish(ahead, {RUNS: [run_row("r", 5)]}, position=5)
        with pytest.raises(Conflict, match="up to position 5, and ours only up to 4: catch up"):
            await publish(behind, {RUNS: [run_row("r", 4)]}, position=4)
        made = await publish(behind, {RUNS: [run_row("r", 6)]}, position=6)
        assert made.revision == 2
        assert await rows_in(objects) == [run_row("r", 6)]

    asyncio.run(scenario())


def test_time_never_goes_back_along_the_chain() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        publisher = Publisher(objects, ids())
        times = [
            (await publish(publisher, {}, position=n, at=at)).published_at
            for n, at in enumerate([50, 20, 51, 0], start=1)
        ]
        assert times == [moment_text(at) for at in (50, 50, 51, 51)]

    asyncio.run(scenario())


def test_two_ledgers_under_one_position_are_noticed() -> None:
    async def scenario() -> None:
        publisher = Publisher(FakeObjects(), ids())
        await publish(publisher, {}, position=3)
        with pytest.raises(Corrupt, match="position 3 of the ledger with the hash"):
            await publish(publisher, {}, position=3, ledger_hash=hash_at(99))

    asyncio.run(scenario())


def test_a_row_from_beyond_the_published_position_is_refused() -> None:
    objects = FakeObjects()
    with pytest.raises(Invalid, match="'runs' has a row of position 2, and only position 1"):
        asyncio.run(publish(Publisher(objects, ids()), {RUNS: [run_row("r", 2)]}, position=1))
    assert objects.stored == {}


def test_an_older_servo_does_not_write_into_newer_tables() -> None:
    async def scenario() -> None:
        publisher = Publisher(FakeObjects(), ids())
        later = newer(TASKS, Column("owner", Kind.TEXT, "whose it is", nullable=True))
        await publish(publisher, {later: [("r", "t", "ready", None, 1, 0)]}, position=1)
        with pytest.raises(Invalid, match="schema version 2, and this Servo writes 1; upgrade"):
            await publish(publisher, {TASKS: [task_row("r", "t", 2)]}, position=2)

    asyncio.run(scenario())


def test_files_of_an_older_schema_stay_readable_and_are_merged() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        publisher = Publisher(objects, ids())
        later = newer(TASKS, Column("owner", Kind.TEXT, "whose it is", nullable=True))
        await publish(publisher, {TASKS: [task_row("r", "t", 1)]}, position=1)
        new: Row = ("r", "u", "ready", "ann", 2, 0)
        made = await publish(publisher, {later: [new]}, position=2)
        old: Row = ("r", "t", "ready", None, 1, 0)
        assert made.tables["tasks"].schema_version == 2
        assert await rows_in(objects, later) == [old, new]
        assert await rows_in(objects, TASKS) == [task_row("r", "t", 1), task_row("r", "u", 2)]
        made = await publish(publisher, {later: []}, position=3, at=HOUR)
        assert made.tables["tasks"].base is not None
        assert await rows_in(objects, later) == [old, new]

    asyncio.run(scenario())


class Turns(FakeObjects):
    """Lets others run before and after each call, so that publishers interleave."""

    async def put_new(self, path: str, data: bytes) -> bool:
        await asyncio.sleep(0)
        result = await super().put_new(path, data)
        await asyncio.sleep(0)
        return result

    async def get(self, path: str) -> bytes | None:
        await asyncio.sleep(0)
        return await super().get(path)


@pytest.mark.parametrize("racers", [2, 5])
def test_of_racing_publishers_one_wins_each_revision_and_no_row_is_lost(racers: int) -> None:
    async def scenario() -> None:
        stored: dict[str, bytes] = {}
        made: list[Manifest] = []
        position = 0

        async def race(name: str) -> None:
            nonlocal position
            publisher = Publisher(Turns(stored), ids(name))
            await publisher.open()
            for number in range(12):
                position += 1
                row = run_row(f"{name}-{number:02d}", position)
                mine = position
                while True:
                    try:
                        made.append(await publish(publisher, {RUNS: [row]}, position=mine))
                        break
                    except Conflict:
                        mine = position = max(position, publisher.newest.position)

        await asyncio.gather(*(race(f"p{n}") for n in range(racers)))
        revisions = [manifest.revision for manifest in made]
        assert sorted(revisions) == list(range(1, racers * 12 + 1))
        snapshot = await Snapshot.open(FakeObjects(stored), [RUNS])
        assert snapshot.revision == racers * 12
        found = {row[0] for row in await snapshot.rows(RUNS)}
        assert found == {f"p{n}-{number:02d}" for n in range(racers) for number in range(12)}

    asyncio.run(scenario())


async def prepared(l0_files: int) -> FakeObjects:
    """A store with that many L0 files of runs, and one of tasks."""
    objects = FakeObjects()
    publisher = Publisher(objects, ids("old"))
    await publish(publisher, {TASKS: [task_row("r", "t", 1)]}, position=1)
    for n in range(2, 2 + l0_files):
        rows = [run_row(f"r{n % 3}", n), run_row(f"s{n}", n)]
        await publish(publisher, {RUNS: rows}, position=n)
    objects.calls.clear()
    return objects


@pytest.fixture
def merge_at_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MERGE_FILES", 4)


CHANGES = {RUNS: [run_row("r2", 60), run_row("z", 60)], TASKS: [task_row("r", "t", 60)]}
# With three L0 files a publish also merges, which makes for more calls to die in.
PUBLISH_CALLS = {0: 7, 3: 12}


@pytest.mark.usefixtures("merge_at_four")
@pytest.mark.parametrize("l0_files", PUBLISH_CALLS)
def test_the_calls_of_a_publish_are_as_many_as_the_tests_below_fail(l0_files: int) -> None:
    async def scenario() -> None:
        objects = await prepared(l0_files)
        made = await publish(Publisher(objects, ids()), CHANGES, position=60)
        assert len(objects.calls) == PUBLISH_CALLS[l0_files]
        assert (made.tables["runs"].base is not None) == (l0_files > 0)

    asyncio.run(scenario())


EACH_CALL = pytest.mark.parametrize(
    ("l0_files", "at"),
    [(files, at) for files, calls in PUBLISH_CALLS.items() for at in range(1, calls + 1)],
)


@pytest.mark.usefixtures("merge_at_four")
@pytest.mark.parametrize("fault", CRASHES)
@EACH_CALL
def test_a_crash_at_any_call_loses_nothing_and_shows_nothing_half(
    l0_files: int, at: int, fault: Fault
) -> None:
    async def scenario() -> None:
        objects = await prepared(l0_files)
        before = await rows_in(objects), await rows_in(objects, TASKS)
        whole = FakeObjects(dict(objects.stored))
        await publish(Publisher(whole, ids()), CHANGES, position=60)
        after = await rows_in(whole), await rows_in(whole, TASKS)

        objects.fail = fail_once(at, fault)
        with pytest.raises(Crash):
            await publish(Publisher(objects, ids("dead")), CHANGES, position=60)
        seen = await rows_in(objects), await rows_in(objects, TASKS)
        assert seen in (before, after)

        again = Publisher(FakeObjects(objects.stored), ids("again"))
        await again.open()
        await publish(again, CHANGES, position=60, epoch=2)
        assert (await rows_in(objects), await rows_in(objects, TASKS)) == after

    asyncio.run(scenario())


@pytest.mark.usefixtures("merge_at_four")
@pytest.mark.parametrize("fault", ["lost before", "lost after", "unavailable"])
@EACH_CALL
def test_a_call_that_fails_once_is_settled_or_can_be_tried_again(
    l0_files: int, at: int, fault: Fault
) -> None:
    async def scenario() -> None:
        objects = await prepared(l0_files)
        whole = FakeObjects(dict(objects.stored))
        await publish(Publisher(whole, ids()), CHANGES, position=60)

        objects.fail = fail_once(at, fault)
        publisher = Publisher(objects, ids())
        try:
            made = await publish(publisher, CHANGES, position=60)
        except Unavailable:
            failed = objects.calls[at - 1][0]
            assert failed in ("get", "head") or fault == "unavailable", "lost writes are settled"
            made = await publish(publisher, CHANGES, position=60)
        assert publisher.newest == made == await find_newest(FakeObjects(objects.stored))
        assert made.revision == publisher.newest.revision == l0_files + 2
        for table in (RUNS, TASKS):
            assert await rows_in(objects, table) == await rows_in(whole, table)

    asyncio.run(scenario())


def test_a_manifest_that_lands_after_it_was_given_up_is_adopted() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        publisher = Publisher(objects, ids())
        await publish(publisher, {}, position=1)
        late: dict[str, bytes] = {}

        class Late(FakeObjects):
            async def put_new(self, path: str, data: bytes) -> bool:
                if path == manifest_path(2) and len(late) == 0:
                    late[path] = data
                if path in late:
                    raise Uncertain("the answer was lost")
                return await super().put_new(path, data)

        slow = Publisher(Late(objects.stored), ids("slow"))
        with pytest.raises(
            Uncertain, match=r"nobody knows whether manifests/.*2\.json was written"
        ):
            await publish(slow, {RUNS: [run_row("r", 2)]}, position=2)
        objects.stored.update(late)
        made = await publish(publisher, {RUNS: [run_row("s", 3)]}, position=3)
        assert made.revision == 3
        assert await rows_in(objects) == [run_row("r", 2), run_row("s", 3)]

    asyncio.run(scenario())


def test_a_hint_that_cannot_be_written_does_not_fail_the_publish() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        objects.fail = lambda number, name, path: "unavailable" if path == HINT_PATH else None
        publisher = Publisher(objects, ids())
        publisher._newest = await find_newest(FakeObjects())
        await publish(publisher, {RUNS: [run_row("r", 1)]}, position=1)
        assert HINT_PATH not in objects.stored
        assert await rows_in(objects) == [run_row("r", 1)]

    asyncio.run(scenario())


def test_a_foreign_manifest_that_does_not_follow_is_corrupt() -> None:
    async def scenario() -> None:
        objects, elsewhere = FakeObjects(), FakeObjects()
        publisher, other = Publisher(objects, ids()), Publisher(elsewhere, ids("o"))
        await publish(publisher, {}, position=1)
        await publish(other, {RUNS: [run_row("x", 1)]}, position=1)
        await publish(other, {}, position=2)
        objects.stored[manifest_path(2)] = elsewhere.stored[manifest_path(2)]
        with pytest.raises(Corrupt, match=r"revision 2 names .* as its parent"):
            await publish(publisher, {}, position=3)

    asyncio.run(scenario())


def test_fifty_files_of_a_table_are_merged_into_one() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        publisher = Publisher(objects, ids())
        expected: dict[str, Row] = {}
        made = publisher.newest
        for n in range(1, 120):
            row = run_row(f"r{n % 30:02d}", n)
            expected[f"r{n % 30:02d}"] = row
            made = await publish(publisher, {RUNS: [row], TASKS: []}, position=n)
            files = made.tables["runs"]
            assert len(files.l0) == n % 50
            assert (files.base is not None) == (n >= 50)
            assert (files.l0_since is None) == (not files.l0)
        merged = made.tables["runs"].base
        assert merged is not None
        [base] = await load_base(objects, merged)
        assert (base.rows, base.position_range) == (30, (71, 100))
        assert "tasks" not in made.tables
        assert await rows_in(objects) == [expected[key] for key in sorted(expected)]

    asyncio.run(scenario())


def test_files_are_merged_an_hour_after_the_first_also_without_changes() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        publisher = Publisher(objects, ids())
        await publish(publisher, {RUNS: [run_row("r", 1)]}, position=1, at=0)
        made = await publish(publisher, {RUNS: [run_row("s", 2)]}, position=2, at=HOUR - 1)
        assert len(made.tables["runs"].l0) == 2
        made = await publish(publisher, {RUNS: []}, position=2, at=HOUR)
        assert made.tables["runs"].l0 == ()
        assert await rows_in(objects) == [run_row("r", 1), run_row("s", 2)]

    asyncio.run(scenario())


def test_files_are_merged_when_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        publisher = Publisher(FakeObjects(), ids())
        made = await publish(publisher, {RUNS: [run_row("r", 1)]}, position=1)
        size = made.tables["runs"].l0[0].bytes
        monkeypatch.setattr(publishing, "MERGE_BYTES", 2 * size)
        made = await publish(publisher, {RUNS: [run_row("s", 2)]}, position=2)
        assert made.tables["runs"].l0 == ()

    asyncio.run(scenario())


def test_a_merge_writes_only_the_base_files_that_changes_fall_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "BASE_ROWS", 10)

    async def scenario() -> None:
        objects = FakeObjects()
        publisher = Publisher(objects, ids())
        rows = {f"r{n:03d}": run_row(f"r{n:03d}", 1) for n in range(0, 70, 2)}

        async def merged(changed: Sequence[Row], position: int) -> list[str]:
            rows.update({str(row[0]): row for row in changed})
            at = position * HOUR
            await publish(publisher, {RUNS: changed}, position=position, at=at)
            made = await publish(publisher, {RUNS: []}, position=position, at=at + HOUR)
            base = made.tables["runs"].base
            assert base is not None
            files = await load_base(objects, base)
            assert await rows_in(objects) == [rows[key] for key in sorted(rows)]
            bounds = [key for file in files for key in file.key_range]
            assert bounds == sorted(bounds), "key ranges are disjoint and sorted"
            assert all(file.rows <= 10 for file in files)
            return [file.path for file in files]

        first = await merged(list(rows.values()), 1)
        assert len(first) == 4
        second = await merged([run_row("r022", 2), run_row("r023", 2)], 2)
        assert [path for path in second if path not in first] == second[1:3], "one file, split"
        third = await merged([run_row("a", 3), run_row("z", 3)], 3)
        assert third[2:-1] == second[1:-1], "only the first, which is full, and the last"

    asyncio.run(scenario())


def test_a_merge_reads_back_no_changes_that_this_publisher_wrote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(reads: int) -> None:
        objects = FakeObjects()
        publisher = Publisher(objects, ids())
        for n in range(1, 4):
            await publish(publisher, {RUNS: [run_row(f"r{n}", n)]}, position=n)
        objects.calls.clear()
        made = await publish(publisher, {RUNS: [run_row("r4", 4)]}, position=4, at=HOUR)
        assert made.tables["runs"].l0 == ()
        assert len([name for name, _ in objects.calls if name == "get"]) == reads
        assert await rows_in(objects) == [run_row(f"r{n}", n) for n in range(1, 5)]

    asyncio.run(scenario(reads=0))
    monkeypatch.setattr(publishing, "KEPT_BYTES", 0)
    asyncio.run(scenario(reads=3))


def test_a_merge_refuses_a_changed_file_and_publishes_nothing() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        publisher = Publisher(objects, ids())
        made = await publish(publisher, {RUNS: [run_row("r", 1)]}, position=1)
        path = made.tables["runs"].l0[0].path
        objects.stored[path] = objects.stored[path][:-1] + b"x"
        with pytest.raises(Corrupt, match=f"table 'runs': its file {path} was changed"):
            await publish(
                Publisher(objects, ids("b")), {RUNS: [run_row("s", 2)]}, position=2, at=HOUR
            )
        assert (await find_newest(objects)).revision == 1

    asyncio.run(scenario())
