"""edges: what each task of a run means for those that need it. All of it is derived."""

from collections.abc import Iterator
from typing import NamedTuple

from servo.core.states import resolve_edge
from servo.fold.projection import mark_columns, mark_values
from servo.fold.records import Mark, Task
from servo.fold.table import Column, Kind, Row, table

TABLE = table(
    "edges",
    "Dependencies between tasks of a run, and how they resolved.",
    ("run_id", "upstream_task_key", "downstream_task_key"),
    Column("run_id", Kind.TEXT, "the run"),
    Column("upstream_task_key", Kind.TEXT, "the task that is needed"),
    Column("downstream_task_key", Kind.TEXT, "the task that needs it"),
    Column("resolution", Kind.TEXT, "SUCCESS, FAILED, SKIPPED or CANCELLED", nullable=True),
    Column("attempt", Kind.INTEGER, "the attempt of the upstream task", nullable=True),
    *mark_columns("resolved", "the upstream task ended"),
)


class EdgesRow(NamedTuple):
    """The edges below one task, as they were at one moment."""

    run_id: str
    task_key: str
    task: Task
    triggered: Mark
    downstreams: tuple[str, ...]


def rows(taken: EdgesRow) -> Iterator[Row]:
    task = taken.task
    ended = task.ended
    resolution = resolve_edge(task.state) if ended else None
    last = max(ended, taken.triggered) if ended else taken.triggered
    for below in taken.downstreams:
        yield (
            taken.run_id,
            taken.task_key,
            below,
            resolution.value if resolution else None,
            task.attempt if ended else None,
            *mark_values(ended),
            last[0],
            last[1],
        )
