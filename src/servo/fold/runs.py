"""A run with its tasks: how facts change them, and how an end runs down the edges.

The edges of a run are not kept: an edge is what its upstream task's end means (`servo.core.states`),
so it cannot be counted twice. A task knows how many of its edges are SUCCESS and the earliest one
that is not; when an upstream's end changes, the tasks below are brought up to date, stage by stage so
that each is looked at once, and nothing else is.

A run begins with its trigger. What stands before that says nothing of it, since nobody could know of
the run; in memory it is kept aside (`early`), because the trigger may be folded later than what
follows it. Nothing of a run that nobody asked for, or whose key belongs to another, is in a table.

Indexes (`ready`, and the timers that the state holds) are supersets, checked when they are read:
they may name a task that has moved on, and never miss one that has not. Held by
tests/property/test_fold_properties.py.
"""

import heapq

import msgspec

from servo.core.states import (
    EdgeEffect,
    RunState,
    RunTransitionReason,
    TaskState,
    edge_effect,
    edge_weight,
    is_terminal,
    settle_run,
)
from servo.events.envelope import Event
from servo.events.orchestration import RunTriggered
from servo.fold import deriving
from servo.fold.records import Dead, Mark, Run, RunStop, Task, latest
from servo.fold.shape import Shape
from servo.fold.trail import Trail

_OPEN = (TaskState.DISPATCHED, TaskState.RUNNING)
_LIVE = tuple(state for state in TaskState if not is_terminal(state))

Timer = tuple[int, str, str]
"""When to look at a task of a run, in microseconds."""

_Edge = tuple[EdgeEffect, Mark]


class RunFold:
    """Change it through its methods only: they leave a trail."""

    def __init__(
        self,
        run_id: str,
        trail: Trail,
        timers: list[Timer],
        recheck: dict[tuple[str, str], None],
    ) -> None:
        self.run_id = run_id
        self._trail = trail
        self._timers = timers
        self._recheck = recheck
        """Tasks with versions that may have begun to count, or ceased to."""
        self.run = Run()
        self.void = False
        """Its run key belongs to another run, so that this one does not exist."""
        self.shape: Shape | None = None
        self.early: dict[Mark, Event] = {}
        """Facts that stand before the trigger, as far as one is known."""
        self.tasks: dict[str, Task] = {}
        self.counts: dict[TaskState, int] = {}
        """How many tasks of the plan are in each state."""
        self.open: dict[str, int] = {}
        """The attempt of each task that is DISPATCHED or RUNNING."""
        self.late = 0
        """Ended tasks whose end is not before the stop: whether the stop had any effect."""
        self.ready: list[tuple[int, Mark, str]] = []
        self.dirty_tasks: dict[str, None] = {}
        self.dirty_edges: dict[str, None] = {}
        """Upstream tasks of edges whose rows have changed."""
        self.dirty_run = False
        self._ends_changed = True
        """Whether the last end of a task has to be looked for again."""

    @property
    def exists(self) -> bool:
        return self.run.triggered is not None and not self.void

    @property
    def ended(self) -> bool:
        return self.exists and is_terminal(self.run.state)

    def use(self, trail: Trail, recheck: dict[tuple[str, str], None]) -> None:
        """From now on changes are part of the state's overlay: it was loaded."""
        self._trail, self._recheck = trail, recheck
        self.dirty_run = False
        self.dirty_tasks, self.dirty_edges = {}, {}

    # --- The run itself ---------------------------------------------------------------------------

    def set_run(self, run: Run) -> None:
        self._trail.put(vars(self), "run", run)
        self.dirty_run = True

    def set_void(self, void: bool) -> None:
        self._trail.put(vars(self), "void", void)
        self.dirty_run = True
        self.dirty_tasks.update(dict.fromkeys(self.tasks))
        if self.shape is not None:
            self.dirty_edges.update(dict.fromkeys(self.shape.downstreams))

    def set_trigger(self, trigger: RunTriggered, mark: Mark, actor: str | None) -> None:
        """The first trigger stands. Comes before `set_shape`."""
        self.set_run(
            msgspec.structs.replace(
                self.run, triggered=mark, trigger=trigger, actor=actor, since=mark
            )
        )

    def set_begun(self, mark: Mark) -> None:
        """The first dispatch or reuse stands."""
        if self.run.begun is None or mark < self.run.begun:
            self.set_run(msgspec.structs.replace(self.run, begun=mark))

    def set_stop(self, stop: RunStop) -> None:
        """The first request stands; what no worker holds ends with it."""
        if self.run.stop is not None and self.run.stop.mark <= stop.mark:
            return
        self.set_run(msgspec.structs.replace(self.run, stop=stop))
        assert self.shape is not None
        late = sum(1 for task in self.tasks.values() if _is_late(task, stop.mark))
        self._trail.put(vars(self), "late", late)
        for key in self.shape.order:
            self.put(key, self.tasks[key])

    def set_shape(self, shape: Shape) -> None:
        """The plan is known: every task of it is there from now on."""
        assert self.run.triggered is not None
        trail = self._trail
        for name, value in (("shape", shape), ("counts", {}), ("open", {}), ("late", 0)):
            trail.put(vars(self), name, value)
        self.dirty_run = True
        self.dirty_tasks.update(dict.fromkeys(shape.order))
        self.dirty_edges.update(dict.fromkeys(shape.downstreams))
        waiting, ready = deriving.blank(self.run.triggered)
        if self.tasks or self.run.stop is not None:
            # It was loaded, or is found to have begun earlier. Upstreams come first, so that nothing
            # has to run down an edge.
            for key in shape.order:
                joined = self._with_edges(key, self.tasks.get(key, waiting))
                self._replace(key, None, self._derived(key, joined))
            return
        free = 0
        for key in shape.order:
            if shape.tasks[key].upstreams:
                trail.put(self.tasks, key, waiting)
            else:
                free += 1
                trail.put(self.tasks, key, ready)
                self._index(key, ready)
        trail.put(self.counts, TaskState.PENDING, len(shape.order) - free)
        trail.put(self.counts, TaskState.READY, free)

    def settle(self) -> None:
        """Derive the run's own state from its tasks."""
        run = self.run
        if run.triggered is None:
            return
        stop, counts = run.stop, self.counts
        if not any(counts.get(state) for state in _LIVE):
            if stop is not None and not self.late:
                stop = None  # everything had ended before
            settled = settle_run(counts, deriving.STOPPING[stop.by] if stop else None)
            assert settled is not None
            state, reason = settled
            ended = run.ended
            if ended is None or self._ends_changed:
                assert self.shape is not None
                ends = (self.tasks[key].ended for key in self.shape.order)
                ended = max((end for end in ends if end), default=run.triggered)
                self._ends_changed = False
            since = ended
        else:
            ended = None
            if stop is not None:
                state, reason = RunState.CANCELLING, deriving.STOPPING[stop.by]
                since = stop.mark
            elif run.begun is not None:
                state, reason, since = RunState.RUNNING, RunTransitionReason.STARTED, run.begun
            else:
                state, reason, since = (
                    RunState.PENDING,
                    RunTransitionReason.TRIGGERED,
                    run.triggered,
                )
        if (state, reason, since, ended) != (run.state, run.reason, run.since, run.ended):
            self.set_run(
                msgspec.structs.replace(run, state=state, reason=reason, since=since, ended=ended)
            )

    # --- Its tasks --------------------------------------------------------------------------------

    def task(self, key: str) -> Task:
        """What is known of a task; also of one that the plan does not have."""
        return self.tasks.get(key) or _UNKNOWN

    def has(self, key: str) -> bool:
        """Whether the plan has the task."""
        return self.shape is not None and key in self.shape.tasks

    def put(self, key: str, joined: Task) -> None:
        """Something new is known of a task."""
        if self.shape is None or key not in self.shape.tasks:
            self._trail.put(self.tasks, key, joined)
            self.dirty_tasks[key] = None
            return
        old = self.tasks[key]
        new = self._derived(key, joined)
        self._replace(key, old, new)
        if new.ended is not None or old.ended is not None:
            self._run_down(key, old, new)

    def _run_down(self, key: str, old: Task, new: Task) -> None:
        """Bring the tasks below one whose end has changed up to date."""
        shape = self.shape
        assert shape is not None
        todo: dict[str, list[_Edge] | None] = {}
        """Tasks to the edges that were resolved; None where one was found to be another."""
        queue: list[tuple[int, str]] = []
        while True:
            before, after = _edge(old), _edge(new)
            if before != after and key in shape.downstreams:
                self.dirty_edges[key] = None
                for below in shape.downstreams[key]:
                    if below not in todo:
                        todo[below] = []
                        heapq.heappush(queue, (shape.tasks[below].stage, below))
                    edges = todo[below]
                    if before is not None or after is None:
                        todo[below] = None
                    elif edges is not None:
                        edges.append(after)
            if not queue:
                return
            _, key = heapq.heappop(queue)
            old = self.tasks[key]
            edges = todo.pop(key)
            if edges is None:
                joined = self._with_edges(key, old)
            else:
                joined = old
                for edge in edges:
                    joined = _with_edge(joined, *edge)
            new = self._derived(key, joined)
            self._replace(key, old, new)

    def _derived(self, key: str, joined: Task) -> Task:
        shape, run = self.shape, self.run
        assert shape is not None and run.triggered is not None
        deps, retry = len(shape.tasks[key].upstreams), shape.rules(key).retry
        return deriving.derive(joined, deps, retry, self.run_id, key, run.triggered, run.stop)

    def _with_edges(self, key: str, task: Task) -> Task:
        """What all its edges say, from scratch: needed when an end is found to be another."""
        assert self.shape is not None
        task = Task(task.attempts, task.reused, task.outputs)
        for above in self.shape.tasks[key].upstreams:
            edge = _edge(self.tasks[above])
            if edge is not None:
                task = _with_edge(task, *edge)
        return task

    def _replace(self, key: str, old: Task | None, new: Task) -> None:
        put = self._trail.put
        put(self.tasks, key, new)
        self.dirty_tasks[key] = None
        self.dirty_run = True
        state, was = new.state, old.state if old is not None else None
        if state is not was:
            counts = self.counts
            if was is not None:
                put(counts, was, counts[was] - 1)
            put(counts, state, counts.get(state, 0) + 1)
        elif (
            old is not None
            and new.since == old.since
            and new.attempt == old.attempt
            and new.retry_at == old.retry_at
        ):
            return  # the same state by the same fact: more is known of it, and nothing follows
        if state in _OPEN:
            put(self.open, key, new.attempt)
        elif was in _OPEN:
            self._trail.drop(self.open, key)
        if new.ended is not None or (old is not None and old.ended is not None):
            self._ends_changed = True
            if self.run.stop is not None:
                stop = self.run.stop.mark
                change = _is_late(new, stop) - _is_late(old, stop)
                if change:
                    put(vars(self), "late", self.late + change)
        if new.outputs:
            self._recheck[self.run_id, key] = None
        self._index(key, new)

    def _index(self, key: str, task: Task) -> None:
        """Let the indexes find the task."""
        assert self.shape is not None
        state = task.state
        if state is TaskState.READY:
            rules = self.shape.rules(key)
            heapq.heappush(self.ready, (-rules.priority, task.since, key))
        elif state is TaskState.RETRY_WAIT:
            assert task.retry_at is not None
            heapq.heappush(self._timers, (task.retry_at, self.run_id, key))
        elif state is TaskState.DISPATCHED or state is TaskState.RUNNING:
            rules = self.shape.rules(key)
            heapq.heappush(self._timers, (task.since[2] + rules.look_us, self.run_id, key))

    def restored(self, key: str) -> None:
        """A task was put back to what it was: the indexes may have lost it meanwhile."""
        if self.shape is not None and key in self.shape.tasks and key in self.tasks:
            self._index(key, self.tasks[key])

    def take_ready(self, limit: int, now: int | None = None) -> list[str]:
        """Up to `limit` tasks that can be dispatched, best first. They stay in the index. Tasks that
        wait for a retry are among them if their wait is over by `now`; without it, never."""
        return [key for _, _, key in self._valid_ready(limit, now)]

    def first_ready(self, now: int | None = None) -> tuple[int, Mark, str] | None:
        return next(iter(self._valid_ready(1, now)), None)

    def _valid_ready(self, limit: int, now: int | None) -> list[tuple[int, Mark, str]]:
        found: list[tuple[int, Mark, str]] = []
        waiting: list[tuple[int, Mark, str]] = []
        seen: set[str] = set()
        while self.ready and len(found) < limit:
            entry = heapq.heappop(self.ready)
            _, since, key = entry
            task = self.tasks.get(key)
            if key in seen or task is None or task.since != since:
                continue
            if task.state is TaskState.READY:
                seen.add(key)
                found.append(entry)
            elif task.state is TaskState.RETRY_WAIT:
                seen.add(key)
                assert task.retry_at is not None
                can_go = now is not None and self.retry_is_due(key, now)
                (found if can_go else waiting).append(entry)
        for entry in (*found, *waiting):
            heapq.heappush(self.ready, entry)
        return found

    def retry_is_due(self, key: str, now: int) -> bool:
        """Whether the wait between two attempts is over. A failure that was reported by a clock far
        ahead of ours cannot say when that is, and is not waited for."""
        task = self.tasks[key]
        assert task.retry_at is not None
        return task.retry_at <= now or task.since[2] > now + FAR_AHEAD_US

    def due(self, key: str) -> None:
        """A retry's wait is over: it queues behind the tasks that were ready before it."""
        assert self.shape is not None
        entry = (-self.shape.rules(key).priority, self.tasks[key].since, key)
        heapq.heappush(self.ready, entry)


FAR_AHEAD_US = 60_000_000
"""How far a reporter's clock may be ahead of ours before its times are taken for wrong."""

_UNKNOWN = Task()


def _is_late(task: Task | None, stop: Mark) -> bool:
    return task is not None and task.ended is not None and task.ended >= stop


def _edge(task: Task) -> _Edge | None:
    """What the edges below a task say: nothing until it has ended."""
    if task.ended is None:
        return None
    effect = edge_effect(task.state)
    return (effect, task.ended) if effect is not None else None


def _with_edge(task: Task, effect: EdgeEffect, mark: Mark) -> Task:
    """What is known of the task, with one more edge resolved."""
    met, met_at, dead = task.met, task.met_at, task.dead
    if effect.target is None:
        met, met_at = met + 1, latest(met_at, mark)
    else:
        assert effect.reason is not None
        ends = Dead(mark, -edge_weight(effect), effect.target, effect.reason)
        dead = ends if dead is None or ends < dead else dead
    return Task(task.attempts, task.reused, task.outputs, met, met_at, dead)
