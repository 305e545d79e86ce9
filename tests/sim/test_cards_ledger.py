"""Faults that broke other systems, turned on the ledger and the manifests.

Which card of the collection each test is about: tests/sim/test_fault_cards.py.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise
from unittest.mock import patch

import msgspec
import pytest

from servo.adapters.memory import MemoryObjects
from servo.core import segments
from servo.core.definitions import Manifest
from servo.errors import Fenced, Unavailable, Uncertain
from servo.events.vocabulary import VOCABULARY
from servo.fold.tables import TABLES
from servo.fold.tables.audit import Audit
from servo.fold.tables.deployments import Deployments
from servo.ledger import publisher
from servo.ledger.snapshot import Snapshot
from servo.ports.objects import ObjectInfo
from servo.runtime import requests
from servo.runtime.engine import Engine
from servo.runtime.session import Session
from servo.testing import ROUGH, STORM, Trouble
from tests.sim.places import Place, noted


async def subjects(place: Place) -> list[str]:
    """What was noted, in the order of the true ledger; its segments are checked on the way."""
    found = []
    for position, data in enumerate(await place.true.log.read(1, 2**40), start=1):
        for line in segments.parse(data, position).lines:
            event = VOCABULARY.decode(line)
            if event.event_type == "AuditRecorded":
                found.append(event.payload.subject)
    return found


async def opened(engine: Engine) -> None:
    while True:
        with suppress(Unavailable):
            return await engine.open()


async def wrote(engine: Engine, names: list[str], pause: float = 0.1) -> None:
    for name in names:
        await asyncio.sleep(pause)
        while True:
            with suppress(Unavailable):
                await engine.submit([noted(name)], source="client")
                break


@pytest.mark.parametrize("trouble", [Trouble(), ROUGH])
def test_five_writers_of_three_facts_take_the_positions_1_to_15(trouble: Trouble) -> None:
    place = Place(3, trouble)

    async def main() -> None:
        engines = [place.engine(f"e{i}") for i in range(5)]
        names = [[f"{i}.{j}" for j in range(3)] for i in range(5)]
        for engine in engines:
            await opened(engine)
        tasks = zip(engines, names, strict=True)
        await asyncio.gather(*(wrote(engine, some) for engine, some in tasks))
        assert await place.true.log.head() == 15
        assert sorted(await subjects(place)) == sorted(name for some in names for name in some)

    place.run(main())


def test_after_a_lost_race_a_writer_looks_where_the_end_is() -> None:
    """Attempts per append stay few, however many write: nobody counts up blindly."""
    place = Place(4)
    appends = 0

    async def main() -> None:
        nonlocal appends
        append = place.true.log.append

        async def counted(position: int, data: bytes) -> None:
            nonlocal appends
            appends += 1
            await append(position, data)

        place.true.log.append = counted  # type: ignore[method-assign]  # to count what arrives
        engines = [place.engine(f"e{i}") for i in range(12)]
        for engine in engines:
            await engine.open()
        await asyncio.gather(*(wrote(e, [f"{i}"], 0) for i, e in enumerate(engines)))
        assert await place.true.log.head() == 12

    place.run(main())
    assert appends <= 12 * 5


def test_a_leader_that_slept_while_another_took_over_writes_nothing_any_more() -> None:
    place = Place(5)

    async def main() -> None:
        old, new = place.engine("old"), place.engine("new")
        failed: list[BaseException] = []

        async def lead() -> None:
            assert await old.try_lead()
            running = asyncio.create_task(old.run())
            try:
                await wrote(old, [f"old {i}" for i in range(10_000)], 0.1)
            except Fenced as error:
                failed.append(error)
            with suppress(Fenced):
                await running

        place.process("old").spawn(lead())
        await asyncio.sleep(2)
        place.process("old").pause()
        while not await new.try_lead():  # noqa: ASYNC110 - nobody tells it
            await asyncio.sleep(0.2)
        taken = new.state.position
        running = asyncio.create_task(new.run())
        await wrote(new, ["new"])
        place.process("old").resume()
        await asyncio.sleep(5)
        assert isinstance(old.failure, Fenced)
        assert failed
        for position, data in enumerate(await place.true.log.read(1, 2**40), start=1):
            header = segments.parse(data, position).header
            assert header.writer_id == (old if position < taken else new).writer_id
        newest = await Snapshot.open(place.true.objects, TABLES)
        assert newest.epoch == 2
        running.cancel()

    place.run(main())


def test_every_read_of_the_ledger_is_the_beginning_of_every_later_one() -> None:
    """Nothing is lost, doubled or moved, whoever dies and whatever answer is lost."""
    place = Place(6, STORM)
    acknowledged: list[str] = []

    async def write(name: str) -> None:
        engine = place.engine(name)
        for number in range(1_000):
            with suppress(Unavailable):
                await engine.open()
                await engine.submit([noted(f"{name} {number}")], source="client")
                acknowledged.append(f"{name} {number}")
            await asyncio.sleep(0.5)

    async def main() -> None:
        reads: list[list[str]] = []
        for life in range(3):
            for name in (f"a{life}", f"b{life}", f"c{life}"):
                place.process(name).spawn(write(name))
            for _ in range(10):
                await asyncio.sleep(0.7)
                reads.append(await subjects(place))
            place.process(f"a{life}").kill()
            place.process(f"b{life}").kill_at_turn(40)
        place.weather.off()
        await asyncio.sleep(180)  # what is stalled lands
        final = await subjects(place)
        assert all(final[: len(read)] == read for read in reads)
        assert len(set(final)) == len(final)
        assert set(acknowledged) <= set(final)
        assert len(acknowledged) > 20

    place.run(main())


QUICK = msgspec.structs.replace(ROUGH, slow=0.0, stalled=0.0, burst=0.0)
"""Faults enough, and nobody waits for seconds."""


def readers_and_a_leader(place: Place, seen: list[dict[str, int]]) -> None:
    """A leader moves amounts between accounts; readers look at snapshots, each on its own way."""

    async def read(name: str) -> None:
        objects = place.store(place.process(name)).objects
        while True:
            await asyncio.sleep(0.8)
            with suppress(Unavailable):
                snapshot = await Snapshot.open(objects, TABLES)
                rows = await snapshot.rows(Audit.table)
                seen.append({str(row[5]): 1 for row in rows if row[4] == "noted"})

    async def lead(name: str) -> None:
        for number in range(10_000):
            engine = place.engine(name)
            with suppress(Unavailable, Fenced):
                async with Session(engine):
                    for other in range(10_000):
                        transfer = f"{name}.{number}.{other}"
                        pair = [noted(f"{transfer} {side}") for side in ("debit", "credit")]
                        await engine.submit(pair, source="client")
                        await asyncio.sleep(0.2)

    async def main() -> None:
        for life in range(3):
            place.process(f"leader{life}").spawn(lead(f"leader{life}"))
            for number in range(2):
                place.process(f"reader{life}{number}").spawn(read(f"reader{life}{number}"))
            await asyncio.sleep(16)
            place.process(f"leader{life}").kill()

    with patch.object(publisher, "MERGE_FILES", 5):  # so that there is less to read each time
        place.run(main())


def test_no_reader_sees_a_debit_without_its_credit() -> None:
    """As the sum over accounts: what was written together is seen together, in every snapshot."""
    seen: list[dict[str, int]] = []
    readers_and_a_leader(Place(7, QUICK), seen)
    assert max(map(len, seen)) > 60
    for read in seen:
        sides = Counter(subject.rpartition(" ")[2] for subject in read)
        assert sides["debit"] == sides["credit"]
        assert {s.replace("debit", "credit") for s in read} == {s for s in read if "credit" in s}


def test_no_two_readers_disagree_about_the_order_of_writes() -> None:
    """Of any two snapshots, one holds all that the other holds."""
    seen: list[dict[str, int]] = []
    readers_and_a_leader(Place(8, QUICK), seen)
    ordered = sorted(map(frozenset, seen), key=len)
    assert len(set(ordered)) > 20
    assert all(one <= other for one, other in pairwise(ordered))


def test_a_burst_of_refusals_loses_nothing_and_is_over_when_it_is_over() -> None:
    place = Place(9)

    async def main() -> None:
        engine = place.engine("e")
        async with Session(engine):
            await wrote(engine, ["before"])
            place.weather.burst_until = place.loop.time() + 30
            asked = 0
            while place.loop.time() < place.weather.burst_until:
                await wrote(engine, [f"during {asked}"], 0.2)
                asked += 1
            began = place.loop.time()
            await wrote(engine, ["after"], 0)
            assert place.loop.time() - began < 0.2
            assert asked > 50
            assert await subjects(place) == [
                "before",
                *(f"during {i}" for i in range(asked)),
                "after",
            ]

    place.run(main())


class OneASecond(MemoryObjects):
    """A store that lets an object be overwritten once a second, and refuses more (429)."""

    def __init__(self, clock: list[Place]) -> None:
        super().__init__()
        self._clock = clock
        self._written: dict[str, float] = {}
        self.refused = 0

    async def put(self, path: str, data: bytes) -> None:
        now = self._clock[0].loop.time()
        if now - self._written.get(path, -1.0) < 1.0:
            self.refused += 1
            raise Unavailable("429: one write a second")
        self._written[path] = now
        await super().put(path, data)


def test_a_store_that_limits_writes_of_one_object_stops_nobody() -> None:
    """What is overwritten (the lease, the hint) is only a help; what counts has names of its own."""
    clock: list[Place] = []
    store = OneASecond(clock)
    place = Place(10, objects=store)
    clock.append(place)

    async def main() -> None:
        engines = [place.engine(f"e{i}") for i in range(8)]
        async with Sessions(engines) as sessions:
            await asyncio.gather(
                *(
                    wrote(s.engine, [f"{i}.{j}" for j in range(5)], 0.3)
                    for i, s in enumerate(sessions)
                )
            )
            await asyncio.sleep(3)
            assert sorted(await subjects(place)) == sorted(
                f"{i}.{j}" for i in range(8) for j in range(5)
            )
            newest = await Snapshot.open(store, TABLES)
            rows = await newest.rows(Audit.table)
            assert sum(row[4] == "noted" for row in rows) == 40

    place.run(main())
    assert store.refused


class Sessions:
    """Many sessions as one."""

    def __init__(self, engines: list[Engine]) -> None:
        self._sessions = [Session(engine) for engine in engines]

    async def __aenter__(self) -> list[Session]:
        for session in self._sessions:
            await session.__aenter__()
        return self._sessions

    async def __aexit__(self, *error: object) -> None:
        for session in reversed(self._sessions):
            await session.__aexit__(None, None, None)


def test_five_who_deploy_the_same_definitions_at_once_make_one_deployment() -> None:
    place = Place(11)
    manifest = Manifest(assets=())

    async def main() -> None:
        engines = [place.engine(f"e{i}") for i in range(5)]
        async with Sessions(engines):
            made = await asyncio.gather(*(requests.deploy(e, manifest) for e in engines))
            assert len(set(made)) == 1
            await asyncio.sleep(3)
            newest = await Snapshot.open(place.true.objects, TABLES)
            (row,) = await newest.rows(Deployments.table)
            assert row[0] == made[0]

    place.run(main())


class Unlisted(MemoryObjects):
    """A store whose listing is not to be trusted with anything."""

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        raise AssertionError("somebody listed")
        yield  # what makes it a generator


def test_nobody_lists_to_find_out_what_there_is() -> None:
    """So that a listing that comes late or in part cannot hide a segment or a revision."""
    place = Place(12, objects=Unlisted())

    async def main() -> None:
        for life in range(3):
            engine = place.engine(f"e{life}")
            async with Session(engine):
                await wrote(engine, [f"{life}.{i}" for i in range(20)], 0.2)
        newest = await Snapshot.open(place.true.objects, TABLES)
        rows = await newest.rows(Audit.table)
        assert sum(row[4] == "noted" for row in rows) == 60

    place.run(main())


class LosesTheAnswer(MemoryObjects):
    """Applies every creation of a manifest, and says of each first one that nobody knows."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[str] = set()

    async def put_new(self, path: str, data: bytes) -> bool:
        created = await super().put_new(path, data)
        if path.startswith("manifests/") and path not in self.lost:
            self.lost.add(path)
            raise Uncertain("the answer was lost")
        return created


def test_a_publisher_that_is_told_taken_of_its_own_manifest_knows_it() -> None:
    store = LosesTheAnswer()
    place = Place(13, objects=store)

    async def main() -> int:
        engine = place.engine("e")
        async with Session(engine):
            for number in range(5):
                await wrote(engine, [f"{number}"])
                await engine.publish()
        return (await Snapshot.open(store, TABLES)).revision

    revision = place.run(main())
    assert len(store.lost) == revision  # each number was taken once, by the one who asked for it
    assert revision >= 5
