"""Deriving a task's state: its own facts, replayed in the order of their places.

The state is a function of the *set* of facts, because they are put in order here, however they
came. While walking through them a task is in one of five situations:

    waiting   an edge is not SUCCESS yet     ends by: a dead edge, a stop
    ready     all edges are                  ends by: a stop, a reuse
    asked     attempt k was asked for        ends by: the first result of attempt k
    between   an attempt ended for a retry   ends by: a stop; goes on with the next attempt
    ended     nothing changes it any more

A fact that does not fit the situation changes nothing: a dispatch or a reuse of a task that is not
ready (INV-6), a result of an attempt that is not the current one (INV-8), a dispatch after the end, a
second stop. Reports that stand before the dispatch of their attempt count from there on: an attempt
whose first result is known is never waited for. A retry is the policy's decision over the attempts so
far; interrupted ones are not counted. Held by tests/unit/test_deriving.py, and for all facts by
tests/property/test_fold_properties.py.
"""

import msgspec

from servo.core.failures import FailureCode, TaskFailure
from servo.core.policies import RetryPolicy
from servo.core.states import (
    RunTransitionReason,
    TaskState,
    TransitionReason,
    failure_reason,
    stopped_task_reason,
)
from servo.events.execution import Outcome
from servo.events.orchestration import Stop
from servo.fold.records import Attempt, Mark, Result, RunStop, Task

_T, _R = TaskState, TransitionReason

STOPPING = {
    Stop.USER: RunTransitionReason.USER_CANCELLED,
    Stop.SYSTEM: RunTransitionReason.SYSTEM_CANCELLED,
    Stop.TIMEOUT: RunTransitionReason.TIMED_OUT,
}

FORCED = "forced"
"""The detail that marks the cancellation of an attempt whose worker never answered."""

# At one place there is one fact; a stop and a dead edge may share one with what caused them, and then
# the cause comes first. A report that counts from its dispatch on comes after it.
_STOP, _DEAD, _REUSE, _ASK, _START, _RESULT = range(6)


def derive(
    task: Task,
    deps: int,
    retry: RetryPolicy,
    run_id: str,
    key: str,
    triggered: Mark,
    stop: RunStop | None,
) -> Task:
    """The task with its derived fields. `run_id` and `key` are the seed for the jitter of its
    retries. Every fact given stands after `triggered`."""
    ready: Mark | None = None
    if task.met >= deps:
        ready = task.met_at or triggered
    if stop is None and task.dead is None and task.reused is None:
        # What nearly every task looks like: not asked for yet, or one attempt that goes well.
        attempts = task.attempts
        if not attempts and not task.outputs:
            last = task.met_at or triggered
            if ready is None:
                return _derived(task, _T.PENDING, _R.RUN_TRIGGERED, triggered, last)
            return _derived(task, _T.READY, _R.DEPENDENCIES_SATISFIED, ready, last)
        if len(attempts) == 1 and ready is not None:
            attempt = attempts[0]
            asked = attempt.dispatched
            if asked is not None and asked > ready:
                last = attempt.last
                if task.outputs:
                    last = max(last, task.outputs[-1].mark)
                if not attempt.results:
                    state, reason, since = _T.DISPATCHED, _R.DISPATCHED_TO_WORKER, asked
                    if attempt.started is not None:
                        state, reason = _T.RUNNING, _R.EXECUTION_STARTED
                        since = max(asked, attempt.started)
                    return _derived(task, state, reason, since, last, attempt.number, 1)
                result = attempt.results[0]
                if result.outcome is Outcome.SUCCEEDED:
                    end = max(asked, result.mark)
                    state, reason = _T.SUCCEEDED, _R.EXECUTION_SUCCEEDED
                    return _derived(task, state, reason, end, last, attempt.number, 1, None, end)
    return _walk(task, ready, retry, f"{run_id}:{key}", triggered, stop)


def _walk(
    task: Task,
    ready: Mark | None,
    retry: RetryPolicy,
    seed: str,
    triggered: Mark,
    stop: RunStop | None,
) -> Task:
    steps: list[tuple[Mark, int, Attempt | None]] = []
    if stop is not None:
        steps.append((stop.mark, _STOP, None))
    if task.dead is not None:
        steps.append((task.dead.mark, _DEAD, None))
    if task.reused is not None:
        steps.append((task.reused.mark, _REUSE, None))
    for each in task.attempts:
        if each.dispatched is not None:
            steps.append((each.dispatched, _ASK, each))
            if each.started is not None:
                steps.append((max(each.started, each.dispatched), _START, each))
            if each.results:
                steps.append((max(each.results[0].mark, each.dispatched), _RESULT, each))
    steps.sort(key=_by_place)

    state, reason, since = _T.PENDING, _R.RUN_TRIGGERED, triggered
    asked: Attempt | None = None
    number = tries = 0
    retry_at: int | None = None
    stopped = False
    ended: Mark | None = None
    for mark, kind, attempt in steps:
        if kind == _ASK:
            assert attempt is not None
            if stopped or attempt.number <= number or ready is None or mark <= ready:
                continue
            reason = _R.RETRY_DUE if number else _R.DISPATCHED_TO_WORKER
            asked, number, retry_at = attempt, attempt.number, None
            tries += 1
            state, since = _T.DISPATCHED, mark
        elif kind == _START:
            if attempt is asked and state is _T.DISPATCHED:
                state, reason, since = _T.RUNNING, _R.EXECUTION_STARTED, mark
        elif kind == _RESULT:
            if attempt is not asked or asked is None:
                continue
            result = asked.results[0]
            if result.outcome is Outcome.INTERRUPTED:
                tries -= 1
            state, reason, delay = _verdict(result, retry, tries, seed, stop, stopped)
            since = mark
            if state is _T.RETRY_WAIT:
                asked, retry_at = None, mark[2] + delay * 1000
            else:
                ended = mark
                break
        elif kind == _STOP:
            stopped = True
            if asked is None:
                assert stop is not None
                state, reason = _T.CANCELLED, stopped_task_reason(STOPPING[stop.by])
                since = ended = mark
                retry_at = None
                break
        elif kind == _DEAD:
            # A task with a dead edge is never ready, so that nobody was asked to run it.
            assert task.dead is not None and not number
            state, reason = task.dead.state, task.dead.reason
            since = ended = mark
            break
        elif not number and ready is not None and mark > ready:  # _REUSE
            state, reason = _T.REUSED, _R.REUSED
            since = ended = mark
            break
    if state is _T.PENDING and ready is not None:
        state, reason, since = _T.READY, _R.DEPENDENCIES_SATISFIED, ready
    return _derived(
        task,
        state,
        reason,
        since,
        _last(task, triggered, stop, ended),
        number,
        tries,
        retry_at,
        ended,
    )


def _by_place(step: tuple[Mark, int, Attempt | None]) -> tuple[int, int, int]:
    return step[0][0], step[0][1], step[1]


def _last(task: Task, triggered: Mark, stop: RunStop | None, ended: Mark | None) -> Mark:
    last = triggered
    for attempt in task.attempts:
        last = max(last, attempt.last)
    if task.reused is not None:
        last = max(last, task.reused.mark)
    if task.outputs:
        last = max(last, task.outputs[-1].mark)
    if task.met_at is not None:
        last = max(last, task.met_at)
    if task.dead is not None:
        last = max(last, task.dead.mark)
    if stop is not None and (ended is None or ended >= stop.mark):
        last = max(last, stop.mark)
    return last


def _derived(
    task: Task,
    state: TaskState,
    reason: TransitionReason,
    since: Mark,
    last: Mark,
    attempt: int = 0,
    tries: int = 0,
    retry_at: int | None = None,
    ended: Mark | None = None,
) -> Task:
    return Task(
        task.attempts,
        task.reused,
        task.outputs,
        task.met,
        task.met_at,
        task.dead,
        state,
        reason,
        since,
        attempt,
        tries,
        retry_at,
        ended,
        last,
    )


_SILENT = TaskFailure(
    code=FailureCode.INTERNAL_ERROR, message="The attempt was reported as failed, without a reason."
)
_LATE = TaskFailure(
    code=FailureCode.EXECUTION_TIMEOUT, message="The attempt took longer than it was allowed to."
)
# The outcome says whether an attempt was cancelled or interrupted. A failure with such a code
# contradicts it, and would be retried for ever or never for a reason that is not its own.
_NO_FAILURES = (FailureCode.CANCELLED, FailureCode.INTERRUPTED)


def _verdict(
    result: Result,
    retry: RetryPolicy,
    tries: int,
    seed: str,
    stop: RunStop | None,
    stopped: bool,
) -> tuple[TaskState, TransitionReason, int]:
    """What an attempt's result means for its task, and for a retry the delay in milliseconds."""
    error = result.error
    if stopped:
        assert stop is not None
        if result.outcome is not Outcome.CANCELLED:
            return _T.CANCELLED, _R.FINISHED_AFTER_STOP, 0
        if error is not None and error.details.get(FORCED):
            return _T.CANCELLED, _R.FORCE_CANCELLED, 0
        return _T.CANCELLED, stopped_task_reason(STOPPING[stop.by]), 0
    if result.outcome is Outcome.SUCCEEDED:
        return _T.SUCCEEDED, _R.EXECUTION_SUCCEEDED, 0
    if result.outcome is Outcome.CANCELLED:
        return _T.CANCELLED, _R.CANCELLED_BY_WORKER, 0
    if result.outcome is Outcome.INTERRUPTED:
        return _T.RETRY_WAIT, _R.INTERRUPTED, 0
    if error is None or error.code in _NO_FAILURES:
        error = _LATE if result.outcome is Outcome.TIMED_OUT else _SILENT
    decision = retry.decide(error, tries, seed, retriable=result.retriable)
    reason = failure_reason(error.code)
    return (_T.RETRY_WAIT if decision.retry else _T.FAILED), reason, decision.delay_ms


def blank(triggered: Mark) -> tuple[Task, Task]:
    """How every task begins: one that waits for others, and one that needs nothing."""
    waiting = Task(since=triggered, last=triggered)
    ready = msgspec.structs.replace(waiting, state=_T.READY, reason=_R.DEPENDENCIES_SATISFIED)
    return waiting, ready
