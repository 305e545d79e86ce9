"""Controllers: what they ask for, what they give up, and when they keep still."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from servo.control.anti_entropy import CODE_WAIT_US, MAX_VANISHED, anti_entropy
from servo.control.deadlines import deadlines
from servo.control.dispatch import MAX_AT_ONCE, dispatcher, ready_dispatch, stopping
from servo.control.heartbeats import heartbeats
from servo.control.moment import MAX_LAG_US, Moment
from servo.core.failures import FailureCode
from servo.core.policies import Timeouts
from servo.core.states import RunState, TaskState, TransitionReason
from servo.events.catalog import DeploymentCreated
from servo.events.execution import Outcome, TaskFinished
from servo.events.orchestration import DispatchRequested, RunCancelRequested, Stop, attempt_id
from tests.unit.facts import (
    HERE,
    SECOND,
    Story,
    a_moment,
    alive,
    asked,
    began,
    failed,
    finished,
    key,
    plan_of,
    stopped,
    triggered,
)

THREE: dict[str, list[str]] = {"a": [], "b": [], "c": []}
LIMITS = Timeouts(dispatch_ack_ms=30_000, heartbeat_ms=60_000, execution_ms=600_000)
A = attempt_id("R", key("a"), 1)


def names(intents: Iterable[DispatchRequested]) -> list[str]:
    """`run:task#attempt` of each."""
    return [f"{i.run_id}:{i.task_key[2]}#{i.attempt}" for i in intents]


def going(**limits: Any) -> Story:
    """A run of three tasks, the first of which was dispatched at second 100."""
    timeouts = msgspec.structs.replace(LIMITS, **limits)
    story = Story(P=plan_of(THREE, timeouts=timeouts)).tell(triggered())
    return story.tell(asked("a"), at=100 * SECOND)


def given_up(story: Story, second: float, **more: Any) -> list[TaskFinished]:
    now = int(second * SECOND)
    moment = a_moment(now)._replace(**more)
    story.state.wake(now)
    return deadlines(story.state, moment)


# --- Ready-dispatch -------------------------------------------------------------------------------


def test_what_is_ready_is_asked_for_as_far_as_there_is_room() -> None:
    story = Story(P=plan_of({**THREE, "d": ["a"]})).tell(triggered())
    assert names(ready_dispatch(story.state, a_moment())) == ["R:a#1", "R:b#1", "R:c#1"]
    assert names(ready_dispatch(story.state, a_moment(slots=2))) == ["R:a#1", "R:b#1"]
    assert ready_dispatch(story.state, a_moment(slots=0)) == []
    assert ready_dispatch(story.state, a_moment(slots=-3)) == []


def test_deciding_changes_nothing() -> None:
    story = Story(P=plan_of(THREE)).tell(triggered())
    first = ready_dispatch(story.state, a_moment())
    assert ready_dispatch(story.state, a_moment()) == first
    assert not story.state.pending


def test_what_was_asked_for_is_not_asked_for_again() -> None:
    story = Story(P=plan_of(THREE)).tell(triggered(), asked("b"))
    assert names(ready_dispatch(story.state, a_moment())) == ["R:a#1", "R:c#1"]


def test_attempts_are_asked_of_this_executor() -> None:
    story = Story(P=plan_of({"a": []})).tell(triggered())
    (intent,) = ready_dispatch(story.state, a_moment(worker="process:me"))
    assert intent.worker == "process:me"


def test_high_priority_goes_first_within_a_run_and_between_runs() -> None:
    story = Story(
        P=plan_of(THREE, priorities={"c": 5}), Q=plan_of({"x": [], "y": []}, priorities={"y": 9})
    ).tell(triggered("R1"), triggered("R2", plan="Q"))
    order = names(ready_dispatch(story.state, a_moment()))
    assert order[:2] == ["R2:y#1", "R1:c#1"]


def test_two_runs_share_the_room_fairly() -> None:
    story = Story(P=plan_of({name: [] for name in "abcdef"}))
    story.tell(triggered("R1"), triggered("R2"))
    order = names(ready_dispatch(story.state, a_moment(slots=4)))
    assert [intent[:2] for intent in order] == ["R1", "R2", "R1", "R2"]


def test_the_run_with_fewer_attempts_at_work_goes_first() -> None:
    story = Story(P=plan_of({name: [] for name in "abcdef"}))
    story.tell(triggered("R1"), triggered("R2"))
    story.tell(asked("a", run="R1"), asked("b", run="R1"))
    order = names(ready_dispatch(story.state, a_moment(slots=3)))
    assert [intent[:2] for intent in order] == ["R2", "R2", "R1"]


def test_one_segment_does_not_ask_for_everything_at_once() -> None:
    story = Story(P=plan_of({f"t{i}": [] for i in range(MAX_AT_ONCE + 10)})).tell(triggered())
    assert len(ready_dispatch(story.state, a_moment(slots=10**6))) == MAX_AT_ONCE


def test_a_run_that_is_told_to_stop_gets_no_more_attempts() -> None:
    story = Story(P=plan_of(THREE)).tell(triggered(), asked("a"), stopped())
    assert ready_dispatch(story.state, a_moment()) == []


def test_a_run_whose_code_cannot_be_loaded_here_waits() -> None:
    story = Story(P=plan_of({"a": []}))
    story.tell(triggered("R1", code_ref="process:other"), triggered("R2"))
    moment = a_moment(loads=lambda ref: ref == HERE)
    assert names(ready_dispatch(story.state, moment)) == ["R2:a#1"]


def test_a_retry_is_asked_for_when_its_wait_is_over() -> None:
    story = Story(P=plan_of({"a": []})).tell(triggered(), asked("a"))
    story.tell(failed("a", again=True), at=10 * SECOND)
    for second, expected in ((10.5, []), (11, ["R:a#2"])):
        now = int(second * SECOND)
        story.state.wake(now)
        assert names(ready_dispatch(story.state, a_moment(now))) == expected


def test_a_retry_waits_for_a_fresh_view_and_other_tasks_do_not() -> None:
    story = Story(P=plan_of({"a": [], "b": []})).tell(triggered(), asked("a"))
    story.tell(failed("a", again=True), at=10 * SECOND)
    now = 60 * SECOND
    story.state.wake(now)
    stale = a_moment(now, as_of=now - MAX_LAG_US - 1)
    assert names(ready_dispatch(story.state, stale)) == ["R:b#1"]
    assert names(ready_dispatch(story.state, a_moment(now))) == ["R:b#1", "R:a#2"]


def test_the_next_attempt_is_one_that_no_fact_has_mentioned() -> None:
    """A dispatch that did not count must not be asked for again for ever."""
    story = Story(P=plan_of({"a": [], "b": ["a"]}))
    story.tell(triggered(), asked("b", 4), asked("a"), finished("a"))
    assert names(ready_dispatch(story.state, a_moment())) == ["R:b#5"]


# --- Dispatcher and stopping ----------------------------------------------------------------------


def test_what_was_asked_of_this_executor_and_got_lost_is_handed_over_again() -> None:
    story = Story(P=plan_of(THREE)).tell(
        DeploymentCreated(
            deployment_id="D", manifest_object="o", code_version="c", asset_ids={"n/a": "id-a"}
        ),
        triggered(),
        asked("a"),
        asked("b", worker="process:other"),
        asked("c"),
        began("c"),
    )
    (work,) = dispatcher(story.state, a_moment(), frozenset())
    assert (work.task_key, work.attempt, work.attempt_id) == (key("a"), 1, A)
    assert (work.asset_key, work.asset_id, work.code_version) == ("n/a", "id-a", "c1")
    assert (work.heartbeat_ms, work.execution_ms) == (60_000, 600_000)
    assert list(dispatcher(story.state, a_moment(), frozenset([A]))) == []


def test_attempts_are_handed_over_and_given_up_in_the_order_of_their_keys() -> None:
    """Whatever the order in which they were asked for, which a state that was loaded does not know."""
    story = Story(P=plan_of(THREE)).tell(triggered(), asked("c"), asked("a"))
    works = dispatcher(story.state, a_moment(), frozenset())
    assert [work.task_key for work in works] == [key("a"), key("c")]
    results = anti_entropy(story.state, alone(worker="process:new"))
    assert [fact.task_key for fact in results if isinstance(fact, TaskFinished)] == [
        key("a"),
        key("c"),
    ]


def test_nothing_is_handed_over_of_a_run_that_is_told_to_stop() -> None:
    story = Story(P=plan_of(THREE)).tell(triggered(), asked("a"), stopped())
    assert list(dispatcher(story.state, a_moment(), frozenset())) == []


def test_attempts_that_nobody_wants_any_more_are_told_to_stop() -> None:
    story = Story(P=plan_of(THREE)).tell(triggered(), asked("a"), asked("b"))
    b = attempt_id("R", key("b"), 1)
    assert stopping(story.state, [A, b]) == []
    story.tell(failed("a", again=True), asked("a", 2))
    assert stopping(story.state, [A, b]) == [A]
    story.tell(stopped())
    assert stopping(story.state, [A, b]) == sorted([A, b])


# --- Deadlines ------------------------------------------------------------------------------------


def test_an_attempt_that_nobody_takes_is_given_up_after_the_acknowledgement_timeout() -> None:
    story = going()
    assert given_up(story, 130) == []
    (result,) = given_up(story, 140)
    assert result.error is not None
    assert result.error.code is FailureCode.DISPATCH_ACK_TIMEOUT
    assert (result.outcome, result.retriable) == (Outcome.FAILED, True)
    story.tell(result, at=140 * SECOND)
    task = story.run().tasks[key("a")]
    assert (task.state, task.reason) == (
        TaskState.RETRY_WAIT,
        TransitionReason.DISPATCH_ACK_TIMEOUT,
    )
    assert given_up(story, 150) == []


def test_a_worker_that_falls_silent_is_given_up_after_the_heartbeat_timeout() -> None:
    story = going().tell(began("a"), at=110 * SECOND)
    assert given_up(story, 169) == []
    (result,) = given_up(story, 180)
    assert result.error is not None and result.error.code is FailureCode.HEARTBEAT_TIMEOUT
    assert result.started_at == 110 * SECOND


@pytest.mark.parametrize("durable", [True, False])
def test_a_sign_of_life_saves_the_attempt(durable: bool) -> None:
    story = going().tell(began("a"), at=110 * SECOND)
    heard = {} if durable else {A: 150 * SECOND}
    if durable:
        story.tell(alive("a"), at=150 * SECOND)
    assert given_up(story, 200, heard=heard) == []
    assert len(given_up(story, 220, heard=heard)) == 1


@pytest.mark.parametrize("durable", [True, False])
def test_a_sign_of_life_acknowledges_an_attempt_whose_start_was_not_written(durable: bool) -> None:
    story = going()
    heard = {} if durable else {A: 120 * SECOND}
    if durable:
        story.tell(alive("a"), at=120 * SECOND)
    assert given_up(story, 140, heard=heard) == []
    (result,) = given_up(story, 190, heard=heard)
    assert result.error is not None and result.error.code is FailureCode.HEARTBEAT_TIMEOUT


def test_a_silent_worker_is_found_although_its_acknowledgement_had_more_time() -> None:
    story = going(dispatch_ack_ms=1_000_000, heartbeat_ms=10_000)
    (result,) = given_up(story, 125, heard={A: 105 * SECOND})
    assert result.error is not None and result.error.code is FailureCode.HEARTBEAT_TIMEOUT


def test_an_attempt_that_takes_too_long_is_given_up_a_heartbeat_after_its_timeout() -> None:
    """The worker enforces the timeout itself, and gets that long to say so."""
    story = going(execution_ms=100_000).tell(began("a"), at=110 * SECOND)
    heard = {A: 300 * SECOND}
    assert given_up(story, 265, heard=heard) == []
    (result,) = given_up(story, 290, heard=heard)
    assert result.outcome is Outcome.TIMED_OUT
    assert result.error is not None and result.error.code is FailureCode.EXECUTION_TIMEOUT


def test_an_attempt_without_a_timeout_takes_as_long_as_it_takes() -> None:
    story = going(execution_ms=None).tell(began("a"), at=110 * SECOND)
    assert given_up(story, 10**6, heard={A: 10**6 * SECOND}) == []


def test_who_could_not_be_heard_gets_a_full_timeout() -> None:
    """After a takeover, or a night's sleep of the machine."""
    story = going()
    assert given_up(story, 1_000, listening_since=990 * SECOND) == []
    assert len(given_up(story, 1_030, listening_since=990 * SECOND)) == 1
    story.tell(began("a"), at=110 * SECOND)
    assert given_up(story, 2_000, listening_since=1_990 * SECOND, heard={}) != []  # too long
    silent = going(execution_ms=None).tell(began("a"), at=110 * SECOND)
    assert given_up(silent, 2_000, listening_since=1_990 * SECOND) == []


def test_a_worker_that_does_not_stop_is_cancelled_by_force_after_two_heartbeats() -> None:
    story = going().tell(began("a"), at=110 * SECOND).tell(stopped(), at=200 * SECOND)
    heard = {A: 319 * SECOND}
    assert given_up(story, 319, heard=heard) == []
    assert given_up(story, 340, listening_since=300 * SECOND) == []
    (result,) = given_up(story, 360, heard=heard)
    assert result.outcome is Outcome.CANCELLED
    story.tell(result, at=360 * SECOND)
    assert story.run().tasks[key("a")].reason is TransitionReason.FORCE_CANCELLED
    assert story.run().run.state is RunState.CANCELLED


def test_no_deadline_is_acted_upon_while_the_view_is_stale() -> None:
    story = going()
    assert given_up(story, 1_000, as_of=1_000 * SECOND - MAX_LAG_US - 1) == []
    assert len(given_up(story, 1_100)) == 1


# --- Heartbeats -----------------------------------------------------------------------------------


def test_a_sign_of_life_becomes_a_fact_once_per_half_timeout() -> None:
    story = going().tell(began("a"), at=110 * SECOND)

    def written(second: int) -> int:
        return len(heartbeats(story.state, a_moment(0, heard={A: second * SECOND})))

    assert (written(139), written(140)) == (0, 1)
    story.tell(alive("a"), at=140 * SECOND)
    assert (written(169), written(170)) == (0, 1)


# --- Anti-entropy ---------------------------------------------------------------------------------


def alone(now: int = 200 * SECOND, **more: Any) -> Moment:
    return a_moment(now, alone=True)._replace(**more)


def test_an_attempt_that_died_with_its_process_is_interrupted_at_once() -> None:
    story = Story(P=plan_of(THREE)).tell(
        triggered(), asked("a", worker="process:dead"), asked("b"), asked("c", worker="http:pool")
    )
    (result,) = anti_entropy(story.state, alone())
    assert isinstance(result, TaskFinished)
    assert (result.task_key, result.outcome) == (key("a"), Outcome.INTERRUPTED)
    story.tell(result)
    assert story.run().tasks[key("a")].tries == 0  # which cost it nothing


def test_another_engine_may_be_alive_where_no_lock_says_otherwise() -> None:
    story = Story(P=plan_of(THREE)).tell(triggered(), asked("a", worker="process:dead"))
    assert anti_entropy(story.state, a_moment(200 * SECOND)) == []


def test_nothing_is_given_up_while_the_view_is_stale() -> None:
    story = Story(P=plan_of(THREE)).tell(triggered(), asked("a", worker="process:dead"))
    assert anti_entropy(story.state, alone(as_of=0)) == []


def test_a_task_that_kills_its_process_every_time_fails_in_the_end() -> None:
    story = Story(P=plan_of({"a": []})).tell(triggered())
    outcomes = []
    for attempt in range(1, 20):
        story.tell(asked("a", attempt, worker=f"process:{attempt}"))
        (result,) = anti_entropy(story.state, alone())
        assert isinstance(result, TaskFinished)
        outcomes.append(result.outcome)
        story.tell(result)
        if story.run().ended:
            break
    assert outcomes == [Outcome.INTERRUPTED] * MAX_VANISHED + [Outcome.FAILED] * 3
    assert story.run().tasks[key("a")].reason is TransitionReason.WORKER_LOST


def test_a_run_whose_code_nobody_could_load_for_half_a_day_is_stopped() -> None:
    story = Story(P=plan_of(THREE)).tell(triggered(code_ref="process:gone"), at=SECOND)
    lost = {"loads": lambda _: False}
    later = SECOND + CODE_WAIT_US
    assert anti_entropy(story.state, a_moment(later, **lost)) == []
    (intent,) = anti_entropy(story.state, a_moment(later + 1, **lost))
    assert isinstance(intent, RunCancelRequested)
    assert intent.by is Stop.SYSTEM and "process:gone" in intent.message
    assert anti_entropy(story.state, a_moment(later + 1)) == []
    assert anti_entropy(story.state, a_moment(later + 1, listening_since=9 * SECOND, **lost)) == []
    story.tell(intent, at=later + 1)
    assert anti_entropy(story.state, a_moment(2 * later, **lost)) == []
    assert story.run().run.state is RunState.CANCELLED


def test_a_run_with_an_attempt_at_work_is_not_stopped_for_its_code() -> None:
    story = Story(P=plan_of(THREE)).tell(triggered(), asked("a", worker="http:pool"))
    assert anti_entropy(story.state, a_moment(2 * CODE_WAIT_US, loads=lambda _: False)) == []
