"""tasks: where each task of a run stands, and why."""

from typing import Any, NamedTuple

import msgspec

from servo.core.plan import PlannedTask
from servo.fold.projection import mark_columns, mark_values, read_mark, text
from servo.fold.records import Output, Reuse, Task
from servo.fold.table import Column, Kind, Row, table

TABLE = table(
    "tasks",
    "Tasks of runs: where each stands, and why.",
    ("run_id", "task_key"),
    Column("run_id", Kind.TEXT, "the run"),
    Column("task_key", Kind.TEXT, "namespace/name[partition]:operation"),
    Column("asset_key", Kind.TEXT, "namespace/name"),
    Column("partition_key", Kind.TEXT, "canonical partition key; empty without partitions"),
    Column("state", Kind.TEXT, "where it stands"),
    Column("reason", Kind.TEXT, "why it is in that state"),
    Column("since", Kind.MOMENT, "since when it is in that state"),
    Column("stage", Kind.INTEGER, "how many tasks are before it on the longest way"),
    Column("deps_total", Kind.INTEGER, "how many tasks it needs"),
    Column("deps_met", Kind.INTEGER, "how many of them succeeded or were reused"),
    Column("attempt", Kind.INTEGER, "the attempt that counts; 0 before the first"),
    Column("tries", Kind.INTEGER, "attempts asked for, without interrupted ones"),
    Column("retry_at", Kind.MOMENT, "when the next attempt may be asked for", nullable=True),
    *mark_columns("ended", "it ended"),
    *mark_columns("reused", "it was found that it need not run"),
    Column("reused_materialization_id", Kind.TEXT, "the version that stands for it", nullable=True),
    Column("reused_reason", Kind.TEXT, "why it need not run", nullable=True),
    Column(
        "outputs",
        Kind.JSON,
        "versions its attempts reported: [materialization_id, attempt, position, index, at]",
        nullable=True,
    ),
)


class TaskRow(NamedTuple):
    """A task as it was at one moment. `planned` is None if its plan does not have it."""

    run_id: str
    task_key: str
    task: Task
    planned: PlannedTask | None


def row(taken: TaskRow) -> Row:
    task, planned = taken.task, taken.planned
    assert planned is not None
    reused = task.reused
    return (
        taken.run_id,
        taken.task_key,
        planned.asset,
        planned.partition or "",
        task.state.value,
        task.reason.value,
        task.since[2],
        planned.stage,
        len(planned.upstreams),
        task.met,
        task.attempt,
        task.tries,
        task.retry_at,
        *mark_values(task.ended),
        *mark_values(reused.mark if reused else None),
        reused.materialization_id if reused else None,
        reused.reason if reused else None,
        text([[o.materialization_id, o.attempt, *o.mark] for o in task.outputs])
        if task.outputs
        else None,
        task.last[0],
        task.last[1],
    )


def load(row: Row) -> Task:
    """What is known of the task beside its attempts; the rest is derived again."""
    values: tuple[Any, ...] = row
    reused = read_mark(values[16:19])
    outputs = msgspec.json.decode(values[21]) if values[21] is not None else []
    return Task(
        reused=Reuse(reused, values[19], values[20]) if reused else None,
        outputs=tuple(Output(name, number, (p, i, at)) for name, number, p, i, at in outputs),
    )
