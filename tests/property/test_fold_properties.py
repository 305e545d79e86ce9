"""The laws of the fold, for histories that no honest ledger would hold as well as for honest ones.

A history is told by moves: most of them go on from where the runs are (dispatch what is ready, answer
what is open), the others say anything of anything. The laws are listed in `servo.fold.state`.
"""

import math
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servo.control.anti_entropy import anti_entropy
from servo.control.deadlines import deadlines
from servo.control.dispatch import dispatcher, ready_dispatch, stopping
from servo.core.failures import FailureCode
from servo.core.policies import RetryPolicy
from servo.core.states import (
    RunState,
    TaskState,
    is_terminal,
    progress,
    reachable,
    reasons_for,
)
from servo.events.audit import AuditRecorded
from servo.events.catalog import DeploymentCreated
from servo.events.envelope import Fact, Placed
from servo.events.execution import Outcome, TaskFinished, TaskStarted
from servo.events.orchestration import LeaderClaimed, Stop
from servo.fold.shape import Shape
from servo.fold.state import State
from tests.unit import facts
from tests.unit.facts import EVER, SECOND, Published, folded, key, tables_of, view

LAW = settings(
    max_examples=100,
    # Histories are long, and a busy machine makes them slowly.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
RUNS = ("R0", "R1", "R2")
NAMES = "abcdefgh"
NETWORK = FailureCode.NETWORK_ERROR


class History(NamedTuple):
    shapes: dict[str, Shape]
    placed: list[Placed]
    """In the order of their places."""

    def __repr__(self) -> str:
        lines = [f"{p.position}.{p.index}@{p.at} {p.event.payload}" for p in self.placed]
        edges = {n: {t.key: t.upstreams for t in s.plan.tasks} for n, s in self.shapes.items()}
        return f"{edges}\n" + "\n".join(lines)


@st.composite
def plans(draw: st.DrawFn) -> dict[str, list[str]]:
    """A random graph of one to eight tasks."""
    edges: dict[str, list[str]] = {}
    for name in NAMES[: draw(st.integers(1, 8))]:
        above = draw(st.sets(st.sampled_from(sorted(edges)), max_size=3)) if edges else set()
        edges[name] = sorted(above)
    return edges


OUTCOMES: list[tuple[Outcome, FailureCode | None]] = [
    *[(Outcome.SUCCEEDED, None)] * 10,
    (Outcome.FAILED, NETWORK),
    (Outcome.FAILED, NETWORK),
    (Outcome.FAILED, FailureCode.USER_CODE_EXCEPTION),
    (Outcome.FAILED, FailureCode.WORKER_CRASH),
    (Outcome.FAILED, FailureCode.DISPATCH_ACK_TIMEOUT),
    (Outcome.FAILED, FailureCode.CANCELLED),
    (Outcome.FAILED, None),
    (Outcome.TIMED_OUT, FailureCode.EXECUTION_TIMEOUT),
    (Outcome.TIMED_OUT, None),
    (Outcome.CANCELLED, FailureCode.CANCELLED),
    (Outcome.INTERRUPTED, FailureCode.INTERRUPTED),
]

RANGES = (100, 8, 8, len(OUTCOMES), 4, 2, 6)
"""What is said, of which run, of which task, with which outcome, of which attempt; whether a segment
begins with it; how many seconds after the one before, and two more."""
Move = list[int]


@st.composite
def moves(draw: st.DrawFn, max_size: int) -> list[Move]:
    """Each move is one number, so that long histories are drawn and shrunk quickly."""
    size = draw(st.integers(0, max_size))
    found: list[Move] = []
    for number in draw(st.lists(_NUMBERS, min_size=size, max_size=size)):
        move = []
        for width in RANGES:
            number, digit = divmod(number, width)
            move.append(digit)
        found.append(move)
    return found


_NUMBERS = st.integers(0, math.prod(RANGES) - 1)


def _fact(move: Move, state: State, keys: dict[str, str | None]) -> Fact:
    """What a move says, given where the runs are."""
    kind, one, two, three, four = move[:5]
    run = RUNS[one % 3]
    name, attempt = NAMES[two], 1 + four
    outcome, code = OUTCOMES[three]
    if kind < 60:
        known = state.runs.get(run)
        if known is None or known.run.triggered is None:
            return facts.triggered(
                run, plan=f"P{int(run[1]) % 2}", run_key=keys[run], request_hash=run[1]
            )
        ready = sorted(known.take_ready(10, EVER))
        if known.open and (kind < 40 or not ready):
            where = sorted(known.open)[two % len(known.open)]
            name, attempt = where.split("/")[1][0], known.open[where]
            if kind < 6:
                return facts.began(name, attempt, run=run)
            if kind < 9:
                return facts.alive(name, attempt, run=run)
            if kind < 16:
                return facts.made(name, attempt, run=run, version=f"{run}-{name}-{attempt}-{four}")
            return facts.finished(name, attempt, outcome, run=run, code=code)
        if ready:
            where = ready[two % len(ready)]
            name = where.split("/")[1][0]
            if kind >= 57:
                return facts.reused(name, run=run, version=f"v{four}")
            return facts.asked(name, known.tasks[where].next_attempt, run=run)
    if kind < 64:
        return facts.triggered(
            run, plan=f"P{int(run[1]) % 2}", run_key=keys[run], request_hash=run[1]
        )
    if kind < 67:
        return facts.stopped(run, [Stop.USER, Stop.SYSTEM, Stop.TIMEOUT][two % 3])
    if kind < 72:
        return facts.asked(name, attempt, run=run, worker=["process:here", "process:gone"][one % 2])
    if kind < 75:
        return facts.began(name, attempt, run=run)
    if kind < 78:
        return facts.alive(name, attempt, run=run)
    if kind < 84:
        return facts.finished(name, attempt, outcome, run=run, code=code)
    if kind < 88:
        return facts.made(name, attempt, run=run, version=f"{run}-{name}-{attempt}-{three % 2}")
    if kind < 89:  # one id for several versions, which nobody mints
        return facts.made(name, attempt, run=run, version="shared")
    if kind < 92:
        return facts.reused(name, run=run, version=f"v{four}")
    if kind < 95:
        ids = {f"n/{each}": f"id-{one}-{each}" for each in NAMES[: two + 1]}
        return DeploymentCreated(
            deployment_id=f"D{one}-{two}", manifest_object="o", code_version="c", asset_ids=ids
        )
    if kind < 96:
        return AuditRecorded(action="looked", subject=name)
    if kind < 97:
        return LeaderClaimed(epoch=state.epoch + 1, writer_id=name)
    if kind < 98:
        return facts.asked(name, attempt, run="nobody")
    wrong: dict[str, Any] = {"run_id": run, "task_key": key(name), "attempt": attempt}
    if kind < 99:
        return TaskStarted(**wrong, attempt_id="a_wrong", worker_id="w")
    return TaskFinished(**wrong, attempt_id="a_wrong", outcome=outcome)


@st.composite
def histories(draw: st.DrawFn, max_size: int = 60) -> History:
    edges = [draw(plans()), draw(plans())]
    retry = RetryPolicy(max_attempts=draw(st.integers(1, 3)), initial_delay_ms=1_000)
    shapes = {f"P{i}": Shape(facts.plan_of(each, retry=retry)) for i, each in enumerate(edges)}
    run_keys = st.sampled_from([None, None, "K0", "K1"])
    keys: dict[str, str | None] = {run: draw(run_keys) for run in RUNS}
    state = folded(shapes, [])
    placed: list[Placed] = []
    position, index, at = 1, 0, 0
    for number, move in enumerate(draw(moves(max_size))):
        opens = move[5] == 1
        if opens:
            position, index = position + 1, 0
        at += (move[6] - 2) * SECOND
        told = facts.event(
            _fact(move, state, keys), at, event_id=f"e{number}", actor=["ann", None][opens]
        )
        placed.append(Placed(position, index, at, told))
        index += 1
        state.fold(placed[-1:])
        state.keep()
    return History(shapes, placed)


def batches(placed: Sequence[Placed], chance: random.Random) -> list[list[Placed]]:
    cuts = sorted(chance.sample(range(len(placed) + 1), min(4, len(placed) + 1)))
    return [list(placed[a:b]) for a, b in zip([0, *cuts], [*cuts, len(placed)], strict=True)]


# --- Any order, any duplication, any batching -----------------------------------------------------


@LAW
@given(histories(), st.randoms(use_true_random=False))
def test_any_order_duplication_and_batching_gives_the_same_tables(
    history: History, chance: random.Random
) -> None:
    straight = folded(history.shapes, [history.placed])
    shuffled = history.placed + [p for p in history.placed if chance.random() < 0.3]
    chance.shuffle(shuffled)
    other = folded(history.shapes, batches(shuffled, chance))
    assert view(other) == view(straight)
    assert tables_of(other) == tables_of(straight)


@LAW
@given(histories())
def test_folding_one_by_one_is_folding_all_at_once(history: History) -> None:
    at_once = folded(history.shapes, [history.placed])
    one_by_one = folded(history.shapes, [[each] for each in history.placed])
    assert view(one_by_one) == view(at_once)
    assert tables_of(one_by_one) == tables_of(at_once)


# --- The load law ---------------------------------------------------------------------------------


@settings(LAW, max_examples=40)
@given(histories(max_size=30), st.integers(1, 4))
def test_the_load_law_holds_at_every_cut(history: History, size: int) -> None:
    """`fold(load(publish(S)), tail) == fold(everything)`, row by row."""
    expected = tables_of(folded(history.shapes, [history.placed]))
    for cut in range(len(history.placed) + 1):
        published = Published(history.shapes)
        published.publish(folded(history.shapes, [history.placed[:cut]]))
        state = published.load()
        for at in range(cut, len(history.placed), size):
            published.fold(state, history.placed[at : at + size])
        published.publish(state)
        assert published.tables == expected


@LAW
@given(histories(), st.randoms(use_true_random=False), st.booleans())
def test_forgetting_after_each_publish_changes_no_row(
    history: History, chance: random.Random, restart: bool
) -> None:
    expected = tables_of(folded(history.shapes, [history.placed]))
    published = Published(history.shapes)
    state = published.load()
    for batch in batches(history.placed, chance):
        published.fold(state, batch)
        published.publish(state)
        state.evict()
        if restart:
            state = published.load()
    assert published.tables == expected


@LAW
@given(histories())
def test_a_row_that_changes_has_a_higher_place_than_before(history: History) -> None:
    published = Published(history.shapes)
    state = folded(history.shapes, [])
    for each in history.placed:
        state.fold([each])
        state.keep()
        published.publish(state)  # which looks at every row that it replaces
    assert published.tables == tables_of(folded(history.shapes, [history.placed]))


# --- Overlays -------------------------------------------------------------------------------------


def image(state: State) -> dict[str, Any]:
    """Everything in a state that is not an index or a mark for publishing."""
    return {
        "head": (state.position, state.hash, state.epoch, state.leader),
        "records": {name: dict(records) for name, records in state.records.items()},
        "active": dict(state.active),
        "runs": {
            run.run_id: (
                run.run,
                run.void,
                run.shape,
                dict(run.early),
                dict(run.tasks),
                dict(run.counts),
                dict(run.open),
                run.late,
            )
            for run in state.runs.values()
        },
    }


def check_indexes(state: State) -> None:
    """Every task that can go or is to be watched is found."""
    later = EVER + 3_600 * SECOND  # what was looked at just now is looked at again
    state.wake(later)
    awake = {(run.run_id, task_key) for run, task_key in state.awake()}
    for run in state.active_runs():
        can_go = {k for k, t in run.tasks.items() if run.has(k) and t.state in _CAN_GO}
        assert set(run.take_ready(1_000, later)) == can_go
        assert {(run.run_id, k) for k in run.open} == {a for a in awake if a[0] == run.run_id}


_CAN_GO = (TaskState.READY, TaskState.RETRY_WAIT)


@LAW
@given(histories(), st.randoms(use_true_random=False))
def test_an_overlay_that_is_taken_back_leaves_no_trace(
    history: History, chance: random.Random
) -> None:
    cut, end = sorted(chance.choices(range(len(history.placed) + 1), k=2))
    state = folded(history.shapes, [history.placed[:cut]])
    before = image(state)
    state.fold(history.placed[cut:end])
    state.advance(10_000, "lost")
    # An engine lets the controllers look at the overlay, which reads through the indexes.
    state.wake(chance.choice([0, 5 * SECOND, EVER]))
    ready_dispatch(state, facts.a_moment(EVER))
    state.fold(history.placed[end : end + 3])
    state.undo()
    assert image(state) == before
    assert not state.pending
    tail = [p for p in history.placed[cut:] if chance.random() < 0.7]
    state.fold(tail)
    state.keep()
    check_indexes(state)
    assert tables_of(state) == tables_of(folded(history.shapes, [[*history.placed[:cut], *tail]]))


@LAW
@given(histories())
def test_indexes_find_every_task_that_can_go(history: History) -> None:
    state = folded(history.shapes, [[each] for each in history.placed])
    state.wake(EVER)
    check_indexes(state)  # looking takes nothing away


@LAW
@given(histories(), st.randoms(use_true_random=False))
def test_indexes_of_an_undone_state_find_every_task(
    history: History, chance: random.Random
) -> None:
    cut = chance.randint(0, len(history.placed))
    state = folded(history.shapes, [history.placed[:cut]])
    state.fold(history.placed[cut:])
    state.wake(EVER)
    ready_dispatch(state, facts.a_moment(EVER))
    state.undo()
    check_indexes(state)


# --- Transitions ----------------------------------------------------------------------------------


def _may_follow(old: Any, new: Any, reason: Any) -> bool:
    """Whether some way through the table leads from one state to the other for this reason."""
    sources = [old, *(s for s in type(new) if reachable(old, s))]
    return reachable(old, new) and any(reason in reasons_for(s, new) for s in sources)


@LAW
@given(histories())
def test_every_transition_is_in_the_table_and_ends_are_ends(history: History) -> None:
    state = folded(history.shapes, [])
    tasks: dict[tuple[str, str], Any] = {}
    runs: dict[str, Any] = {}
    for each in history.placed:
        state.fold([each])
        state.keep()
        for run in state.runs.values():
            if not run.exists:
                continue
            old = runs.get(run.run_id)
            runs[run.run_id] = run.run
            if old is None or (old.state, old.reason) != (run.run.state, run.run.reason):
                assert _may_follow(old and old.state, run.run.state, run.run.reason)
            if old is not None and is_terminal(old.state):
                assert (old.state, old.reason, old.ended) == (
                    run.run.state,
                    run.run.reason,
                    run.run.ended,
                )
            counts = dict.fromkeys(TaskState, 0)
            assert run.shape is not None
            for name in run.shape.order:
                task, was = run.tasks[name], tasks.get((run.run_id, name))
                tasks[run.run_id, name] = task
                counts[task.state] += 1
                assert (task.ended is not None) == is_terminal(task.state)
                assert (name in run.open) == (task.state in ("DISPATCHED", "RUNNING"))
                if was is None or was.state is not task.state or was.attempt != task.attempt:
                    assert _may_follow(was and was.state, task.state, task.reason)
                if was is not None:
                    assert progress(task.attempt, task.state) >= progress(was.attempt, was.state)
                    if is_terminal(was.state):
                        assert (was.state, was.reason, was.ended, was.attempt) == (
                            task.state,
                            task.reason,
                            task.ended,
                            task.attempt,
                        )
            assert {s: n for s, n in counts.items() if n} == {
                s: n for s, n in run.counts.items() if n
            }
            assert (run.run_id in state.active) == (not is_terminal(run.run.state))


GOOD = (TaskState.SUCCEEDED, TaskState.REUSED)


@LAW
@given(histories())
def test_a_task_goes_only_when_all_it_needs_succeeded(history: History) -> None:
    """And what is below a failure is skipped, while other branches go on."""
    state = folded(history.shapes, [history.placed])
    for run in state.runs.values():
        if not run.exists:
            continue
        assert run.shape is not None
        bad: dict[str, bool] = {}
        for name in run.shape.order:
            task = run.tasks[name]
            above = [run.tasks[up] for up in run.shape.tasks[name].upstreams]
            met = [up for up in above if up.state in GOOD]
            assert task.met == len(met)
            if task.state is TaskState.READY or task.attempt or task.state is TaskState.REUSED:
                assert len(met) == len(above)
            bad[name] = any(
                up.state in (TaskState.FAILED, TaskState.SKIPPED, TaskState.CANCELLED)
                for up in above
            )
            if task.state is TaskState.SKIPPED:
                assert any(up.state in (TaskState.FAILED, TaskState.SKIPPED) for up in above)
            if run.run.stop is None:
                assert not bad[name] or task.state in (TaskState.SKIPPED, TaskState.CANCELLED)
                assert bad[name] or task.state is not TaskState.SKIPPED
            if task.state is TaskState.PENDING:
                assert len(met) < len(above)


# --- Controllers ----------------------------------------------------------------------------------


@LAW
@given(
    histories(),
    st.integers(-10, 100_000),
    st.integers(0, 5),
    st.booleans(),
    st.sampled_from([0, 0, 60]),
    st.booleans(),
)
def test_controllers_decide_the_same_on_a_live_state_and_on_one_that_was_loaded(
    history: History, seconds: int, slots: int, alone: bool, lag: int, loads: bool
) -> None:
    live = folded(history.shapes, [[each] for each in history.placed])
    published = Published(history.shapes)
    published.publish(folded(history.shapes, [history.placed]))
    loaded = published.load()
    now = seconds * SECOND
    moment = facts.a_moment(
        now, slots=slots, alone=alone, as_of=now - lag * SECOND, loads=lambda _: loads
    )

    def decide(state: State) -> list[Any]:
        state.wake(now)
        return [
            ready_dispatch(state, moment),
            list(dispatcher(state, moment, frozenset())),
            stopping(state, ["a_unknown"]),
            anti_entropy(state, moment),
        ]

    decided = decide(live)
    assert decide(live) == decided
    assert decide(loaded) == decided
    asked = decided[0]
    assert len(asked) <= slots
    assert loads or not asked
    assert len({(a.run_id, a.task_key) for a in asked}) == len(asked)
    for fact in asked:
        run = live.runs[fact.run_id]
        assert run.run.stop is None
        task = run.tasks[fact.task_key]
        assert task.state in _CAN_GO
        if task.state is TaskState.RETRY_WAIT:
            assert moment.fresh and task.retry_at is not None and task.retry_at <= now


@LAW
@given(histories(), st.integers(-10, 100_000), st.booleans())
def test_deadlines_are_the_same_on_a_live_state_and_on_one_that_was_loaded(
    history: History, seconds: int, fresh: bool
) -> None:
    live = folded(history.shapes, [[each] for each in history.placed])
    published = Published(history.shapes)
    published.publish(folded(history.shapes, [history.placed]))
    loaded = published.load()
    now = seconds * SECOND
    moment = facts.a_moment(now, as_of=now if fresh else now - 60 * SECOND)
    found = []
    for state in (live, live, loaded):
        state.wake(now)
        found.append(deadlines(state, moment))
        state.wake(now + 600 * SECOND)  # so that each is looked at again
    assert found[2] == found[0]
    assert fresh or not found[0]


@LAW
@given(histories())
def test_every_run_can_be_brought_to_its_end(history: History) -> None:
    """Whatever was told before: an engine whose attempts all succeed ends every run. No intent is one
    that the fold passes over, or it would be decided again for ever."""
    state = folded(history.shapes, [history.placed])
    position, now = 10_000, 10**12
    for _ in range(60):
        if not state.active:
            break
        state.wake(now)
        decided: list[Fact] = [*ready_dispatch(state, facts.a_moment(now, slots=100))]
        if not decided:
            now += 10**12
            state.wake(now)
            decided = [*deadlines(state, facts.a_moment(now))]
        for fact in decided:
            position += 1
            state.fold([Placed(position, 0, now, facts.event(fact, now))])
            if not isinstance(fact, TaskFinished):
                run, task_key = state.runs[fact.run_id], fact.task_key  # type: ignore[attr-defined]
                assert run.open[task_key] == fact.attempt  # type: ignore[attr-defined]
                name = task_key.split("/")[1][0]
                ended = facts.finished(name, run.open[task_key], run=run.run_id)
                position += 1
                state.fold([Placed(position, 0, now, facts.event(ended, now))])
        state.keep()
    assert not state.active


def test_histories_reach_every_state() -> None:
    """The laws above say something only if their histories go everywhere."""
    seen: set[Any] = set()

    @settings(LAW, max_examples=200, database=None, derandomize=True)
    @given(histories())
    def look(history: History) -> None:
        state = folded(history.shapes, [])
        for each in history.placed:
            state.fold([each])
            for run in state.runs.values():
                seen.update([("run", run.run.state)] if run.exists else [])
                seen.update(("task", t.state) for t in run.tasks.values())
                seen.add(("void", run.void))
            seen.update(("counts", m.committed is not None) for m in _versions(state))

    look()
    assert {("task", state) for state in TaskState} <= seen
    assert {("run", state) for state in RunState} <= seen
    assert {("void", True), ("counts", True), ("counts", False)} <= seen


def _versions(state: State) -> list[Any]:
    return list(state.records["materializations"].values())
