"""`servo run`: plan, ask for a run, lead or follow until it has ended.

A plain run leaves older runs that have not ended alone: they may be unwanted by now. `--resume` goes
on with them.

The first Ctrl-C (or SIGTERM) stops handing out work and waits for what runs; the state can be resumed.
The second leaves at once, which is as safe as a power cut.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import click
import msgspec

from servo.cli.asking import (
    Count,
    check_words,
    load_project,
    parse_asked,
    planning_options,
    project_option,
)
from servo.cli.output import clock_text, print_bytes, say
from servo.cli.progress import View
from servo.cli.render import number
from servo.cli.summary import short, summary_json, summary_text
from servo.core import segments
from servo.core.keys import AssetKey
from servo.core.plan import Plan
from servo.core.states import RunState
from servo.errors import Conflict, Fenced, Unavailable
from servo.fold.runs import RunFold
from servo.fold.tables.runs import Summary
from servo.runtime import requests
from servo.runtime.engine import Engine
from servo.runtime.project import Project
from servo.runtime.session import Session
from servo.wiring.engines import make_engine
from servo.wiring.stores import FOLDER, open_store, prepare, system
from servo.worker.inline import CAPACITY

NAMED = 5
"""Runs that one line names."""
KEY_LENGTH = 200
REDRAWN = 0.1
"""Seconds between two looks of the line at the bottom."""
LOOKED_BACK = 100
"""Segments."""


@click.command("run")
@planning_options("run")
@click.option(
    "--run-key",
    metavar="KEY",
    help="Ask only once: the same key and request stand for the same run, however often asked.",
)
@click.option("--resume", is_flag=True, help="Ask for nothing new: go on with what has not ended.")
@click.option(
    "--concurrency",
    type=Count(1, 1024),
    default=CAPACITY,
    show_default=True,
    metavar="N",
    help="How many tasks run at once.",
)
@click.option("--json", "as_json", is_flag=True, help="Print how the runs ended as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print the summary only.")
@project_option
@click.pass_context
def command(
    context: click.Context,
    selection: tuple[str, ...],
    partitions: tuple[str, ...],
    force: bool,
    at: str | None,
    run_key: str | None,
    resume: bool,
    concurrency: int,
    as_json: bool,
    quiet: bool,
    project: str,
) -> None:
    """Make assets: plan, run the tasks in order, and record what happened.

    SELECTION, -p, --force and --now are those of 'servo plan', which shows what would run. State is
    kept in the folder .servo of the project. Ends with 0 if every run succeeded, with 1 if not.

    Older runs that have not ended are left alone: --resume goes on with them, and 'servo cancel' ends
    one.
    """
    if resume and (selection or partitions or force or at or run_key is not None):
        raise click.UsageError("--resume asks for nothing new; leave out what says what to run")
    if run_key is not None:
        check_words("--run-key", run_key, KEY_LENGTH)
    asked = None if resume else parse_asked(selection, partitions, force, at)
    loaded = load_project(project)
    plan = None if asked is None else asked.plan(loaded)
    if plan is not None:
        loaded.check_runs(sorted({task.asset for task in plan.tasks}))
    prepare(loaded.root / FOLDER)
    clock = system().now
    view = View(quiet=quiet, clock=clock)
    with view.aside():
        done = asyncio.run(_Running(loaded, view, concurrency).run(plan, run_key))
    if as_json:
        runs = [
            summary_json(run, view.failures.get(run.run_id, []), here=run not in done.waiting)
            for run in (*done.ends, *done.stopped, *done.waiting)
        ]
        print_bytes(msgspec.json.format(msgspec.json.encode({"runs": runs}), indent=2))
    else:
        for end in done.ends:
            say(summary_text(end, view.failures.get(end.run_id, [])))
    context.exit(done.code)


class Done(NamedTuple):
    ends: list[Summary]
    stopped: list[Summary]
    """Not ended, because this command was told to stop."""
    waiting: list[Summary]
    """Not ended, because their code is not here."""
    code: int


class _Running:
    def __init__(self, project: Project, view: View, concurrency: int) -> None:
        self._project = project
        self._view = view
        self._store = open_store(project.root / FOLDER)
        self._code_ref = requests.code_ref(project.manifest)
        self._concurrency = concurrency
        self._signal = 0
        """The one that told it to stop."""
        self._left = False
        """Stopped before the runs had ended, as far as it knows."""
        self._wanted: list[str] = []
        """Runs that it waits for."""
        self._ends: dict[str, Summary] = {}
        self._waiting: list[Summary] = []

    async def run(self, plan: Plan | None, run_key: str | None) -> Done:
        engine = make_engine(
            self._project,
            self._store,
            concurrency=self._concurrency,
            failed=self._view.raised,
            adopts=plan is None,
        )
        self._stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for caught in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(caught, self._signalled, caught)
        self._view.listen(engine)
        redrawing = asyncio.create_task(self._redraw())
        try:
            async with Session(engine) as session:
                # Before anything else is awaited: what comes later is no older run.
                older = [run for run in engine.state.active_runs() if run.run.trigger is not None]
                if not engine.leading:
                    self._view.note(await self._follows())
                if plan is None:
                    await self._resume(session, older)
                else:
                    await self._ask(session, plan, run_key, older)
                if self._left:
                    self._say_stopping(engine)
            stopped = await self._settle(engine)
        except (Unavailable, Fenced):
            if self._view.watched:
                self._view.note(
                    "What was asked for is kept; 'servo run --resume' goes on with it.", always=True
                )
            raise
        finally:
            redrawing.cancel()
            with suppress(asyncio.CancelledError):
                await redrawing
            self._view.close()
        ends = list(self._ends.values())
        if stopped:
            self._view.note("Stopped. 'servo run --resume' goes on from here.", always=True)
            return Done(ends, stopped, self._waiting, 128 + self._signal)
        good = all(end.state is RunState.SUCCEEDED for end in ends) and not self._waiting
        return Done(ends, [], self._waiting, 0 if good else 1)

    async def _settle(self, engine: Engine) -> list[Summary]:
        """After the session: runs that ended while it stopped have ended. The others are returned."""
        stopped = []
        for run_id in self._wanted if self._left else ():
            if run_id not in self._ends:
                found = await engine.summary(run_id)
                assert found is not None, "it was asked for, durably"
                if found.ended_at is not None:
                    self._ends[run_id] = found
                else:
                    stopped.append(found)
        return stopped

    async def _ask(
        self, session: Session, plan: Plan, run_key: str | None, older: Sequence[RunFold]
    ) -> None:
        engine = session.engine
        if engine.leading:
            # Behind another leader they may well be at work.
            owner = None if run_key is None else await engine.run_of_key(run_key)
            known = None if owner is None else owner.run_id
            self._mention_older([run.run_id for run in older if run.run_id != known])
        deployment = await requests.deploy(engine, self._project.manifest)
        run_id, new = await requests.trigger(
            engine, plan, code_ref=self._code_ref, deployment_id=deployment, run_key=run_key
        )
        if engine.leading:
            self._check_code(run_id, run_key, older)
        count = f"{number(len(plan.tasks), 'task')} in {number(plan.stages(), 'stage')}"
        self._view.note(
            f"run {short(run_id)}: {count if plan.tasks else nothing_to_do(plan)}"
            if new
            else f"run {short(run_id)}: the key {run_key!r} stands for it already"
        )
        await self._wait(session, [run_id], new=new)

    def _mention_older(self, run_ids: Sequence[str]) -> None:
        if not run_ids:
            return
        ids = ", ".join(map(short, run_ids[:NAMED])) + (", …" if run_ids[NAMED:] else "")
        verb = "has" if len(run_ids) == 1 else "have"
        self._view.note(
            f"{number(len(run_ids), 'older run')} {verb} not ended ({ids}):"
            " 'servo run --resume' goes on, 'servo cancel RUN' ends one"
        )

    def _check_code(self, run_id: str, run_key: str | None, older: Sequence[RunFold]) -> None:
        """A key may stand for an older run that waits for code which will never come here."""
        for run in older:
            if run.run_id == run_id and not self._has_code(run):
                raise Conflict(
                    f"the run key {run_key!r} stands for run {short(run_id)}, which waits for the"
                    " code it was asked for with; bring that code back, or end the run with"
                    f" 'servo cancel {short(run_id)}' and use another key"
                )

    def _has_code(self, run: RunFold) -> bool:
        trigger = run.run.trigger
        return trigger is not None and trigger.code_ref == self._code_ref

    async def _resume(self, session: Session, older: Sequence[RunFold]) -> None:
        engine = session.engine
        while waiting := [run.run_id for run in engine.state.active_runs() if self._has_code(run)]:
            for run_id in waiting:
                self._view.note(f"run {short(run_id)}: goes on")
            await self._wait(session, waiting, new=False)
            if self._left:
                return
        active = {run.run_id for run in engine.state.active_runs()}
        others = [run for run in older if run.run_id in active and not self._has_code(run)]
        if engine.leading:
            # Behind another leader they may well be at work.
            await self._name_waiting(engine, others)
        if not self._ends and not self._waiting:
            which = "run of this code" if others else "run of this project"
            self._view.note(f"Nothing to resume: every {which} has ended.", always=True)

    async def _name_waiting(self, engine: Engine, others: Sequence[RunFold]) -> None:
        for run in others:
            at = f" of {clock_text(run.run.triggered[2])}" if run.run.triggered else ""
            self._view.note(
                f"run {short(run.run_id)}{at} waits for the code it was asked for with, which is not"
                " what the project holds now; bring that code back and use --resume, or end the run"
                f" with 'servo cancel {short(run.run_id)}'",
                always=True,
            )
            found = await engine.summary(run.run_id)
            if found is not None:
                self._waiting.append(found)

    async def _wait(self, session: Session, run_ids: list[str], *, new: bool) -> None:
        """Until the runs have ended, or somebody wants to stop. Whatever ends the engine is raised."""
        stop = asyncio.create_task(self._stop.wait())
        lived = asyncio.create_task(session.lived())
        self._wanted += [run_id for run_id in run_ids if run_id not in self._wanted]
        try:
            for run_id in run_ids:
                self._view.watch(run_id, new=new)
            for run_id in run_ids:
                end = asyncio.create_task(session.ended(run_id))
                await asyncio.wait({end, stop, lived}, return_when=asyncio.FIRST_COMPLETED)
                if end.done():
                    self._ends[run_id] = end.result()
                    continue
                end.cancel()
                if lived.done() and not stop.done():
                    lived.result()
                    raise Unavailable("the engine ended before the run had")
                self._left = True
                return
        finally:
            for task in (stop, lived):
                task.cancel()
            await asyncio.gather(stop, lived, return_exceptions=True)

    def _signalled(self, caught: int) -> None:
        if self._stop.is_set():
            self._view.close()
            self._view.note("Left at once. 'servo run --resume' goes on from here.", always=True)
            os._exit(128 + caught)
        self._signal = caught
        self._stop.set()

    def _say_stopping(self, engine: Engine) -> None:
        if not engine.leading:
            self._view.note("Leaving: whoever leads goes on with the run.", always=True)
            return
        open_ = sum(len(run.open) for run in engine.state.active_runs())
        waits = f"waiting for {number(open_, 'task')} at work; " if open_ else ""
        again = "Ctrl-C again" if self._signal == signal.SIGINT else "another signal"
        self._view.note(f"Stopping: {waits}{again} leaves at once.", always=True)

    async def _follows(self) -> str:
        return (
            f"Another process leads this workspace{await self._leader()}. It runs what is asked for"
            " here if it has the same code; if not, this process does when the other leaves."
        )

    async def _leader(self) -> str:
        """Who wrote the last segment that only a leader writes, if that is near the end."""
        log = self._store.log
        head = await log.head()
        for data in reversed(await log.read(max(1, head - LOOKED_BACK))):
            header = segments.parse(data).header
            if header.kind == "leader":
                return f" (writer {header.writer_id})"
        return ""

    async def _redraw(self) -> None:
        while True:
            self._view.draw()
            await asyncio.sleep(REDRAWN)


def nothing_to_do(plan: Plan) -> str:
    """Why a plan has no tasks: a selection that matches nothing was refused, so this is left."""
    names = [str(AssetKey.parse(asset)) for asset in plan.idle]
    listed = ", ".join(names[:NAMED]) + (", …" if names[NAMED:] else "")
    at = plan.now[:16].replace("T", " ")
    return (
        f"nothing to do: {listed} {'has' if len(names) == 1 else 'have'} no partitions at {at} UTC"
    )
