"""Builders for tests of the fold and the controllers: plans, facts, places, and tables in a dict."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from servo.control.moment import Moment
from servo.core import plain
from servo.core.failures import FailureCode, TaskFailure
from servo.core.keys import TaskKey
from servo.core.plan import Plan, PlannedAsset, PlannedTask, PlanRequest, fingerprint
from servo.core.policies import RetryPolicy, Timeouts
from servo.core.states import RunState, is_terminal
from servo.events.envelope import ENGINE, Event, Fact, Placed, moment
from servo.events.execution import (
    MaterializationCompleted,
    Outcome,
    TaskFinished,
    TaskHeartbeat,
    TaskStarted,
)
from servo.events.orchestration import (
    DispatchRequested,
    RunCancelRequested,
    RunTriggered,
    Stop,
    TaskReused,
    attempt_id,
)
from servo.fold.projection import Memory
from servo.fold.runs import RunFold
from servo.fold.shape import Shape
from servo.fold.state import State
from servo.fold.table import Key, Row
from servo.fold.tables import PROJECTIONS, TABLES

SECOND = 1_000_000
QUICK = RetryPolicy(max_attempts=3, initial_delay_ms=1_000, jitter_percent=0)
LIMITS = Timeouts(dispatch_ack_ms=30_000, heartbeat_ms=60_000, execution_ms=600_000)
HERE = "process:here"


def key(name: str) -> str:
    """The task key of a task that plans here call `name`."""
    return TaskKey.spell(f"n/{name}", None)


def plan_of(
    edges: Mapping[str, Sequence[str]],
    *,
    retry: RetryPolicy = QUICK,
    timeouts: Timeouts = LIMITS,
    priorities: Mapping[str, int] = {},
) -> Plan:
    """A plan of tasks, each with the names of those it needs: `{"a": [], "b": ["a"]}`."""
    stages: dict[str, int] = {}

    def stage(name: str) -> int:
        if name not in stages:
            stages[name] = max((stage(above) for above in edges[name]), default=-1) + 1
        return stages[name]

    shared = {"retry": plain.to_plain(retry), "timeouts": plain.to_plain(timeouts)}
    assets = {
        f"n/{name}": PlannedAsset(
            code_version="c1",
            kind="python",
            config={},
            dependencies=(),
            windows=(),
            checks=(),
            gating={},
            resources={},
            priority=priorities.get(name, 0),
            **shared,
        )
        for name in edges
    }
    tasks = tuple(
        sorted(
            (
                PlannedTask(
                    key=key(name),
                    asset=f"n/{name}",
                    stage=stage(name),
                    upstreams=tuple(key(above) for above in above_it),
                )
                for name, above_it in edges.items()
            ),
            key=lambda task: task.key,
        )
    )
    return Plan(
        fingerprint=fingerprint(assets, tasks),
        request=PlanRequest(),
        now="2025-01-01T00:00:00Z",
        assets=assets,
        tasks=tasks,
    )


# --- Facts ----------------------------------------------------------------------------------------


def triggered(run: str = "R", plan: str = "P", run_key: str | None = None, **more: Any) -> Fact:
    fields = {"fingerprint": "f", "code_ref": HERE, "request_hash": "h", **more}
    return RunTriggered(run_id=run, plan_object=plan, run_key=run_key, **fields)


def stopped(run: str = "R", by: Stop = Stop.USER) -> Fact:
    return RunCancelRequested(run_id=run, by=by)


def asked(name: str, attempt: int = 1, *, run: str = "R", worker: str = HERE) -> Fact:
    return DispatchRequested(run_id=run, task_key=key(name), attempt=attempt, worker=worker)


def began(name: str, attempt: int = 1, *, run: str = "R") -> Fact:
    return TaskStarted(
        run_id=run,
        task_key=key(name),
        attempt=attempt,
        attempt_id=attempt_id(run, key(name), attempt),
        worker_id="w",
    )


def alive(name: str, attempt: int = 1, *, run: str = "R") -> Fact:
    return TaskHeartbeat(
        run_id=run,
        task_key=key(name),
        attempt=attempt,
        attempt_id=attempt_id(run, key(name), attempt),
    )


def finished(
    name: str,
    attempt: int = 1,
    outcome: Outcome = Outcome.SUCCEEDED,
    *,
    run: str = "R",
    code: FailureCode | None = None,
    retriable: bool | None = None,
    details: Mapping[str, str | int | bool] = {},
) -> Fact:
    error = None
    if code is not None:
        error = TaskFailure(code=code, message="It went wrong.", details=dict(details))
    return TaskFinished(
        run_id=run,
        task_key=key(name),
        attempt=attempt,
        attempt_id=attempt_id(run, key(name), attempt),
        outcome=outcome,
        error=error,
        retriable=retriable if retriable is not None else bool(code and code.row.retriable),
    )


def failed(name: str, attempt: int = 1, *, run: str = "R", again: bool = False) -> Fact:
    """A failure for good, or one after which the task is tried again."""
    code = FailureCode.NETWORK_ERROR if again else FailureCode.USER_CODE_EXCEPTION
    return finished(name, attempt, Outcome.FAILED, run=run, code=code)


def made(
    name: str, attempt: int = 1, *, run: str = "R", version: str = "m", partition: str = ""
) -> Fact:
    return MaterializationCompleted(
        materialization_id=version,
        run_id=run,
        task_key=key(name),
        attempt=attempt,
        asset_id=f"id-{name}",
        asset_key=f"n/{name}",
        partition_key=partition,
        code_version="c1",
    )


def reused(name: str, *, run: str = "R", version: str = "old") -> Fact:
    return TaskReused(run_id=run, task_key=key(name), materialization_id=version, reason="same")


def event(
    fact: Fact,
    at: int = 0,
    *,
    source: str = ENGINE,
    actor: str | None = None,
    event_id: str = "e",
) -> Event:
    return Event(
        event_id=event_id,
        event_type=type(fact).__name__,
        event_version=fact.version,
        timestamp=moment(at),
        source=source,
        tenant_id="t",
        workspace_id="w",
        domain=fact.domain,
        idempotency_key=fact.key(),
        actor=actor,
        payload=fact,
    )


class Story:
    """A state and the facts that it was told, one segment after the other."""

    def __init__(self, **plans: Plan) -> None:
        self.state = State()
        self.placed: list[Placed] = []
        self.shapes = {name: Shape(plan) for name, plan in plans.items()}
        for name, shape in self.shapes.items():
            self.state.learn(name, shape)

    def tell(self, *facts: Fact, at: int = 0) -> "Story":
        """One segment that becomes durable at once."""
        self.overlay(*facts, at=at)
        self.state.keep()
        return self

    def overlay(self, *facts: Fact, at: int = 0) -> None:
        """One segment that is not durable yet."""
        position = self.state.position + 1
        placed = [Placed(position, i, at, event(fact, at)) for i, fact in enumerate(facts)]
        self.placed += placed
        self.state.fold(placed)
        self.state.advance(position, f"hash-{position}")

    def run(self, run: str = "R") -> RunFold:
        return self.state.runs[run]

    def states(self, run: str = "R") -> dict[str, str]:
        """The state of each task, by its short name."""
        tasks = self.run(run).tasks
        return {name.split("/")[1].split(":")[0]: str(task.state) for name, task in tasks.items()}


def a_moment(now: int = 0, **more: Any) -> Moment:
    """A moment with a fresh view, room for ten attempts and code that can be loaded."""
    fields: dict[str, Any] = {
        "as_of": now,
        "worker": HERE,
        "slots": 10,
        "loads": lambda _: True,
        **more,
    }
    return Moment(now=now, **fields)


# --- Tables in a dict -----------------------------------------------------------------------------

Tables = dict[str, dict[Key, Row]]


class Published:
    """What publishing leaves: for each key the row with the highest place."""

    def __init__(self, shapes: Mapping[str, Shape] = {}) -> None:
        self.tables: Tables = {table.name: {} for table in TABLES}
        self.shapes = shapes

    def publish(self, state: State) -> None:
        for table, rows in state.take().rows().items():
            known = self.tables[table.name]
            for row in rows:
                old = known.get(table.row_key(row))
                if old is not None:
                    before, after = table.row_place(old), table.row_place(row)
                    assert after >= before, f"a row of {table.name} went back: {old} -> {row}"
                    assert after > before or row == old, f"one place, two rows: {old} -> {row}"
                known[table.row_key(row)] = row

    def load(self) -> State:
        """A state as an engine begins with: what is active, and what is always in memory."""
        state = State()
        for projection in PROJECTIONS:
            if projection.memory is Memory.ALL:
                state.load_rows(projection.table.name, self.tables[projection.table.name].values())
        for run_id, row in self.tables["runs"].items():
            if not is_terminal(RunState(str(row[1]))):
                self.load_run(state, str(run_id[0]))
        return state

    def load_run(self, state: State, run_id: str) -> None:
        row = self.tables["runs"].get((run_id,))
        if row is not None:
            plan = str(row[5])
            state.learn(plan, self.shapes[plan])
        tasks = [row for key, row in self.tables["tasks"].items() if key[0] == run_id]
        attempts = [row for key, row in self.tables["attempts"].items() if key[0] == run_id]
        state.load_run(run_id, row, tasks, attempts)

    def fold(self, state: State, placed: Sequence[Placed]) -> None:
        """Load what a batch needs, and fold it: what an engine does."""
        events = [each.event for each in placed]
        for _ in range(2):
            needs = state.needs(events)
            for plan in needs.plans:
                state.learn(plan, self.shapes[plan])
            for run_id in needs.runs:
                self.load_run(state, run_id)
            for name, keys in needs.rows.items():
                known = self.tables[name]
                state.load_rows(name, [known[key] for key in keys if key in known])
        assert not state.needs(events).plans and not state.needs(events).runs
        state.fold(placed)
        state.keep()


def tables_of(state: State) -> Tables:
    """All rows of a state from which nothing was taken yet."""
    tables: Tables = {table.name: {} for table in TABLES}
    for table, rows in state.take().rows().items():
        for row in rows:
            assert table.row_key(row) not in tables[table.name], f"two rows of one key: {row}"
            tables[table.name][table.row_key(row)] = row
    return tables


def folded(shapes: Mapping[str, Shape], batches: Iterable[Sequence[Placed]]) -> State:
    state = State()
    for name, shape in shapes.items():
        state.learn(name, shape)
    for batch in batches:
        state.fold(batch)
        state.keep()
    return state


EVER = 2**60


def view(state: State) -> dict[str, Any]:
    """What controllers can see of a state, without what only speeds it up."""
    return {
        run.run_id: (
            run.run,
            dict(run.open),
            sorted(run.take_ready(1_000)),
            {state: count for state, count in run.counts.items() if count},
        )
        for run in state.active_runs()
    }
