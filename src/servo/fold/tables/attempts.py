"""attempts: what was asked of workers, and what they answered."""

from collections.abc import Iterator
from typing import Any

import msgspec

from servo.core.failures import TaskFailure
from servo.events.execution import Outcome
from servo.fold.projection import mark_columns, mark_values, read_mark, text
from servo.fold.records import Attempt, Result
from servo.fold.table import Column, Kind, Row, table
from servo.fold.tables.tasks import TaskRow

TABLE = table(
    "attempts",
    "Attempts of tasks: what was asked of workers, and what they answered.",
    ("run_id", "task_key", "attempt"),
    Column("run_id", Kind.TEXT, "the run"),
    Column("task_key", Kind.TEXT, "the task"),
    Column("attempt", Kind.INTEGER, "number of the attempt, from 1"),
    Column("attempt_id", Kind.TEXT, "id of the attempt, derived from the other three"),
    Column("worker", Kind.TEXT, "where it was to run", nullable=True),
    Column("worker_id", Kind.TEXT, "who began it", nullable=True),
    Column("outcome", Kind.TEXT, "how it ended: the first result stands", nullable=True),
    Column("error_code", Kind.TEXT, "code of its failure", nullable=True),
    Column("error_message", Kind.TEXT, "its failure in a sentence", nullable=True),
    Column("error", Kind.JSON, "its failure as reported", nullable=True),
    Column("retriable", Kind.BOOLEAN, "whether such a failure is retried by default"),
    Column("began_at", Kind.MOMENT, "when user code began, by the worker", nullable=True),
    Column("duration_us", Kind.INTEGER, "how long it took, in microseconds", nullable=True),
    Column("cpu_us", Kind.INTEGER, "processor time, in microseconds", nullable=True),
    Column("finished_by", Kind.TEXT, "who reported the result", nullable=True),
    *mark_columns("dispatched", "the leader asked for it"),
    *mark_columns("started", "a worker said that it began"),
    *mark_columns("heartbeat", "the last sign of life that was written down"),
    *mark_columns("finished", "the result that stands was reported"),
    Column("conflicts", Kind.JSON, "later results that contradict the first", nullable=True),
)


def rows(taken: TaskRow) -> Iterator[Row]:
    for attempt in taken.task.attempts:
        yield _row(taken.run_id, taken.task_key, attempt)


def _row(run_id: str, task_key: str, attempt: Attempt) -> Row:
    result = attempt.result
    error = result.error if result else None
    last = attempt.last
    conflicts = attempt.results[1:]
    return (
        run_id,
        task_key,
        attempt.number,
        attempt.attempt_id,
        attempt.worker,
        attempt.worker_id,
        result.outcome.value if result else None,
        error.code.value if error else None,
        error.message if error else None,
        text(msgspec.to_builtins(error)) if error else None,
        result.retriable if result else False,
        result.started_at if result else None,
        result.duration_us if result else None,
        result.cpu_us if result else None,
        result.worker_id if result else None,
        *mark_values(attempt.dispatched),
        *mark_values(attempt.started),
        *mark_values(attempt.heartbeat),
        *mark_values(result.mark if result else None),
        text(msgspec.to_builtins(conflicts)) if conflicts else None,
        last[0],
        last[1],
    )


def load(row: Row) -> Attempt:
    values: tuple[Any, ...] = row
    finished = read_mark(values[24:27])
    results: tuple[Result, ...] = ()
    if finished is not None:
        error = msgspec.json.decode(values[9], type=TaskFailure) if values[9] is not None else None
        results = (
            Result(
                finished,
                Outcome(values[6]),
                error,
                values[10],
                values[11],
                values[12],
                values[13],
                values[14],
            ),
        )
        if values[27] is not None:
            results += msgspec.json.decode(values[27], type=tuple[Result, ...])
    return Attempt(
        number=values[2],
        attempt_id=values[3],
        dispatched=read_mark(values[15:18]),
        worker=values[4],
        started=read_mark(values[18:21]),
        worker_id=values[5],
        heartbeat=read_mark(values[21:24]),
        results=results,
    )
