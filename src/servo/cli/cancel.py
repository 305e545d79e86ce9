"""`servo cancel`: end a run. It needs the project's state and not its code, which may be gone.

Whoever leads ends the run. If nobody does, this command leads until the run has ended: what dead
processes had begun is given up, and what nobody had begun is cancelled.
"""

import asyncio
from pathlib import Path

import click

from servo.cli.asking import check_words, project_option
from servo.cli.output import say
from servo.cli.reading import NOTHING, find_folder, find_run, newest
from servo.cli.summary import short, summary_text
from servo.core.states import RunState, is_terminal
from servo.errors import Invalid
from servo.fold.tables import runs
from servo.fold.tables.runs import Summary
from servo.ports.store import Store
from servo.runtime import requests
from servo.runtime.engine import Engine
from servo.runtime.session import Session
from servo.wiring.engines import make_idle_engine
from servo.wiring.stores import exists, open_store

MESSAGE_LENGTH = 500


@click.command("cancel")
@click.argument("run")
@click.option("--message", metavar="TEXT", help="Why; it is kept with the run.")
@project_option
@click.pass_context
def command(context: click.Context, run: str, message: str | None, project: str) -> None:
    """End a RUN that has not ended, and wait until it has.

    RUN is the id of a run, or a beginning of it that no other run has. Tasks that have not begun are
    cancelled. A task at work is told to stop; a function in a thread cannot be stopped, and is waited
    for. The project's code is not needed.
    """
    if message is not None:
        check_words("--message", message, MESSAGE_LENGTH)
    folder = find_folder(project)
    end = asyncio.run(_cancel(folder, run, message or ""))
    say(summary_text(end, []))
    if end.state is not RunState.CANCELLED:
        say(f"It had ended before it could be cancelled: {end.reason.sentence}", error=True)
        context.exit(1)


async def _cancel(folder: Path, text: str, message: str) -> Summary:
    if not exists(folder):
        raise Invalid(f"there is no run {text[:80]!r}. {NOTHING}")
    store = open_store(folder)
    engine = make_idle_engine(store)
    await engine.open()  # reads only: a mistake in the command shall leave no trace
    run_id = await _find(engine, store, text)
    async with Session(engine) as session:
        await requests.cancel(engine, run_id, message=message)
        if not engine.leading:
            say(
                f"Another process leads this workspace and was told to end run {short(run_id)};"
                " waiting for it (Ctrl-C leaves, and the run ends all the same)",
                error=True,
            )
        return await session.ended(run_id)


async def _find(engine: Engine, store: Store, text: str) -> str:
    """The run that is meant: among those of the tables, and those that are newer than these."""
    snapshot = await newest(store)
    at = [column.name for column in runs.TABLE.columns].index("run_id")
    known = {str(row[at]) for row in await snapshot.rows(runs.TABLE)}
    known |= {run.run_id for run in engine.state.active_runs()}
    run_id = find_run(known, text)
    found = await engine.summary(run_id)
    if found is not None and is_terminal(found.state):
        raise Invalid(
            f"run {short(run_id)} has ended already, as {found.state}: {found.reason.sentence}"
            " There is nothing to cancel"
        )
    return run_id
