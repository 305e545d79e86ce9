"""Walks the tables of states: what must hold for every row, and the few rules beside them."""

import enum
import itertools
from typing import Any, NamedTuple

import msgspec
import pytest

from servo.core import states
from servo.core.failures import FailureCode
from servo.core.states import (
    EDGES,
    RUN_TRANSITIONS,
    TASK_TRANSITIONS,
    WAITS,
    Bar,
    EdgeResolution,
    Row,
    RunState,
    RunTransitionReason,
    TaskState,
    TransitionReason,
    WaitReason,
    Writer,
    allowed,
    check_transition,
    edge_effect,
    edge_weight,
    failure_reason,
    is_terminal,
    progress,
    rank,
    reachable,
    reasons_for,
    resolve_edge,
    settle_run,
    stopped_task_reason,
    targets,
)
from servo.errors import Invalid

AnyRow = Row[Any, Any]


class Table(NamedTuple):
    rows: tuple[AnyRow, ...]
    states: Any
    reasons: Any
    ends: set[Any]


TABLES = {
    "task": Table(
        TASK_TRANSITIONS,
        TaskState,
        TransitionReason,
        {
            TaskState.SUCCEEDED,
            TaskState.REUSED,
            TaskState.FAILED,
            TaskState.SKIPPED,
            TaskState.CANCELLED,
        },
    ),
    "run": Table(
        RUN_TRANSITIONS,
        RunState,
        RunTransitionReason,
        {RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.TIMED_OUT},
    ),
}
ROWS: list[AnyRow] = [row for table in TABLES.values() for row in table.rows]
of_both_tables = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


def row_name(row: AnyRow) -> str:
    return f"{row.source}-{row.target}-{row.by}"


# --- The tables -----------------------------------------------------------------------------------


@of_both_tables
def test_every_state_is_reachable_from_the_start(table: Table) -> None:
    (first,) = [row.target for row in table.rows if row.source is None]
    for state in table.states:
        assert state is first or reachable(first, state), state


@of_both_tables
def test_every_state_that_is_not_an_end_leads_to_one(table: Table) -> None:
    for state in table.states:
        assert is_terminal(state) or any(
            is_terminal(end) and reachable(state, end) for end in table.states
        )


@of_both_tables
def test_the_ends_are_those_that_the_design_names(table: Table) -> None:
    assert {state for state in table.states if is_terminal(state)} == table.ends


@of_both_tables
def test_no_way_leads_out_of_an_end(table: Table) -> None:
    assert not [row for row in table.rows if row.source in table.ends]
    assert all(targets(end) == () for end in table.ends)


@of_both_tables
def test_every_reason_is_used_by_a_row(table: Table) -> None:
    assert {reason for row in table.rows for reason in row.reasons} == set(table.reasons)


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_every_row_gives_at_least_one_reason_and_none_twice(row: AnyRow) -> None:
    assert row.reasons
    assert len(set(row.reasons)) == len(row.reasons)


@of_both_tables
def test_no_two_rows_say_the_same_step_by_the_same_writer(table: Table) -> None:
    steps = [(row.source, row.target, row.by) for row in table.rows]
    assert len(set(steps)) == len(steps)


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_rank_grows_with_every_row_except_the_retry(row: AnyRow) -> None:
    is_retry = (row.source, row.target) == (TaskState.RETRY_WAIT, TaskState.DISPATCHED)
    if row.source is not None:
        assert (rank(row.target) > rank(row.source)) is not is_retry
    if is_retry:
        assert row.next_attempt, "a row may go back only with a higher attempt"


@pytest.mark.parametrize("row", TASK_TRANSITIONS, ids=row_name)
def test_progress_grows_with_every_row(row: Row[TaskState, TransitionReason]) -> None:
    if row.source is not None:
        after = 2 if row.next_attempt else 1
        assert progress(after, row.target) > progress(1, row.source)


def test_a_dispatch_is_what_begins_an_attempt() -> None:
    assert {row.target for row in TASK_TRANSITIONS if row.next_attempt} == {TaskState.DISPATCHED}
    assert all(row.next_attempt for row in TASK_TRANSITIONS if row.target is TaskState.DISPATCHED)


def test_a_late_fact_of_an_older_attempt_is_never_further_than_the_current_one() -> None:
    for late in TaskState:
        assert progress(1, late) < progress(2, TaskState.DISPATCHED)


@of_both_tables
def test_ranks_are_a_total_order_with_the_ends_on_top(table: Table) -> None:
    ranks = [rank(state) for state in table.states]
    assert len(set(ranks)) == len(ranks)
    highest_open = max(rank(state) for state in table.states if not is_terminal(state))
    assert all(rank(state) > highest_open for state in table.states if is_terminal(state))


def test_only_the_leader_dispatches_and_reuses() -> None:
    for row in TASK_TRANSITIONS:
        if row.target in (TaskState.DISPATCHED, TaskState.REUSED):
            assert row.by is Writer.LEADER


def test_only_a_worker_can_make_a_task_succeed() -> None:
    assert {row.by for row in TASK_TRANSITIONS if row.target is TaskState.SUCCEEDED} == {
        Writer.WORKER
    }


def test_runs_end_by_derivation_alone() -> None:
    assert {row.by for row in RUN_TRANSITIONS if is_terminal(row.target)} == {Writer.FOLD}


def test_whatever_can_fail_a_running_task_can_also_lead_to_a_retry() -> None:
    failed = set(reasons_for(TaskState.RUNNING, TaskState.FAILED))
    retried = set(reasons_for(TaskState.RUNNING, TaskState.RETRY_WAIT))
    assert retried - failed == {TransitionReason.INTERRUPTED}
    assert failed <= retried


# --- Sentences ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [*TransitionReason, *RunTransitionReason, *WaitReason])
def test_every_reason_is_one_sentence_for_people(
    reason: TransitionReason | RunTransitionReason | WaitReason,
) -> None:
    assert reason.sentence[0].isupper()
    assert reason.sentence.endswith(".")
    assert reason.sentence.count(". ") == 0


@pytest.mark.parametrize("reason_type", [TransitionReason, RunTransitionReason, WaitReason])
def test_a_reason_is_stored_as_its_name_in_lower_case(
    reason_type: type[TransitionReason | RunTransitionReason | WaitReason],
) -> None:
    for reason in reason_type:
        assert reason.value == str(reason) == reason.name.lower()
        assert msgspec.json.decode(msgspec.json.encode(reason), type=reason_type) is reason


@pytest.mark.parametrize("states_type", [TaskState, RunState, EdgeResolution])
def test_a_state_is_stored_as_its_name(states_type: type[enum.StrEnum]) -> None:
    assert all(state.value == state.name for state in states_type)


def test_every_task_state_that_is_not_an_end_says_what_it_can_wait_for() -> None:
    assert set(WAITS) == {state for state in TaskState if not is_terminal(state)}
    assert {reason for reasons in WAITS.values() for reason in reasons} == set(WaitReason)


# --- Asking the tables ----------------------------------------------------------------------------


def test_allowed_is_exactly_what_the_rows_say() -> None:
    steps = {(row.source, row.target) for row in TASK_TRANSITIONS}
    for source, target in itertools.product([None, *TaskState], TaskState):
        assert allowed(source, target) == ((source, target) in steps)


def test_the_reasons_of_a_step_are_those_of_all_its_writers() -> None:
    assert reasons_for(TaskState.DISPATCHED, TaskState.RETRY_WAIT) == (
        TransitionReason.DISPATCH_ACK_TIMEOUT,
        TransitionReason.WORKER_LOST,
        TransitionReason.INTERRUPTED,
    )


def test_a_step_that_is_not_allowed_has_no_reasons() -> None:
    assert reasons_for(TaskState.SUCCEEDED, TaskState.RUNNING) == ()


def test_states_of_tasks_and_runs_do_not_mix_although_they_are_spelled_alike() -> None:
    mixed: Any = RunState.PENDING
    assert not allowed(mixed, TaskState.READY)
    assert not reachable(mixed, TaskState.READY)
    with pytest.raises(Invalid, match="not states of the same thing"):
        check_transition(mixed, TaskState.READY, TransitionReason.DEPENDENCIES_SATISFIED)


def test_a_plain_string_is_not_a_state() -> None:
    text: Any = "PENDING"
    with pytest.raises(Invalid, match="'PENDING' is not a state of a task or a run"):
        rank(text)


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_every_row_passes_its_own_check(row: AnyRow) -> None:
    for reason in row.reasons:
        check_transition(row.source, row.target, reason)


def test_a_wrong_step_is_refused_with_both_states_and_the_allowed_ones() -> None:
    with pytest.raises(Invalid) as refused:
        check_transition(TaskState.PENDING, TaskState.RUNNING, TransitionReason.EXECUTION_STARTED)
    assert str(refused.value) == (
        "a task cannot go from PENDING to RUNNING; from PENDING it can go to READY, SKIPPED or"
        " CANCELLED"
    )


def test_a_step_out_of_an_end_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(Invalid, match="SUCCEEDED is an end; start a new run instead"):
        check_transition(RunState.SUCCEEDED, RunState.RUNNING, RunTransitionReason.STARTED)


def test_a_wrong_reason_is_refused_with_the_right_ones() -> None:
    with pytest.raises(Invalid, match="READY to REUSED for reused, not for execution_started"):
        check_transition(TaskState.READY, TaskState.REUSED, TransitionReason.EXECUTION_STARTED)


def test_a_reason_of_a_run_is_not_one_of_a_task_although_spelled_alike() -> None:
    spelled_alike: Any = RunTransitionReason.TIMED_OUT
    with pytest.raises(Invalid, match="not for timed_out"):
        check_transition(TaskState.RUNNING, TaskState.FAILED, spelled_alike)


def test_nothing_begins_in_the_middle() -> None:
    with pytest.raises(Invalid, match="cannot begin as RUNNING; it begins as PENDING"):
        check_transition(None, TaskState.RUNNING, TransitionReason.RUN_TRIGGERED)


def test_two_looks_may_miss_the_steps_between() -> None:
    assert reachable(TaskState.PENDING, TaskState.SUCCEEDED)
    assert reachable(TaskState.RUNNING, TaskState.RUNNING), "a retry comes back to RUNNING"
    assert not reachable(TaskState.RUNNING, TaskState.READY)
    assert not reachable(TaskState.SUCCEEDED, TaskState.SUCCEEDED)


# --- Dependencies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", TaskState)
def test_an_edge_resolves_when_its_upstream_has_ended_and_not_before(state: TaskState) -> None:
    assert (resolve_edge(state) is not None) == is_terminal(state)


@pytest.mark.parametrize(
    ("upstream", "resolution", "downstream"),
    [
        (TaskState.SUCCEEDED, EdgeResolution.SUCCESS, None),
        (TaskState.REUSED, EdgeResolution.SUCCESS, None),
        (TaskState.FAILED, EdgeResolution.FAILED, TaskState.SKIPPED),
        (TaskState.SKIPPED, EdgeResolution.SKIPPED, TaskState.SKIPPED),
        (TaskState.CANCELLED, EdgeResolution.CANCELLED, TaskState.CANCELLED),
    ],
)
def test_what_an_upstream_end_does_downstream(
    upstream: TaskState, resolution: EdgeResolution, downstream: TaskState | None
) -> None:
    effect = edge_effect(upstream)
    assert effect is not None
    assert (effect.resolution, effect.target) == (resolution, downstream)


@pytest.mark.parametrize(
    ("bar", "reason"),
    [
        (Bar.BLOCKED, TransitionReason.BLOCKED_BY_CHECK),
        (Bar.QUARANTINED, TransitionReason.UPSTREAM_QUARANTINED),
    ],
)
def test_a_version_that_may_not_be_read_skips_downstream_with_that_reason(
    bar: Bar, reason: TransitionReason
) -> None:
    effect = edge_effect(TaskState.SUCCEEDED, bar)
    assert effect == (EdgeResolution.FAILED, TaskState.SKIPPED, reason)


def test_a_bar_changes_nothing_for_a_task_that_made_no_version() -> None:
    assert edge_effect(TaskState.FAILED, Bar.BLOCKED) == edge_effect(TaskState.FAILED)
    assert resolve_edge(TaskState.RUNNING, Bar.BLOCKED) is None


@pytest.mark.parametrize("effect", EDGES.values())
def test_every_effect_of_an_edge_is_a_row_of_the_table(effect: states.EdgeEffect) -> None:
    if effect.target is None:
        assert effect.resolution is EdgeResolution.SUCCESS
    else:
        assert effect.reason in reasons_for(TaskState.PENDING, effect.target)


def test_the_nearest_cause_speaks_for_the_task() -> None:
    failed, skipped = edge_effect(TaskState.FAILED), edge_effect(TaskState.SKIPPED)
    assert failed is not None and skipped is not None
    assert (
        edge_weight(failed) > edge_weight(skipped) > edge_weight(EDGES[TaskState.SUCCEEDED, None])
    )


# --- Stops and ends -------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [TaskState.DISPATCHED, TaskState.RUNNING])
def test_a_task_that_a_worker_holds_waits_for_the_worker(state: TaskState) -> None:
    assert TransitionReason.RUN_CANCELLED in reasons_for(state, TaskState.CANCELLED)
    assert TransitionReason.FORCE_CANCELLED in reasons_for(state, TaskState.CANCELLED)


@pytest.mark.parametrize("stopping", reasons_for(RunState.RUNNING, RunState.CANCELLING), ids=str)
def test_every_stop_of_a_run_explains_its_tasks_and_its_end(
    stopping: RunTransitionReason,
) -> None:
    for state in (TaskState.PENDING, TaskState.READY, TaskState.RETRY_WAIT):
        assert stopped_task_reason(stopping) in reasons_for(state, TaskState.CANCELLED)
    ended = settle_run({TaskState.CANCELLED: 1}, stopping)
    assert ended is not None
    check_transition(RunState.CANCELLING, *ended)


def test_a_run_is_stopped_only_for_a_reason_that_stops_runs() -> None:
    with pytest.raises(Invalid, match="not told to stop for the reason started"):
        stopped_task_reason(RunTransitionReason.STARTED)
    with pytest.raises(Invalid, match="not told to stop for the reason started"):
        settle_run({}, RunTransitionReason.STARTED)


@pytest.mark.parametrize(
    ("tasks", "ended"),
    [
        ({}, (RunState.SUCCEEDED, RunTransitionReason.NOTHING_TO_DO)),
        (
            {TaskState.SUCCEEDED: 2, TaskState.REUSED: 1},
            (RunState.SUCCEEDED, RunTransitionReason.ALL_TASKS_SUCCEEDED),
        ),
        (
            {TaskState.SUCCEEDED: 1, TaskState.SKIPPED: 3},
            (RunState.SUCCEEDED, RunTransitionReason.SOME_TASKS_SKIPPED),
        ),
        (
            {TaskState.FAILED: 1, TaskState.SKIPPED: 3, TaskState.CANCELLED: 1},
            (RunState.FAILED, RunTransitionReason.TASKS_FAILED),
        ),
        (
            {TaskState.SUCCEEDED: 1, TaskState.CANCELLED: 1},
            (RunState.CANCELLED, RunTransitionReason.TASKS_CANCELLED),
        ),
        ({TaskState.SUCCEEDED: 5, TaskState.RUNNING: 1}, None),
        (
            {TaskState.SUCCEEDED: 5, TaskState.RUNNING: 0},
            (RunState.SUCCEEDED, RunTransitionReason.ALL_TASKS_SUCCEEDED),
        ),
    ],
)
def test_a_run_ends_as_its_tasks_did(
    tasks: dict[TaskState, int], ended: tuple[RunState, RunTransitionReason] | None
) -> None:
    assert settle_run(tasks) == ended


def test_a_stopped_run_ends_by_why_it_was_stopped_and_only_when_its_tasks_have() -> None:
    assert settle_run({TaskState.RUNNING: 1}, RunTransitionReason.TIMED_OUT) is None
    assert settle_run({TaskState.SUCCEEDED: 1}, RunTransitionReason.TIMED_OUT) == (
        RunState.TIMED_OUT,
        RunTransitionReason.TIMED_OUT,
    )
    assert settle_run({TaskState.FAILED: 1}, RunTransitionReason.USER_CANCELLED) == (
        RunState.CANCELLED,
        RunTransitionReason.USER_CANCELLED,
    )


@pytest.mark.parametrize("code", FailureCode)
def test_every_failure_code_explains_a_way_out_of_running_or_dispatched(code: FailureCode) -> None:
    reason = failure_reason(code)
    assert any(
        reason in row.reasons
        for row in TASK_TRANSITIONS
        if row.source in (TaskState.RUNNING, TaskState.DISPATCHED)
    )
