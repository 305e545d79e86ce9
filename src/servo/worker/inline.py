"""The inline executor: attempts run in the engine's own process.

Functions run in threads, so that one that takes long does not hold up the engine; coroutines run on
the engine's loop. What a thread cannot do is be stopped: an attempt that timed out is reported at
once, and one that was cancelled when its function returns (or when the leader is tired of waiting); the
thread keeps its slot until then.

A start is reported only of attempts that run for a while: a result implies it, and short tasks are
most of them. All attempts are alive as long as the process is; `alive` is called for each of them.
"""

import asyncio
import inspect
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

import msgspec

from servo.core.failures import FailureCode, TaskFailure, exception_type_names
from servo.core.segments import Place
from servo.errors import Invalid
from servo.events.envelope import Fact
from servo.events.execution import (
    File,
    MaterializationCompleted,
    Outcome,
    TaskFinished,
    TaskStarted,
)
from servo.ports.executor import Report, Work
from servo.ports.system import System

TICK = 0.25
"""Seconds between looks at what runs."""
CAPACITY = 32


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What a task returns to say that it made a version of its asset."""

    files: tuple[File, ...] = ()
    row_count: int | None = None
    byte_size: int = 0
    schema_hash: str | None = None


Resolve = Callable[[Work], Callable[[], object]]
"""Finds the code of an attempt: a function or coroutine function without parameters."""


class _Attempt:
    __slots__ = (
        "began",
        "cancelled",
        "over",
        "reported",
        "running",
        "started",
        "task",
        "threaded",
        "work",
    )

    def __init__(self, work: Work, began: int, started: int) -> None:
        self.work = work
        self.began = began
        self.started = started
        self.over = False
        """Its result is on its way; whatever comes after that is nobody's business."""
        self.threaded = False
        self.running = False
        self.cancelled = False
        self.reported = False
        self.task: asyncio.Task[None] | None = None


class InlineExecutor:
    def __init__(self, resolve: Resolve, system: System, capacity: int = CAPACITY) -> None:
        self._resolve = resolve
        self._system = system
        self._capacity = capacity
        self._attempts: dict[str, _Attempt] = {}
        self._threads: list[Thread] = []
        self._idle = 0
        self._inbox: SimpleQueue[tuple[_Attempt, Callable[[], object]] | None] = SimpleQueue()
        self._outbox: deque[tuple[_Attempt, object, BaseException | None, int]] = deque()
        self._busy = 0
        self._ticker: asyncio.Task[None] | None = None
        self._closing = False
        self._empty = asyncio.Event()

    def start(self, writer_id: str, report: Report, alive: Callable[[str], None]) -> str:
        self._writer_id = writer_id
        self._report = report
        self._alive = alive
        self._loop = asyncio.get_running_loop()
        if self._ticker is None:  # an engine may lead more than once
            self._ticker = self._loop.create_task(self._tick())
        return f"process:{writer_id}"

    def slots(self) -> int:
        if self._closing:
            return 0
        # An attempt whose result is on its way needs its slot no more; a thread that nobody waits for
        # any more still has it.
        at_work = sum(not attempt.over for attempt in self._attempts.values())
        return self._capacity - max(at_work, self._busy)

    def held(self) -> frozenset[str]:
        return frozenset(self._attempts)

    def submit(self, work: Work) -> None:
        if work.attempt_id in self._attempts or self._closing:
            return
        attempt = _Attempt(work, self._system.monotonic(), self._system.now())
        self._attempts[work.attempt_id] = attempt
        try:
            call = self._resolve(work)
        except Exception as error:  # noqa: BLE001 - whatever loading the user's code raises
            self._done(attempt, None, error, 0)
            return
        if inspect.iscoroutinefunction(call):
            attempt.running = True
            self._spawn(attempt, call)
        else:
            attempt.threaded = True
            self._busy += 1
            self._inbox.put((attempt, call))
            if self._idle < self._inbox.qsize() and len(self._threads) < self._capacity:
                thread = Thread(target=self._serve, name="servo-inline", daemon=True)
                self._threads.append(thread)
                thread.start()

    def cancel(self, attempt_id: str) -> None:
        attempt = self._attempts.get(attempt_id)
        if attempt is not None and not attempt.cancelled:
            attempt.cancelled = True
            if attempt.task is not None:
                attempt.task.cancel()

    async def close(self) -> None:
        """Coroutines are interrupted; functions are waited for, because they cannot be."""
        self._closing = True
        for attempt in list(self._attempts.values()):
            if attempt.task is not None:
                attempt.task.cancel()
        while self._attempts:
            self._empty.clear()
            await self._empty.wait()
        for _ in self._threads:
            self._inbox.put(None)
        if self._ticker is not None:
            self._ticker.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticker

    def abandon(self) -> None:
        self._closing = True
        for attempt in self._attempts.values():
            attempt.over = True
            if attempt.task is not None:
                attempt.task.cancel()
        self._attempts.clear()
        self._empty.set()
        for _ in self._threads:
            self._inbox.put(None)
        if self._ticker is not None:
            self._ticker.cancel()

    # --- Running ----------------------------------------------------------------------------------

    def _serve(self) -> None:
        """The life of a thread."""
        while True:
            self._idle += 1
            job = self._inbox.get()
            self._idle -= 1
            if job is None:
                return
            attempt, call = job
            before = self._system.monotonic()
            result: object = None
            raised: BaseException | None = None
            if not attempt.over:
                attempt.running = True
                try:
                    result = call()
                except BaseException as error:  # noqa: BLE001 - user code may raise anything at all
                    raised = error
            self._outbox.append((attempt, result, raised, self._system.monotonic() - before))
            try:
                self._loop.call_soon_threadsafe(self._collect)
            except RuntimeError:
                return  # the loop is gone, and with it everybody who would want to know

    def _collect(self) -> None:
        while self._outbox:
            attempt, result, raised, took = self._outbox.popleft()
            self._busy -= 1
            if inspect.isawaitable(result) and (attempt.over or attempt.cancelled or self._closing):
                if inspect.iscoroutine(result):
                    result.close()
                self._done(attempt, None, asyncio.CancelledError(), took)
            elif inspect.isawaitable(result):
                # A function that returned a coroutine: it goes on as one.
                self._spawn(attempt, partial(_itself, result))
            else:
                self._done(attempt, result, raised, took)

    def _spawn(self, attempt: _Attempt, call: Callable[[], Any]) -> None:
        attempt.task = self._loop.create_task(self._await(attempt, call))
        # A task that is cancelled before its first turn never begins, and says nothing.
        attempt.task.add_done_callback(
            lambda _: self._done(attempt, None, asyncio.CancelledError(), 0)
        )

    async def _await(self, attempt: _Attempt, call: Callable[[], Any]) -> None:
        before = self._system.monotonic()
        result: object = None
        raised: BaseException | None = None
        limit = attempt.work.execution_ms
        timeout = asyncio.timeout(None if limit is None else limit / 1000)
        try:
            async with timeout:
                result = await call()
        except asyncio.CancelledError as error:
            raised = error
        except TimeoutError as error:
            raised = _TimedOut() if timeout.expired() else error
        except BaseException as error:  # noqa: BLE001 - user code may raise anything at all
            raised = error
        self._done(attempt, result, raised, self._system.monotonic() - before)

    def _done(
        self, attempt: _Attempt, result: object, raised: BaseException | None, took: int
    ) -> None:
        if attempt.over:
            return
        work = attempt.work
        try:
            outcome, failure = self._verdict(attempt, raised)
        except Exception:  # noqa: BLE001 - an exception of user code can be strange in any way
            outcome, failure = Outcome.FAILED, _STRANGE
        facts: list[Fact] = []
        if outcome is Outcome.SUCCEEDED and isinstance(result, Made) and work.asset_id is not None:
            facts.append(
                MaterializationCompleted(
                    materialization_id=self._system.new_id(),
                    run_id=work.run_id,
                    task_key=work.task_key,
                    attempt=work.attempt,
                    asset_id=work.asset_id,
                    asset_key=work.asset_key,
                    partition_key=work.partition_key,
                    code_version=work.code_version,
                    files=result.files,
                    row_count=result.row_count,
                    byte_size=result.byte_size,
                    schema_hash=result.schema_hash,
                )
            )
        facts.append(self._finished(attempt, outcome, failure, took))
        self._send(attempt, facts)

    def _finished(
        self, attempt: _Attempt, outcome: Outcome, failure: TaskFailure | None, took: int
    ) -> TaskFinished:
        work = attempt.work
        return TaskFinished(
            run_id=work.run_id,
            task_key=work.task_key,
            attempt=work.attempt,
            attempt_id=work.attempt_id,
            outcome=outcome,
            error=failure,
            retriable=failure.code.row.retriable if failure is not None else False,
            started_at=attempt.started,
            duration_us=took,
            worker_id=self._writer_id,
        )

    def _verdict(
        self, attempt: _Attempt, raised: BaseException | None
    ) -> tuple[Outcome, TaskFailure | None]:
        if raised is None:
            return Outcome.SUCCEEDED, None
        if isinstance(raised, asyncio.CancelledError):
            if attempt.cancelled:
                return Outcome.CANCELLED, TaskFailure(
                    code=FailureCode.CANCELLED, message="The attempt was told to stop, and did."
                )
            if self._closing:
                return Outcome.INTERRUPTED, TaskFailure(
                    code=FailureCode.INTERRUPTED, message="The process that ran it was ended."
                )
        if isinstance(raised, _TimedOut):
            return Outcome.TIMED_OUT, TaskFailure(
                code=FailureCode.EXECUTION_TIMEOUT, message="The attempt took longer than allowed."
            )
        frames = traceback.extract_tb(raised.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        return Outcome.FAILED, TaskFailure.of_exception(
            exception_type_names(type(raised)),
            errno=_errno(raised),
            where=where,
        )

    def _send(self, attempt: _Attempt, facts: Sequence[Fact], *, strange: bool = False) -> None:
        def let_go(answer: "asyncio.Future[Place]") -> None:
            error = None if answer.cancelled() else answer.exception()
            if isinstance(error, Invalid) and not strange:
                # What it returned cannot be written down; that is how the attempt ended.
                facts = [self._finished(attempt, Outcome.FAILED, _STRANGE, 0)]
                self._send(attempt, facts, strange=True)
                return
            # Fenced or ended: the attempt is nobody's business any more.
            self._attempts.pop(attempt.work.attempt_id, None)
            if not self._attempts:
                self._empty.set()

        attempt.over = True
        self._report(facts).add_done_callback(let_go)

    # --- Watching ---------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            now = self._system.monotonic()
            for attempt in [a for a in self._attempts.values() if not a.over]:
                self._alive(attempt.work.attempt_id)
                if attempt.running and not attempt.reported:
                    attempt.reported = True
                    self._report([self._began(attempt.work)]).add_done_callback(_looked_at)
                limit = attempt.work.execution_ms
                in_thread = attempt.threaded and attempt.task is None
                if (
                    in_thread
                    and limit is not None
                    and attempt.running
                    and now - attempt.began > limit * 1000
                ):
                    outcome, failure = self._verdict(attempt, _TimedOut())
                    took = now - attempt.began
                    self._send(attempt, [self._finished(attempt, outcome, failure, took)])

    def _began(self, work: Work) -> TaskStarted:
        return TaskStarted(
            run_id=work.run_id,
            task_key=work.task_key,
            attempt=work.attempt,
            attempt_id=work.attempt_id,
            worker_id=self._writer_id,
        )


_STRANGE = TaskFailure(
    code=FailureCode.USER_CODE_EXCEPTION,
    message="What the code returned or raised cannot be written down.",
)


def _itself(awaitable: Any) -> Any:
    return awaitable


def _errno(raised: BaseException) -> int | None:
    """The number of an operating system's error; anything else may be the user's data."""
    number = raised.errno if isinstance(raised, OSError) else None
    return number if type(number) is int and 0 <= number < 2**31 else None


def _looked_at(answer: "asyncio.Future[Place]") -> None:
    """A start that could not be written is no loss."""
    answer.exception()


class _TimedOut(Exception):
    """The attempt's own timeout, as opposed to one that its code met."""
