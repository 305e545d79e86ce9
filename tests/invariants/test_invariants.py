"""INV-1 … INV-10 of the design, each by its name.

Here each is shown by one plain example. For all facts they are held by
tests/property/test_fold_properties.py, for whole engines by the simulator.
"""

import itertools

from servo.control.anti_entropy import anti_entropy
from servo.control.deadlines import deadlines
from servo.control.dispatch import dispatcher, ready_dispatch
from servo.control.moment import MAX_LAG_US
from servo.core.states import RunState, TransitionReason
from servo.events.envelope import Fact, Placed
from servo.events.execution import Outcome, TaskFinished
from servo.events.orchestration import attempt_id
from servo.fold.shape import Shape
from tests.house.source import imports_of, modules_under, room_of
from tests.unit.facts import (
    HERE,
    SECOND,
    Published,
    Story,
    a_moment,
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
    stopped,
    tables_of,
    triggered,
    view,
)

CHAIN = {"a": [], "b": ["a"], "c": ["b"]}
FACTS: tuple[Fact, ...] = (
    triggered(),
    asked("a"),
    made("a", version="m"),
    finished("a"),
    asked("b"),
    stopped(),
)


def placed(*told: Fact) -> list[Placed]:
    return [Placed(1, index, index * SECOND, event(fact)) for index, fact in enumerate(told)]


SHAPES = {"P": Shape(plan_of(CHAIN))}


def test_inv_1_every_order_of_the_same_facts_gives_the_same_tables() -> None:
    straight = folded(SHAPES, [placed(*FACTS)])
    expected, seen = tables_of(straight), view(straight)
    for order in itertools.permutations(placed(*FACTS)):
        state = folded(SHAPES, [order])
        assert view(state) == seen
        assert tables_of(state) == expected


def test_inv_2_a_fact_that_is_folded_twice_changes_nothing() -> None:
    told = placed(*FACTS)
    once = folded(SHAPES, [told])
    twice = folded(SHAPES, [told, told, *([each] for each in told)])
    assert view(twice) == view(once)
    assert tables_of(twice) == tables_of(once)


def test_inv_2_a_fact_that_was_written_twice_makes_nothing_happen_twice() -> None:
    story = Story(P=plan_of(CHAIN)).tell(*FACTS[:4]).tell(*FACTS[:4])
    assert story.states() == {"a": "SUCCEEDED", "b": "READY", "c": "PENDING"}
    assert story.run().tasks[key("b")].met == 1
    assert story.run().tasks[key("a")].tries == 1


def test_inv_3_the_same_view_and_moment_give_the_same_intents() -> None:
    story = Story(P=plan_of({"a": [], "b": [], "c": []})).tell(
        triggered("R1"), triggered("R2"), asked("a", run="R1", worker="process:dead")
    )
    now = 1_000 * SECOND
    moment = a_moment(now, alone=True)
    answers = []
    for _ in range(2):
        story.state.wake(now)
        answers.append(
            [
                [fact.key() for fact in ready_dispatch(story.state, moment)],
                [fact.key() for fact in anti_entropy(story.state, moment)],
                list(dispatcher(story.state, moment, frozenset())),
            ]
        )
    assert answers[0] == answers[1]
    assert answers[0][0] and answers[0][1]


def test_inv_4_two_leaders_that_ask_for_one_attempt_ask_for_one() -> None:
    """What is handed over is named by what it is, so handing it over twice is handing it over once."""
    stories = [Story(P=plan_of(CHAIN)).tell(triggered()) for _ in range(2)]
    intents = [ready_dispatch(story.state, a_moment())[0] for story in stories]
    assert intents[0].key() == intents[1].key() == f"dispatch:R:{key('a')}:1"
    story = stories[0].tell(intents[0]).tell(intents[1])
    assert story.run().tasks[key("a")].tries == 1
    (work,) = dispatcher(story.state, a_moment(), frozenset())
    assert work.attempt_id == attempt_id("R", key("a"), 1)
    assert not list(dispatcher(story.state, a_moment(), frozenset([work.attempt_id])))


def test_inv_5_a_dispatch_that_got_lost_is_handed_over_again() -> None:
    story = Story(P=plan_of(CHAIN)).tell(triggered(), asked("a"))
    (work,) = dispatcher(story.state, a_moment(), frozenset())
    assert (work.task_key, work.attempt) == (key("a"), 1)


def test_inv_5_an_attempt_that_died_with_its_process_runs_again() -> None:
    story = Story(P=plan_of(CHAIN)).tell(triggered(), asked("a", worker="process:dead"))
    story.tell(*anti_entropy(story.state, a_moment(SECOND, alone=True)), at=SECOND)
    story.state.wake(SECOND)
    (intent,) = ready_dispatch(story.state, a_moment(SECOND))
    assert (intent.task_key, intent.attempt, intent.worker) == (key("a"), 2, HERE)


def test_inv_5_an_attempt_whose_reports_are_all_lost_runs_again() -> None:
    story = Story(P=plan_of(CHAIN)).tell(triggered(), asked("a"))
    story.state.wake(60 * SECOND)
    story.tell(*deadlines(story.state, a_moment(60 * SECOND)), at=60 * SECOND)
    story.state.wake(100 * SECOND)
    (intent,) = ready_dispatch(story.state, a_moment(100 * SECOND))
    assert intent.attempt == 2


def test_inv_6_no_task_is_ready_before_all_it_needs_succeeded() -> None:
    story = Story(P=plan_of(CHAIN)).tell(triggered())
    seen = [story.states()]
    for name in "ab":
        story.tell(asked(name)).tell(finished(name))
        seen.append(story.states())
    assert seen == [
        {"a": "READY", "b": "PENDING", "c": "PENDING"},
        {"a": "SUCCEEDED", "b": "READY", "c": "PENDING"},
        {"a": "SUCCEEDED", "b": "SUCCEEDED", "c": "READY"},
    ]


def test_inv_6_asking_for_a_task_too_early_does_not_run_it() -> None:
    story = Story(P=plan_of(CHAIN)).tell(triggered(), asked("a"), asked("b"), finished("b"))
    assert story.states() == {"a": "DISPATCHED", "b": "PENDING", "c": "PENDING"}
    works = list(dispatcher(story.state, a_moment(), frozenset()))
    assert [work.task_key for work in works] == [key("a")]


def test_inv_7_controllers_decide_the_same_on_what_was_published() -> None:
    story = Story(P=plan_of({"a": [], "b": [], "c": ["a"], "d": []})).tell(triggered())
    story.tell(asked("a"), asked("b"), asked("d", worker="process:dead"), finished("a"))
    story.tell(failed("b", again=True), at=SECOND)
    published = Published(story.shapes)
    published.publish(story.state)
    now = 100 * SECOND
    moment = a_moment(now, alone=True)
    decided = []
    for state in (story.state, published.load()):
        state.wake(now)
        decided.append(
            (
                ready_dispatch(state, moment),
                deadlines(state, moment),
                anti_entropy(state, moment),
            )
        )
    assert decided[0] == decided[1]
    assert all(decided[0])


def test_inv_7_controllers_cannot_reach_the_ledger() -> None:
    """Not through anything that they import, either."""
    modules = modules_under()
    todo = [module for module in modules.values() if module.room == "control"]
    assert todo
    reached: set[str] = set()
    while todo:
        for each in imports_of(todo.pop(), modules):
            if each.target in modules and each.target not in reached:
                reached.add(each.target)
                todo.append(modules[each.target])
    assert {room_of(name) for name in reached} & {"ledger", "adapters", "runtime"} == set()


def test_inv_8_a_stale_attempt_changes_nothing() -> None:
    story = Story(P=plan_of(CHAIN)).tell(triggered(), asked("a"), began("a"))
    story.tell(asked("a", 2), began("a", 2))
    before = story.run().tasks[key("a")]
    assert (before.attempt, str(before.state)) == (2, "RUNNING")
    for stale in (failed("a", 1), finished("a", 1), alive("a", 1), asked("a", 1)):
        story.tell(stale)
        task = story.run().tasks[key("a")]
        assert (task.state, task.reason, task.since, task.attempt, task.tries, task.ended) == (
            before.state,
            before.reason,
            before.since,
            before.attempt,
            before.tries,
            before.ended,
        )
    assert ready_dispatch(story.state, a_moment()) == []


def test_inv_8_a_result_with_a_wrong_attempt_id_changes_nothing() -> None:
    story = Story(P=plan_of(CHAIN)).tell(triggered(), asked("a"))
    before = story.run().tasks[key("a")]
    story.tell(
        TaskFinished(
            run_id="R",
            task_key=key("a"),
            attempt=1,
            attempt_id=attempt_id("R", key("a"), 2),
            outcome=Outcome.SUCCEEDED,
        )
    )
    assert story.run().tasks[key("a")] == before


def retrying() -> Story:
    """A task that failed and whose next attempt is due at second 11."""
    story = Story(P=plan_of({"a": []})).tell(triggered(), asked("a"))
    story.tell(failed("a", again=True), at=10 * SECOND)
    return story


def test_inv_9_a_retry_that_is_due_waits_for_a_fresh_view() -> None:
    story = retrying()
    now = 60 * SECOND
    for lag, expected in ((45 * SECOND, 0), (MAX_LAG_US + 1, 0), (MAX_LAG_US, 1), (0, 1)):
        story.state.wake(now)
        assert len(ready_dispatch(story.state, a_moment(now, as_of=now - lag))) == expected


def test_inv_9_a_retry_is_not_asked_for_before_its_time() -> None:
    story = retrying()
    for now, expected in ((10 * SECOND, []), (11 * SECOND - 1, []), (11 * SECOND, [2])):
        story.state.wake(now)
        intents = ready_dispatch(story.state, a_moment(now))
        assert [intent.attempt for intent in intents] == expected


def test_inv_9_no_deadline_is_acted_upon_in_a_stale_view() -> None:
    story = Story(P=plan_of(CHAIN)).tell(triggered(), asked("a", worker="process:dead"))
    now = 3_600 * SECOND
    for lag, expected in ((MAX_LAG_US + 1, 0), (0, 1)):
        story.state.wake(now)
        moment = a_moment(now, as_of=now - lag, alone=True)
        assert len(deadlines(story.state, moment)) == expected
        assert len(anti_entropy(story.state, moment)) == expected
        now += 60 * SECOND


def test_inv_10_a_failure_skips_all_that_is_below_it_and_nothing_else() -> None:
    story = Story(P=plan_of({**CHAIN, "x": [], "y": ["x"]}))
    story.tell(triggered(), asked("a"), asked("x"), failed("a"), finished("x"))
    assert story.states() == {
        "a": "FAILED",
        "b": "SKIPPED",
        "c": "SKIPPED",
        "x": "SUCCEEDED",
        "y": "READY",
    }
    tasks = story.run().tasks
    assert tasks[key("b")].reason is TransitionReason.UPSTREAM_FAILED
    assert tasks[key("c")].reason is TransitionReason.UPSTREAM_SKIPPED
    assert story.run().run.state is RunState.RUNNING
    edges = tables_of(story.state)["edges"]
    assert edges["R", key("a"), key("b")][3] == "FAILED"
    assert edges["R", key("b"), key("c")][3] == "SKIPPED"
    assert edges["R", key("x"), key("y")][3] == "SUCCESS"
