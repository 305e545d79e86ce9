"""Any upserts, in any batches, over any number of publishes and merges, are a dict of newest rows."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from servo.fold.table import Key, Row
from servo.ledger import publisher as publishing
from servo.ledger.publisher import Publisher
from servo.ledger.snapshot import Snapshot
from tests.unit.stored_tables import TASKS, FakeObjects, hash_at, ids

HOUR = 3600 * 1_000_000
names = st.sampled_from(["a", "b", "ab", "", "é", "z" * 30])
# One list is one publish. Places are drawn, so that older rows also arrive after newer ones.
upserts = st.tuples(names, names, st.integers(0, 30), st.integers(0, 3))
batches = st.lists(
    st.tuples(st.lists(upserts, max_size=6), st.sampled_from([0, HOUR])), max_size=12
)


@given(batches, st.integers(1, 5), st.lists(st.lists(names, max_size=2).map(tuple), max_size=4))
def test_a_snapshot_is_the_newest_row_of_each_key(
    published: list[tuple[list[tuple[str, str, int, int]], int]],
    base_rows: int,
    prefixes: list[Key],
) -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        publisher = Publisher(objects, ids())
        newest: dict[Key, Row] = {}
        history = [dict(newest)]
        moment = 0
        for number, (batch, passed) in enumerate(published):
            moment += passed
            # A place stands for one fact, so its row is the same wherever it comes from.
            rows: list[Row] = [(r, t, f"{place}", *place) for r, t, *place in batch]
            for row in rows:
                key = TASKS.row_key(row)
                if key not in newest or TASKS.row_place(row) > TASKS.row_place(newest[key]):
                    newest[key] = row
            history.append(dict(newest))
            await publisher.publish(
                position=30 + number,
                ledger_hash=hash_at(number),
                epoch=1,
                published_at=moment,
                rows={TASKS: rows},
            )
        for revision, expected in enumerate(history):
            snapshot = await Snapshot.open(objects, [TASKS], revision or None)
            if not revision and published:
                continue
            assert snapshot.revision == revision
            in_order = [expected[key] for key in sorted(expected)]
            assert await snapshot.rows(TASKS) == in_order
            assert await snapshot.find(TASKS, prefixes) == [
                row for row in in_order if any(row[: len(p)] == p for p in prefixes)
            ]

    before = publishing.BASE_ROWS
    publishing.BASE_ROWS = base_rows
    try:
        asyncio.run(scenario())
    finally:
        publishing.BASE_ROWS = before
