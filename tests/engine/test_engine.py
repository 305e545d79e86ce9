"""The engine: what a caller is promised, what a step writes, who may lead, and what is published."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from servo.core import segments
from servo.core.failures import FailureCode, TaskFailure
from servo.core.plan import PlanRequest
from servo.core.policies import RetryPolicy, Timeouts
from servo.core.states import RunState, RunTransitionReason, TaskState, TransitionReason
from servo.errors import Conflict, Corrupt, Fenced, Invalid, Unavailable, Uncertain
from servo.events.audit import AuditRecorded
from servo.events.catalog import DeploymentCreated
from servo.events.execution import Outcome, TaskFinished, TaskHeartbeat, TaskStarted
from servo.events.orchestration import RunTriggered, attempt_id
from servo.events.vocabulary import VOCABULARY
from servo.fold.tables import TABLES, runs, tasks
from servo.ledger.snapshot import Snapshot
from servo.ports.executor import Work
from servo.runtime import engine as engines
from servo.runtime import requests
from servo.runtime.engine import Engine
from servo.runtime.session import Session
from servo.worker.inline import InlineExecutor, Made
from tests.engine.place import CODE, Place, forever, play
from tests.unit.facts import key, plan_of

CHAIN = {"a": [], "b": ["a"], "c": ["b"]}


def types(place: Place) -> list[list[str]]:
    """The types of the events of each segment."""
    return [
        [VOCABULARY.decode(line).event_type for line in segments.parse(data).lines]
        for data in place.segments
    ]


async def _run(session: Session, plan: Any, **options: Any) -> Any:
    found = await requests.trigger(session.engine, plan, code_ref=CODE, **options)
    return await session.ended(found.run_id)


def test_a_chain_runs_in_order_and_each_hop_is_one_segment() -> None:
    async def story(place: Place) -> None:
        async with place.session() as session:
            ended = await _run(session, plan_of(CHAIN))
        assert ended.state is RunState.SUCCEEDED
        assert place.begun == ["a", "b", "c"]
        assert types(place) == [
            ["LeaderClaimed"],
            ["RunTriggered", "DispatchRequested"],
            ["TaskFinished", "DispatchRequested"],
            ["TaskFinished", "DispatchRequested"],
            ["TaskFinished"],
        ]

    play(story)


def test_facts_handed_in_at_the_same_time_share_a_segment() -> None:
    async def story(place: Place) -> None:
        async with place.session() as session:
            facts = [AuditRecorded(action="x", subject=str(i)) for i in range(50)]
            places = await asyncio.gather(
                *(session.engine.submit([fact], source="test") for fact in facts)
            )
        assert {place.position for place in places} == {2}
        assert [place.index for place in places] == list(range(50))

    play(story)


def test_callers_beyond_a_full_queue_wait_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "MAX_QUEUE", 4)
    monkeypatch.setattr(engines, "MAX_BATCH", 2)

    async def story(place: Place) -> None:
        async with place.session() as session:
            engine = session.engine
            most = 0

            async def caller(number: int) -> None:
                nonlocal most
                await engine.submit([AuditRecorded(action="x", subject=str(number))], source="t")
                most = max(most, engine._queued)

            await asyncio.gather(*(caller(i) for i in range(20)))
            assert most <= 4
        counts = [len(found) for found in types(place)[1:]]
        assert sum(counts) == 20 and max(counts) <= 2

    play(story)


def test_nobody_is_answered_before_the_segment_is_durable() -> None:
    class SlowLog:
        def __init__(self, log: Any) -> None:
            self._log = log
            self.gate = asyncio.Event()

        async def append(self, position: int, data: bytes) -> None:
            await self.gate.wait()
            await self._log.append(position, data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, name)

    async def story(place: Place) -> None:
        store = place.store()
        slow = SlowLog(store.log)
        slow.gate.set()
        async with place.session(store=store._replace(log=slow)) as session:
            slow.gate.clear()
            asked = asyncio.create_task(
                requests.trigger(session.engine, plan_of(CHAIN), code_ref=CODE)
            )
            await asyncio.sleep(5)
            assert not asked.done() and place.begun == []
            slow.gate.set()
            await session.ended((await asked).run_id)
        assert place.begun == ["a", "b", "c"]

    play(story)


def test_a_failed_task_is_tried_again_after_its_delay_and_then_given_up() -> None:
    times = []

    async def story(place: Place) -> None:
        async def fails() -> None:
            times.append(asyncio.get_running_loop().time())
            raise ConnectionError

        retry = RetryPolicy(max_attempts=3, initial_delay_ms=1_000, jitter_percent=0)
        async with place.session(calls={"a": fails}) as session:
            ended = await _run(session, plan_of({"a": [], "b": ["a"], "x": []}, retry=retry))
            run = session.engine.state.runs[ended.run_id]
            assert run.tasks[key("a")].attempt == 3
        assert ended.state is RunState.FAILED
        assert ended.counts == {"FAILED": 1, "SKIPPED": 1, "SUCCEEDED": 1}

    play(story)
    waits = [round(later - earlier, 1) for earlier, later in pairwise(times)]
    assert waits == [1.0, 2.0]


def test_an_attempt_that_falls_silent_is_given_up_and_tried_again() -> None:
    async def story(place: Place) -> None:
        tries = 0

        async def hangs_once() -> None:
            nonlocal tries
            tries += 1
            if tries == 1:
                await forever()

        async with place.session(calls={"a": hangs_once}) as session:
            # The process is alive, so that the attempt's own timeout is what ends it.
            ended = await _run(session, plan_of({"a": []}))
        assert ended.state is RunState.SUCCEEDED and tries == 2

    play(story)


def test_cancelling_stops_what_runs_and_starts_nothing_more() -> None:
    async def story(place: Place) -> None:
        async with place.session(calls={"a": forever}) as session:
            found = await requests.trigger(session.engine, plan_of(CHAIN), code_ref=CODE)
            await asyncio.sleep(1)
            await requests.cancel(session.engine, found.run_id, message="enough")
            ended = await session.ended(found.run_id)
        assert ended.state is RunState.CANCELLED
        assert ended.reason is RunTransitionReason.USER_CANCELLED
        assert ended.counts == {"CANCELLED": 3} and place.begun == ["a"]

    play(story)


def test_a_run_key_stands_for_one_run_and_for_one_request() -> None:
    async def story(place: Place) -> None:
        async with place.session() as session:
            plan = plan_of(CHAIN)
            one = await requests.trigger(session.engine, plan, code_ref=CODE, run_key="k")
            two = await requests.trigger(session.engine, plan, code_ref=CODE, run_key="k")
            assert (two.run_id, two.new) == (one.run_id, False) and one.new
            other = replace(plan, request=PlanRequest(selection="other"))
            with pytest.raises(Conflict, match="run key 'k' stands for run"):
                await requests.trigger(session.engine, other, code_ref=CODE, run_key="k")
            await session.ended(one.run_id)
        snapshot = await Snapshot.open(place.store().objects, TABLES)
        assert [row[0] for row in await snapshot.rows(runs.TABLE)] == [one.run_id]

    play(story)


def test_never_more_attempts_at_once_than_the_executor_has_slots() -> None:
    async def story(place: Place) -> None:
        at_work = most = 0

        async def counts() -> None:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            await asyncio.sleep(1)
            at_work -= 1

        names: dict[str, list[str]] = {f"t{i}": [] for i in range(10)}
        async with place.session(calls=dict.fromkeys(names, counts), capacity=4) as session:
            began = place.loop.time()
            ended = await _run(session, plan_of(names))
            assert place.loop.time() - began < 3.5  # three rounds of one second
        assert ended.state is RunState.SUCCEEDED and most == 4

    play(story)


def test_a_version_is_recorded_with_the_success_of_its_task() -> None:
    async def story(place: Place) -> None:
        async def makes() -> Made:
            return Made(row_count=7, byte_size=70)

        async with place.session(calls={"a": makes}) as session:
            fact = DeploymentCreated(
                deployment_id="d",
                manifest_object="sha256:" + "0" * 64,
                code_version="c",
                asset_ids={"n/a": "asset-a"},
            )
            await session.engine.submit([fact], source="test")
            await _run(session, plan_of({"a": []}))
        assert types(place)[-1] == ["MaterializationCompleted", "TaskFinished"]
        snapshot = await Snapshot.open(place.store().objects, TABLES)
        found = await snapshot.sql(
            "select asset_id, row_count, m.counts from partitions join materializations m"
            " using (materialization_id, asset_id, row_count)"
        )
        assert found.rows == [("asset-a", 7, True)]

    play(story)


def test_the_tables_say_what_happened_within_a_second() -> None:
    async def story(place: Place) -> None:
        async with place.session(calls={"b": forever}) as session:
            found = await requests.trigger(session.engine, plan_of(CHAIN), code_ref=CODE)
            await asyncio.sleep(1.1)
            snapshot = await Snapshot.open(place.store().objects, TABLES)
            rows = await snapshot.find(tasks.TABLE, [(found.run_id,)])
            states = {row[1]: row[4] for row in rows}
            assert states == {key("a"): "SUCCEEDED", key("b"): "RUNNING", key("c"): "PENDING"}
            await requests.cancel(session.engine, found.run_id)

    play(story)


def test_a_finished_run_leaves_memory_and_a_late_report_finds_it_again() -> None:
    async def story(place: Place) -> None:
        async with place.session() as session:
            ended = await _run(session, plan_of({"a": []}))
            await asyncio.sleep(3)
            state = session.engine.state
            assert ended.run_id not in state.runs
            late = TaskFinished(
                run_id=ended.run_id,
                task_key=key("a"),
                attempt=1,
                attempt_id=attempt_id(ended.run_id, key("a"), 1),
                outcome=Outcome.FAILED,
            )
            await session.engine.submit([late], source="worker")
            task = session.engine.state.runs[ended.run_id].tasks[key("a")]
            assert task.state is TaskState.SUCCEEDED and len(task.attempts[0].results) == 2
        snapshot = await Snapshot.open(place.store().objects, TABLES)
        found = await snapshot.sql("select outcome, conflicts is not null from attempts")
        assert found.rows == [("succeeded", True)]

    play(story)


# --- Leading ----------------------------------------------------------------------------------------


def test_the_second_engine_follows_submits_and_leads_when_the_first_leaves() -> None:
    async def story(place: Place) -> None:
        async with place.session("one") as one:
            two = place.session("two")
            async with two:
                assert one.engine.leading and not two.engine.leading
                ended = await _run(two, plan_of(CHAIN))
                assert ended.state is RunState.SUCCEEDED
                kinds = [segments.parse(data).header.kind for data in place.segments]
                assert "reporter" in kinds
                await one.__aexit__(None, None, None)
                await asyncio.sleep(1)
                assert two.engine.leading
                again = await _run(two, plan_of(CHAIN))
                assert again.state is RunState.SUCCEEDED
            one._live = asyncio.create_task(asyncio.sleep(0))

    play(story)


def test_a_leader_that_slept_is_fenced_by_the_next_and_answers_nobody() -> None:
    async def story(place: Place) -> None:
        one = place.engine("one", lock=False)
        assert await one.try_lead()
        two = place.engine("two", lock=False)
        await two.lead()
        answer = one.hand_in([AuditRecorded(action="x", subject="y")], "t")
        with pytest.raises(Fenced, match="does nothing more"):
            await one.step()
        with pytest.raises(Fenced):
            await answer
        assert isinstance(one.failure, Fenced) and not one.leading
        with pytest.raises(Fenced):
            await one.submit([AuditRecorded(action="x", subject="z")], source="t")
        assert [t for found in types(place) for t in found] == ["LeaderClaimed", "LeaderClaimed"]

    play(story)


def test_a_lease_is_taken_over_only_after_a_whole_term_of_silence() -> None:
    async def story(place: Place) -> None:
        one = place.engine("one", lock=False)
        assert await one.try_lead()
        two = place.engine("two", lock=False)
        assert not await two.try_lead()  # the first look only starts the clock
        await asyncio.sleep(9.9)
        assert not await two.try_lead()
        await asyncio.sleep(0.2)
        assert await two.try_lead()

    play(story)


def test_facts_are_kept_and_intents_computed_again_after_a_lost_race() -> None:
    async def story(place: Place) -> None:
        async with place.session("one") as session:
            reporter = place.engine("two")
            await reporter.open()
            plan = plan_of(CHAIN)
            found = await requests.trigger(reporter, plan, code_ref=CODE)
            mine = session.engine.submit([AuditRecorded(action="x", subject="y")], source="t")
            where = await mine  # the leader thought that position was free
            assert where.position == 3
            ended = await session.ended(found.run_id)
        assert ended.state is RunState.SUCCEEDED
        kinds = types(place)
        assert kinds[1] == ["RunTriggered"] and "AuditRecorded" in kinds[2]
        assert sum(found.count("DispatchRequested") for found in kinds) == 3

    play(story)


def test_a_run_whose_code_only_its_submitter_has_waits_for_it() -> None:
    async def story(place: Place) -> None:
        async with place.session("one") as one:
            async with place.session("two", code="process:two") as two:
                found = await requests.trigger(two.engine, plan_of(CHAIN), code_ref="process:two")
                await asyncio.sleep(30)
                assert place.begun == []
                await one.__aexit__(None, None, None)
                ended = await two.ended(found.run_id)
                assert ended.state is RunState.SUCCEEDED
            one._live = asyncio.create_task(asyncio.sleep(0))

    play(story)


def test_attempts_of_a_leader_that_died_run_again_at_once_where_a_lock_tells() -> None:
    async def story(place: Place) -> None:
        first = place.process("first")
        session = place.session("one", {"a": forever})
        engine = session.engine

        async def life() -> None:
            async with session:
                await requests.trigger(engine, plan_of({"a": []}), code_ref=CODE, run_key="k")
                await forever()

        first.spawn(life())
        await asyncio.sleep(2)
        first.kill()
        place.lock.clear()  # as the operating system does
        began = place.loop.time()
        async with place.session("two") as two:
            found = await requests.trigger(
                two.engine, plan_of({"a": []}), code_ref=CODE, run_key="k"
            )
            assert not found.new
            ended = await two.ended(found.run_id)
        assert ended.state is RunState.SUCCEEDED and place.loop.time() - began < 3

    play(story)


# --- Trouble ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [True, False])
def test_an_append_whose_answer_is_lost_is_settled_by_reading_back(landed: bool) -> None:
    async def story(place: Place) -> None:
        store = place.store()

        class Lossy:
            lose = 0

            async def append(self, position: int, data: bytes) -> None:
                if self.lose:
                    self.lose -= 1
                    if landed:
                        await store.log.append(position, data)
                    raise Uncertain("the answer was lost")
                await store.log.append(position, data)

            def __getattr__(self, name: str) -> Any:
                return getattr(store.log, name)

        lossy = Lossy()
        async with place.session(store=store._replace(log=lossy)) as session:
            lossy.lose = 3
            await session.engine.submit([AuditRecorded(action="x", subject="y")], source="t")
        assert [t for found in types(place) for t in found].count("AuditRecorded") == 1

    play(story)


def test_a_log_that_stays_away_stops_the_engine_and_tells_its_callers() -> None:
    async def story(place: Place) -> None:
        store = place.store()

        class Gone:
            away = False

            async def append(self, position: int, data: bytes) -> None:
                if self.away:
                    raise Unavailable("the disk is full")
                await store.log.append(position, data)

            def __getattr__(self, name: str) -> Any:
                return getattr(store.log, name)

        gone = Gone()
        engine = place.engine(store=store._replace(log=gone))

        async def ask() -> None:
            async with Session(engine) as session:
                gone.away = True
                await session.engine.submit([AuditRecorded(action="x", subject="y")], source="t")

        with pytest.raises(Unavailable, match="disk is full"):
            await ask()
        gone.away = False
        async with place.session("again") as after:
            ended = await _run(after, plan_of(CHAIN))
        assert ended.state is RunState.SUCCEEDED

    play(story)


def test_a_ledger_that_is_shorter_than_its_tables_is_never_led() -> None:
    async def story(place: Place) -> None:
        async with place.session() as session:
            await _run(session, plan_of(CHAIN))
        del place.segments[-2:]
        with pytest.raises(Corrupt, match="was cut short"):
            await place.engine("two").try_lead()
        assert place.lock == [] or place.lock == [None]

    play(story)


def test_a_trigger_names_a_plan_that_is_there_before_it() -> None:
    async def story(place: Place) -> None:
        async with place.session() as session:
            found = await requests.trigger(session.engine, plan_of(CHAIN), code_ref=CODE)
            await session.ended(found.run_id)
        facts = [
            VOCABULARY.decode(line).payload
            for data in place.segments
            for line in segments.parse(data).lines
        ]
        (trigger,) = [fact for fact in facts if isinstance(fact, RunTriggered)]
        assert f"objects/{trigger.plan_object.removeprefix('sha256:')}" in place.values

    play(story)


def test_an_engine_that_adopts_nothing_leaves_older_runs_and_takes_newer_ones() -> None:
    async def story(place: Place) -> None:
        async with place.session("one", code="process:one") as one:
            old = await requests.trigger(one.engine, plan_of({"old": []}), code_ref=CODE)
        process = place.process("two")

        def resolve(work: Work) -> Any:
            async def call() -> None:
                place.begun.append(work.asset_key)

            return call

        engine = Engine(
            place.store(),
            process,
            InlineExecutor(resolve, process),
            loads=lambda _: True,
            adopts=False,
        )
        async with Session(engine) as two, place.session("three", code="x") as three:
            assert not three.engine.leading
            own = await requests.trigger(engine, plan_of({"own": []}), code_ref=CODE)
            other = await requests.trigger(three.engine, plan_of({"other": []}), code_ref=CODE)
            await two.ended(own.run_id)
            await two.ended(other.run_id)
            assert sorted(place.begun) == ["n/other", "n/own"]
            assert not engine.state.runs[old.run_id].ended

    play(story)


def test_waiting_for_a_run_after_the_engine_stopped_says_why() -> None:
    async def story(place: Place) -> None:
        session = place.session("one", {"a": forever}, lock=False)
        await session.__aenter__()
        found = await requests.trigger(session.engine, plan_of({"a": []}), code_ref=CODE)
        await place.engine("two", lock=False).lead()
        with pytest.raises(Fenced):
            await session.lived()
        with pytest.raises(Fenced):
            await session.ended(found.run_id)
        with pytest.raises(Fenced):
            await session.__aexit__(None, None, None)

    play(story)


class Elsewhere:
    """An executor whose workers report into the ledger themselves."""

    def start(self, writer_id: str, report: Any, alive: Any) -> str:
        return "elsewhere"

    def slots(self) -> int:
        return 1

    def held(self) -> frozenset[str]:
        return frozenset()

    def submit(self, work: Any) -> None:
        pass

    def cancel(self, attempt_id: str) -> None:
        pass

    async def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


def test_a_worker_whose_clock_is_an_hour_behind_is_not_taken_for_dead() -> None:
    async def story(place: Place) -> None:
        engine = Engine(
            place.store(lock=False), place.process("one"), Elsewhere(), loads=lambda _: True
        )
        process = place.process("worker")
        process.clock.jump(-3_600_000_000)
        worker = Engine(place.store(lock=False), process)
        async with Session(engine) as session:
            limits = Timeouts(heartbeat_ms=5_000, execution_ms=3_600_000)
            plan = plan_of({"a": []}, timeouts=limits)
            found = await requests.trigger(engine, plan, code_ref=CODE)
            about: dict[str, Any] = {
                "run_id": found.run_id,
                "task_key": key("a"),
                "attempt": 1,
                "attempt_id": attempt_id(found.run_id, key("a"), 1),
            }
            await worker.open()
            await worker.submit([TaskStarted(**about, worker_id="w")], source="worker")
            for _ in range(4):
                await asyncio.sleep(4)
                task = engine.state.runs[found.run_id].tasks[key("a")]
                assert task.state is TaskState.RUNNING and task.attempt == 1
                await worker.submit([TaskHeartbeat(**about)], source="worker")
            await asyncio.sleep(12)
            task = engine.state.runs[found.run_id].tasks[key("a")]
            assert task.reason is TransitionReason.HEARTBEAT_TIMEOUT or task.attempt == 2
            await requests.cancel(engine, found.run_id)
            await session.ended(found.run_id)

    play(story)


# --- What reviews found -------------------------------------------------------------------------------


class Held:
    """A log whose appends wait for a gate, or fail."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False

    async def append(self, position: int, data: bytes) -> None:
        await self.gate.wait()
        if self.fails:
            raise Unavailable("the disk is full")
        await self._log.append(position, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def test_an_end_that_is_not_durable_is_told_to_nobody() -> None:
    async def story(place: Place) -> None:
        release = asyncio.Event()

        async def waits() -> None:
            await release.wait()

        store = place.store()
        log = Held(store.log)
        engine = place.engine("one", {"a": waits}, store=store._replace(log=log))
        told = []

        async def ask(session: Session, run_id: str) -> None:
            told.append(await session.ended(run_id))

        async def work() -> None:
            async with Session(engine) as session:
                found = await requests.trigger(engine, plan_of({"a": []}), code_ref=CODE)
                await asyncio.sleep(1)
                log.gate.clear()
                log.fails = True
                release.set()
                await asyncio.sleep(1)
                asked = asyncio.create_task(ask(session, found.run_id))
                await asyncio.sleep(1)
                assert engine.state.pending and told == []
                log.gate.set()
                with pytest.raises(Unavailable):
                    await asked

        with pytest.raises(Unavailable):
            await work()
        assert told == []

    play(story)


@pytest.mark.parametrize(
    "made",
    [Made(row_count=1.5), Made(row_count=2**70), Made(schema_hash="\ud800")],  # type: ignore[arg-type]  # what user code may return
)
def test_what_cannot_be_written_down_fails_its_task_and_nothing_else(made: Made) -> None:
    async def story(place: Place) -> None:
        async def makes() -> Made:
            return made

        async with place.session("one", {"a": makes}) as session:
            fact = DeploymentCreated(
                deployment_id="d",
                manifest_object="sha256:" + "0" * 64,
                code_version="c",
                asset_ids={"n/a": "asset-a"},
            )
            await session.engine.submit([fact], source="test")
            ended = await _run(session, plan_of({"a": [], "b": []}))
        assert ended.counts == {"FAILED": 1, "SUCCEEDED": 1}
        async with place.session("two") as again:
            assert (await _run(again, plan_of({"b": []}))).state is RunState.SUCCEEDED

    play(story)


def test_a_caller_whose_fact_cannot_be_written_is_refused_alone() -> None:
    async def story(place: Place) -> None:
        async with place.session() as session:
            good = session.engine.submit([AuditRecorded(action="x", subject="y")], source="t")
            with pytest.raises(Invalid, match="AuditRecorded cannot be written down"):
                await session.engine.submit(
                    [AuditRecorded(action="x", subject="\ud800")], source="t"
                )
            await good

    play(story)


def test_of_two_followers_that_find_the_lease_free_one_leads_and_neither_is_fenced() -> None:
    async def story(place: Place) -> None:
        sessions = [place.session(name, lock=False) for name in ("one", "two", "three")]
        await asyncio.gather(*(session.__aenter__() for session in sessions))
        await asyncio.sleep(15)
        assert sum(session.engine.leading for session in sessions) == 1
        assert all(session.engine.failure is None for session in sessions)
        for session in sorted(sessions, key=lambda session: session.engine.leading):
            await session.__aexit__(None, None, None)

    for seed in range(5):
        play(story, seed)


def test_a_lease_that_could_not_be_written_once_is_written_again_in_time() -> None:
    async def story(place: Place) -> None:
        store = place.store(lock=False)

        class Refusing:
            refuse = 0

            async def put(self, path: str, data: bytes) -> None:
                if self.refuse:
                    self.refuse -= 1
                    raise Unavailable("not now")
                await store.objects.put(path, data)

            def __getattr__(self, name: str) -> Any:
                return getattr(store.objects, name)

        refusing = Refusing()
        async with place.session("one", store=store._replace(objects=refusing)) as one:
            other = place.engine("two", lock=False)
            for second in range(60):
                refusing.refuse = int(second % 5 == 0)
                await asyncio.sleep(1)
                assert not await other.try_lead()
            assert one.engine.leading

    play(story)


def test_a_short_heartbeat_timeout_kills_nobody_who_is_alive() -> None:
    async def story(place: Place) -> None:
        async def works() -> None:
            await asyncio.sleep(5)

        async with place.session("one", {"a": works}) as session:
            limits = Timeouts(dispatch_ack_ms=1, heartbeat_ms=1)
            ended = await _run(session, plan_of({"a": []}, timeouts=limits))
            assert session.engine.state.runs[ended.run_id].tasks[key("a")].attempt == 1
        assert ended.state is RunState.SUCCEEDED

    play(story)


def test_a_failure_reported_by_a_clock_a_day_ahead_is_not_waited_for_a_day() -> None:
    async def story(place: Place) -> None:
        engine = Engine(
            place.store(lock=False), place.process("one"), Elsewhere(), loads=lambda _: True
        )
        process = place.process("worker")
        process.clock.jump(86_400_000_000)
        worker = Engine(place.store(lock=False), process)
        async with Session(engine) as session:
            found = await requests.trigger(engine, plan_of({"a": []}), code_ref=CODE)
            await worker.open()
            failed = TaskFinished(
                run_id=found.run_id,
                task_key=key("a"),
                attempt=1,
                attempt_id=attempt_id(found.run_id, key("a"), 1),
                outcome=Outcome.FAILED,
                error=TaskFailure(code=FailureCode.NETWORK_ERROR, message="It did not answer."),
                retriable=True,
            )
            await worker.submit([failed], source="worker")
            await asyncio.sleep(60)
            assert engine.state.runs[found.run_id].tasks[key("a")].attempt == 2
            await requests.cancel(engine, found.run_id)
            await session.ended(found.run_id)

    play(story)


def test_asking_again_with_a_run_key_writes_nothing() -> None:
    async def story(place: Place) -> None:
        async with place.session() as session:
            plan = plan_of({"a": []})
            one = await requests.trigger(session.engine, plan, code_ref=CODE, run_key="k")
            await session.ended(one.run_id)
            await asyncio.sleep(2)
            before = len(place.segments)
            for _ in range(5):
                again = await requests.trigger(session.engine, plan, code_ref=CODE, run_key="k")
                assert again.run_id == one.run_id and not again.new
            assert len(place.segments) == before

    play(story)


def test_a_small_step_back_of_the_clock_gives_up_nobody() -> None:
    async def story(place: Place) -> None:
        process = place.process("one")
        engine = Engine(place.store(lock=False), process, Elsewhere(), loads=lambda _: True)
        async with Session(engine) as session:
            await asyncio.sleep(3600)
            found = await requests.trigger(engine, plan_of({"a": []}), code_ref=CODE)
            process.clock.jump(-3_000_000)
            await asyncio.sleep(5)
            assert engine.state.runs[found.run_id].tasks[key("a")].attempt == 1
            assert engine.state.runs[found.run_id].tasks[key("a")].state is TaskState.DISPATCHED
            await requests.cancel(engine, found.run_id)
            await session.ended(found.run_id)

    play(story)


def test_a_cancel_by_another_process_reaches_a_leader_that_is_never_idle() -> None:
    async def story(place: Place) -> None:
        async with place.session("one", {"a": forever}) as session:
            engine = session.engine
            found = await requests.trigger(engine, plan_of({"a": []}), code_ref=CODE)
            busy = asyncio.create_task(_chatter(engine))
            other = place.engine("two")
            await other.open()
            await asyncio.sleep(1)
            await requests.cancel(other, found.run_id)
            began = place.loop.time()
            ended = await session.ended(found.run_id)
            busy.cancel()
            assert ended.state is RunState.CANCELLED and place.loop.time() - began < 2

    play(story)


async def _chatter(engine: Engine) -> None:
    number = 0
    while True:
        number += 1
        await engine.submit([AuditRecorded(action="x", subject=str(number))], source="t")
        await asyncio.sleep(0.001)
