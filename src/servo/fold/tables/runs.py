"""runs: what was asked for, and how it went."""

from typing import Any, NamedTuple

import msgspec

from servo.core.states import RunState, RunTransitionReason, TaskState
from servo.events.orchestration import RunTriggered, Stop
from servo.fold.projection import mark_columns, mark_values, read_mark
from servo.fold.records import Run, RunStop
from servo.fold.table import Column, Kind, Row, table

_COUNTED = (
    TaskState.SUCCEEDED,
    TaskState.REUSED,
    TaskState.FAILED,
    TaskState.SKIPPED,
    TaskState.CANCELLED,
)

TABLE = table(
    "runs",
    "Runs: what was asked for, and how it went.",
    ("run_id",),
    Column("run_id", Kind.TEXT, "id of the run"),
    Column("state", Kind.TEXT, "where it stands"),
    Column("reason", Kind.TEXT, "why it is in that state"),
    Column("since", Kind.MOMENT, "since when it is in that state"),
    Column("run_key", Kind.TEXT, "the caller's key for it", nullable=True),
    Column("plan_object", Kind.TEXT, "hash of the object that holds its plan"),
    Column("fingerprint", Kind.TEXT, "fingerprint of its plan"),
    Column("request_hash", Kind.TEXT, "fingerprint of what was asked for"),
    Column("code_ref", Kind.TEXT, "who can load its code: deployment:ID or process:WRITER"),
    Column("deployment_id", Kind.TEXT, "the deployment it runs", nullable=True),
    Column("actor", Kind.TEXT, "opaque id of who asked for it", nullable=True),
    Column("tasks", Kind.INTEGER, "how many tasks its plan has"),
    *(
        Column(f"tasks_{state.lower()}", Kind.INTEGER, f"how many of them are {state}")
        for state in _COUNTED
    ),
    *mark_columns("triggered", "it was asked for", nullable=False),
    *mark_columns("begun", "its first task was dispatched or reused"),
    *mark_columns("ended", "its last task ended"),
    *mark_columns("stopped", "it was told to stop"),
    Column("stopped_by", Kind.TEXT, "user, system or timeout", nullable=True),
    Column("stop_message", Kind.TEXT, "what was said when it was told to stop", nullable=True),
    Column("stop_actor", Kind.TEXT, "opaque id of who told it to stop", nullable=True),
    Column("last_at", Kind.MOMENT, "when the last fact about it was written"),
)


class RunRow(NamedTuple):
    """A run as it was at one moment."""

    run_id: str
    run: Run
    counts: dict[TaskState, int]
    tasks: int


def row(taken: RunRow) -> Row:
    run, counts = taken.run, taken.counts
    trigger, stop = run.trigger, run.stop
    assert trigger is not None
    return (
        taken.run_id,
        run.state.value,
        run.reason.value,
        run.since[2],
        trigger.run_key,
        trigger.plan_object,
        trigger.fingerprint,
        trigger.request_hash,
        trigger.code_ref,
        trigger.deployment_id,
        run.actor,
        taken.tasks,
        *(counts.get(state, 0) for state in _COUNTED),
        *mark_values(run.triggered),
        *mark_values(run.begun),
        *mark_values(run.ended),
        *mark_values(stop.mark if stop else None),
        stop.by.value if stop else None,
        stop.message if stop else None,
        stop.actor if stop else None,
        run.last[2],
        run.last[0],
        run.last[1],
    )


_NAMES = [column.name for column in TABLE.columns]


def load(row: Row) -> Run:
    """What is known of the run itself; the rest is derived again."""
    get: dict[str, Any] = dict(zip(_NAMES, row, strict=True))

    def mark(name: str) -> Any:
        return read_mark((get[f"{name}_position"], get[f"{name}_index"], get[f"{name}_at"]))

    trigger = RunTriggered(
        run_id=get["run_id"],
        plan_object=get["plan_object"],
        fingerprint=get["fingerprint"],
        code_ref=get["code_ref"],
        request_hash=get["request_hash"],
        run_key=get["run_key"],
        deployment_id=get["deployment_id"],
    )
    stopped = mark("stopped")
    return Run(
        triggered=mark("triggered"),
        trigger=trigger,
        actor=get["actor"],
        stop=RunStop(stopped, Stop(get["stopped_by"]), get["stop_message"], get["stop_actor"])
        if stopped
        else None,
        begun=mark("begun"),
        last=(get["row_position"], get["row_index"], get["last_at"]),
    )


class Summary(NamedTuple):
    """What most people want to know of a run."""

    run_id: str
    state: RunState
    reason: RunTransitionReason
    triggered_at: int
    ended_at: int | None
    counts: dict[str, int]
    """How many tasks are in each state that is an end."""


def summary(row: Row) -> Summary:
    get: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    found = {state.value: get[f"tasks_{state.lower()}"] for state in _COUNTED}
    return Summary(
        get["run_id"],
        RunState(get["state"]),
        msgspec.convert(get["reason"], RunTransitionReason),
        get["triggered_at"],
        get["ended_at"],
        {state: count for state, count in found.items() if count},
    )
