"""Faults that broke other systems, turned on scheduling: limits, chains, amounts.

Which card of the collection each test is about: tests/sim/test_fault_cards.py. Times of virtual loops
are exact; where real time is meant, it is processor time with room to spare.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from servo.core.states import RunState, TaskState
from servo.events.catalog import DeploymentCreated
from servo.events.orchestration import RunCancelRequested
from servo.fold.tables import TABLES
from servo.fold.tables.materializations import Materializations
from servo.fold.tables.partitions import Partitions
from servo.ledger.snapshot import Snapshot
from servo.ports.executor import Work
from servo.runtime import requests
from servo.runtime.session import Session
from servo.worker.inline import Made
from tests.sim.places import Place, plan_of, taking
from tests.unit.facts import Story, asked, finished, triggered
from tests.unit.facts import plan_of as fold_plan


def test_ten_tasks_that_ask_for_four_slots_never_hold_more() -> None:
    place = Place(1)
    busy = most = 0

    def resolve(work: Work) -> Callable[[], Awaitable[object]]:
        async def call() -> object:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(1)
            busy -= 1
            return None

        return call

    async def main() -> float:
        engine = place.alone(resolve, slots=4)
        async with Session(engine) as session:
            plan = plan_of({f"t{i}": () for i in range(10)})
            began = place.loop.time()
            run = await requests.trigger(engine, plan, code_ref="x")
            ended = await session.ended(run.run_id)
            assert ended.state is RunState.SUCCEEDED
            return place.loop.time() - began

    assert 3.0 <= place.run(main()) < 3.5
    assert most == 4


def test_a_chain_takes_as_long_as_its_tasks_and_not_as_many_looks() -> None:
    place = Place(2)

    async def main() -> float:
        engine = place.alone(taking(1.0))
        names = [f"t{i:03}" for i in range(100)]
        plan = plan_of({name: names[i - 1 : i] if i else () for i, name in enumerate(names)})
        async with Session(engine) as session:
            began = place.loop.time()
            run = await requests.trigger(engine, plan, code_ref="x")
            assert (await session.ended(run.run_id)).state is RunState.SUCCEEDED
            return place.loop.time() - began

    assert 100.0 <= place.run(main()) < 101.0


def test_thousands_of_tasks_are_taken_at_once_and_all_run() -> None:
    place = Place(3)

    async def main() -> None:
        engine = place.alone(taking(0.0), slots=100)
        layers = {f"t{i:04}": () if i < 370 else (f"t{i - 370:04}",) for i in range(3_700)}
        async with Session(engine) as session:
            began = place.loop.time()
            run = await requests.trigger(engine, plan_of(layers), code_ref="x")
            assert place.loop.time() - began < 0.1  # nobody has to send them in portions
            ended = await session.ended(run.run_id)
            assert ended.counts == {"SUCCEEDED": 3_700}

    place.run(main())


def test_twelve_thousand_versions_of_one_run_take_seconds() -> None:
    place = Place(4)

    def resolve(work: Work) -> Callable[[], Awaitable[object]]:
        async def call() -> object:
            return Made(row_count=1)

        return call

    async def main() -> None:
        engine = place.alone(resolve, slots=500)
        names = [f"t{i:05}" for i in range(12_000)]
        fact = DeploymentCreated(
            deployment_id="d",
            manifest_object="sha256:" + "0" * 64,
            code_version="v",
            asset_ids={f"t/{name}": f"id of {name}" for name in names},
        )
        async with Session(engine) as session:
            await engine.submit([fact], source="client")
            began = time.process_time()
            run = await requests.trigger(engine, plan_of(dict.fromkeys(names, ())), code_ref="x")
            assert (await session.ended(run.run_id)).state is RunState.SUCCEEDED
            await engine.publish()
            assert time.process_time() - began < 40
        newest = await Snapshot.open(place.true.objects, TABLES)
        assert len(await newest.rows(Partitions.table)) == 12_000

    place.run(main())


def test_a_run_of_fifty_thousand_tasks_is_told_to_stop_within_a_second() -> None:
    names = [f"t{i:05}" for i in range(50_000)]
    story = Story(P=fold_plan({name: [] for name in names})).tell(triggered())
    for name in names[:200]:
        story.tell(asked(name), finished(name))
    began = time.process_time()
    story.tell(RunCancelRequested(run_id="R"))
    assert time.process_time() - began < 1.0 * 3  # machines of tests are slow
    assert story.run().run.state is RunState.CANCELLED
    assert story.run().counts[TaskState.CANCELLED] == 50_000 - 200


def test_two_runs_that_make_the_same_asset_at_once_both_commit() -> None:
    """The one that ended last in the ledger is the latest version; the other one is kept."""
    place = Place(5)

    def resolve(work: Work) -> Callable[[], Awaitable[object]]:
        async def call() -> object:
            await asyncio.sleep(1)
            return Made(row_count=1)

        return call

    async def main() -> None:
        engine = place.alone(resolve)
        async with Session(engine) as session:
            ids = {"t/a": "A", "t/b": "B"}
            fact = DeploymentCreated(
                deployment_id="d",
                manifest_object="sha256:" + "0" * 64,
                code_version="v",
                asset_ids=ids,
            )
            await engine.submit([fact], source="client")
            same = [await requests.trigger(engine, plan_of({"a": ()}), code_ref="x") for _ in "12"]
            other = await requests.trigger(engine, plan_of({"b": ()}), code_ref="x")
            for run in (*same, other):
                assert (await session.ended(run.run_id)).state is RunState.SUCCEEDED
        newest = await Snapshot.open(place.true.objects, TABLES)
        versions = await newest.rows(Materializations.table)
        assert sorted(str(row[1]) for row in versions) == ["A", "A", "B"]
        assert all(row[12] for row in versions)  # they count
        latest = {str(row[0]): row[3] for row in await newest.rows(Partitions.table)}
        of_a = [row for row in versions if row[1] == "A"]
        assert latest["A"] == max(of_a, key=lambda row: (row[16], row[17]))[0]

    place.run(main())
