"""The inline executor: functions in threads, coroutines on the loop, and what is reported of them."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from servo.adapters.system import RealSystem
from servo.core.failures import FailureCode
from servo.core.segments import Place
from servo.errors import Fenced
from servo.events.envelope import Fact
from servo.events.execution import (
    MaterializationCompleted,
    Outcome,
    TaskFinished,
    TaskStarted,
)
from servo.events.orchestration import attempt_id
from servo.ports.executor import Work
from servo.testing import Chance, Process, VirtualLoop
from servo.worker import inline
from servo.worker.inline import InlineExecutor, Made


def work(name: str = "a", *, execution_ms: int | None = 60_000, asset_id: str | None = "A") -> Work:
    return Work(
        run_id="run",
        task_key=name,
        attempt=1,
        attempt_id=attempt_id("run", name, 1),
        asset_key=f"n/{name}",
        asset_id=asset_id,
        partition_key="",
        code_ref="test",
        code_version="c1",
        heartbeat_ms=60_000,
        execution_ms=execution_ms,
    )


class Desk:
    """Who an executor reports to. `durable` says whether reports are acknowledged at once."""

    def __init__(self, *, durable: bool = True) -> None:
        self.facts: list[Fact] = []
        self.alive: list[str] = []
        self.answers: list[asyncio.Future[Place]] = []
        self._durable = durable
        self._news = asyncio.Event()

    def report(self, facts: Sequence[Fact]) -> "asyncio.Future[Place]":
        self.facts += facts
        answer: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        if self._durable:
            answer.set_result(Place(1, 0))
        self.answers.append(answer)
        self._news.set()
        return answer

    async def results(self, count: int = 1) -> list[TaskFinished]:
        while True:
            found = [fact for fact in self.facts if isinstance(fact, TaskFinished)]
            if len(found) >= count:
                return found
            self._news.clear()
            await self._news.wait()


def test_functions_run_side_by_side_in_threads() -> None:
    async def story() -> None:
        both = threading.Barrier(2, timeout=10)
        desk, executor = (
            Desk(),
            InlineExecutor(lambda _: lambda: both.wait() and None, RealSystem()),
        )
        assert executor.start("W", desk.report, desk.alive.append) == "process:W"
        executor.submit(work("a"))
        executor.submit(work("b"))
        assert {fact.outcome for fact in await desk.results(2)} == {Outcome.SUCCEEDED}
        await executor.close()

    asyncio.run(story())


def test_no_more_threads_than_slots_and_slots_come_back() -> None:
    async def story() -> None:
        desk, executor = Desk(), InlineExecutor(lambda _: lambda: None, RealSystem(), 2)
        executor.start("W", desk.report, desk.alive.append)
        for turn in range(20):
            executor.submit(work(f"t{turn}"))
            await desk.results(turn + 1)
        await asyncio.sleep(0)
        assert executor.slots() == 2 and len(executor._threads) <= 2
        await executor.close()

    asyncio.run(story())


def test_submitting_an_attempt_twice_runs_it_once() -> None:
    async def story() -> None:
        calls = []
        gate = threading.Event()

        def call() -> None:
            calls.append(1)
            gate.wait(10)

        desk, executor = Desk(), InlineExecutor(lambda _: call, RealSystem())
        executor.start("W", desk.report, desk.alive.append)
        executor.submit(work())
        executor.submit(work())
        gate.set()
        await desk.results()
        await executor.close()
        assert len(calls) == 1

    asyncio.run(story())


def test_an_exception_is_reported_by_its_class_and_place_and_never_by_its_text() -> None:
    def fails() -> None:
        raise ValueError("customer 4711 owes 12.50")

    async def story() -> None:
        desk, executor = Desk(), InlineExecutor(lambda _: fails, RealSystem())
        executor.start("W", desk.report, desk.alive.append)
        executor.submit(work())
        (result,) = await desk.results()
        await executor.close()
        assert result.outcome is Outcome.FAILED and result.error is not None
        assert result.error.code is FailureCode.USER_CODE_EXCEPTION and not result.retriable
        assert "ValueError" in result.error.message and "test_inline.py:" in result.error.message
        assert "4711" not in str(result)

    asyncio.run(story())


def test_a_failure_to_load_the_code_is_a_failure_of_the_attempt() -> None:
    def resolve(_: Work) -> Callable[[], object]:
        raise ImportError("no module")

    async def story() -> None:
        desk, executor = Desk(), InlineExecutor(resolve, RealSystem())
        executor.start("W", desk.report, desk.alive.append)
        executor.submit(work())
        (result,) = await desk.results()
        await executor.close()
        assert result.error is not None and result.error.code is FailureCode.IMPORT_ERROR

    asyncio.run(story())


def test_a_function_that_returns_a_coroutine_goes_on_as_one() -> None:
    async def later() -> Made:
        await asyncio.sleep(0)
        return Made(row_count=3)

    async def story() -> None:
        def call() -> object:
            return later()

        desk, executor = Desk(), InlineExecutor(lambda _: call, RealSystem())
        executor.start("W", desk.report, desk.alive.append)
        executor.submit(work())
        (result,) = await desk.results()
        await executor.close()
        made = [fact for fact in desk.facts if isinstance(fact, MaterializationCompleted)]
        assert result.outcome is Outcome.SUCCEEDED and [m.row_count for m in made] == [3]

    asyncio.run(story())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_code_that_tries_to_end_the_process_fails_its_attempt_only(error: BaseException) -> None:
    def fails() -> None:
        raise error

    async def story() -> None:
        desk, executor = Desk(), InlineExecutor(lambda _: fails, RealSystem())
        executor.start("W", desk.report, desk.alive.append)
        executor.submit(work())
        (result,) = await desk.results()
        await executor.close()
        assert result.outcome is Outcome.FAILED

    asyncio.run(story())


# --- On virtual time --------------------------------------------------------------------------------


def virtual(story: Callable[[InlineExecutor, Desk], Any], call: Callable[[], Any]) -> None:
    loop = VirtualLoop(Chance(1))
    system = Process(loop, "p", Chance(1))

    async def main() -> None:
        desk = Desk()
        executor = InlineExecutor(lambda _: call, system)
        executor.start("W", desk.report, desk.alive.append)
        await story(executor, desk)

    loop.run(main())
    assert loop.accidents == []


def test_only_attempts_that_run_for_a_while_report_their_start() -> None:
    async def call() -> None:
        await asyncio.sleep(0.1)

    async def long_call() -> None:
        await asyncio.sleep(2)

    async def story(executor: InlineExecutor, desk: Desk) -> None:
        executor.submit(work())
        await desk.results()
        await asyncio.sleep(1)
        started.append(sum(isinstance(fact, TaskStarted) for fact in desk.facts))
        await executor.close()

    started: list[int] = []
    virtual(story, call)
    virtual(story, long_call)
    assert started == [0, 1]


def test_attempts_at_work_are_alive() -> None:
    async def call() -> None:
        await asyncio.sleep(10)

    async def story(executor: InlineExecutor, desk: Desk) -> None:
        executor.submit(work())
        await desk.results()
        assert len(desk.alive) >= 10 / inline.TICK - 2
        await executor.close()

    virtual(story, call)


def test_a_coroutine_is_ended_by_its_timeout() -> None:
    async def call() -> None:
        await asyncio.sleep(3600)

    async def story(executor: InlineExecutor, desk: Desk) -> None:
        executor.submit(work(execution_ms=5_000))
        (result,) = await desk.results()
        assert result.outcome is Outcome.TIMED_OUT and result.retriable
        assert 5_000_000 <= result.duration_us < 5_100_000
        await executor.close()

    virtual(story, call)


def test_a_timeout_that_the_code_itself_met_is_the_codes_failure() -> None:
    async def call() -> None:
        raise TimeoutError

    async def story(executor: InlineExecutor, desk: Desk) -> None:
        executor.submit(work())
        (result,) = await desk.results()
        assert result.outcome is Outcome.FAILED and result.error is not None
        assert result.error.code is FailureCode.CALL_TIMEOUT
        await executor.close()

    virtual(story, call)


def test_cancelling_ends_a_coroutine_and_closing_interrupts_it() -> None:
    async def call() -> None:
        await asyncio.sleep(3600)

    async def story(executor: InlineExecutor, desk: Desk) -> None:
        executor.submit(work("a"))
        executor.submit(work("b"))
        await asyncio.sleep(1)
        executor.cancel(work("a").attempt_id)
        executor.cancel("unknown")
        (cancelled,) = await desk.results()
        assert cancelled.outcome is Outcome.CANCELLED and cancelled.task_key == "a"
        await executor.close()
        _, interrupted = await desk.results(2)
        assert interrupted.outcome is Outcome.INTERRUPTED and interrupted.retriable
        executor.submit(work("c"))
        assert executor.slots() == 0 and executor.held() == frozenset()

    virtual(story, call)


def test_an_attempt_is_held_until_its_result_is_durable() -> None:
    async def call() -> None:
        return None

    async def story(executor: InlineExecutor, desk: Desk) -> None:
        desk._durable = False
        executor.submit(work())
        await desk.results()
        assert executor.held() == {work().attempt_id}
        desk.answers[0].set_exception(Fenced("somebody else leads"))
        await asyncio.sleep(1)
        assert executor.held() == frozenset()
        await executor.close()

    virtual(story, call)


def test_what_is_made_is_reported_before_the_result_and_only_of_known_assets() -> None:
    async def call() -> Made:
        return Made(byte_size=9)

    async def story(executor: InlineExecutor, desk: Desk) -> None:
        executor.submit(work("a"))
        executor.submit(work("b", asset_id=None))
        await desk.results(2)
        kinds = [(type(fact).__name__, getattr(fact, "task_key", "")) for fact in desk.facts]
        assert kinds == [
            ("MaterializationCompleted", "a"),
            ("TaskFinished", "a"),
            ("TaskFinished", "b"),
        ]
        await executor.close()

    virtual(story, call)


@pytest.mark.parametrize("number", [("row", 7), "secret cell", 2**70, -1, 1.5])
def test_a_strange_error_number_neither_hangs_nor_enters_the_report(number: Any) -> None:
    def fails() -> None:
        raise OSError(number, "x")

    async def story() -> None:
        desk, executor = Desk(), InlineExecutor(lambda _: fails, RealSystem())
        executor.start("W", desk.report, desk.alive.append)
        executor.submit(work())
        (result,) = await desk.results()
        await executor.close()
        assert result.error is not None and result.error.details == {}
        assert "secret" not in str(result)

    asyncio.run(story())


def test_a_thread_that_timed_out_keeps_its_slot_and_nothing_begins_in_it() -> None:
    async def story() -> None:
        gate = threading.Event()
        begun: list[str] = []

        def resolve(item: Work) -> Callable[[], object]:
            def call() -> None:
                begun.append(item.task_key)
                gate.wait(10)

            return call

        desk, executor = Desk(), InlineExecutor(resolve, RealSystem(), 1)
        executor.start("W", desk.report, desk.alive.append)
        executor.submit(work("a", execution_ms=1))
        (result,) = await desk.results()
        assert result.outcome is Outcome.TIMED_OUT
        assert executor.slots() == 0 and begun == ["a"]
        gate.set()
        await executor.close()

    asyncio.run(story())


def test_a_coroutine_of_a_cancelled_attempt_is_not_begun() -> None:
    begun = []

    async def later() -> None:
        begun.append(1)

    async def story() -> None:
        gate = threading.Event()

        def call() -> object:
            gate.wait(10)
            return later()

        desk, executor = Desk(), InlineExecutor(lambda _: call, RealSystem())
        executor.start("W", desk.report, desk.alive.append)
        executor.submit(work())
        executor.cancel(work().attempt_id)
        gate.set()
        (result,) = await desk.results()
        await executor.close()
        assert result.outcome is Outcome.CANCELLED and begun == []

    asyncio.run(story())


def test_closing_before_a_coroutine_had_its_first_turn_still_ends() -> None:
    async def call() -> None:
        await asyncio.sleep(3600)

    async def story(executor: InlineExecutor, desk: Desk) -> None:
        executor.submit(work())
        await asyncio.wait_for(executor.close(), 10)
        (result,) = await desk.results()
        assert result.outcome is Outcome.INTERRUPTED and executor.held() == frozenset()

    virtual(story, call)


def test_abandoning_ends_a_close_that_waits_for_a_thread() -> None:
    async def story() -> None:
        gate = threading.Event()
        desk, executor = (
            Desk(),
            InlineExecutor(lambda _: lambda: gate.wait(10) and None, RealSystem()),
        )
        executor.start("W", desk.report, desk.alive.append)
        executor.submit(work())
        closing = asyncio.create_task(executor.close())
        await asyncio.sleep(0)
        executor.abandon()
        await asyncio.wait_for(closing, 5)
        gate.set()
        assert not [fact for fact in desk.facts if isinstance(fact, TaskFinished)]

    asyncio.run(story())
