"""`servo status`: runs, or the tasks of one, from the newest snapshot."""

import asyncio
from collections.abc import Sequence
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
from servo.cli.reading import find_store, newest, say_as_of
from servo.cli.render import number
from servo.core.states import (
    RunState,
    RunTransitionReason,
    TaskState,
    TransitionReason,
    is_terminal,
)
from servo.errors import Invalid
from servo.fold.table import Row, Table
from servo.fold.tables import attempts, runs, tasks
from servo.ledger.manifest import moment_of as published_us
from servo.ledger.snapshot import Snapshot
from servo.ports.store import Store

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
    asyncio.run(_status(find_store(project), run, form, limit))


async def _status(store: Store, run: str | None, form: str, limit: int | None) -> None:
    snapshot = await newest(store)
    found = [named(runs.TABLE, row) for row in await snapshot.rows(runs.TABLE)]
    found.sort(key=lambda row: (row["triggered_position"], row["triggered_index"]), reverse=True)
    if run is None:
        _show_runs(found, snapshot, form, limit or RUNS)
    else:
        await _show_run(find_run(found, run), found, snapshot, form, limit)


def named(of: Table, row: Row) -> Named:
    return {column.name: value for column, value in zip(of.columns, row, strict=True)}


def find_run(found: Sequence[Named], text: str) -> Named:
    matching = [row for row in found if row["run_id"].startswith(text.upper())]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise Invalid(f"there is no run {printable(text)!r}; 'servo status' lists runs")
    ids = sorted(row["run_id"] for row in matching)
    listed = ", ".join(short_ids(ids)[each] for each in ids[:5])
    raise Invalid(
        f"{number(len(ids), 'run')} begin with {printable(text)!r} ({listed}"
        f"{', …' if len(ids) > 5 else ''}); write more of the id"
    )


# --- Runs -----------------------------------------------------------------------------------------


def _show_runs(found: list[Named], snapshot: Snapshot, form: str, limit: int) -> None:
    shown = found[:limit]
    if form != "table":
        print_rows(form, *_run_records(shown))
        say_as_of(snapshot)
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
                clock_text(row["triggered_at"]),
                seconds_text(_took(row, snapshot)),
                _why(RunTransitionReason, row["reason"]),
            ]
            for row in shown
        ]
        names = ["run", "state", "tasks", "failed", "skipped", "started (UTC)", "took", "why"]
        say(_table(names, rows))
    if len(found) > limit:
        say(f"and {number(len(found) - limit, 'earlier run')}: --limit shows more", error=True)
    say_as_of(snapshot)
    going = [row for row in found if not is_terminal(RunState(row["state"]))]
    if going:
        verb = "has" if len(going) == 1 else "have"
        say(
            f"{number(len(going), 'run')} {verb} not ended; if nothing is at work here,"
            " 'servo run --resume' goes on",
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
            _why(RunTransitionReason, row["reason"]),
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


def _took(row: Named, snapshot: Snapshot) -> int:
    """Until its end; until the snapshot was made, where there is none."""
    end = row["ended_at"] or published_us(snapshot.manifest.published_at)
    return int(end - row["triggered_at"])


# --- One run --------------------------------------------------------------------------------------


async def _show_run(
    run: Named, found: list[Named], snapshot: Snapshot, form: str, limit: int | None
) -> None:
    key = (run["run_id"],)
    tried: dict[tuple[str, int], Named] = {}
    for row in await snapshot.find(attempts.TABLE, [key]):
        attempt = named(attempts.TABLE, row)
        tried[attempt["task_key"], attempt["attempt"]] = attempt
    listed = [named(tasks.TABLE, row) for row in await snapshot.find(tasks.TABLE, [key])]
    listed.sort(key=lambda t: (_RANK.get(t["state"], -1), t["stage"], t["task_key"]))
    records = [
        _task_record(task, tried.get((task["task_key"], task["attempt"]))) for task in listed
    ]
    if form != "table":
        print_rows(form, _TASK_COLUMNS, records[:limit])
        say_as_of(snapshot)
        return
    short = short_ids([row["run_id"] for row in found])[run["run_id"]]
    state = state_style(run["state"], run["state"].lower())
    counts = ", ".join(f"{run[f'tasks_{n}']:,} {n}" for n in _COUNTS if run[f"tasks_{n}"])
    say(
        f"run {short} {state}: {_why(RunTransitionReason, run['reason'])}\n"
        f"{counts or 'nothing'} of {number(run['tasks'], 'task')},"
        f" started {clock_text(run['triggered_at'])} UTC,"
        f" took {seconds_text(_took(run, snapshot))}\n"
    )
    limit = limit or TASKS
    rows = [
        [
            task_name(record[1], record[2]),
            record[3].lower(),
            record[6] or None,
            seconds_text(record[7]),
            record[10] or ("" if record[3] == "SUCCEEDED" else record[5]),
        ]
        for record in records[:limit]
    ]
    say(_table(["task", "state", "attempt", "took", "why"], rows))
    if len(records) > limit:
        say(f"and {number(len(records) - limit, 'other task')}: --limit shows more", error=True)
    say_as_of(snapshot)


_TASK_COLUMNS = [
    *("task_key", "asset_key", "partition_key", "state", "reason", "why", "attempt"),
    *("duration_us", "started_at", "error_code", "error_message"),
]


def _task_record(task: Named, attempt: Named | None) -> list[Any]:
    error = attempt if attempt is not None and task["state"] not in ("SUCCEEDED", "REUSED") else {}
    return [
        task["task_key"],
        task["asset_key"],
        task["partition_key"],
        task["state"],
        task["reason"],
        _why(TransitionReason, task["reason"]),
        task["attempt"],
        attempt["duration_us"] if attempt else None,
        moment_of(attempt["started_at"]) if attempt else None,
        error.get("error_code"),
        error.get("error_message"),
    ]


def _why(kind: type[RunTransitionReason] | type[TransitionReason], reason: str) -> str:
    try:
        return kind(reason).sentence  # type: ignore[call-arg]  # by value, as every enumeration
    except ValueError:  # written by a newer Servo
        return reason


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
