"""Deadlines: attempts that nobody took, that fell silent, that take too long, that will not stop.

A deadline follows from rows (`Timeouts`), never from a timer that could be lost. It is acted upon only
while the view is fresh (INV-9): a report that would have saved the attempt may be in what was not read
yet. Retries need no fact of their own: when the wait is over, ready-dispatch asks for the next
attempt. Held by tests/unit/test_controllers.py and tests/invariants/test_invariants.py.
"""

from servo.control.moment import Moment
from servo.core.durations import format_duration
from servo.core.failures import FailureCode, TaskFailure
from servo.core.states import TaskState
from servo.events.execution import Outcome, TaskFinished
from servo.fold.deriving import FORCED
from servo.fold.records import Attempt, Task
from servo.fold.runs import FAR_AHEAD_US, RunFold
from servo.fold.state import State

MIN_SILENCE_MS = 2_000
"""Executors give signs of life a few times a second, and reports take their time: a shorter silence
says nothing, whatever the policy allows."""


def deadlines(view: State, moment: Moment) -> list[TaskFinished]:
    """Results for attempts that are given up. `view.wake` said which to look at."""
    if not moment.fresh:
        return []
    given_up = []
    for run, key in view.awake():
        task = run.tasks[key]
        attempt = task.current
        assert attempt is not None
        failure = _overdue(run, key, task, attempt, moment)
        if failure is not None:
            given_up.append(give_up(run.run_id, key, attempt, failure))
    return given_up


def give_up(run_id: str, key: str, attempt: Attempt, failure: TaskFailure) -> TaskFinished:
    return TaskFinished(
        run_id=run_id,
        task_key=key,
        attempt=attempt.number,
        attempt_id=attempt.attempt_id,
        outcome=_OUTCOMES.get(failure.code, Outcome.FAILED),
        error=failure,
        retriable=failure.code.row.retriable,
        started_at=attempt.started[2] if attempt.started else None,
    )


_OUTCOMES = {
    FailureCode.EXECUTION_TIMEOUT: Outcome.TIMED_OUT,
    FailureCode.CANCELLED: Outcome.CANCELLED,
    FailureCode.INTERRUPTED: Outcome.INTERRUPTED,
}


def _overdue(
    run: RunFold, key: str, task: Task, attempt: Attempt, moment: Moment
) -> TaskFailure | None:
    assert run.shape is not None and attempt.dispatched is not None
    limits = run.shape.rules(key).timeouts
    now, listening = moment.now // 1000, moment.listening_since // 1000
    silence = max(limits.heartbeat_ms, MIN_SILENCE_MS)

    def told(at: int | None) -> int:
        """When something was said, by our clock. A stamp a little ahead of it means now; one far ahead
        is of a clock that is wrong, and says nothing."""
        if at is None:
            return listening
        if at <= moment.now + FAR_AHEAD_US:
            return min(at // 1000, now)
        return listening or now

    heard = moment.heard.get(attempt.attempt_id)
    if run.run.stop is not None:
        # The worker is told with its next heartbeat; who has not answered after two never will.
        by_us = moment.heard.get(run.run_id, 0) // 1000
        stopped = max(told(run.run.stop.mark[2]), by_us, listening)
        if now > stopped + 2 * silence:
            return TaskFailure(
                code=FailureCode.CANCELLED,
                message="The run was told to stop and the worker never answered.",
                details={FORCED: True},
            )
        return None
    asked = told(attempt.dispatched[2])
    if task.state is TaskState.DISPATCHED and heard is None and attempt.heartbeat is None:
        due = limits.ack_deadline(asked, listening_since=listening)
        if now > max(due, asked + MIN_SILENCE_MS):
            return TaskFailure(
                code=FailureCode.DISPATCH_ACK_TIMEOUT,
                message="No worker began within " + format_duration(limits.dispatch_ack_ms) + ".",
            )
        return None
    # The worker's clock may be behind ours; nobody begins before it was asked.
    started = max(told(attempt.started[2] if attempt.started else None), asked)
    beat = told(attempt.heartbeat[2]) if attempt.heartbeat is not None else 0
    last = max(beat, (heard or 0) // 1000)
    due = limits.heartbeat_deadline(started, last, listening_since=listening)
    due += silence - limits.heartbeat_ms
    if now > due:
        return TaskFailure(
            code=FailureCode.HEARTBEAT_TIMEOUT,
            message="The worker gave no sign of life for " + format_duration(silence) + ".",
        )
    # The worker enforces the execution timeout itself; it gets one heartbeat's time to say so.
    limit = limits.execution_deadline(started)
    if limit is not None and now > limit + silence:
        assert limits.execution_ms is not None
        return TaskFailure(
            code=FailureCode.EXECUTION_TIMEOUT,
            message="The attempt took longer than " + format_duration(limits.execution_ms) + ".",
        )
    return None
