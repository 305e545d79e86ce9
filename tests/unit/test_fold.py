"""The state: folding, overlays, what it needs, what it forgets, and which facts it lets in."""

from collections.abc import Mapping

import pytest

from servo.core import plan as plans
from servo.core import segments
from servo.core.segments import GENESIS, Segment
from servo.core.states import RunState, RunTransitionReason, TaskState
from servo.errors import Corrupt
from servo.events.catalog import DeploymentCreated
from servo.events.envelope import ENGINE, Fact, Placed, encode
from servo.events.orchestration import LeaderClaimed, Stop
from servo.fold.shape import Shape
from servo.fold.state import State, admit
from tests.unit.facts import (
    EVER,
    SECOND,
    Published,
    Story,
    alive,
    asked,
    began,
    event,
    failed,
    finished,
    folded,
    key,
    made,
    plan_of,
    reused,
    stopped,
    tables_of,
    triggered,
)

CHAIN = {"a": [], "b": ["a"], "c": ["b"]}
DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["a", "b", "c"], "e": []}


def chain() -> Story:
    return Story(P=plan_of(CHAIN)).tell(triggered())


# --- Runs -----------------------------------------------------------------------------------------


def test_a_run_goes_from_pending_through_running_to_its_end() -> None:
    story = chain()
    states = [story.run().run.state]
    for name in "abc":
        story.tell(asked(name)).tell(finished(name))
        states.append(story.run().run.state)
    assert states == [RunState.PENDING, RunState.RUNNING, RunState.RUNNING, RunState.SUCCEEDED]
    assert story.run().run.reason is RunTransitionReason.ALL_TASKS_SUCCEEDED
    assert story.run().run.ended == (7, 0, 0)
    assert not story.state.active


def test_a_run_of_an_empty_plan_has_nothing_to_do() -> None:
    story = Story(P=plan_of({})).tell(triggered())
    assert story.run().run.state is RunState.SUCCEEDED
    assert story.run().run.reason is RunTransitionReason.NOTHING_TO_DO


@pytest.mark.parametrize(
    ("by", "state"),
    [
        (Stop.USER, RunState.CANCELLED),
        (Stop.SYSTEM, RunState.CANCELLED),
        (Stop.TIMEOUT, RunState.TIMED_OUT),
    ],
)
def test_a_run_that_is_told_to_stop_ends_when_its_workers_have_answered(
    by: Stop, state: RunState
) -> None:
    story = chain().tell(asked("a")).tell(stopped(by=by))
    assert story.run().run.state is RunState.CANCELLING
    story.tell(finished("a"))
    assert story.run().run.state is state


def test_a_stop_after_the_end_changes_nothing() -> None:
    story = Story(P=plan_of({"a": []})).tell(triggered(), asked("a"), finished("a"))
    ended = story.run().run
    story.tell(stopped())
    assert story.run().run.state is RunState.SUCCEEDED
    assert (story.run().run.reason, story.run().run.ended) == (ended.reason, ended.ended)


def test_a_failure_skips_what_is_below_and_other_branches_go_on() -> None:
    story = Story(P=plan_of(DIAMOND)).tell(triggered(), asked("a"), asked("e"), failed("a"))
    assert story.states() == {
        "a": "FAILED",
        "b": "SKIPPED",
        "c": "SKIPPED",
        "d": "SKIPPED",
        "e": "DISPATCHED",
    }
    assert story.run().run.state is RunState.RUNNING
    story.tell(finished("e"))
    assert story.run().run.state is RunState.FAILED


def test_a_task_below_two_ways_of_different_length_counts_each_edge_once() -> None:
    """Ends found late run down stage by stage: a shortcut must not overtake what it skips."""
    story = Story(P=plan_of({"a": [], "b": ["a"], "d": ["a", "b"]}))
    facts = [triggered(), asked("a"), finished("a"), asked("b"), finished("b")]
    placed = [Placed(1, i, 0, event(fact)) for i, fact in enumerate(facts)]
    last = placed.pop(2)
    story.state.fold(placed)
    assert story.states() == {"a": "DISPATCHED", "b": "PENDING", "d": "PENDING"}
    story.state.fold([last])
    assert story.states() == {"a": "SUCCEEDED", "b": "SUCCEEDED", "d": "READY"}
    assert story.run().tasks[key("d")].met == 2


def test_what_stands_before_the_trigger_says_nothing_of_the_run() -> None:
    early = [stopped(), asked("a"), finished("a"), made("a"), reused("b")]
    story = Story(P=plan_of(CHAIN)).tell(*early)
    assert [table.name for table in story.state.take().rows()] == ["materializations", "audit"]
    story.tell(triggered())
    assert story.states() == {"a": "READY", "b": "PENDING", "c": "PENDING"}
    assert story.run().run.stop is None


def test_what_was_folded_before_a_trigger_with_a_lower_place_counts() -> None:
    story = Story(P=plan_of(CHAIN))
    story.state.fold([Placed(2, 0, 0, event(asked("a"))), Placed(2, 1, 0, event(finished("a")))])
    story.state.fold([Placed(1, 0, 0, event(triggered()))])
    assert story.states() == {"a": "SUCCEEDED", "b": "READY", "c": "PENDING"}


def test_a_second_trigger_of_a_run_changes_nothing_wherever_it_is_folded() -> None:
    facts = [triggered(), asked("a"), finished("a"), triggered()]
    placed = [Placed(1, i, 0, event(fact)) for i, fact in enumerate(facts)]
    shapes = {"P": Shape(plan_of(CHAIN))}
    tables = tables_of(folded(shapes, [placed]))
    assert tables_of(folded(shapes, [placed[::-1]])) == tables
    assert tables["runs"][("R",)][12] == 1  # one task succeeded, counted once


def test_the_first_run_owns_its_key_and_another_is_void() -> None:
    story = Story(P=plan_of(CHAIN))
    story.tell(triggered("R1", run_key="K"), triggered("R2", run_key="K", request_hash="other"))
    story.tell(asked("a", run="R2"))
    assert [run.run_id for run in story.state.active_runs()] == ["R1"]
    tables = tables_of(story.state)
    assert list(tables["runs"]) == [("R1",)]
    assert not tables["attempts"]
    row = tables["run_keys"][("K",)]
    assert (row[1], row[7]) == ("R1", 1)  # the owner, and one conflict


def test_a_run_that_lost_its_key_gets_it_back_when_it_is_found_to_be_first() -> None:
    shapes = {"P": Shape(plan_of(CHAIN))}
    placed = [
        Placed(1, 0, 0, event(triggered("R1", run_key="K"))),
        Placed(2, 0, 0, event(triggered("R2", run_key="K"))),
        Placed(3, 0, 0, event(asked("a", run="R1"))),
    ]
    straight = folded(shapes, [placed])
    other = folded(shapes, [[placed[1]], [placed[2]], [placed[0]]])
    assert list(other.active) == ["R1"]
    assert tables_of(other) == tables_of(straight)


# --- Versions -------------------------------------------------------------------------------------


def counting(story: Story) -> list[str]:
    records = story.state.records["materializations"].values()
    return [r.fact.materialization_id for r in records if r.committed is not None]


def test_a_version_counts_once_its_attempt_stands_as_the_result_of_its_task() -> None:
    story = chain().tell(asked("a"), made("a", version="m1"))
    assert counting(story) == []
    story.tell(finished("a"))
    assert counting(story) == ["m1"]


def test_a_version_of_an_attempt_that_was_given_up_never_counts() -> None:
    story = chain().tell(asked("a"), made("a", version="m1"), failed("a", again=True))
    story.tell(asked("a", 2), made("a", 2, version="m2"), finished("a", 2), finished("a", 1))
    assert counting(story) == ["m2"]


def test_a_version_that_is_reported_after_its_result_counts_from_then_on() -> None:
    story = chain().tell(asked("a")).tell(finished("a")).tell(made("a", version="late"))
    assert story.state.records["materializations"][("late",)].committed == (4, 0, 0)


def test_the_latest_version_of_a_partition_is_the_one_that_counted_last() -> None:
    story = Story(P=plan_of({"a": []}))
    for run in ("R1", "R2"):
        story.tell(triggered(run), asked("a", run=run))
    story.tell(made("a", run="R1", version="older"), made("a", run="R2", version="newer"))
    story.tell(finished("a", run="R2")).tell(finished("a", run="R1"))
    rows = tables_of(story.state)["partitions"]
    assert rows[("id-a", "")][3] == "older"  # it was reported first and committed last


def test_a_version_that_two_tasks_claim_belongs_to_the_first() -> None:
    shapes = {"P": Shape(plan_of({"a": [], "b": []}))}
    told = [triggered(), asked("a"), asked("b"), made("b"), made("a"), finished("a")]
    placed = [Placed(1, i, 0, event(fact)) for i, fact in enumerate(told)]
    straight = tables_of(folded(shapes, [placed]))
    assert not straight["partitions"]
    late = [each for each in placed if each.index != 3]
    assert tables_of(folded(shapes, [late, [placed[3]]])) == straight


def test_a_version_that_was_reported_before_its_run_too_counts_from_the_later_report_on() -> None:
    shapes = {"P": Shape(plan_of({"a": []}))}
    told = [made("a"), triggered(), asked("a"), finished("a"), made("a")]
    placed = [Placed(1, i, 0, event(fact)) for i, fact in enumerate(told)]
    straight = tables_of(folded(shapes, [placed]))
    assert straight["partitions"]["id-a", ""][-2:] == (1, 4)
    assert tables_of(folded(shapes, [placed[1:], placed[:1]])) == straight


def test_giving_up_an_attempt_needs_no_version_that_was_forgotten() -> None:
    """Deadlines are folded without asking what they need."""
    story = chain().tell(asked("a"), made("a", version="m1"))
    story.state.take()
    story.state.evict()
    assert story.state.records["materializations"] == {}
    story.tell(failed("a", again=True))
    assert story.states()["a"] == "RETRY_WAIT"


def test_a_second_version_of_a_task_needs_the_first() -> None:
    story = chain().tell(asked("a"), made("a", version="m1"))
    published = Published(story.shapes)
    published.publish(story.state)
    story.state.evict()
    needs = story.state.needs([event(finished("a"))])
    assert needs.rows == {"materializations": {("m1",)}}
    published.fold(story.state, [Placed(9, 0, 0, event(made("a", version="m2")))])
    published.fold(story.state, [Placed(9, 1, 0, event(finished("a")))])
    assert sorted(counting(story)) == ["m1", "m2"]


# --- Needs, forgetting, loading -------------------------------------------------------------------


def test_a_fact_needs_its_run_and_a_trigger_its_plan_and_its_key() -> None:
    state = State()
    needs = state.needs([event(triggered(run_key="K")), event(asked("a", run="R2"))])
    assert needs.plans == {"P"}
    assert needs.runs == {"R", "R2"}
    assert needs.rows == {"run_keys": {("K",)}}
    assert not chain().state.needs([event(asked("a"))])


def test_a_run_that_ended_is_forgotten_once_it_was_taken() -> None:
    story = Story(P=plan_of({"a": []})).tell(triggered(), asked("a"), finished("a"))
    story.state.evict()
    assert "R" in story.state.runs  # nobody has taken its rows yet
    story.state.take()
    story.state.evict()
    assert not story.state.runs and not story.state.plans
    assert not story.state.records["audit"]


def test_a_run_that_is_active_is_not_forgotten() -> None:
    story = chain()
    story.state.take()
    story.state.evict()
    assert list(story.state.runs) == ["R"]
    assert list(story.state.plans) == ["P"]


def test_loading_during_an_overlay_does_not_make_it_durable() -> None:
    story = Story(P=plan_of({"a": []})).tell(triggered(), asked("a"), finished("a"))
    published = Published(story.shapes)
    published.publish(story.state)
    story.state.evict()
    story.state.learn("P", story.shapes["P"])
    story.overlay(triggered("R2"))
    published.load_run(story.state, "R")
    story.state.undo()
    assert list(story.state.runs) == ["R"]
    assert story.state.position == 1


def test_assets_get_their_id_from_the_first_deployment_that_names_them() -> None:
    def deployed(name: str, **ids: str) -> Fact:
        return DeploymentCreated(
            deployment_id=name, manifest_object="o", code_version="c", asset_ids=ids
        )

    story = Story().tell(deployed("D1", a="one")).tell(deployed("D2", a="two", b="three"))
    assert story.state.asset_id("a") == "one"
    assert story.state.asset_id("b") == "three"
    assert story.state.asset_id("c") is None


# --- Overlays -------------------------------------------------------------------------------------


def test_what_was_not_durable_is_taken_back() -> None:
    story = chain().tell(asked("a"))
    story.overlay(finished("a"), asked("b"), triggered("R2"))
    assert story.state.pending
    story.state.undo()
    assert not story.state.pending
    assert story.states() == {"a": "DISPATCHED", "b": "PENDING", "c": "PENDING"}
    assert list(story.state.runs) == list(story.state.active) == ["R"]
    assert (story.state.position, story.state.hash) == (2, "hash-2")


def test_a_task_that_was_dispatched_in_an_overlay_is_ready_again_without_it() -> None:
    story = chain()
    story.overlay(asked("a"))
    assert story.run().take_ready(10) == []  # and the index forgets it
    story.state.undo()
    assert story.run().take_ready(10) == [key("a")]


def test_a_fold_that_fails_half_way_can_be_taken_back() -> None:
    story = chain()
    with pytest.raises(KeyError):
        story.overlay(asked("a"), triggered("R2", plan="unknown"))
    story.state.undo()
    assert story.states()["a"] == "READY"
    story.tell(asked("a"))
    assert list(story.state.runs) == ["R"]


# --- Waking ---------------------------------------------------------------------------------------


def test_next_due_is_never_later_than_a_deadline() -> None:
    story = chain().tell(asked("a"), at=100 * SECOND)
    assert story.state.next_due() == 130 * SECOND  # the shortest limit is the acknowledgement's
    story.tell(failed("a", again=True), at=110 * SECOND)
    story.state.wake(130 * SECOND)
    assert story.run().take_ready(1, 130 * SECOND) == [key("a")]


def test_an_open_task_is_looked_at_again_until_it_has_moved_on() -> None:
    story = chain().tell(asked("a"))
    for second in (31, 60, 120):
        story.state.wake(second * SECOND)
        assert [name for _, name in story.state.awake()] == [key("a")]
    story.tell(finished("a"))
    assert story.state.awake() == []


def test_tasks_are_looked_at_in_the_order_of_their_keys() -> None:
    story = Story(P=plan_of({"a": [], "b": []})).tell(triggered(), asked("b"))
    story.tell(asked("a"), at=SECOND)
    story.state.wake(60 * SECOND)
    assert [name for _, name in story.state.awake()] == [key("a"), key("b")]


def test_open_tasks_are_looked_at_although_the_clock_went_back() -> None:
    story = chain().tell(asked("a"))
    story.state.wake(EVER)
    story.state.wake(40 * SECOND)
    assert [name for _, name in story.state.awake()] == [key("a")]


def test_a_retry_is_not_ready_before_its_time_even_if_the_clock_goes_back() -> None:
    story = chain().tell(asked("a")).tell(failed("a", again=True), at=10 * SECOND)
    story.state.wake(20 * SECOND)
    assert story.run().take_ready(1, 5 * SECOND) == []
    assert story.run().take_ready(1, 20 * SECOND) == [key("a")]


def test_late_facts_of_a_run_that_ended_cost_nothing_but_themselves() -> None:
    story = Story(P=plan_of({f"t{i}": [] for i in range(50)})).tell(triggered())
    for i in range(50):
        story.tell(asked(f"t{i}"), finished(f"t{i}"))
    run = story.run()
    assert run.ended
    ends: list[int] = []
    run.tasks = _Counting(run.tasks, ends)
    story.state.fold([Placed(99, 0, 0, event(alive("t0")))])
    assert len(ends) < 10


class _Counting(dict):  # type: ignore[type-arg]  # counts what is looked up
    def __init__(self, known: Mapping[str, object], looked_up: list[int]) -> None:
        super().__init__(known)
        self.looked_up = looked_up

    def __getitem__(self, name: str) -> object:
        self.looked_up.append(1)
        return super().__getitem__(name)


# --- Admitting ------------------------------------------------------------------------------------


def segment(
    *facts: Fact,
    state: State,
    epoch: int = 1,
    kind: str = "leader",
    source: str = ENGINE,
    position: int | None = None,
    prev_hash: str | None = None,
) -> Segment:
    lines = [encode(event(fact, source=source)) for fact in facts]
    _, data = segments.encode(
        lines,
        position=position or state.position + 1,
        prev_hash=prev_hash or state.hash,
        writer_id="w",
        nonce="n",
        epoch=epoch,
        kind="leader" if kind == "leader" else "reporter",
        written_at="2025-01-01T00:00:00Z",
    )
    return segments.parse(data)


def led(epoch: int = 2) -> State:
    """A state in which a leader of this epoch has claimed the workspace."""
    state = State()
    claim = segment(LeaderClaimed(epoch=epoch, writer_id="w"), state=state, epoch=epoch)
    state.fold(admit(state, claim))
    state.advance(1, claim.header.hash)
    state.keep()
    assert (state.epoch, state.leader) == (epoch, "w")
    return state


def kinds(state: State, found: Segment) -> list[str]:
    return [placed.event.event_type for placed in admit(state, found)]


def test_facts_and_intents_of_the_leader_count_where_they_stand() -> None:
    state = led()
    found = segment(triggered(), asked("a"), state=state, epoch=2)
    assert [(p.position, p.index) for p in admit(state, found)] == [(2, 0), (2, 1)]


@pytest.mark.parametrize(("epoch", "kind"), [(1, "leader"), (3, "leader"), (2, "reporter")])
def test_intents_of_anybody_but_the_leader_are_void(epoch: int, kind: str) -> None:
    state = led()
    found = segment(asked("a"), finished("a"), state=state, epoch=epoch, kind=kind)
    assert kinds(state, found) == []


def test_a_dispatch_of_a_reporter_is_void_whatever_source_it_names() -> None:
    state = led()
    found = segment(
        asked("a"), reused("b"), finished("a"), state=state, kind="reporter", source="worker"
    )
    assert kinds(state, found) == ["TaskFinished"]


def test_requests_and_reports_count_in_any_segment() -> None:
    state = led()
    for epoch, kind in ((1, "leader"), (2, "reporter"), (2, "leader")):
        found = segment(
            triggered(), began("a"), state=state, epoch=epoch, kind=kind, source="worker"
        )
        assert kinds(state, found) == ["RunTriggered", "TaskStarted"]


@pytest.mark.parametrize(
    ("claimed", "epoch", "kind"),
    [(2, 2, "leader"), (1, 1, "leader"), (3, 2, "leader"), (3, 3, "reporter")],
)
def test_a_claim_that_does_not_raise_the_epoch_of_its_own_segment_is_void(
    claimed: int, epoch: int, kind: str
) -> None:
    state = led()
    claim = segment(
        LeaderClaimed(epoch=claimed, writer_id="x"), state=state, epoch=epoch, kind=kind
    )
    assert kinds(state, claim) == []


def test_intents_behind_a_claim_in_the_same_segment_are_those_of_the_new_leader() -> None:
    state = led()
    found = segment(LeaderClaimed(epoch=3, writer_id="x"), asked("a"), state=state, epoch=3)
    assert kinds(state, found) == ["LeaderClaimed", "DispatchRequested"]
    assert state.epoch == 2  # admitting is not folding


def test_a_segment_that_does_not_follow_is_corrupt() -> None:
    state = led()
    for found in (
        segment(triggered(), state=state, position=3),
        segment(triggered(), state=state, position=1, prev_hash=GENESIS),
        segment(triggered(), state=state, prev_hash="sha256:" + "1" * 64),
    ):
        with pytest.raises(Corrupt, match="does not follow segment 1"):
            admit(state, found)


def test_a_redacted_line_is_passed_over_and_the_others_keep_their_places() -> None:
    state = led()
    whole = segment(triggered(), asked("a"), state=state, epoch=2)
    digest = segments.digest(whole.lines[0])
    redacted = whole._replace(lines=(f'{{"redacted":"{digest}"}}'.encode(), whole.lines[1]))
    assert [(p.index, p.event.event_type) for p in admit(state, redacted)] == [
        (1, "DispatchRequested")
    ]


# --- Shapes ---------------------------------------------------------------------------------------


def test_a_policy_that_many_assets_share_is_read_once() -> None:
    plan = plan_of({f"t{i}": [] for i in range(100)}, priorities={"t3": 7})
    for each in (plan, plans.load(plans.dump(plan))):
        shape = Shape(each)
        assert len({id(shape.rules(task.key).retry) for task in each.tasks}) == 1
        assert shape.rules(key("t3")).priority == 7


def test_upstreams_come_first_in_the_order_of_a_shape() -> None:
    shape = Shape(plan_of({"a": ["z"], "z": [], "m": ["a", "z"]}))
    assert shape.order == [key("z"), key("a"), key("m")]
    assert shape.edges == 3


def test_counts_are_kept_by_state() -> None:
    story = Story(P=plan_of(DIAMOND)).tell(triggered(), asked("a"))
    assert {s: n for s, n in story.run().counts.items() if n} == {
        TaskState.PENDING: 3,
        TaskState.READY: 1,
        TaskState.DISPATCHED: 1,
    }
