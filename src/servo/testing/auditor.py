"""The auditor: what must hold in a simulated world, checked while it runs and at its end.

It reads the true log and the true store, without any fault between, and folds along (the *shadow*).

    while it runs   every segment follows the one before; only the leader of the highest epoch writes
                    as leader; no event is there twice; an attempt is asked for only of a task that can
                    go, in a run that was not told to stop; what has ended stays as it is; work that
                    is begun was asked for, durably, and everything it needs has succeeded; what was
                    acknowledged is where the caller was told; who was fenced does nothing more
    at the end      tables published at each revision are the fold of the ledger up to its position;
                    every request became exactly one run, and every run has ended
"""

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from servo.core import plan as plans
from servo.core import segments
from servo.core.segments import Place, Segment, digest
from servo.core.states import TaskState, is_terminal, progress
from servo.events.envelope import Placed
from servo.events.execution import TaskHeartbeat
from servo.events.orchestration import DispatchRequested, RunTriggered
from servo.events.vocabulary import VOCABULARY
from servo.fold.shape import Shape
from servo.fold.state import State, admit
from servo.fold.table import Row, Table
from servo.fold.tables import TABLES
from servo.ledger import parquet
from servo.ledger.loader import load_needs, load_state
from servo.ledger.manifest import Manifest, check_follows, find_newest, load, load_base
from servo.ledger.objects import get_value
from servo.ledger.snapshot import Snapshot
from servo.ports.executor import Work
from servo.ports.log import Log
from servo.ports.objects import Objects

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
        self._told: list[tuple[Place, str]] = []
        self._files: dict[str, list[Row]] = {}
        self._begin()

    def power_cut(self, log: Log, objects: Objects) -> None:
        """What was written and never synced may be gone, and nobody was told of it: look again."""
        self._log, self._objects = log, objects
        self._begin()
        for place, key in self._told:
            self._check_told(place, key)

    def _begin(self) -> None:
        self.shadow = State()
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
        while found := at_once(self._log.read(self.shadow.position + 1)):
            for data in found:
                self._check(segments.parse(data, self.shadow.position + 1))

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
        if type(fact) is RunTriggered and fact.plan_object not in shadow.plans:
            plan = plans.load(at_once(get_value(self._objects, fact.plan_object)))
            shadow.learn(fact.plan_object, Shape(plan))
        if type(fact) is DispatchRequested:
            self._check_dispatch(fact, placed)
        shadow.fold([placed])
        run_id = getattr(fact, "run_id", None)
        run = shadow.runs.get(run_id) if run_id is not None else None
        if run is None or run.shape is None or type(fact) is TaskHeartbeat:
            return
        for key in list(run.dirty_tasks):
            self._check_progress(str(run_id), key, placed)
        run.dirty_tasks.clear()

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

    def acknowledge(self, place: Place, key: str) -> None:
        """A caller was told that its fact is at a place."""
        self._told.append((place, key))
        self._check_told(place, key)

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
        assert run.shape is not None
        for above in run.shape.tasks[work.task_key].upstreams:
            if run.tasks[above].state not in (TaskState.SUCCEEDED, TaskState.REUSED):
                raise Violation(
                    f"{work.task_key} began while {above}, which it needs, was"
                    f" {run.tasks[above].state}"
                )
        self._begun[work.attempt_id] = self._begun.get(work.attempt_id, 0) + 1
        if once and self._begun[work.attempt_id] > 1:
            raise Violation(f"{work.attempt_id} of {work.task_key} began twice")

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
