"""What a task's facts make of it, one rule at a time. For all facts at once: the property tests."""

import pytest

from servo.core.failures import FailureCode
from servo.core.states import TaskState, TransitionReason
from servo.events.envelope import Fact
from servo.events.execution import Outcome
from servo.events.orchestration import Stop
from servo.fold.deriving import FORCED
from servo.fold.records import Task
from tests.unit.facts import (
    SECOND,
    Story,
    alive,
    asked,
    began,
    failed,
    finished,
    key,
    plan_of,
    reused,
    stopped,
    triggered,
)

CHAIN = {"a": [], "b": ["a"], "c": ["b"]}
R = TransitionReason


def after(*told: Fact, name: str = "a") -> Task:
    """A task of a chain after these facts, each in a segment of its own, a second apart."""
    story = Story(P=plan_of(CHAIN))
    for second, fact in enumerate((triggered(), *told)):
        story.tell(fact, at=second * SECOND)
    return story.run().tasks[key(name)]


def what(task: Task) -> tuple[TaskState, TransitionReason]:
    return task.state, task.reason


def test_a_task_without_needs_is_ready_and_the_others_wait() -> None:
    assert what(after()) == (TaskState.READY, R.DEPENDENCIES_SATISFIED)
    assert what(after(name="b")) == (TaskState.PENDING, R.RUN_TRIGGERED)


def test_the_good_way_has_four_steps() -> None:
    told = [asked("a"), began("a"), finished("a")]
    ways = [what(after(*told[:steps])) for steps in range(4)]
    assert ways == [
        (TaskState.READY, R.DEPENDENCIES_SATISFIED),
        (TaskState.DISPATCHED, R.DISPATCHED_TO_WORKER),
        (TaskState.RUNNING, R.EXECUTION_STARTED),
        (TaskState.SUCCEEDED, R.EXECUTION_SUCCEEDED),
    ]
    assert what(after(*told, name="b")) == (TaskState.READY, R.DEPENDENCIES_SATISFIED)


def test_a_result_implies_the_start_that_nobody_wrote() -> None:
    assert after(asked("a"), finished("a")).state is TaskState.SUCCEEDED


def test_a_task_is_in_its_state_since_the_fact_that_brought_it_there() -> None:
    task = after(asked("a"), began("a"), alive("a"), finished("a"))
    assert task.since == task.ended == (5, 0, 4 * SECOND)
    assert after(asked("a"), began("a"), alive("a")).since == (3, 0, 2 * SECOND)


def test_a_dispatch_before_the_task_is_ready_does_not_count() -> None:
    task = after(asked("b"), asked("a"), finished("a"), name="b")
    assert (task.state, task.attempt) == (TaskState.READY, 0)
    assert task.next_attempt == 2  # so that the next one is another attempt, and counts
    later = after(asked("b"), asked("a"), finished("a"), asked("b", 2), name="b")
    assert (later.state, later.attempt) == (TaskState.DISPATCHED, 2)


def test_a_reuse_counts_only_while_the_task_is_ready() -> None:
    assert what(after(reused("a"))) == (TaskState.REUSED, R.REUSED)
    assert after(reused("a"), name="b").state is TaskState.READY
    assert after(reused("b"), name="b").state is TaskState.PENDING
    assert after(asked("a"), reused("a")).state is TaskState.DISPATCHED


def test_a_report_that_stands_before_its_dispatch_counts_from_there_on() -> None:
    """Otherwise the attempt would be waited for, and every later report of the kind passed over."""
    task = after(finished("a"), began("a"), asked("a"))
    assert (task.state, task.ended) == (TaskState.SUCCEEDED, (4, 0, 3 * SECOND))
    assert after(began("a"), asked("a")).state is TaskState.RUNNING
    assert after(failed("a"), asked("a")).state is TaskState.FAILED


def test_the_highest_attempt_that_was_asked_for_is_the_current_one() -> None:
    task = after(asked("a", 2), asked("a", 1))
    assert (task.attempt, task.tries) == (2, 1)
    assert task.current is not None and task.current.number == 2


def test_of_two_results_the_first_stands_and_the_other_is_kept() -> None:
    task = after(asked("a"), finished("a"), failed("a"))
    assert task.state is TaskState.SUCCEEDED
    assert task.current is not None
    assert [result.outcome for result in task.current.results] == ["succeeded", "failed"]


def test_the_same_result_reported_twice_is_one_result() -> None:
    task = after(asked("a"), finished("a"), finished("a"))
    assert task.current is not None and len(task.current.results) == 1
    assert task.last == (3, 0, 2 * SECOND)


def test_a_failure_that_passes_waits_for_a_retry_and_counts_the_attempts() -> None:
    task = after(asked("a"), failed("a", again=True))
    assert what(task) == (TaskState.RETRY_WAIT, R.EXECUTION_FAILED)
    assert task.retry_at == 3 * SECOND  # reported after two, and the first delay is one second
    again = after(asked("a"), failed("a", again=True), asked("a", 2))
    assert (again.reason, again.attempt, again.tries) == (R.RETRY_DUE, 2, 2)
    assert again.retry_at is None


def test_the_last_attempt_that_the_policy_allows_is_the_last() -> None:
    told: list[Fact] = []
    for attempt in (1, 2, 3):
        told += [asked("a", attempt), failed("a", attempt, again=True)]
    task = after(*told)
    assert what(task) == (TaskState.FAILED, R.EXECUTION_FAILED)
    assert (task.attempt, task.tries) == (3, 3)


def test_a_failure_for_good_is_not_retried() -> None:
    assert what(after(asked("a"), failed("a"))) == (TaskState.FAILED, R.EXECUTION_FAILED)


def test_what_a_failure_called_for_when_it_was_written_decides_about_its_retry() -> None:
    """Not what today's table of codes says."""
    gone = finished("a", 1, Outcome.FAILED, code=FailureCode.NETWORK_ERROR, retriable=False)
    assert after(asked("a"), gone).state is TaskState.FAILED


def test_interrupted_attempts_run_again_at_once_and_cost_nothing() -> None:
    told: list[Fact] = []
    for attempt in range(1, 6):
        told += [asked("a", attempt), finished("a", attempt, Outcome.INTERRUPTED)]
    task = after(*told)
    assert what(task) == (TaskState.RETRY_WAIT, R.INTERRUPTED)
    assert (task.attempt, task.tries) == (5, 0)
    assert task.retry_at == task.since[2]


@pytest.mark.parametrize(
    ("outcome", "code", "state", "reason"),
    [
        (Outcome.FAILED, None, TaskState.FAILED, R.EXECUTION_FAILED),
        (Outcome.FAILED, FailureCode.CANCELLED, TaskState.FAILED, R.EXECUTION_FAILED),
        (Outcome.FAILED, FailureCode.INTERRUPTED, TaskState.RETRY_WAIT, R.EXECUTION_FAILED),
        (Outcome.TIMED_OUT, None, TaskState.FAILED, R.TIMED_OUT),
        (Outcome.TIMED_OUT, FailureCode.EXECUTION_TIMEOUT, TaskState.RETRY_WAIT, R.TIMED_OUT),
        (Outcome.FAILED, FailureCode.WORKER_CRASH, TaskState.RETRY_WAIT, R.WORKER_LOST),
        (Outcome.FAILED, FailureCode.CHECK_FAILED, TaskState.FAILED, R.CHECK_FAILED),
        (Outcome.CANCELLED, FailureCode.CANCELLED, TaskState.CANCELLED, R.CANCELLED_BY_WORKER),
    ],
)
def test_an_outcome_and_a_code_give_a_state_and_its_reason(
    outcome: Outcome, code: FailureCode | None, state: TaskState, reason: TransitionReason
) -> None:
    assert what(after(asked("a"), finished("a", 1, outcome, code=code))) == (state, reason)


def test_a_failure_that_calls_itself_an_interruption_is_not_retried_for_ever() -> None:
    told: list[Fact] = []
    for attempt in (1, 2, 3):
        lie = finished("a", attempt, Outcome.FAILED, code=FailureCode.INTERRUPTED)
        told += [asked("a", attempt), lie]
    assert after(*told).state is TaskState.FAILED


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        (Stop.USER, R.RUN_CANCELLED),
        (Stop.SYSTEM, R.RUN_CANCELLED),
        (Stop.TIMEOUT, R.RUN_TIMED_OUT),
    ],
)
def test_a_stop_ends_what_no_worker_holds(by: Stop, reason: TransitionReason) -> None:
    for told in ([], [asked("a"), failed("a", again=True)]):
        assert what(after(*told, stopped(by=by))) == (TaskState.CANCELLED, reason)
    assert what(after(stopped(by=by), name="c")) == (TaskState.CANCELLED, reason)


def test_a_stop_leaves_a_task_to_the_worker_that_holds_it() -> None:
    assert after(asked("a"), stopped()).state is TaskState.DISPATCHED
    assert after(asked("a"), began("a"), stopped()).state is TaskState.RUNNING


def test_a_result_after_the_stop_is_kept_and_not_used() -> None:
    good = after(asked("a"), stopped(), finished("a"))
    assert what(good) == (TaskState.CANCELLED, R.FINISHED_AFTER_STOP)
    obeyed = after(asked("a"), stopped(), finished("a", 1, Outcome.CANCELLED))
    assert what(obeyed) == (TaskState.CANCELLED, R.RUN_CANCELLED)


def test_a_cancellation_by_force_says_so() -> None:
    forced = finished("a", 1, Outcome.CANCELLED, code=FailureCode.CANCELLED, details={FORCED: True})
    assert what(after(asked("a"), stopped(), forced)) == (TaskState.CANCELLED, R.FORCE_CANCELLED)


def test_nothing_is_dispatched_after_a_stop_and_no_retry_either() -> None:
    assert after(asked("a"), failed("a", again=True), stopped(), asked("a", 2)).attempt == 1
    assert after(stopped(), asked("a")).attempt == 0


def test_the_first_stop_stands() -> None:
    task = after(stopped(by=Stop.TIMEOUT), stopped(by=Stop.USER))
    assert task.reason is R.RUN_TIMED_OUT


def test_a_stop_changes_nothing_of_a_task_that_had_ended() -> None:
    assert after(asked("a"), finished("a"), stopped()) == after(asked("a"), finished("a"))


def test_a_dead_edge_ends_the_task_with_the_nearest_cause() -> None:
    assert what(after(asked("a"), failed("a"), name="b")) == (TaskState.SKIPPED, R.UPSTREAM_FAILED)
    assert what(after(asked("a"), failed("a"), name="c")) == (TaskState.SKIPPED, R.UPSTREAM_SKIPPED)
    gone = finished("a", 1, Outcome.CANCELLED)
    assert what(after(asked("a"), gone, name="b")) == (TaskState.CANCELLED, R.UPSTREAM_CANCELLED)
