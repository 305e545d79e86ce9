"""States of tasks and runs: one table of transitions each, and everything else derived from it.

Facts join; state derives. Nobody sets a state: the fold alone computes it, from facts that others
wrote. So each row of a table names *who alone may write the fact* that makes the transition:

    requester   whoever asks for a run or for its end: a person, a schedule, a sensor, a backfill
    leader      the controllers of the engine that leads the workspace: dispatch, reuse, deadlines
    worker      the worker, or the executor that watched it die
    fold        nobody: it follows from facts already there, at the same place

Tasks (a fact in brackets; no bracket, no fact of its own):

    requester [RunTriggered]
        |
        v      fold           leader [DispatchRequested]        worker [TaskStarted]
     PENDING --------> READY ---------------------> DISPATCHED ---------------------> RUNNING
        |                |                           |      ^                            |
        | fold           | leader [TaskReused]       |      |  leader                    |
        v                v                           |      |  [DispatchRequested        |
     SKIPPED          REUSED                         |      |   of the next attempt]     |
                                                     v      |                            |
                     leader [no ack], worker [lost]  RETRY_WAIT <------------------------+
                                                     worker [TaskFinished], leader [deadline]
                                                                                         |
     SUCCEEDED <---- worker [TaskFinished, succeeded] -----------------------------------+
     FAILED    <---- worker [TaskFinished], leader [deadline]; from DISPATCHED too ------+
     CANCELLED <---- worker [TaskFinished], leader [forced]; from DISPATCHED too --------+
     CANCELLED <---- fold, the moment the run is told to stop: from PENDING, READY, RETRY_WAIT

Runs:

    requester [RunTriggered]
        |
        v     leader [first dispatch or reuse]        fold, when every task has ended
     PENDING ---------------------------> RUNNING -----------> SUCCEEDED, FAILED, CANCELLED
        |  |                                 |
        |  +--> SUCCEEDED (an empty plan)    |  requester or leader [RunCancelRequested],
        |                                    |  worker [a check whose action is fail_run]
        +--------------------------------> CANCELLING --------> CANCELLED, FAILED, TIMED_OUT

* **A row is one step; one place may hold several.** A result implies the start it does not mention
  (`TaskStarted` need not be durable), a skip runs down a chain of tasks, a cancelled run whose
  tasks all wait is CANCELLED at once. Who looks at two moments sees the steps composed: `reachable`.
* **Only the retry goes back.** RETRY_WAIT -> DISPATCHED is the one row whose rank falls, and a
  dispatch always comes with a higher attempt. So `progress`, the pair (attempt, rank), grows with
  every step, and a late fact of an older attempt can never pass for news. For the same reason an
  interrupted attempt goes to RETRY_WAIT (with no delay) and not to READY. Ranks are never stored.
* **Ends are ends.** No row leaves a terminal state. Two different results of one attempt are settled
  by place (the first stands), never by rank.
* **Waiting is not a transition.** Why a task stays where it is (a limit, code that only its
  submitter can load) changes without any fact and follows from a view: that is a `WaitReason`.

Left out of the first design's states, because no fact could tell them from their neighbours: PLANNED
(`RunTriggered` makes a task PENDING in the same step) and QUEUED (asking for a dispatch is one
durable fact and makes DISPATCHED; a task held back by a limit is READY). The end of a backoff is no
state change either, since the fold reads no clock: the dispatch of the next attempt is. Left out of
the first design's reasons: `retry_scheduled` and `skipped_due_to_upstream_failure`, which name the state
again instead of the cause. Held by tests/unit/test_states.py, which walks the tables.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast, overload

from servo.core.failures import FailureCode
from servo.errors import Invalid


class TaskState(enum.StrEnum):
    """Where a task of a run stands. Ends are declared in the order of their ranks."""

    PENDING = "PENDING"
    """Waits for other tasks of the run."""
    READY = "READY"
    """Needs nothing more; waits to be dispatched or reused."""
    DISPATCHED = "DISPATCHED"
    """A worker was asked to run an attempt and has not said that it began."""
    RUNNING = "RUNNING"
    RETRY_WAIT = "RETRY_WAIT"
    """An attempt ended without a result that stands; another will be asked for."""
    SKIPPED = "SKIPPED"
    """Will not run, because of something upstream."""
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    REUSED = "REUSED"
    """Need not run: an existing version stands for its result."""
    SUCCEEDED = "SUCCEEDED"


class RunState(enum.StrEnum):
    """Where a run stands. Ends are declared in the order of their ranks."""

    PENDING = "PENDING"
    """Asked for; nothing dispatched or reused yet."""
    RUNNING = "RUNNING"
    CANCELLING = "CANCELLING"
    """Told to stop: nothing new is dispatched, workers at work are asked to end. The reason says
    whether it will be CANCELLED, FAILED or TIMED_OUT."""
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    FAILED = "FAILED"
    SUCCEEDED = "SUCCEEDED"


class _Explained(enum.StrEnum):
    """A reason: its stored spelling, and one sentence for people, which `servo why` shows."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member


class TransitionReason(_Explained):
    """Why a task changed its state; kept in the task's row."""

    RUN_TRIGGERED = "run_triggered", "The run that this task belongs to was asked for."
    DEPENDENCIES_SATISFIED = (
        "dependencies_satisfied",
        "Everything that this task needs from the run is there.",
    )
    REUSED = (
        "reused",
        "Code, configuration and inputs are those of the last good version, which stands for it.",
    )
    DISPATCHED_TO_WORKER = "dispatched_to_worker", "The engine asked a worker to run it."
    RETRY_DUE = "retry_due", "The wait between two attempts was over, and the next was asked for."
    EXECUTION_STARTED = "execution_started", "A worker took the task and began."
    EXECUTION_SUCCEEDED = (
        "execution_succeeded",
        "The code ran to its end and no check failed the task.",
    )

    EXECUTION_FAILED = "execution_failed", "The worker reported that the attempt failed."
    TIMED_OUT = "timed_out", "The attempt took longer than the task's timeout."
    HEARTBEAT_TIMEOUT = (
        "heartbeat_timeout",
        "The worker sent no heartbeat within the heartbeat timeout, so the attempt was given up.",
    )
    DISPATCH_ACK_TIMEOUT = (
        "dispatch_ack_timeout",
        "No worker took the task within the acknowledgement timeout, so the attempt was given up.",
    )
    WORKER_LOST = "worker_lost", "The worker ended without reporting a result."
    CHECK_FAILED = "check_failed", "A check failed, and its gating policy fails the task."
    INTERRUPTED = (
        "interrupted",
        "The worker was told to shut down; the task runs again and this costs it no attempt.",
    )

    UPSTREAM_FAILED = "upstream_failed", "A task that it needs failed."
    UPSTREAM_SKIPPED = "upstream_skipped", "A task that it needs was skipped."
    UPSTREAM_QUARANTINED = (
        "upstream_quarantined",
        "A version that it needs is in quarantine, and that partition has no older good version.",
    )
    BLOCKED_BY_CHECK = (
        "blocked_by_check",
        "A check on something that it needs failed, and its gating policy blocks downstream.",
    )

    UPSTREAM_CANCELLED = "upstream_cancelled", "A task that it needs was cancelled."
    RUN_CANCELLED = "run_cancelled", "The run was cancelled."
    RUN_FAILED = "run_failed", "A check elsewhere failed the whole run, which stopped this task."
    RUN_TIMED_OUT = (
        "run_timed_out",
        "The run took longer than its timeout, which stopped this task.",
    )
    FINISHED_AFTER_STOP = (
        "finished_after_stop",
        "The attempt ended after its run had been told to stop, so its result is kept but not used.",
    )
    FORCE_CANCELLED = (
        "force_cancelled",
        "The run was told to stop and the worker never answered, so it is waited for no longer.",
    )
    CANCELLED_BY_WORKER = (
        "cancelled_by_worker",
        "The worker or the system under it cancelled the attempt, though nobody stopped the run.",
    )


class RunTransitionReason(_Explained):
    """Why a run changed its state; kept in the run's row."""

    TRIGGERED = "triggered", "The run was asked for."
    STARTED = "started", "The engine took up the first of its tasks."
    NOTHING_TO_DO = "nothing_to_do", "The plan held no tasks."
    ALL_TASKS_SUCCEEDED = "all_tasks_succeeded", "Every task succeeded or was reused."
    SOME_TASKS_SKIPPED = (
        "some_tasks_skipped",
        "No task failed, but some were skipped: a check blocked or quarantined what they need.",
    )
    TASKS_FAILED = "tasks_failed", "At least one task failed."
    TASKS_CANCELLED = (
        "tasks_cancelled",
        "At least one task was cancelled by its worker, though nobody stopped the run.",
    )
    USER_CANCELLED = "user_cancelled", "A person cancelled the run."
    SYSTEM_CANCELLED = "system_cancelled", "A rule of Servo cancelled the run."
    TIMED_OUT = "timed_out", "The run took longer than its timeout."
    FAILED_BY_CHECK = (
        "failed_by_check",
        "A check failed, and its gating policy fails the whole run.",
    )


class WaitReason(_Explained):
    """Why a task or run that has not ended stays where it is.

    Derived from a view whenever somebody asks, never written: it changes without a fact.
    """

    WAITING_FOR_UPSTREAM = "waiting_for_upstream", "Other tasks of the run must end first."
    WAITING_FOR_LIMIT = (
        "waiting_for_limit",
        "A limit on how much may run at once is reached; it goes on when something else ends.",
    )
    WAITING_FOR_CODE = (
        "waiting_for_code",
        "Its code can be loaded only by the process that submitted it, which does not lead now.",
    )
    WAITING_FOR_ENGINE = (
        "waiting_for_engine",
        "It can go on as soon as an engine that leads this workspace takes its next step.",
    )
    WAITING_FOR_WORKER = "waiting_for_worker", "A worker was asked and has not begun yet."
    WAITING_FOR_RETRY = "waiting_for_retry", "The delay before the next attempt is not over."
    WAITING_FOR_STOP = (
        "waiting_for_stop",
        "The run is to stop; workers are told with their next heartbeat and have not answered yet.",
    )


WAITS: dict[TaskState, tuple[WaitReason, ...]] = {
    TaskState.PENDING: (WaitReason.WAITING_FOR_UPSTREAM,),
    TaskState.READY: (
        WaitReason.WAITING_FOR_LIMIT,
        WaitReason.WAITING_FOR_CODE,
        WaitReason.WAITING_FOR_ENGINE,
    ),
    TaskState.DISPATCHED: (WaitReason.WAITING_FOR_WORKER, WaitReason.WAITING_FOR_STOP),
    TaskState.RUNNING: (WaitReason.WAITING_FOR_STOP,),
    TaskState.RETRY_WAIT: (
        WaitReason.WAITING_FOR_RETRY,
        WaitReason.WAITING_FOR_LIMIT,
        WaitReason.WAITING_FOR_CODE,
        WaitReason.WAITING_FOR_ENGINE,
    ),
}
"""What can hold a task in each state. A run waits because its tasks do."""


class Writer(enum.StrEnum):
    """Who alone may write the fact behind a transition; see the module's docstring."""

    REQUESTER = "requester"
    LEADER = "leader"
    WORKER = "worker"
    FOLD = "fold"


S = TypeVar("S", TaskState, RunState)
_State = TypeVar("_State", bound=TaskState | RunState)
_Reason = TypeVar("_Reason", bound=TransitionReason | RunTransitionReason)


class Row(NamedTuple, Generic[_State, _Reason]):
    """One row of a table. The source of the row that creates the thing is None."""

    source: _State | None
    target: _State
    by: Writer
    reasons: tuple[_Reason, ...]
    next_attempt: bool = False
    """The step belongs to a higher attempt than its source did, so its rank may fall."""


_T, _TR, _RR, _W = TaskState, TransitionReason, RunTransitionReason, Writer

# Why a task is cancelled when its run was told to stop; see `stopped_task_reason`.
_STOPPED = (_TR.RUN_CANCELLED, _TR.RUN_FAILED, _TR.RUN_TIMED_OUT)

TASK_TRANSITIONS: tuple[Row[TaskState, TransitionReason], ...] = (
    Row(None, _T.PENDING, _W.REQUESTER, (_TR.RUN_TRIGGERED,)),
    Row(_T.PENDING, _T.READY, _W.FOLD, (_TR.DEPENDENCIES_SATISFIED,)),
    Row(
        _T.PENDING,
        _T.SKIPPED,
        _W.FOLD,
        (
            _TR.UPSTREAM_FAILED,
            _TR.UPSTREAM_SKIPPED,
            _TR.UPSTREAM_QUARANTINED,
            _TR.BLOCKED_BY_CHECK,
        ),
    ),
    Row(_T.PENDING, _T.CANCELLED, _W.FOLD, (*_STOPPED, _TR.UPSTREAM_CANCELLED)),
    Row(_T.READY, _T.REUSED, _W.LEADER, (_TR.REUSED,)),
    Row(_T.READY, _T.DISPATCHED, _W.LEADER, (_TR.DISPATCHED_TO_WORKER,), next_attempt=True),
    Row(_T.READY, _T.CANCELLED, _W.FOLD, _STOPPED),
    Row(_T.DISPATCHED, _T.RUNNING, _W.WORKER, (_TR.EXECUTION_STARTED,)),
    Row(_T.DISPATCHED, _T.RETRY_WAIT, _W.LEADER, (_TR.DISPATCH_ACK_TIMEOUT,)),
    Row(_T.DISPATCHED, _T.RETRY_WAIT, _W.WORKER, (_TR.WORKER_LOST, _TR.INTERRUPTED)),
    Row(_T.DISPATCHED, _T.FAILED, _W.LEADER, (_TR.DISPATCH_ACK_TIMEOUT,)),
    Row(_T.DISPATCHED, _T.FAILED, _W.WORKER, (_TR.WORKER_LOST,)),
    Row(_T.DISPATCHED, _T.CANCELLED, _W.WORKER, _STOPPED),
    Row(_T.DISPATCHED, _T.CANCELLED, _W.LEADER, (_TR.FORCE_CANCELLED,)),
    Row(_T.RUNNING, _T.SUCCEEDED, _W.WORKER, (_TR.EXECUTION_SUCCEEDED,)),
    # Whether an attempt that failed ends in RETRY_WAIT or FAILED is the retry policy's decision,
    # so both have the same reasons; an interruption alone always runs again. The worker enforces
    # the execution timeout; the leader does where the worker cannot (code that never yields).
    Row(
        _T.RUNNING,
        _T.RETRY_WAIT,
        _W.WORKER,
        (
            _TR.EXECUTION_FAILED,
            _TR.TIMED_OUT,
            _TR.WORKER_LOST,
            _TR.CHECK_FAILED,
            _TR.INTERRUPTED,
        ),
    ),
    Row(_T.RUNNING, _T.RETRY_WAIT, _W.LEADER, (_TR.HEARTBEAT_TIMEOUT, _TR.TIMED_OUT)),
    Row(
        _T.RUNNING,
        _T.FAILED,
        _W.WORKER,
        (_TR.EXECUTION_FAILED, _TR.TIMED_OUT, _TR.WORKER_LOST, _TR.CHECK_FAILED),
    ),
    Row(_T.RUNNING, _T.FAILED, _W.LEADER, (_TR.HEARTBEAT_TIMEOUT, _TR.TIMED_OUT)),
    # A result that comes after the run was told to stop, good or bad, does not count, with one
    # exception: the task whose own check stopped the run ends FAILED, with that check's reason.
    Row(
        _T.RUNNING,
        _T.CANCELLED,
        _W.WORKER,
        (*_STOPPED, _TR.FINISHED_AFTER_STOP, _TR.CANCELLED_BY_WORKER),
    ),
    Row(_T.RUNNING, _T.CANCELLED, _W.LEADER, (_TR.FORCE_CANCELLED,)),
    Row(_T.RETRY_WAIT, _T.DISPATCHED, _W.LEADER, (_TR.RETRY_DUE,), next_attempt=True),
    Row(_T.RETRY_WAIT, _T.CANCELLED, _W.FOLD, _STOPPED),
)

_S = RunState

RUN_TRANSITIONS: tuple[Row[RunState, RunTransitionReason], ...] = (
    Row(None, _S.PENDING, _W.REQUESTER, (_RR.TRIGGERED,)),
    Row(_S.PENDING, _S.RUNNING, _W.LEADER, (_RR.STARTED,)),
    Row(_S.PENDING, _S.SUCCEEDED, _W.FOLD, (_RR.NOTHING_TO_DO,)),
    Row(_S.PENDING, _S.CANCELLING, _W.REQUESTER, (_RR.USER_CANCELLED,)),
    Row(_S.PENDING, _S.CANCELLING, _W.LEADER, (_RR.SYSTEM_CANCELLED, _RR.TIMED_OUT)),
    Row(_S.RUNNING, _S.SUCCEEDED, _W.FOLD, (_RR.ALL_TASKS_SUCCEEDED, _RR.SOME_TASKS_SKIPPED)),
    Row(_S.RUNNING, _S.FAILED, _W.FOLD, (_RR.TASKS_FAILED,)),
    Row(_S.RUNNING, _S.CANCELLED, _W.FOLD, (_RR.TASKS_CANCELLED,)),
    Row(_S.RUNNING, _S.CANCELLING, _W.REQUESTER, (_RR.USER_CANCELLED,)),
    Row(_S.RUNNING, _S.CANCELLING, _W.LEADER, (_RR.SYSTEM_CANCELLED, _RR.TIMED_OUT)),
    Row(_S.RUNNING, _S.CANCELLING, _W.WORKER, (_RR.FAILED_BY_CHECK,)),
    Row(_S.CANCELLING, _S.CANCELLED, _W.FOLD, (_RR.USER_CANCELLED, _RR.SYSTEM_CANCELLED)),
    Row(_S.CANCELLING, _S.TIMED_OUT, _W.FOLD, (_RR.TIMED_OUT,)),
    Row(_S.CANCELLING, _S.FAILED, _W.FOLD, (_RR.FAILED_BY_CHECK,)),
)


class _Machine(Generic[_State, _Reason]):
    """Everything that follows from a table."""

    def __init__(
        self, noun: str, states: Iterable[_State], rows: tuple[Row[_State, _Reason], ...]
    ) -> None:
        self.noun = noun
        self.reasons: dict[tuple[_State | None, _State], tuple[_Reason, ...]] = {}
        for row in rows:
            known = self.reasons.get((row.source, row.target), ())
            more = tuple(reason for reason in row.reasons if reason not in known)
            self.reasons[row.source, row.target] = known + more
        declared: list[_State] = list(states)
        self.targets: dict[_State | None, tuple[_State, ...]] = {
            source: tuple(s for s in declared if (source, s) in self.reasons)
            for source in (None, *declared)
        }
        self.terminal = frozenset(s for s in declared if not self.targets[s])
        # States are declared in the order of their ranks, since a table alone leaves ties open; the
        # tests hold the two together: ends last, and no row but a retry goes back.
        self.ranks = {state: rank for rank, state in enumerate(declared)}
        self.reachable: dict[_State | None, frozenset[_State]] = {}
        for start in (None, *declared):
            seen: set[_State] = set()
            todo = list(self.targets[start])
            while todo:
                state = todo.pop()
                if state not in seen:
                    seen.add(state)
                    todo.extend(self.targets[state])
            self.reachable[start] = frozenset(seen)


_TASKS = _Machine("task", TaskState, TASK_TRANSITIONS)
_RUNS = _Machine("run", RunState, RUN_TRANSITIONS)


def _machine(state: TaskState | RunState) -> _Machine[Any, Any]:
    # By class and never by value: TaskState.FAILED == RunState.FAILED, both being strings.
    if isinstance(state, TaskState):
        return _TASKS
    if isinstance(state, RunState):
        return _RUNS
    raise Invalid(f"{state!r} is not a state of a task or a run; use TaskState or RunState")


def allowed(source: S | None, target: S) -> bool:
    """Whether one step leads from `source` (None: not yet there) to `target`."""
    machine = _machine(target)
    return _same_machine(source, machine) and (source, target) in machine.reasons


def reachable(source: S | None, target: S) -> bool:
    """Whether one or more steps lead from `source` to `target`: what two looks may show."""
    machine = _machine(target)
    return _same_machine(source, machine) and target in machine.reachable[source]


def targets(source: S) -> tuple[S, ...]:
    """The states that one step from `source` can lead to, in rank order; none for an end."""
    return cast("tuple[S, ...]", _machine(source).targets[source])


@overload
def reasons_for(source: TaskState | None, target: TaskState) -> tuple[TransitionReason, ...]: ...
@overload
def reasons_for(source: RunState | None, target: RunState) -> tuple[RunTransitionReason, ...]: ...
def reasons_for(source: Any, target: Any) -> tuple[Any, ...]:
    """The reasons that a step may have; none if the step is not allowed."""
    machine = _machine(target)
    return machine.reasons.get((source, target), ()) if _same_machine(source, machine) else ()


@overload
def check_transition(
    source: TaskState | None, target: TaskState, reason: TransitionReason
) -> None: ...
@overload
def check_transition(
    source: RunState | None, target: RunState, reason: RunTransitionReason
) -> None: ...
def check_transition(source: Any, target: Any, reason: Any) -> None:
    """Raise Invalid unless the table has this step with this reason."""
    machine = _machine(target)
    known = reasons_for(source, target)
    if known:
        # By class too: TransitionReason.TIMED_OUT == RunTransitionReason.TIMED_OUT.
        if reason in known and type(reason) is type(known[0]):
            return
        start = f"goes from {source} to {target}" if source else f"begins as {target}"
        raise Invalid(
            f"a {machine.noun} {start} for {_either(known)}, not for {reason!s};"
            " give one of those reasons"
        )
    if not _same_machine(source, machine):
        raise Invalid(
            f"{source!r} and {target!r} are not states of the same thing; compare tasks with tasks"
            " and runs with runs"
        )
    if source is None:
        raise Invalid(
            f"a {machine.noun} cannot begin as {target}; it begins as"
            f" {_either(machine.targets[None])}"
        )
    if source in machine.terminal:
        raise Invalid(
            f"a {machine.noun} cannot go from {source} to {target}: {source} is an end;"
            " start a new run instead"
        )
    raise Invalid(
        f"a {machine.noun} cannot go from {source} to {target}; from {source} it can go to"
        f" {_either(machine.targets[source])}"
    )


def is_terminal(state: TaskState | RunState) -> bool:
    """Whether the state is an end: no row leaves it."""
    return state in _machine(state).terminal


def rank(state: TaskState | RunState) -> int:
    """The place of a state among those of its kind: later is higher, ends are highest.

    Total, so that joining is `max`; but see `progress`, since a retry goes back.
    """
    return _machine(state).ranks[state]


def progress(attempt: int, state: TaskState) -> tuple[int, int]:
    """How far a task is: grows with every step of the table. `attempt` is 0 before the first."""
    return (attempt, rank(state))


def _same_machine(source: TaskState | RunState | None, machine: _Machine[Any, Any]) -> bool:
    return source is None or _machine(source) is machine


def _either(names: Iterable[str]) -> str:
    *most, last = map(str, names)
    return f"{', '.join(most)} or {last}" if most else last


# --- Dependencies ---------------------------------------------------------------------------------


class EdgeResolution(enum.StrEnum):
    """What an ended upstream task means for one that needs it."""

    SUCCESS = "SUCCESS"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class Bar(enum.StrEnum):
    """Why a version may not be read downstream although its task succeeded."""

    BLOCKED = "blocked"
    """A check's action was block_downstream."""
    QUARANTINED = "quarantined"
    """It is in quarantine and its partition has no older good version; with one there is no bar."""


class EdgeEffect(NamedTuple):
    """What an edge does to its downstream task: nothing (None: the need is met), or end it."""

    resolution: EdgeResolution
    target: TaskState | None = None
    reason: TransitionReason | None = None


_MET = EdgeEffect(EdgeResolution.SUCCESS)

EDGES: dict[tuple[TaskState, Bar | None], EdgeEffect] = {
    (_T.SUCCEEDED, None): _MET,
    (_T.REUSED, None): _MET,
    # A bar resolves as FAILED: upstream has an end, and it is not one that can be built on.
    **{
        (state, bar): EdgeEffect(EdgeResolution.FAILED, _T.SKIPPED, reason)
        for state in (_T.SUCCEEDED, _T.REUSED)
        for bar, reason in (
            (Bar.BLOCKED, _TR.BLOCKED_BY_CHECK),
            (Bar.QUARANTINED, _TR.UPSTREAM_QUARANTINED),
        )
    },
    (_T.FAILED, None): EdgeEffect(EdgeResolution.FAILED, _T.SKIPPED, _TR.UPSTREAM_FAILED),
    (_T.SKIPPED, None): EdgeEffect(EdgeResolution.SKIPPED, _T.SKIPPED, _TR.UPSTREAM_SKIPPED),
    (_T.CANCELLED, None): EdgeEffect(
        EdgeResolution.CANCELLED, _T.CANCELLED, _TR.UPSTREAM_CANCELLED
    ),
}

# Which of several edges speaks for the task, where they resolve at one place: the nearest cause.
_WEIGHT = {
    effect: weight
    for weight, effect in enumerate(
        (
            _MET,
            EDGES[_T.SKIPPED, None],
            EDGES[_T.SUCCEEDED, Bar.QUARANTINED],
            EDGES[_T.SUCCEEDED, Bar.BLOCKED],
            EDGES[_T.FAILED, None],
            EDGES[_T.CANCELLED, None],
        )
    )
}


def edge_effect(upstream: TaskState, bar: Bar | None = None) -> EdgeEffect | None:
    """What an edge does, given its upstream task; None while that has not ended.

    A bar matters only to a task that succeeded or was reused: the others made nothing to read.
    """
    return EDGES.get((upstream, bar)) or EDGES.get((upstream, None))


def edge_weight(effect: EdgeEffect) -> int:
    """Which of several effects at one place speaks for the task: the heaviest."""
    return _WEIGHT[effect]


def resolve_edge(upstream: TaskState, bar: Bar | None = None) -> EdgeResolution | None:
    """How an edge resolves, given its upstream task; None while that has not ended."""
    effect = edge_effect(upstream, bar)
    return effect.resolution if effect else None


# --- Ends and stops -------------------------------------------------------------------------------


def stopped_task_reason(stopping: RunTransitionReason) -> TransitionReason:
    """Why a task was cancelled, given why its run was told to stop."""
    match stopping:
        case RunTransitionReason.USER_CANCELLED | RunTransitionReason.SYSTEM_CANCELLED:
            return TransitionReason.RUN_CANCELLED
        case RunTransitionReason.FAILED_BY_CHECK:
            return TransitionReason.RUN_FAILED
        case RunTransitionReason.TIMED_OUT:
            return TransitionReason.RUN_TIMED_OUT
    raise Invalid(f"a run is not told to stop for the reason {stopping}; see RUN_TRANSITIONS")


def settle_run(
    tasks: Mapping[TaskState, int], stopping: RunTransitionReason | None = None
) -> tuple[RunState, RunTransitionReason] | None:
    """How a run ends, from how many of its tasks are in each state; None while one has not ended.

    `stopping` is why the run was told to stop, if it was (the first request stands): that decides,
    whatever its tasks became. Otherwise a failure outweighs a cancellation, and a skip without
    either is still a success: a check that blocks what is downstream does not fail the run.
    """
    if any(count and not is_terminal(state) for state, count in tasks.items()):
        return None
    if stopping is not None:
        for row in RUN_TRANSITIONS:
            if row.source is RunState.CANCELLING and stopping in row.reasons:
                return row.target, stopping
        raise Invalid(f"a run is not told to stop for the reason {stopping}; see RUN_TRANSITIONS")
    if tasks.get(TaskState.FAILED):
        return RunState.FAILED, RunTransitionReason.TASKS_FAILED
    if tasks.get(TaskState.CANCELLED):
        return RunState.CANCELLED, RunTransitionReason.TASKS_CANCELLED
    if tasks.get(TaskState.SKIPPED):
        return RunState.SUCCEEDED, RunTransitionReason.SOME_TASKS_SKIPPED
    if any(tasks.values()):
        return RunState.SUCCEEDED, RunTransitionReason.ALL_TASKS_SUCCEEDED
    return RunState.SUCCEEDED, RunTransitionReason.NOTHING_TO_DO


_BY_CODE = {
    FailureCode.EXECUTION_TIMEOUT: TransitionReason.TIMED_OUT,
    FailureCode.HEARTBEAT_TIMEOUT: TransitionReason.HEARTBEAT_TIMEOUT,
    FailureCode.DISPATCH_ACK_TIMEOUT: TransitionReason.DISPATCH_ACK_TIMEOUT,
    FailureCode.WORKER_CRASH: TransitionReason.WORKER_LOST,
    FailureCode.CHECK_FAILED: TransitionReason.CHECK_FAILED,
    FailureCode.INTERRUPTED: TransitionReason.INTERRUPTED,
    FailureCode.CANCELLED: TransitionReason.CANCELLED_BY_WORKER,
}


def failure_reason(code: FailureCode) -> TransitionReason:
    """Why a task left RUNNING or DISPATCHED, given the code of the failure that was reported."""
    return _BY_CODE.get(code, TransitionReason.EXECUTION_FAILED)
