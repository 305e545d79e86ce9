"""`servo status`: runs, or the tasks of one, from the newest snapshot.

Tables tell what was decided. Whether anything is at work is told by the leader's lock.
"""

import asyncio
from typing import Any

import click

from servo.cli.asking import Count, project_option
from servo.cli.output import (
    clock_text,
    moment_of,
    output_option,
    print_rows,
    printable,
    say,
    seconds_text,
    short_ids,
    state_style,
    table,
    task_name,
)
from servo.cli.reading import Look, find_run, look, say_as_of, say_newer
from servo.cli.render import number
from servo.core.states import (
    RunTransitionReason,
    TaskState,
    TransitionReason,
    WaitReason,
)
from servo.errors import Invalid
from servo.fold.table import Row, Table
from servo.fold.tables import attempts, runs, tasks
from servo.wiring.stores import system

Named = dict[str, Any]
"""A row by the names of its columns."""

RUNS = 20
TASKS = 200

# What somebody looks for first.
_ORDER = [
    TaskState.FAILED,
    TaskState.RETRY_WAIT,
    TaskState.RUNNING,
    TaskState.DISPATCHED,
    TaskState.READY,
    TaskState.CANCELLED,
    TaskState.SKIPPED,
    TaskState.PENDING,
    TaskState.SUCCEEDED,
    TaskState.REUSED,
]
_RANK = {state.value: rank for rank, state in enumerate(_ORDER)}
_STOPPED = "stopped; 'servo run --resume' goes on, 'servo cancel' ends it"
_COUNTS = ("succeeded", "reused", "failed", "skipped", "cancelled")


@click.command("status")
@click.argument("run", required=False)
@output_option
@click.option(
    "--limit",
    type=Count(1),
    metavar="N",
    help=f"How many to show. Default: {RUNS} runs, {TASKS} tasks; json and csv: all tasks.",
)
@project_option
def command(run: str | None, form: str, limit: int | None, project: str) -> None:
    """Show runs, the latest first; or the tasks of one RUN.

    RUN is the id of a run, or a beginning of it that no other run has.
    """
    asyncio.run(_status(project, run, form, limit))


async def _status(project: str, run: str | None, form: str, limit: int | None) -> None:
    seen = await look(project)
    found = [named(runs.TABLE, row) for row in await seen.snapshot.rows(runs.TABLE)]
    found.sort(key=lambda row: (row["triggered_position"], row["triggered_index"]), reverse=True)
    led = any(map(_goes_on, found)) and seen.is_led()
    for row in found:
        row["why"] = _STOPPED if _goes_on(row) and not led else _run_why(row["reason"])
        # Until its end; until now, or until the last that was heard of it.
        end = row["ended_at"] or (system().now() if led else row["last_at"])
        row["took"] = int(end - row["triggered_at"])
    if run is None:
        _show_runs(found, seen, led, form, limit or RUNS)
    else:
        try:
            run_id = find_run([row["run_id"] for row in found], run)
        except Invalid:
            say_newer(seen)  # it may be there
            raise
        [chosen] = [row for row in found if row["run_id"] == run_id]
        await _show_run(chosen, found, seen, led, form, limit)


def named(of: Table, row: Row) -> Named:
    return {column.name: value for column, value in zip(of.columns, row, strict=True)}


def _goes_on(run: Named) -> bool:
    return run["ended_at"] is None


# --- Runs -----------------------------------------------------------------------------------------


def _show_runs(found: list[Named], seen: Look, led: bool, form: str, limit: int) -> None:
    shown = found[:limit]
    if form != "table":
        print_rows(form, *_run_records(shown))
        say_as_of(seen)
        return
    if shown:
        short = short_ids([row["run_id"] for row in found])
        rows = [
            [
                short[row["run_id"]],
                row["state"].lower(),
                f"{sum(row[f'tasks_{name}'] for name in _COUNTS):,}/{row['tasks']:,}",
                row["tasks_failed"] or None,
                row["tasks_skipped"] or None,
                row["run_key"],
                clock_text(row["triggered_at"]),
                seconds_text(row["took"]),
                row["why"],
            ]
            for row in shown
        ]
        names = ["run", "state", "tasks", "failed", "skipped", "key", "started (UTC)", "took"]
        say(_table([*names, "why"], rows))
    if len(found) > limit:
        say(f"and {number(len(found) - limit, 'earlier run')}: --limit shows more", error=True)
    say_as_of(seen)
    going = sum(map(_goes_on, found))
    if going and not led:
        verb = "has" if going == 1 else "have"
        say(
            f"{number(going, 'run')} {verb} not ended, and nothing is at work here:"
            " 'servo run --resume' goes on, 'servo cancel RUN' ends one",
            error=True,
        )


def _run_records(found: list[Named]) -> tuple[list[str], list[list[Any]]]:
    columns = ["run_id", "state", "reason", "why", "run_key", "deployment_id", "tasks"]
    columns += [*_COUNTS, "triggered_at", "begun_at", "ended_at", "duration_us"]
    rows = [
        [
            row["run_id"],
            row["state"],
            row["reason"],
            row["why"],
            row["run_key"],
            row["deployment_id"],
            row["tasks"],
            *(row[f"tasks_{name}"] for name in _COUNTS),
            moment_of(row["triggered_at"]),
            moment_of(row["begun_at"]),
            moment_of(row["ended_at"]),
            None if row["ended_at"] is None else row["ended_at"] - row["triggered_at"],
        ]
        for row in found
    ]
    return columns, rows


# --- One run --------------------------------------------------------------------------------------


async def _show_run(
    run: Named, found: list[Named], seen: Look, led: bool, form: str, limit: int | None
) -> None:
    key = (run["run_id"],)
    tried: dict[tuple[str, int], Named] = {}
    for row in await seen.snapshot.find(attempts.TABLE, [key]):
        attempt = named(attempts.TABLE, row)
        tried[attempt["task_key"], attempt["attempt"]] = attempt
    listed = [named(tasks.TABLE, row) for row in await seen.snapshot.find(tasks.TABLE, [key])]
    listed.sort(key=lambda t: (_RANK.get(t["state"], -1), t["stage"], t["task_key"]))
    now = system().now()
    records = [
        _task_record(
            task,
            tried.get((task["task_key"], task["attempt"])),
            waits_for(task, stopping=run["stopped_at"] is not None, led=led, now=now),
        )
        for task in listed
    ]
    if form != "table":
        columns = list(_TASK_COLUMNS)
        print_rows(
            form, columns, [[record[name] for name in columns] for record in records[:limit]]
        )
        say_as_of(seen)
        return
    short = short_ids([row["run_id"] for row in found])[run["run_id"]]
    state = state_style(run["state"], run["state"].lower())
    counts = ", ".join(f"{run[f'tasks_{n}']:,} {n}" for n in _COUNTS if run[f"tasks_{n}"])
    said = f" It was told: {printable(run['stop_message'])}" if run["stop_message"] else ""
    say(
        f"run {short} {state}: {run['why']}{said}\n"
        f"{counts or 'nothing'} of {number(run['tasks'], 'task')},"
        f" started {clock_text(run['triggered_at'])} UTC,"
        f" took {seconds_text(run['took'])}\n"
    )
    limit = limit or TASKS
    rows = [
        [
            task_name(record["asset_key"], record["partition_key"]),
            record["state"].lower(),
            record["attempt"] or None,
            seconds_text(record["duration_us"]),
            record["why"],
        ]
        for record in records[:limit]
    ]
    say(_table(["task", "state", "attempt", "took", "why"], rows))
    if len(records) > limit:
        say(f"and {number(len(records) - limit, 'other task')}: --limit shows more", error=True)
    say_as_of(seen)


def waits_for(task: Named, *, stopping: bool, led: bool, now: int) -> WaitReason | None:
    """Why a task stays where it is, as far as tables and the leader's lock can tell. Whether a leader
    lacks its code or has no room for it, they cannot."""
    match task["state"]:
        case TaskState.PENDING:
            return WaitReason.WAITING_FOR_UPSTREAM
        case TaskState.DISPATCHED | TaskState.RUNNING if stopping and led:
            return WaitReason.WAITING_FOR_STOP
        case TaskState.DISPATCHED if led:
            return WaitReason.WAITING_FOR_WORKER
        case TaskState.RETRY_WAIT if (task["retry_at"] or 0) > now:
            return WaitReason.WAITING_FOR_RETRY
        case TaskState.READY | TaskState.RETRY_WAIT if not led:
            return WaitReason.WAITING_FOR_ENGINE
    return None


_TASK_COLUMNS = [
    *("task_key", "asset_key", "partition_key", "state", "reason", "why", "attempt"),
    *("duration_us", "started_at", "error_code", "error_message", "waits_for"),
]


def _task_record(task: Named, attempt: Named | None, waits: WaitReason | None) -> Named:
    error = attempt if attempt is not None and task["state"] not in ("SUCCEEDED", "REUSED") else {}
    why = error.get("error_message") or (waits.sentence if waits else _task_why(task["reason"]))
    return {
        "task_key": task["task_key"],
        "asset_key": task["asset_key"],
        "partition_key": task["partition_key"],
        "state": task["state"],
        "reason": task["reason"],
        "why": why,
        "attempt": task["attempt"],
        "duration_us": attempt["duration_us"] if attempt else None,
        # Short tasks are not worth a fact of their own when they begin; the result says when it was.
        "started_at": moment_of(attempt["began_at"] or attempt["started_at"]) if attempt else None,
        "error_code": error.get("error_code"),
        "error_message": error.get("error_message"),
        "waits_for": waits.value if waits else None,
    }


def _run_why(reason: str) -> str:
    known = {each.value: each.sentence for each in RunTransitionReason}
    return known.get(reason, reason)  # an unknown one was written by a newer Servo


def _task_why(reason: str) -> str:
    known = {each.value: each.sentence for each in TransitionReason}
    return known.get(reason, reason)


def _table(names: list[str], rows: list[list[Any]]) -> str:
    """A list for people: columns that say nothing are left out, states have their colours."""
    kept = [at for at, name in enumerate(names) if any(row[at] not in (None, "") for row in rows)]
    at_state = kept.index(names.index("state"))
    shown = [["" if row[at] is None else row[at] for at in kept] for row in rows]
    return table(
        [names[at] for at in kept],
        shown,
        styles={at_state: lambda text: state_style(text.upper(), text)},
    )
