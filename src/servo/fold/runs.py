"""A run with its tasks: how facts change them, and how an end runs down the edges.

The edges of a run are not kept: an edge is what its upstream task's end means (`servo.core.states`),
so it cannot be counted twice. A task knows how many of its edges are SUCCESS and the earliest one
that is not; when an upstream's end changes, the tasks below are brought up to date, and nothing else.

Indexes (`ready`, and the timers that the state holds) are supersets, checked when they are read:
they may name a task that has moved on, and never miss one that has not.
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
from servo.fold import deriving
from servo.fold.records import Dead, Mark, Run, RunStop, Task, latest
from servo.fold.shape import Shape
from servo.fold.trail import Trail

_OPEN = (TaskState.DISPATCHED, TaskState.RUNNING)

Timer = tuple[int, str, str]
"""When to look at a task of a run, in microseconds."""


class RunFold:
    """Change it through its methods only: they leave a trail."""

    def __init__(self, run_id: str, trail: Trail, timers: list[Timer]) -> None:
        self.run_id = run_id
        self._trail = trail
        self._timers = timers
        self.run = Run()
        self.void = False
        """Its run key belongs to another run, so that this one does not exist."""
        self.shape: Shape | None = None
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

    @property
    def exists(self) -> bool:
        return self.run.triggered is not None and not self.void

    @property
    def ended(self) -> bool:
        return self.exists and is_terminal(self.run.state)

    # --- The run itself ---------------------------------------------------------------------------

    def set_run(self, run: Run) -> None:
        self._trail.put(vars(self), "run", run)
        self.dirty_run = True

    def set_void(self, void: bool) -> None:
        self._trail.put(vars(self), "void", void)
        self.dirty_run = True
        self.dirty_tasks.update(dict.fromkeys(self.tasks))

    def set_stop(self, stop: RunStop) -> None:
        """The first request stands; what no worker holds ends with it."""
        if self.run.stop is not None and self.run.stop.mark <= stop.mark:
            return
        self.set_run(msgspec.structs.replace(self.run, stop=stop))
        if self.shape is not None:
            late = sum(1 for task in self.tasks.values() if _is_late(task, stop.mark))
            self._trail.put(vars(self), "late", late)
            for key in self.shape.order:
                self.put(key, self.tasks[key])

    def set_shape(self, shape: Shape) -> None:
        """The plan is known: every task of it is there from now on."""
        assert self.run.triggered is not None
        self._trail.put(vars(self), "shape", shape)
        waiting, ready = deriving.blank(self.run.triggered)
        if self.tasks or self.run.stop is not None:
            # Facts were folded before the plan. Upstreams come first, so nothing runs down an edge.
            for key in shape.order:
                joined = self._with_edges(key, self.tasks.get(key, waiting))
                self._replace(key, None, self._derived(key, joined))
            return
        free = 0
        for key in shape.order:
            if shape.tasks[key].upstreams:
                self._trail.put(self.tasks, key, waiting)
            else:
                free += 1
                self._trail.put(self.tasks, key, ready)
                self._index(key, ready)
        self._trail.put(self.counts, TaskState.PENDING, len(shape.order) - free)
        self._trail.put(self.counts, TaskState.READY, free)
        self.dirty_tasks.update(self.tasks.fromkeys(shape.order))
        self.dirty_edges.update(dict.fromkeys(shape.downstreams))

    def settle(self) -> None:
        """Derive the run's own state from its tasks."""
        run = self.run
        if run.triggered is None:
            return
        stop = run.stop
        total = len(self.shape.tasks) if self.shape is not None else 0
        ends = sum(n for state, n in self.counts.items() if is_terminal(state))
        if ends == total:
            if stop is not None and not self.late:
                stop = None  # everything had ended before
            settled = settle_run(self.counts, deriving.STOPPING[stop.by] if stop else None)
            assert settled is not None
            state, reason = settled
            ended = max((t.ended for t in self.tasks.values() if t.ended), default=run.triggered)
            since = ended = max(ended, run.triggered)
        else:
            ended = None
            if stop is not None:
                state, reason = RunState.CANCELLING, deriving.STOPPING[stop.by]
                since = max(stop.mark, run.triggered)
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
        """What is known of a task; also of one whose plan is not known."""
        return self.tasks.get(key) or _UNKNOWN

    def put(self, key: str, joined: Task) -> None:
        """Something new is known of a task."""
        if self.shape is None or key not in self.shape.tasks:
            self._trail.put(self.tasks, key, joined)
            self.dirty_tasks[key] = None
            return
        todo = [(key, joined)]
        while todo:
            key, joined = todo.pop()
            old = self.tasks[key]
            new = self._derived(key, joined)
            self._replace(key, old, new)
            before, after = _edge(old), _edge(new)
            if before == after:
                continue
            self.dirty_edges[key] = None
            for below in self.shape.downstreams.get(key, ()):
                task = self.tasks[below]
                if before is None and after is not None:
                    todo.append((below, _with_edge(task, *after)))
                else:
                    todo.append((below, self._with_edges(below, task)))

    def _derived(self, key: str, joined: Task) -> Task:
        assert self.shape is not None and self.run.triggered is not None
        return deriving.derive(
            joined,
            deps=len(self.shape.tasks[key].upstreams),
            retry=self.shape.rules(key).retry,
            seed=f"{self.run_id}:{key}",
            triggered=self.run.triggered,
            stop=self.run.stop,
        )

    def _with_edges(self, key: str, task: Task) -> Task:
        """What all its edges say, from scratch: needed when an end is found to be another."""
        assert self.shape is not None
        task = msgspec.structs.replace(task, met=0, met_at=None, dead=None)
        for above in self.shape.tasks[key].upstreams:
            edge = _edge(self.tasks[above]) if above in self.tasks else None
            if edge is not None:
                task = _with_edge(task, *edge)
        return task

    def _replace(self, key: str, old: Task | None, new: Task) -> None:
        trail = self._trail
        trail.put(self.tasks, key, new)
        self.dirty_tasks[key] = None
        was = old.state if old is not None else None
        if new.state is not was:
            counts = self.counts
            if was is not None:
                trail.put(counts, was, counts[was] - 1)
            trail.put(counts, new.state, counts.get(new.state, 0) + 1)
        if new.state in _OPEN:
            trail.put(self.open, key, new.attempt)
        elif was in _OPEN:
            trail.drop(self.open, key)
        if self.run.stop is not None:
            change = _is_late(new, self.run.stop.mark) - _is_late(old, self.run.stop.mark)
            if change:
                trail.put(vars(self), "late", self.late + change)
        self._index(key, new)

    def _index(self, key: str, task: Task) -> None:
        """Let the indexes find the task."""
        assert self.shape is not None
        rules = self.shape.rules(key)
        if task.state is TaskState.READY:
            heapq.heappush(self.ready, (-rules.priority, task.since, key))
        elif task.state is TaskState.RETRY_WAIT:
            assert task.retry_at is not None
            heapq.heappush(self._timers, (task.retry_at, self.run_id, key))
        elif task.state in _OPEN:
            limits = rules.timeouts
            wait = limits.dispatch_ack_ms
            if task.state is TaskState.RUNNING:
                wait = min(limits.heartbeat_ms, limits.execution_ms or limits.heartbeat_ms)
            if self.run.stop is not None:
                wait = min(wait, limits.heartbeat_ms)
            heapq.heappush(self._timers, (task.since[2] + wait * 1000, self.run_id, key))

    def restored(self, key: str) -> None:
        """A task was put back to what it was: the indexes may have lost it meanwhile."""
        if self.shape is not None and key in self.shape.tasks and key in self.tasks:
            self._index(key, self.tasks[key])

    def restored_run(self) -> None:
        self.dirty_run = True

    def take_ready(self, limit: int) -> list[str]:
        """Up to `limit` tasks that can be dispatched, best first. They stay in the index."""
        return [key for _, _, key in self._valid_ready(limit)]

    def first_ready(self) -> tuple[int, Mark, str] | None:
        return next(iter(self._valid_ready(1)), None)

    def _valid_ready(self, limit: int) -> list[tuple[int, Mark, str]]:
        found: list[tuple[int, Mark, str]] = []
        seen: set[str] = set()
        while self.ready and len(found) < limit:
            entry = heapq.heappop(self.ready)
            if entry[2] not in seen and self._can_go(entry):
                seen.add(entry[2])
                found.append(entry)
        for entry in found:
            heapq.heappush(self.ready, entry)
        return found

    def _can_go(self, entry: tuple[int, Mark, str]) -> bool:
        task = self.tasks.get(entry[2])
        return (
            task is not None
            and task.state in (TaskState.READY, TaskState.RETRY_WAIT)
            and task.since == entry[1]
        )

    def due(self, key: str) -> None:
        """A retry's wait is over: it queues behind the tasks that were ready before it."""
        assert self.shape is not None
        entry = (-self.shape.rules(key).priority, self.tasks[key].since, key)
        heapq.heappush(self.ready, entry)


_UNKNOWN = Task()


def _is_late(task: Task | None, stop: Mark) -> bool:
    return task is not None and task.ended is not None and task.ended >= stop


def _edge(task: Task) -> tuple[EdgeEffect, Mark] | None:
    """What the edges below a task say: nothing until it has ended."""
    if task.ended is None:
        return None
    effect = edge_effect(task.state)
    return (effect, task.ended) if effect is not None else None


def _with_edge(task: Task, effect: EdgeEffect, mark: Mark) -> Task:
    """The task with one more edge resolved."""
    if effect.target is None:
        return Task(
            task.attempts,
            task.reused,
            task.outputs,
            task.met + 1,
            latest(task.met_at, mark),
            task.dead,
        )
    assert effect.reason is not None
    dead = Dead(mark, -edge_weight(effect), effect.target, effect.reason)
    if task.dead is not None and task.dead <= dead:
        return task
    return msgspec.structs.replace(task, dead=dead)
