"""The auditor: what must hold in a simulated world, checked while it runs and at its end.

It reads the true log and the true store, without any fault between, and folds along (the *shadow*).
Because the shadow folds with the code that is on trial, `servo.testing.oracle` retells the few rules
that nothing may break without it.

What is promised, and what holds it here:

    every acknowledged fact is in every       `acknowledge`: at the instant of the answer it is in the
    later snapshot, exactly once              ledger, where the caller was told (again after a power
                                              cut); `_check`: no event is in the ledger twice;
                                              `_check_revision`: tables are the fold of the ledger;
                                              `_check_acknowledged`: and the row itself is there, once
    a fenced process acknowledges,            `_check`: no leader's segment of an epoch that was
    dispatches and publishes nothing more     overtaken; the world: who was fenced appends nothing,
                                              hands out nothing, creates no manifest
    live state equals rebuild                 `check_live`: of every engine that is at the head
    the load law                              `_check_revision`: load any of them, go on, compare
    no task runs before its dependencies      `begin`, and the oracle when an attempt is asked for
    no superseded attempt changes state       `_check_stale`, `_check_progress`, and the oracle
    every run ends                            the world: within a day after the faults stop
    INV-1 to INV-10                           tests/invariants, by name
"""

from collections import Counter
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from servo.core import plan as plans
from servo.core import segments
from servo.core.segments import Place, Segment, digest
from servo.core.states import TaskState, is_terminal, progress
from servo.events.audit import AuditRecorded
from servo.events.envelope import Fact, Placed
from servo.events.execution import TaskFinished, TaskHeartbeat, TaskStarted
from servo.events.orchestration import DispatchRequested, LeaderClaimed, RunTriggered
from servo.events.vocabulary import VOCABULARY
from servo.fold.projection import Memory
from servo.fold.records import Task
from servo.fold.runs import RunFold
from servo.fold.shape import Shape
from servo.fold.state import State, admit
from servo.fold.table import Row, Table
from servo.fold.tables import PROJECTIONS, TABLES, attempts, tasks
from servo.fold.tables.audit import Audit
from servo.ledger import parquet
from servo.ledger.loader import load_needs, load_state
from servo.ledger.manifest import Manifest, check_follows, find_newest, load, load_base
from servo.ledger.objects import get_value
from servo.ledger.snapshot import Snapshot
from servo.ports.executor import Work
from servo.ports.log import Log
from servo.ports.objects import Objects
from servo.testing.oracle import Oracle

T = TypeVar("T")


class Violation(AssertionError):
    """Something that must never happen did."""


def at_once(coro: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing, such as a read of memory."""
    try:
        coro.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    raise AssertionError("the auditor's store made it wait")


LOAD_EVERY = 5
"""Every how many revisions it is tried whether one can go on from there."""


class Auditor:
    def __init__(self, log: Log, objects: Objects) -> None:
        self._log = log
        self._objects = objects
        self._told: list[tuple[Place, Fact]] = []
        self._files: dict[str, list[Row]] = {}
        self._begin()

    def power_cut(self, log: Log, objects: Objects) -> None:
        """What was written and never synced may be gone, and nobody was told of it: look again."""
        self._log, self._objects = log, objects
        self._begin()
        for place, fact in self._told:
            self._check_told(place, fact.key())

    def _begin(self) -> None:
        self.shadow = State()
        self.oracle = Oracle()
        self._broken: Violation | None = None
        self.claims: list[tuple[int, str]] = []
        """Epochs, and the writers that claimed them."""
        self._segments: list[Segment] = []
        self._ids: dict[str, Place] = {}
        self._progress: dict[tuple[str, str], tuple[tuple[int, int], TaskState]] = {}
        self._begun: dict[str, int] = {}
        self._cache: tuple[State, dict[Table, dict[Any, Row]]] | None = None

    @property
    def acknowledged(self) -> int:
        return len(self._told)

    # --- While it runs ----------------------------------------------------------------------------

    def look(self) -> None:
        """Fold what is new in the ledger, event by event."""
        if self._broken is not None:
            raise self._broken  # whatever comes after the first violation is no news
        try:
            while found := at_once(self._log.read(self.shadow.position + 1)):
                for data in found:
                    self._check(segments.parse(data, self.shadow.position + 1))
        except Violation as error:
            self._broken = error
            raise

    def _check(self, segment: Segment) -> None:
        header, shadow = segment.header, self.shadow
        placed = admit(shadow, segment)
        if header.kind == "leader":
            claimed = max((p.event.payload.epoch for p in placed if _claims(p)), default=0)
            if header.epoch != max(claimed, shadow.epoch) or len(placed) != header.count:
                raise Violation(
                    f"segment {header.position} was written by {header.writer_id} as leader of epoch"
                    f" {header.epoch}, but epoch {shadow.epoch} was claimed before it"
                )
        for event in placed:
            event_id = event.event.event_id
            if event_id in self._ids:
                raise Violation(
                    f"event {event_id} ({event.event.event_type}) is at {self._ids[event_id]} and"
                    f" again at {event.place}"
                )
            self._ids[event_id] = event.place
            self._check_fact(event)
        shadow.advance(header.position, header.hash)
        shadow.keep()
        shadow.take()
        self._segments.append(segment)

    def _check_fact(self, placed: Placed) -> None:
        fact, shadow = placed.event.payload, self.shadow
        plan = None
        if type(fact) is RunTriggered:
            if fact.plan_object not in shadow.plans:
                plan = plans.load(at_once(get_value(self._objects, fact.plan_object)))
                shadow.learn(fact.plan_object, Shape(plan))
            plan = shadow.plans[fact.plan_object].plan
        elif type(fact) is DispatchRequested:
            self._check_dispatch(fact, placed)
        elif type(fact) is LeaderClaimed:
            self.claims.append((fact.epoch, fact.writer_id))
        if (wrong := self.oracle.hear(fact, plan)) is not None:
            raise Violation(f"{placed.place}: somebody asked for {wrong}")
        stale = self._stale_task(fact)
        shadow.fold([placed])
        run_id = getattr(fact, "run_id", None)
        run = shadow.runs.get(run_id) if run_id is not None else None
        if stale is not None and run is not None:
            self._check_stale(stale, run.tasks[fact.task_key], placed)
        if run is None or run.shape is None or type(fact) is TaskHeartbeat:
            return
        for key in list(run.dirty_tasks):
            self._check_progress(str(run_id), key, placed)
        run.dirty_tasks.clear()

    def _stale_task(self, fact: Any) -> Task | None:
        """The task as it is, if the fact is about an attempt that is not the one that was asked for."""
        if type(fact) not in _REPORTS:
            return None
        run = self.oracle.runs.get(fact.run_id)
        seen = run.tasks.get(fact.task_key) if run is not None else None
        if seen is None or fact.attempt == seen.asked:
            return None
        return self.shadow.runs[fact.run_id].tasks[fact.task_key]

    def _check_stale(self, before: Task, after: Task, placed: Placed) -> None:
        if _standing(before) != _standing(after):
            raise Violation(
                f"{placed.place}: {placed.event.event_type} of a superseded attempt took its task"
                f" from {_standing(before)} to {_standing(after)}"
            )

    def _check_dispatch(self, fact: DispatchRequested, placed: Placed) -> None:
        run = self.shadow.runs.get(fact.run_id)
        task = run.tasks.get(fact.task_key) if run is not None else None
        if run is None or task is None:
            raise Violation(
                f"{placed.place}: an attempt of a task that does not exist was asked for"
            )
        if task.state not in (TaskState.READY, TaskState.RETRY_WAIT):
            raise Violation(
                f"{placed.place}: attempt {fact.attempt} of {fact.task_key} was asked for while the"
                f" task was {task.state}"
            )
        if fact.attempt != task.attempt + 1:
            raise Violation(
                f"{placed.place}: attempt {fact.attempt} of {fact.task_key} came after"
                f" {task.attempt}"
            )
        if run.run.stop is not None:
            raise Violation(f"{placed.place}: an attempt was asked for in a run that is to stop")

    def _check_progress(self, run_id: str, key: str, placed: Placed) -> None:
        run = self.shadow.runs[run_id]
        assert run.shape is not None
        if key not in run.shape.tasks:
            return
        task = run.tasks[key]
        now = (progress(task.attempt, task.state), task.state)
        before = self._progress.get((run_id, key))
        if before is not None and before != now:
            if is_terminal(before[1]) or now[0] < before[0]:
                raise Violation(
                    f"{placed.place}: {placed.event.event_type} took {key} of {run_id} from"
                    f" {before} to {now}"
                )
        self._progress[run_id, key] = now

    def acknowledge(self, place: Place, fact: Fact) -> None:
        """A caller was told that its fact is at a place."""
        self._told.append((place, fact))
        self._check_told(place, fact.key())

    def _check_told(self, place: Place, key: str) -> None:
        self.look()
        if place.position > len(self._segments):
            raise Violation(f"{key} was acknowledged at {place}, beyond the end of the ledger")
        event = VOCABULARY.decode(self._segments[place.position - 1].lines[place.index])
        if event.idempotency_key != key:
            raise Violation(f"{key} was acknowledged at {place}, where {event.idempotency_key} is")

    def begin(self, work: Work, *, once: bool) -> None:
        """User code of an attempt begins."""
        self.look()
        run = self.shadow.runs.get(work.run_id)
        task = run.tasks.get(work.task_key) if run is not None else None
        attempt = task.of(work.attempt) if task is not None else None
        if run is None or task is None or attempt is None or attempt.dispatched is None:
            raise Violation(f"{work.attempt_id} of {work.task_key} began and was not asked for")
        if (unmet := self.oracle.unmet(work.run_id, work.task_key)) is not None:
            raise Violation(f"{work.attempt_id} began: {unmet}")
        self._begun[work.attempt_id] = self._begun.get(work.attempt_id, 0) + 1
        if once and self._begun[work.attempt_id] > 1:
            raise Violation(f"{work.attempt_id} of {work.task_key} began twice")

    def check_live(self, state: State, who: str) -> bool:
        """The state of an engine is what folding the ledger gives. False: it is not at the head."""
        self.look()
        shadow = self.shadow
        if state.position != shadow.position or state.pending:
            return False
        if (state.hash, state.epoch) != (shadow.hash, shadow.epoch):
            raise Violation(f"{who} is at {state.position} with another hash or epoch")
        if set(state.active) != set(shadow.active):
            raise Violation(f"{who} has {set(state.active)} as active, not {set(shadow.active)}")
        for run_id, run in state.runs.items():
            true = shadow.runs.get(run_id)
            if true is None or not true.exists:
                if run.exists:
                    raise Violation(f"{who} knows a run {run_id} that there is not")
                continue
            if _alive(run) != _alive(true):
                raise Violation(
                    f"{who} at {state.position} has run {run_id} as\n  {_alive(run)}\nnot as\n"
                    f"  {_alive(true)}"
                )
        for projection in PROJECTIONS:
            name = projection.table.name
            records, theirs = state.records[name], shadow.records[name]
            if projection.memory is Memory.ALL and records != theirs:
                raise Violation(f"{who} at {state.position} has other {name} than the ledger")
            if projection.memory is Memory.ACTIVE:
                for key, record in records.items():
                    if record != theirs.get(key):
                        raise Violation(
                            f"{who} at {state.position} has {name} {key} as\n  {record}\nnot as\n"
                            f"  {theirs.get(key)}"
                        )
        return True

    # --- At the end -------------------------------------------------------------------------------

    async def published(self) -> Manifest | None:
        """The newest manifest, if there is one."""
        newest = await find_newest(self._objects)
        return newest if newest.revision else None

    def stale(self, manifest: Manifest) -> bool:
        """Whether something happened to a run after the position that a manifest covers."""
        last = max((run.run.last for run in self.shadow.runs.values()), default=(0, 0, 0))
        return manifest.position < last[0]

    async def check_tables(self) -> Manifest:
        """Every revision is the fold of the ledger up to its position; so is loading and going on."""
        self.look()
        newest = await find_newest(self._objects)
        by_position: dict[int, list[Manifest]] = {}
        parent: Manifest | None = None
        for revision in range(1, newest.revision + 1):
            manifest = await load(self._objects, revision)
            if manifest is None:
                raise Violation(f"revision {revision} is missing")
            if parent is not None:
                check_follows(parent, manifest)
            by_position.setdefault(manifest.position, []).append(manifest)
            parent = manifest
        state = State()
        state.plans = dict(self.shadow.plans)
        tables: dict[Table, dict[Any, Row]] = {table: {} for table in TABLES}
        for segment in self._segments:
            state.fold(admit(state, segment))
            state.advance(segment.header.position, segment.header.hash)
            state.keep()
            for manifest in by_position.pop(state.position, ()):
                _merge(tables, state)
                await self._check_revision(manifest, state, tables, newest.revision)
        if by_position:
            raise Violation(
                f"revisions cover positions that the ledger does not have: {by_position}"
            )
        await self.check_ends(newest)
        return newest

    async def _check_revision(
        self, manifest: Manifest, state: State, tables: dict[Table, dict[Any, Row]], newest: int
    ) -> None:
        if manifest.ledger_hash != state.hash:
            raise Violation(f"revision {manifest.revision} names a wrong hash of the ledger")
        for table, rows in tables.items():
            found = await self._published_rows(manifest, table)
            if found != rows:
                raise Violation(
                    f"revision {manifest.revision} at position {manifest.position}: table"
                    f" {table.name} is not the fold of the ledger\n"
                    + _difference(list(found.values()), list(rows.values()))
                )
        await self._check_acknowledged(manifest)
        if newest - manifest.revision > 1 and manifest.revision % LOAD_EVERY:
            return
        # The load law: what is loaded from here and goes on is what was never unloaded.
        snapshot = Snapshot(self._objects, TABLES, manifest)
        loaded = await load_state(snapshot, self._objects)
        if set(loaded.active) != set(state.active) or loaded.hash != state.hash:
            raise Violation(f"revision {manifest.revision} loads other active runs than there are")
        changed: dict[Table, dict[Any, Row]] = {table: dict(rows) for table, rows in tables.items()}
        for segment in self._segments[manifest.position : manifest.position + 20]:
            placed = admit(loaded, segment)
            await load_needs(loaded, (p.event for p in placed), snapshot, self._objects)
            loaded.fold(placed)
            loaded.advance(segment.header.position, segment.header.hash)
            loaded.keep()
        _merge(changed, loaded)
        whole = await self._folded_to(loaded.position)
        for table, rows in changed.items():
            if rows != whole[table]:
                raise Violation(
                    f"loading revision {manifest.revision} and going on to {loaded.position} gives"
                    f" another table {table.name} than folding everything\n"
                    + _difference(list(rows.values()), list(whole[table].values()))
                )

    async def _check_acknowledged(self, manifest: Manifest) -> None:
        """What somebody was told is durable is in every later snapshot, without asking the fold."""
        audit = [
            (row[0], row[1], row[5])
            for row in (await self._published_rows(manifest, Audit.table)).values()
        ]
        subjects = Counter(subject for _, _, subject in audit)
        places = set(audit)
        ended = {
            row[3]
            for row in (await self._published_rows(manifest, attempts.TABLE)).values()
            if row[6] is not None
        }
        for place, fact in self._told:
            if place.position > manifest.position:
                continue
            there = True
            if type(fact) is AuditRecorded:
                there = (*place, fact.subject) in places and subjects[fact.subject] == 1
            elif type(fact) is TaskFinished:
                there = fact.attempt_id in ended
            if not there:
                raise Violation(
                    f"{fact.key()} was acknowledged at {place}, and revision {manifest.revision}, which"
                    f" covers position {manifest.position}, does not have it once"
                )

    async def check_ends(self, manifest: Manifest) -> None:
        """Who succeeded, by the oracle, has in the tables; nobody else has."""
        rows = await self._published_rows(manifest, tasks.TABLE)
        for run_id, run in self.oracle.runs.items():
            found = {
                str(row[1]) for row in rows.values() if row[0] == run_id and row[4] == "SUCCEEDED"
            }
            if found != self.oracle.succeeded(run_id):
                raise Violation(
                    f"run {run_id}: the tables say that {found} succeeded, the facts"
                    f" {self.oracle.succeeded(run_id)} (stopped: {run.stopped})"
                )

    async def _published_rows(self, manifest: Manifest, table: Table) -> dict[Any, Row]:
        """As a snapshot has them; each file is read once for all revisions."""
        files = manifest.tables.get(table.name)
        if files is None:
            return {}
        named = [*files.l0]
        if files.base is not None:
            named += await load_base(self._objects, files.base)
        rows: dict[Any, Row] = {}
        for file in named:
            if file.path not in self._files:
                data = await self._objects.get(file.path)
                if data is None or digest(data) != file.sha256:
                    raise Violation(f"revision {manifest.revision}: {file.path} is gone or changed")
                self._files[file.path] = parquet.decode(table, data)
            _add(table, rows, self._files[file.path])
        return rows

    async def _folded_to(self, position: int) -> dict[Table, dict[Any, Row]]:
        if self._cache is None or self._cache[0].position > position:
            state = State()
            state.plans = dict(self.shadow.plans)
            self._cache = (state, {table: {} for table in TABLES})
        state, tables = self._cache
        for segment in self._segments[state.position : position]:
            state.fold(admit(state, segment))
            state.advance(segment.header.position, segment.header.hash)
            state.keep()
        _merge(tables, state)
        return tables


_REPORTS = (TaskStarted, TaskHeartbeat, TaskFinished)


def _standing(task: Task) -> tuple[Any, ...]:
    return (task.state, task.reason, task.since, task.attempt, task.tries, task.ended)


def _alive(run: RunFold) -> tuple[Any, ...]:
    """What an engine decides upon."""
    counts = {state: count for state, count in run.counts.items() if count}
    return (run.exists, run.run, run.tasks, run.open, counts)


def _claims(placed: Placed) -> bool:
    return placed.event.event_type == "LeaderClaimed"


def _merge(tables: dict[Table, dict[Any, Row]], state: State) -> None:
    for table, rows in state.take().rows().items():
        _add(table, tables[table], rows)


def _add(table: Table, known: dict[Any, Row], rows: Iterable[Row]) -> None:
    for row in rows:
        key = table.row_key(row)
        if key not in known or table.row_place(known[key]) <= table.row_place(row):
            known[key] = row


def _difference(found: list[Row], expected: list[Row]) -> str:
    wrong = [row for row in found if row not in expected][:3]
    missing = [row for row in expected if row not in found][:3]
    return "\n".join(
        [*(f"  found    {row}" for row in wrong), *(f"  expected {row}" for row in missing)]
    )
