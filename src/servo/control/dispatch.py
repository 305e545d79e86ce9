"""Ready-dispatch and dispatcher: which attempts to ask for, and which to hand to the executor.

Asking is a fact, handing over is an effect: the first is decided here and becomes durable before the
second is done. Handing over is idempotent, so the dispatcher may name an attempt again. Held by
tests/unit/test_controllers.py and tests/invariants/test_invariants.py.
"""

import heapq
from collections.abc import Iterable, Iterator

from servo.control.moment import Moment
from servo.core.states import TaskState
from servo.events.orchestration import DispatchRequested
from servo.fold.records import Attempt
from servo.fold.runs import RunFold
from servo.fold.state import State
from servo.ports.executor import Work

MAX_AT_ONCE = 1_000
"""Attempts asked for in one segment, so that one huge run does not make one huge segment."""


def ready_dispatch(view: State, moment: Moment) -> list[DispatchRequested]:
    """Ask for attempts of tasks that can go, as many as the executor takes.

    High priority first; among equals the run with the fewest attempts at work, then the older run.
    Runs whose code cannot be loaded here, or that this engine is not there for, wait. A retry is the
    clock's decision, so it waits for a view that is fresh (INV-9); `view.wake` said which are due.
    """
    free = min(moment.slots, MAX_AT_ONCE)
    if free <= 0:
        return []
    retries_by = moment.now if moment.fresh else None
    queue: list[tuple[int, int, int, list[str]]] = []
    chosen: list[RunFold] = []
    for run in sorted(_wanted(view, moment), key=lambda run: (run.run.triggered, run.run_id)):
        head = run.first_ready(retries_by)
        if head is not None:
            chosen.append(run)
            keys = run.take_ready(free, retries_by)[::-1]
            queue.append((head[0], len(run.open), len(chosen) - 1, keys))
    heapq.heapify(queue)
    asked: list[DispatchRequested] = []
    while queue and len(asked) < free:
        _, busy, number, keys = heapq.heappop(queue)
        run = chosen[number]
        assert run.shape is not None
        key = keys.pop()
        asked.append(
            DispatchRequested(
                run_id=run.run_id,
                task_key=key,
                attempt=run.tasks[key].next_attempt,
                worker=moment.worker,
            )
        )
        if keys:
            priority = -run.shape.rules(keys[-1]).priority
            heapq.heappush(queue, (priority, busy + 1, number, keys))
    return asked


def _wanted(view: State, moment: Moment) -> Iterator[RunFold]:
    for run in view.ready_runs():
        trigger = run.run.trigger
        if run.run.stop is None and trigger is not None:
            if moment.loads(trigger.code_ref) and moment.takes(run.run_id):
                yield run


def dispatcher(view: State, moment: Moment, held: frozenset[str]) -> Iterator[Work]:
    """Attempts that were asked of this executor and that it does not hold."""
    for run in view.active_runs():
        for key in sorted(run.open):
            attempt = run.tasks[key].current
            assert attempt is not None
            if (
                run.tasks[key].state is TaskState.DISPATCHED
                and attempt.worker == moment.worker
                and attempt.attempt_id not in held
                and run.run.stop is None
            ):
                yield work(view, run, key, attempt)


def work(view: State, run: RunFold, key: str, attempt: Attempt) -> Work:
    assert run.shape is not None and run.run.trigger is not None
    planned = run.shape.tasks[key]
    rules = run.shape.rules(key)
    return Work(
        run_id=run.run_id,
        task_key=key,
        attempt=attempt.number,
        attempt_id=attempt.attempt_id,
        asset_key=planned.asset,
        asset_id=view.asset_id(planned.asset),
        partition_key=planned.partition or "",
        code_ref=run.run.trigger.code_ref,
        code_version=rules.code_version,
        heartbeat_ms=rules.timeouts.heartbeat_ms,
        execution_ms=rules.timeouts.execution_ms,
    )


def stopping(view: State, held: Iterable[str]) -> list[str]:
    """Ids of attempts that the executor holds and nobody wants any more."""
    return sorted(set(held) - open_attempts(view, stopped=False))


def open_attempts(view: State, *, stopped: bool = True) -> set[str]:
    """Ids of attempts that may be at work; without those of runs that were told to stop, if asked."""
    found: set[str] = set()
    for run in view.active_runs():
        if stopped or run.run.stop is None:
            for key in run.open:
                attempt = run.tasks[key].current
                assert attempt is not None
                found.add(attempt.attempt_id)
    return found
