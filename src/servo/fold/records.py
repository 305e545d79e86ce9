"""Records: what is known of an attempt, a task and a run, as joins of placed facts.

    mark     (position, index, at): a fact's place, and its time for people and deadlines. Marks are
             compared by place; two marks of one place are one fact
    join     how two facts about one thing become one record, whatever comes first: the lowest place
             stands, the highest does (`latest`), or both are kept (results, outputs)

Records are frozen. A change makes a new one, so the old one can be put back (a lost race), be
written to Parquet while the fold goes on, and be compared.
"""

from typing import NamedTuple

import msgspec

from servo.core.failures import TaskFailure
from servo.core.states import RunState, RunTransitionReason, TaskState, TransitionReason
from servo.events.execution import MaterializationCompleted, Outcome, TaskFinished
from servo.events.orchestration import RunTriggered, Stop, attempt_id

Mark = tuple[int, int, int]


def latest(one: Mark | None, two: Mark | None) -> Mark | None:
    if one is None or two is None:
        return one or two
    return max(one, two)


class Result(msgspec.Struct, frozen=True, gc=False):
    """One way in which an attempt was reported to have ended, where that was said first."""

    mark: Mark
    outcome: Outcome
    error: TaskFailure | None = None
    retriable: bool = False
    started_at: int | None = None
    duration_us: int = 0
    cpu_us: int | None = None
    worker_id: str | None = None

    @classmethod
    def of(cls, fact: TaskFinished, mark: Mark) -> "Result":
        return cls(
            mark,
            fact.outcome,
            fact.error,
            fact.retriable,
            fact.started_at,
            fact.duration_us,
            fact.cpu_us,
            fact.worker_id,
        )

    @property
    def kind(self) -> tuple[str, str]:
        """Two reports of one kind are one result; of two kinds, they contradict each other."""
        return (self.outcome, self.error.code if self.error else "")


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """What is known of one attempt. The first result stands; the others are kept as conflicts."""

    number: int
    attempt_id: str
    dispatched: Mark | None = None
    worker: str | None = None
    started: Mark | None = None
    worker_id: str | None = None
    heartbeat: Mark | None = None
    results: tuple[Result, ...] = ()
    """One per kind, by place."""

    @classmethod
    def new(cls, run_id: str, task_key: str, number: int) -> "Attempt":
        return cls(number, attempt_id(run_id, task_key, number))

    def asked(self, mark: Mark, worker: str) -> "Attempt":
        if self.dispatched is not None and self.dispatched <= mark:
            return self
        return Attempt(
            self.number,
            self.attempt_id,
            mark,
            worker,
            self.started,
            self.worker_id,
            self.heartbeat,
            self.results,
        )

    def began(self, mark: Mark, worker_id: str) -> "Attempt":
        if self.started is not None and self.started <= mark:
            return self
        return msgspec.structs.replace(self, started=mark, worker_id=worker_id)

    def alive(self, mark: Mark) -> "Attempt":
        if self.heartbeat is not None and self.heartbeat >= mark:
            return self
        return msgspec.structs.replace(self, heartbeat=mark)

    def ended(self, result: Result) -> "Attempt":
        results = self.results
        if not results:
            results = (result,)
        else:
            same = next((r for r in results if r.kind == result.kind), None)
            if same is not None and same.mark <= result.mark:
                return self
            others = [r for r in results if r is not same]
            results = tuple(sorted([*others, result], key=lambda r: r.mark))
        return Attempt(
            self.number,
            self.attempt_id,
            self.dispatched,
            self.worker,
            self.started,
            self.worker_id,
            self.heartbeat,
            results,
        )

    @property
    def result(self) -> Result | None:
        return self.results[0] if self.results else None

    @property
    def last(self) -> Mark:
        last = self.results[-1].mark if self.results else (0, 0, 0)
        for mark in (self.dispatched, self.started, self.heartbeat):
            if mark is not None and mark > last:
                last = mark
        return last


class Reuse(msgspec.Struct, frozen=True, gc=False):
    mark: Mark
    materialization_id: str
    reason: str


class Output(NamedTuple):
    """A version that an attempt of a task says it made."""

    materialization_id: str
    attempt: int
    mark: Mark


class Dead(NamedTuple):
    """The earliest upstream end that means this task will not run. Ordered by place, then weight."""

    mark: Mark
    weight: int
    state: TaskState
    reason: TransitionReason


class Task(msgspec.Struct, frozen=True, gc=False):
    """What is known of a task of a run: joins first, then what its edges say, then what is derived
    from both (`servo.fold.deriving`)."""

    attempts: tuple[Attempt, ...] = ()
    """By number."""
    reused: Reuse | None = None
    outputs: tuple[Output, ...] = ()
    """By place."""

    met: int = 0
    """Upstream tasks whose edge is SUCCESS."""
    met_at: Mark | None = None
    dead: Dead | None = None

    state: TaskState = TaskState.PENDING
    reason: TransitionReason = TransitionReason.RUN_TRIGGERED
    since: Mark = (0, 0, 0)
    """What brought the task into this state."""
    attempt: int = 0
    """The attempt that counts: the highest that was asked for before the task ended."""
    tries: int = 0
    """Attempts asked for, without those that were interrupted."""
    retry_at: int | None = None
    """Microseconds: when the next attempt may be asked for, in RETRY_WAIT."""
    ended: Mark | None = None
    last: Mark = (0, 0, 0)
    """The place that last changed the row."""

    def of(self, number: int) -> Attempt | None:
        for attempt in self.attempts:
            if attempt.number == number:
                return attempt
        return None

    @property
    def current(self) -> Attempt | None:
        return self.of(self.attempt) if self.attempt else None

    @property
    def next_attempt(self) -> int:
        """A number that no fact has mentioned yet: neither a dispatch that did not count nor a
        stray report can stand in the way of the next attempt."""
        return self.attempts[-1].number + 1 if self.attempts else 1

    def with_attempt(self, attempt: Attempt) -> "Task":
        """What is known, with one more attempt or more of it; what is derived is to be derived."""
        others = [a for a in self.attempts if a.number != attempt.number]
        attempts: tuple[Attempt, ...] = (attempt,)
        if others:
            attempts = tuple(sorted([*others, attempt], key=lambda a: a.number))
        return Task(attempts, self.reused, self.outputs, self.met, self.met_at, self.dead)


class RunStop(msgspec.Struct, frozen=True, gc=False):
    mark: Mark
    by: Stop
    message: str
    actor: str | None = None


class Run(msgspec.Struct, frozen=True, gc=False):
    """What is known of a run itself, and what is derived from that and its tasks."""

    triggered: Mark | None = None
    trigger: RunTriggered | None = None
    actor: str | None = None
    stop: RunStop | None = None
    begun: Mark | None = None
    """The first dispatch or reuse."""
    last: Mark = (0, 0, 0)
    """The highest place of any fact about the run or its tasks."""

    state: RunState = RunState.PENDING
    reason: RunTransitionReason = RunTransitionReason.TRIGGERED
    since: Mark = (0, 0, 0)
    ended: Mark | None = None


class Materialization(msgspec.Struct, frozen=True, gc=False):
    """A version, as it was first reported. It counts once its attempt stands as its task's result."""

    mark: Mark
    fact: MaterializationCompleted
    committed: Mark | None = None
    """When it began to count: the later of its report and its task's success."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """One run's claim on a run key."""

    mark: Mark
    run_id: str
    request_hash: str


class Deployment(msgspec.Struct, frozen=True, gc=False):
    mark: Mark
    deployment_id: str
    manifest_object: str
    code_version: str
    assets: int
    actor: str | None = None


class Asset(msgspec.Struct, frozen=True, gc=False):
    """An asset: the first deployment that named its key gave it its id."""

    mark: Mark
    asset_key: str
    asset_id: str
    deployment_id: str
    latest: Mark
    latest_deployment_id: str
