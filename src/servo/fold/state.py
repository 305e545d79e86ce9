"""The state: everything that facts say, as far as it is active.

    fold       placed facts go in; records change
    overlay    changes since the last `keep`: not durable yet, and taken back by `undo`
    needs      which records a batch of facts must find in memory, so that a late fact is handled
               exactly: the engine asks, loads what is missing, and folds
    take       the rows that changed since the last take, as frozen records: publishing turns them
               into Parquet while the fold goes on
    evict      forget what has ended and was published

Folding is exact in any order and any batching, with any duplication (INV-1, INV-2), because
records are joins by place and everything else is derived from them. Loading and forgetting are exact
where facts come in the order of their places, as an engine folds them. Both rest on this: what stands
before a run's trigger says nothing of the run, and an id (of a run, a version, a deployment) is minted
with what it names, so that two facts with one id say the same. `admit` is where order matters: it
reads segments one after the other, and leaves out what a writer had no right to write.

Held by tests/property/test_fold_properties.py, tests/unit/test_fold.py and
tests/invariants/test_invariants.py.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from servo.core.segments import GENESIS, Segment, is_redacted
from servo.core.states import TaskState
from servo.errors import Corrupt
from servo.events.envelope import Event, Fact, Placed, Vocabulary, microseconds
from servo.events.execution import (
    MaterializationCompleted,
    TaskFinished,
    TaskHeartbeat,
    TaskStarted,
)
from servo.events.orchestration import (
    DispatchRequested,
    LeaderClaimed,
    RunCancelRequested,
    RunTriggered,
    TaskReused,
)
from servo.events.vocabulary import VOCABULARY
from servo.fold.projection import Memory, Projection
from servo.fold.records import (
    Attempt,
    Mark,
    Materialization,
    Output,
    Result,
    Reuse,
    RunStop,
    Task,
)
from servo.fold.runs import RunFold, Timer
from servo.fold.shape import Shape
from servo.fold.table import Key, Row, Table
from servo.fold.tables import PROJECTIONS, attempts, edges, runs, tasks
from servo.fold.tables.partitions import Version, Versions
from servo.fold.trail import Trail

_MATERIALIZATIONS, _PARTITIONS, _RUN_KEYS = "materializations", "partitions", "run_keys"


SCAN_US = 30_000_000
"""How often everything that waits is looked at, whatever its timer says."""


class Needs(NamedTuple):
    """What must be loaded before a batch can be folded. Empty: nothing."""

    plans: frozenset[str]
    runs: frozenset[str]
    rows: dict[str, set[Key]]
    """Table name to the keys of the rows."""

    def __bool__(self) -> bool:
        return bool(self.plans or self.runs or self.rows)


class Taken(NamedTuple):
    """Changed records as they were when taken; `rows` turns them into rows, whenever."""

    runs: list[runs.RunRow]
    tasks: list[tasks.TaskRow]
    edges: list[edges.EdgesRow]
    records: list[tuple[Projection[Any], list[tuple[Key, Any]]]]

    def rows(self) -> dict[Table, list[Row]]:
        found: dict[Table, list[Row]] = {
            runs.TABLE: [runs.row(taken) for taken in self.runs],
            tasks.TABLE: [tasks.row(taken) for taken in self.tasks if taken.planned is not None],
            attempts.TABLE: [row for taken in self.tasks for row in attempts.rows(taken)],
            edges.TABLE: [row for taken in self.edges for row in edges.rows(taken)],
        }
        for projection, records in self.records:
            found[projection.table] = [projection.row(key, record) for key, record in records]
        return {table: rows for table, rows in found.items() if rows}


class State:
    def __init__(self) -> None:
        self.position = 0
        """Of the last segment folded."""
        self.hash = GENESIS
        """Of the last segment folded."""
        self.epoch = 0
        """The highest that was claimed."""
        self.leader: str | None = None
        """The writer that claimed it."""
        self.runs: dict[str, RunFold] = {}
        self.active: dict[str, None] = {}
        """Runs that have not ended."""
        self.records: dict[str, dict[Key, Any]] = {p.table.name: {} for p in PROJECTIONS}
        self.plans: dict[str, Shape] = {}
        self._dirty: dict[str, dict[Key, None]] = {p.table.name: {} for p in PROJECTIONS}
        self._dirty_runs: dict[str, None] = {}
        self._timers: list[Timer] = []
        self._awake: dict[tuple[str, str], None] = {}
        self._woken = 0
        self._scanned = 0
        self._trail = Trail()
        self._touched: dict[str, Mark] = {}
        self._recheck: dict[tuple[str, str], None] = {}

    # --- Folding ----------------------------------------------------------------------------------

    def needs(self, events: Iterable[Event]) -> Needs:
        """What these events touch that is not in memory. Ask again once the runs are loaded: only
        then is it known which versions their tasks made."""
        plans: set[str] = set()
        missing: set[str] = set()
        rows: dict[str, set[Key]] = {}
        for event in events:
            fact = event.payload
            kind = type(fact)
            if kind is RunTriggered and fact.plan_object not in self.plans:
                plans.add(fact.plan_object)
            if kind in _ABOUT_RUNS:
                run = self.runs.get(fact.run_id)
                if run is None:
                    missing.add(fact.run_id)
                elif kind in _ABOUT_TASKS:
                    # The fact may decide whether the versions that the task made count.
                    for output in run.task(fact.task_key).outputs:
                        self._need(rows, _MATERIALIZATIONS, (output.materialization_id,))
            for projection in _BY_FACT.get(kind, ()):
                if projection.memory is Memory.ACTIVE:
                    for key in projection.keys(fact, (0, 0, 0)):
                        self._need(rows, projection.table.name, key)
        return Needs(frozenset(plans), frozenset(missing), rows)

    def _need(self, rows: dict[str, set[Key]], name: str, key: Key) -> None:
        if key not in self.records[name]:
            rows.setdefault(name, set()).add(key)

    def learn(self, plan_object: str, shape: Shape) -> None:
        """A plan that a run names: an immutable object, so knowing it changes no state."""
        self.plans[plan_object] = shape

    def fold(self, events: Iterable[Placed]) -> None:
        """Fold facts where they stand. What they need must be in memory."""
        for placed in events:
            event = placed[3]
            fact = event.payload
            mark = placed[:3]
            kind = type(fact)
            for projection in _BY_FACT.get(kind, ()):
                self._project(projection, fact, mark, event)
            handle = _ABOUT_RUNS.get(kind)
            if handle is not None:
                run_id = fact.run_id
                run = self.runs.get(run_id) or self._new_run(run_id)
                last = self._touched.get(run_id)
                if last is None or mark > last:
                    self._touched[run_id] = mark
                triggered = run.run.triggered
                if kind is RunTriggered or (triggered is not None and triggered < mark):
                    handle(self, run, fact, mark, event)
                else:
                    self._trail.put(run.early, mark, event)
            elif kind is LeaderClaimed:
                self._claimed(fact)
        self._settle()

    def _project(self, projection: Projection[Any], fact: Fact, mark: Mark, event: Event) -> None:
        records = self.records[projection.table.name]
        for key in projection.keys(fact, mark):
            known = records.get(key)
            joined = projection.join(key, known, fact, mark, event)
            if joined is not known:
                if known is not None and projection.table.name == _MATERIALIZATIONS:
                    # An older report was found: whether the version counts is to be seen again.
                    self._set_version(Materialization(known.mark, known.fact))
                    self._recheck[joined.fact.run_id, joined.fact.task_key] = None
                self._put(projection.table.name, key, joined)

    def _put(self, name: str, key: Key, record: Any) -> None:
        self._trail.put(self.records[name], key, record)
        self._dirty[name][key] = None

    def _new_run(self, run_id: str) -> RunFold:
        run = RunFold(run_id, self._trail, self._timers, self._recheck)
        self._trail.put(self.runs, run_id, run)
        return run

    def _claimed(self, fact: LeaderClaimed) -> None:
        if fact.epoch > self.epoch:
            self._trail.put(vars(self), "epoch", fact.epoch)
            self._trail.put(vars(self), "leader", fact.writer_id)

    def _triggered(self, run: RunFold, fact: RunTriggered, mark: Mark, event: Event) -> None:
        if run.run.triggered is None or mark < run.run.triggered:
            run.set_trigger(fact, mark, event.actor)
            run.set_shape(self.plans[fact.plan_object])
            for at in sorted(at for at in run.early if at > mark):
                known = run.early[at]
                self._trail.drop(run.early, at)
                _ABOUT_RUNS[type(known.payload)](self, run, known.payload, at, known)
        if fact.run_key is not None:
            claims = self.records[_RUN_KEYS][(fact.run_key,)]
            for claim in claims.claims:
                other = self.runs.get(claim.run_id)
                if other is not None and other.void != (claim is not claims.owner):
                    other.set_void(claim is not claims.owner)
                    self._touched.setdefault(claim.run_id, other.run.last)
                    self._recheck.update(((claim.run_id, key), None) for key in other.tasks)

    def _stopped(self, run: RunFold, fact: RunCancelRequested, mark: Mark, event: Event) -> None:
        run.set_stop(RunStop(mark, fact.by, fact.message, event.actor))

    def _asked(self, run: RunFold, fact: DispatchRequested, mark: Mark, event: Event) -> None:
        task, attempt = self._attempt(run, fact.task_key, fact.attempt)
        joined = attempt.asked(mark, fact.worker)
        if joined is not attempt:
            if run.has(fact.task_key):
                run.set_begun(mark)
            run.put(fact.task_key, task.with_attempt(joined))

    def _reused(self, run: RunFold, fact: TaskReused, mark: Mark, event: Event) -> None:
        task = run.task(fact.task_key)
        if task.reused is None or mark < task.reused.mark:
            if run.has(fact.task_key):
                run.set_begun(mark)
            reuse = Reuse(mark, fact.materialization_id, fact.reason)
            run.put(fact.task_key, msgspec.structs.replace(task, reused=reuse))

    def _attempt(self, run: RunFold, task_key: str, number: int) -> tuple[Task, Attempt]:
        task = run.task(task_key)
        return task, task.of(number) or Attempt.new(run.run_id, task_key, number)

    def _started(self, run: RunFold, fact: TaskStarted, mark: Mark, event: Event) -> None:
        task, attempt = self._attempt(run, fact.task_key, fact.attempt)
        if fact.attempt_id != attempt.attempt_id:
            return
        joined = attempt.began(mark, fact.worker_id)
        if joined is not attempt:
            run.put(fact.task_key, task.with_attempt(joined))

    def _alive(self, run: RunFold, fact: TaskHeartbeat, mark: Mark, event: Event) -> None:
        task, attempt = self._attempt(run, fact.task_key, fact.attempt)
        if fact.attempt_id != attempt.attempt_id:
            return
        joined = attempt.alive(mark)
        if joined is not attempt:
            run.put(fact.task_key, task.with_attempt(joined))

    def _finished(self, run: RunFold, fact: TaskFinished, mark: Mark, event: Event) -> None:
        task, attempt = self._attempt(run, fact.task_key, fact.attempt)
        if fact.attempt_id != attempt.attempt_id:
            return
        joined = attempt.ended(Result.of(fact, mark))
        if joined is not attempt:
            run.put(fact.task_key, task.with_attempt(joined))

    def _made(self, run: RunFold, fact: MaterializationCompleted, mark: Mark, event: Event) -> None:
        task = run.task(fact.task_key)
        known = next(
            (o for o in task.outputs if o.materialization_id == fact.materialization_id), None
        )
        if known is None or mark < known.mark:
            others = [o for o in task.outputs if o is not known]
            output = Output(fact.materialization_id, fact.attempt, mark)
            outputs = tuple(sorted([*others, output], key=lambda o: o.mark))
            run.put(fact.task_key, msgspec.structs.replace(task, outputs=outputs))
            self._recheck[fact.run_id, fact.task_key] = None

    def _settle(self) -> None:
        """Derive what a batch as a whole changes: the runs it touched, the versions that count."""
        for run_id, mark in self._touched.items():
            run = self.runs[run_id]
            if mark > run.run.last:
                run.set_run(msgspec.structs.replace(run.run, last=mark))
            run.settle()
            if run.exists and not run.ended:
                if run_id not in self.active:
                    self._trail.put(self.active, run_id, None)
            else:
                self._trail.drop(self.active, run_id)
            self._dirty_runs[run_id] = None
        self._touched.clear()
        for run_id, task_key in self._recheck:
            self._count_versions(self.runs[run_id], task_key)
        self._recheck.clear()

    def _count_versions(self, run: RunFold, task_key: str) -> None:
        """A version counts if its attempt stands as the result of its task."""
        task = run.task(task_key)
        end = task.ended if task.state is TaskState.SUCCEEDED and run.exists else None
        for output in task.outputs:
            key = (output.materialization_id,)
            stands = end is not None and task.attempt == output.attempt
            known: Materialization | None = self.records[_MATERIALIZATIONS].get(key)
            if known is None and not stands:
                continue  # it was published, does not count, and nothing has changed about that
            assert known is not None
            if (known.fact.run_id, known.fact.task_key) != (run.run_id, task_key):
                continue  # an older fact says that another task made it
            committed = max(output.mark, end) if stands and end is not None else None
            if committed != known.committed:
                changed = Materialization(known.mark, known.fact, committed)
                self._put(_MATERIALIZATIONS, key, changed)
                self._set_version(changed)

    def _set_version(self, made: Materialization) -> None:
        fact = made.fact
        key = (fact.asset_id, fact.partition_key)
        known = self.records[_PARTITIONS].get(key)
        versions = [
            version
            for version in (known.versions if known else ())
            if version.materialization_id != fact.materialization_id
        ]
        if made.committed is not None:
            versions.append(
                Version(
                    mark=made.mark,
                    materialization_id=fact.materialization_id,
                    asset_key=fact.asset_key,
                    run_id=fact.run_id,
                    task_key=fact.task_key,
                    code_version=fact.code_version,
                    row_count=fact.row_count,
                    byte_size=fact.byte_size,
                    committed=made.committed,
                )
            )
        versions.sort(key=lambda version: (version.committed, version.mark))
        if versions:
            self._put(_PARTITIONS, key, Versions(tuple(versions)))
        else:
            self._trail.drop(self.records[_PARTITIONS], key)

    # --- Overlay ----------------------------------------------------------------------------------

    def advance(self, position: int, hash: str) -> None:  # noqa: A002 - what the header calls it
        """The facts folded since the last `keep` are those of this segment."""
        self._trail.put(vars(self), "position", position)
        self._trail.put(vars(self), "hash", hash)

    def keep(self) -> None:
        """What was folded is durable."""
        self._trail.keep()

    def undo(self) -> None:
        """What was folded since the last `keep` did not happen."""
        self._touched.clear()  # not empty only where folding failed half way
        self._recheck.clear()
        by_tasks = {id(run.tasks): run for run in self.runs.values()}
        self._trail.undo(
            lambda mapping, key: (
                by_tasks[id(mapping)].restored(key) if id(mapping) in by_tasks else None
            )
        )

    @property
    def pending(self) -> bool:
        """Whether there is an overlay."""
        return bool(self._trail)

    # --- Publishing and loading -------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        return bool(self._dirty_runs) or any(self._dirty.values())

    def take(self) -> Taken:
        """The records that changed since the last take. Only without an overlay."""
        assert not self.pending
        taken = Taken([], [], [], [])
        for run_id in self._dirty_runs:
            run = self.runs.get(run_id)
            if run is None:
                continue
            shape = run.shape
            if run.dirty_run and run.exists:
                total = len(shape.tasks) if shape is not None else 0
                taken.runs.append(runs.RunRow(run_id, run.run, dict(run.counts), total))
            if shape is not None and run.exists:
                assert run.run.triggered is not None
                for key in run.dirty_tasks:
                    if key in run.tasks:
                        planned = shape.tasks.get(key)
                        taken.tasks.append(tasks.TaskRow(run_id, key, run.tasks[key], planned))
                for key in run.dirty_edges:
                    below = shape.downstreams.get(key, ())
                    if below:
                        taken.edges.append(
                            edges.EdgesRow(run_id, key, run.tasks[key], run.run.triggered, below)
                        )
            run.dirty_run = False
            run.dirty_tasks, run.dirty_edges = {}, {}
        self._dirty_runs = {}
        for projection in PROJECTIONS:
            name = projection.table.name
            records, dirty = self.records[name], self._dirty[name]
            changed = [(key, records[key]) for key in dirty if key in records]
            if changed:
                taken.records.append((projection, changed))
            self._dirty[name] = {}
        return taken

    def evict(self) -> None:
        """Forget what has ended, or is not kept in memory, and has not changed since it was taken."""
        for run_id in [r for r in self.runs if r not in self.active and r not in self._dirty_runs]:
            del self.runs[run_id]
        used = {r.run.trigger.plan_object for r in self.runs.values() if r.run.trigger}
        self.plans = {name: shape for name, shape in self.plans.items() if name in used}
        for projection in PROJECTIONS:
            if projection.memory is not Memory.ALL:
                name = projection.table.name
                dirty = self._dirty[name]
                self.records[name] = {k: r for k, r in self.records[name].items() if k in dirty}

    def load_run(
        self,
        run_id: str,
        run_row: Row | None,
        task_rows: Sequence[Row],
        attempt_rows: Sequence[Row],
    ) -> None:
        """What the tables say of a run; also that they say nothing. Its plan must be known."""
        # With a trail of its own: what is loaded is durable, whatever becomes of the overlay.
        run = RunFold(run_id, Trail(), self._timers, {})
        self.runs[run_id] = run
        known: dict[str, Task] = {str(row[1]): tasks.load(row) for row in task_rows}
        for row in attempt_rows:
            key = str(row[1])
            known[key] = known.get(key, Task()).with_attempt(attempts.load(row))
        run.tasks.update(known)
        if run_row is not None:
            run.run = runs.load(run_row)
            assert run.run.trigger is not None
            run.set_shape(self.plans[run.run.trigger.plan_object])
            run.settle()
            if not run.ended:
                self.active[run_id] = None
        run.use(self._trail, self._recheck)

    def load_rows(self, name: str, rows: Iterable[Row]) -> None:
        """What a table says."""
        projection = _BY_NAME[name]
        for row in rows:
            key, record = projection.load(row)
            self.records[name][key] = record

    # --- The view that controllers take -----------------------------------------------------------

    def asset_id(self, asset_key: str) -> str | None:
        record = self.records["assets"].get((asset_key,))
        return record.asset_id if record is not None else None

    def run_row(self, run_id: str) -> Row | None:
        """The row of a run that is in memory."""
        run = self.runs.get(run_id)
        if run is None or not run.exists:
            return None
        total = len(run.shape.tasks) if run.shape is not None else 0
        return runs.row(runs.RunRow(run_id, run.run, run.counts, total))

    def active_runs(self) -> list[RunFold]:
        """Runs that have not ended, in the order in which they were asked for."""
        return sorted((self.runs[run_id] for run_id in self.active), key=_asked_for)

    def ready_runs(self) -> Iterator[RunFold]:
        """Runs that may have a task that can go, in no order: most runs wait, and are not looked at."""
        for run_id in self.active:
            run = self.runs[run_id]
            if run.ready:
                yield run

    def wake(self, now: int) -> None:
        """Find the tasks whose time to be looked at has come: `awake` names open ones, each again
        later until it has moved on; retries whose wait is over join the ready ones."""
        if now < self._woken or now - self._scanned >= SCAN_US:
            # A timer rings by the clock of who wrote the fact. Ours may have gone back since, and that
            # of another machine may be far ahead: now and then all that waits is looked at.
            self._scanned = now
            self._timers.clear()  # all of them are for what is looked at here
            for run_id in self.active:
                each = self.runs[run_id]
                waiting = list(each.open)
                if each.counts.get(TaskState.RETRY_WAIT):
                    waiting += [k for k, t in each.tasks.items() if t.state is TaskState.RETRY_WAIT]
                for key in waiting:
                    heapq.heappush(self._timers, (now, run_id, key))
        self._woken = now
        found: dict[tuple[str, str], None] = {}
        later: list[Timer] = []
        while self._timers and self._timers[0][0] <= now:
            _, run_id, key = heapq.heappop(self._timers)
            run = self.runs.get(run_id)
            task = run.tasks.get(key) if run is not None else None
            if run is None or task is None or run_id not in self.active:
                continue
            if task.state is TaskState.RETRY_WAIT:
                if run.retry_is_due(key, now):
                    run.due(key)
                else:
                    assert task.retry_at is not None
                    later.append((task.retry_at, run_id, key))
            elif key in run.open:
                found[run_id, key] = None
        for timer in later:
            heapq.heappush(self._timers, timer)
        for run_id, key in found:
            shape = self.runs[run_id].shape
            assert shape is not None
            again = shape.rules(key).look_us // 4
            heapq.heappush(self._timers, (now + again, run_id, key))
        self._awake = found

    def awake(self) -> list[tuple[RunFold, str]]:
        """What the last `wake` found and has not moved on since, in the order of the keys: which
        timer rang first differs between a state that lived and one that was loaded."""
        return [
            (self.runs[run_id], key)
            for run_id, key in sorted(self._awake)
            if run_id in self.active and key in self.runs[run_id].open
        ]

    def next_due(self) -> int | None:
        """When something will be due, in microseconds; perhaps earlier than needed, never later."""
        return self._timers[0][0] if self._timers else None


def _asked_for(run: RunFold) -> tuple[Mark, str]:
    return run.run.triggered or (0, 0, 0), run.run_id


def admit(state: State, segment: Segment, vocabulary: Vocabulary = VOCABULARY) -> list[Placed]:
    """The facts of the next segment that count, where they stand.

    Only the leader of the highest epoch writes intents. In a segment of anybody else they are void,
    and so is a claim that does not raise the epoch.
    """
    header = segment.header
    if header.position != state.position + 1 or header.prev_hash != state.hash:
        raise Corrupt(
            f"segment {header.position} does not follow segment {state.position}: it names"
            f" {header.prev_hash} as the hash before it, and that is {state.hash}"
        )
    placed = []
    epoch = state.epoch
    for index, line in enumerate(segment.lines):
        if is_redacted(line):
            continue
        event = vocabulary.decode(line)
        fact = event.payload
        if type(fact) is LeaderClaimed:
            if header.kind != "leader" or fact.epoch <= epoch or fact.epoch != header.epoch:
                continue
            epoch = fact.epoch
        elif event.is_intent or type(fact) in _INTENTS:
            if header.kind != "leader" or header.epoch != epoch:
                continue
        placed.append(Placed(header.position, index, microseconds(event.timestamp), event))
    return placed


_INTENTS = (DispatchRequested, TaskReused)
"""What only a leader decides, whoever says that they wrote it."""

_ABOUT_TASKS: dict[type[Any], Any] = {
    DispatchRequested: State._asked,
    TaskReused: State._reused,
    TaskStarted: State._started,
    TaskHeartbeat: State._alive,
    TaskFinished: State._finished,
    MaterializationCompleted: State._made,
}
_ABOUT_RUNS: dict[type[Any], Any] = {
    RunTriggered: State._triggered,
    RunCancelRequested: State._stopped,
    **_ABOUT_TASKS,
}

_BY_NAME: dict[str, Projection[Any]] = {p.table.name: p for p in PROJECTIONS}
_BY_FACT: dict[type[Any], tuple[Projection[Any], ...]] = {
    fact: tuple(p for p in PROJECTIONS if fact in p.facts)
    for fact in {fact for p in PROJECTIONS for fact in p.facts}
}
