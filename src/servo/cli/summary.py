"""How a run stands, told when a command ends: for people, and as JSON."""

from typing import Any

import click

from servo.cli.output import moment_of, seconds_text, short_ids, state_style
from servo.cli.progress import Failure
from servo.cli.render import number
from servo.core.states import is_terminal
from servo.fold.tables.runs import Summary

TOLD = 5
"""Failures that the summary tells in full."""


def short(run_id: str) -> str:
    return short_ids([run_id])[run_id]


def summary_text(end: Summary, failures: list[Failure]) -> str:
    took = None if end.ended_at is None else end.ended_at - end.triggered_at
    state = state_style(end.state.value, end.state.value.lower().replace("_", " "))
    counts = ", ".join(f"{count:,} {state.lower()}" for state, count in end.counts.items())
    lines = [f"run {short(end.run_id)} {state} in {seconds_text(took)}: {counts or 'no tasks'}"]
    alike = _alike(failures)
    for group in alike[:TOLD]:
        lines += ["", *_told(group)]
    if len(alike) > TOLD:
        rest = sum(len(group) for group in alike[TOLD:])
        lines += ["", f"and {number(rest, 'other task')}: servo status {short(end.run_id)}"]
    return "\n".join(lines)


def _alike(failures: list[Failure]) -> list[list[Failure]]:
    """Failures of one asset that say the same are told once."""
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        said = failure.traceback or (failure.error.message if failure.error else "")
        groups.setdefault((failure.asset, said), []).append(failure)
    return list(groups.values())


def _told(alike: list[Failure]) -> list[str]:
    failure = alike[0]
    more = f", and {number(len(alike) - 1, 'more partition')} like it" if alike[1:] else ""
    lines = [
        f"{click.style(failure.name, fg='red')} failed in attempt {failure.attempt}{more}",
    ]
    error = failure.error
    if failure.traceback is not None:
        lines += [f"    {line}" for line in failure.traceback.splitlines()]
    elif error is not None:
        lines.append(f"    {error.message}")
    if error is not None:
        lines.append(f"  {error.code.row.next_step}")
    return lines


def summary_json(run: Summary, failures: list[Failure], *, here: bool = True) -> dict[str, Any]:
    """The same fields for every run. `here`: its code is what the project holds now."""
    return {
        "run_id": run.run_id,
        "state": run.state.value,
        "reason": run.reason.value,
        "why": run.reason.sentence,
        "resumable": here and not is_terminal(run.state),
        "triggered_at": moment_of(run.triggered_at),
        "ended_at": moment_of(run.ended_at),
        "duration_us": None if run.ended_at is None else run.ended_at - run.triggered_at,
        "tasks": {state.lower(): count for state, count in run.counts.items()},
        "failures": [
            {
                "task_key": failure.task_key,
                "attempt": failure.attempt,
                "code": failure.error.code.value if failure.error else None,
                "message": failure.error.message if failure.error else None,
                "next_step": failure.error.code.row.next_step if failure.error else None,
            }
            for failure in failures
        ],
    }
