"""`servo run`: plan, ask for a run, lead or follow until it has ended.

The first Ctrl-C (or SIGTERM) stops handing out work and waits for what runs; the state can be resumed.
The second leaves at once, which is as safe as a power cut.
"""

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any, NamedTuple

import click
import msgspec

from servo.cli.asking import load_project, parse_asked, planning_options, project_option
from servo.cli.output import (
    clock_text,
    moment_of,
    print_bytes,
    say,
    seconds_text,
    short_ids,
    state_style,
)
from servo.cli.progress import Failure, View
from servo.cli.render import number
from servo.core import segments
from servo.core.plan import Plan
from servo.core.states import RunState
from servo.errors import Fenced, Unavailable
from servo.fold.tables.runs import Summary
from servo.runtime import requests
from servo.runtime.engine import Engine
from servo.runtime.project import Project
from servo.runtime.session import Session
from servo.wiring.engines import make_engine
from servo.wiring.stores import FOLDER, open_store, prepare, system
from servo.worker.inline import CAPACITY

TOLD = 5
"""Failures that the summary tells in full."""
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
    type=click.IntRange(1, 1024),
    default=CAPACITY,
    show_default=True,
    metavar="N",
    help="How many tasks run at once.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
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
    """
    if resume and (selection or partitions or force or at or run_key):
        raise click.UsageError("--resume asks for nothing new; leave out what says what to run")
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
        ends = [_plain(end, view.failures.get(end.run_id, [])) for end in done.ends]
        data: Any = {"runs": ends} if resume else (ends[0] if ends else None)
        print_bytes(msgspec.json.format(msgspec.json.encode(data), indent=2))
    else:
        for end in done.ends:
            say(_summary(end, view.failures.get(end.run_id, [])))
    context.exit(done.code)


class Done(NamedTuple):
    ends: list[Summary]
    code: int


class _Running:
    def __init__(self, project: Project, view: View, concurrency: int) -> None:
        self._project = project
        self._view = view
        self._store = open_store(project.root / FOLDER)
        self._code_ref = requests.code_ref(project.manifest)
        self._concurrency = concurrency
        self._stopped = 0
        """The signal that told it to stop."""
        self._left = False
        """Stopped before the runs had ended."""
        self._ends: list[Summary] = []

    async def run(self, plan: Plan | None, run_key: str | None) -> Done:
        engine = make_engine(
            self._project, self._store, concurrency=self._concurrency, failed=self._view.raised
        )
        self._stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for caught in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(caught, self._signalled, caught)
        self._view.listen(engine)
        redrawing = asyncio.create_task(self._redraw())
        try:
            async with Session(engine) as session:
                if not engine.leading:
                    self._view.note(await self._follows())
                if plan is None:
                    await self._resume(session)
                else:
                    await self._ask(session, plan, run_key)
                if self._left:
                    self._say_stopping(engine)
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
        if self._left:
            self._view.note("Stopped. 'servo run --resume' goes on from here.", always=True)
            return Done(self._ends, 128 + self._stopped)
        good = all(end.state is RunState.SUCCEEDED for end in self._ends)
        return Done(self._ends, 0 if good else 1)

    async def _ask(self, session: Session, plan: Plan, run_key: str | None) -> None:
        engine = session.engine
        self._mention_others(engine)
        deployment = await requests.deploy(engine, self._project.manifest)
        run_id, new = await requests.trigger(
            engine, plan, code_ref=self._code_ref, deployment_id=deployment, run_key=run_key
        )
        count = f"{number(len(plan.tasks), 'task')} in {number(plan.stages(), 'stage')}"
        self._view.note(
            f"run {_short(run_id)}: {count}"
            if new
            else f"run {_short(run_id)}: the key {run_key!r} stands for it already"
        )
        await self._wait(session, [run_id], new=new)

    async def _resume(self, session: Session) -> None:
        engine = session.engine
        others = self._mention_others(engine)
        while waiting := [
            run.run_id
            for run in engine.state.active_runs()
            if run.run.trigger is not None and run.run.trigger.code_ref == self._code_ref
        ]:
            for run_id in waiting:
                self._view.note(f"run {_short(run_id)}: goes on")
            await self._wait(session, waiting, new=False)
            if self._left:
                return
        if not self._ends:
            which = "run of this code" if others else "run of this project"
            self._view.note(f"Nothing to resume: every {which} has ended.", always=True)

    def _mention_others(self, engine: Engine) -> bool:
        """Say which runs wait for code that is not here; whether there are any."""
        others = False
        for run in engine.state.active_runs():
            trigger = run.run.trigger
            if trigger is None or trigger.code_ref == self._code_ref:
                continue
            others = True
            self._view.note(
                f"run {_short(run.run_id)} of {clock_text(run.run.triggered[2])} waits for the code"
                " it was asked for with, which is not what the project holds now; bring that code"
                " back and use --resume"
                if run.run.triggered
                else f"run {_short(run.run_id)} waits for other code"
            )
        return others

    async def _wait(self, session: Session, run_ids: list[str], *, new: bool) -> None:
        """Until the runs have ended, or somebody wants to stop. Whatever ends the engine is raised."""
        stop = asyncio.create_task(self._stop.wait())
        lived = asyncio.create_task(session.lived())
        try:
            for run_id in run_ids:
                self._view.watch(run_id, new=new)
            for run_id in run_ids:
                end = asyncio.create_task(session.ended(run_id))
                await asyncio.wait({end, stop, lived}, return_when=asyncio.FIRST_COMPLETED)
                if end.done():
                    self._ends.append(end.result())
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
            os._exit(128 + caught)
        self._stopped = caught
        self._stop.set()

    def _say_stopping(self, engine: Engine) -> None:
        if not engine.leading:
            self._view.note("Leaving: whoever leads goes on with the run.", always=True)
            return
        open_ = sum(len(run.open) for run in engine.state.active_runs())
        waits = f"waiting for {number(open_, 'task')} at work; " if open_ else ""
        self._view.note(f"Stopping: {waits}Ctrl-C again leaves at once.", always=True)

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


def _short(run_id: str) -> str:
    return short_ids([run_id])[run_id]


def _summary(end: Summary, failures: list[Failure]) -> str:
    took = None if end.ended_at is None else end.ended_at - end.triggered_at
    state = state_style(end.state.value, end.state.value.lower().replace("_", " "))
    counts = ", ".join(f"{count:,} {state.lower()}" for state, count in end.counts.items())
    lines = [f"run {_short(end.run_id)} {state} in {seconds_text(took)}: {counts or 'no tasks'}"]
    alike = _alike(failures)
    for group in alike[:TOLD]:
        lines += ["", *_told(group)]
    if len(alike) > TOLD:
        rest = sum(len(group) for group in alike[TOLD:])
        lines += ["", f"and {number(rest, 'other task')}: servo status {_short(end.run_id)}"]
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


def _plain(end: Summary, failures: list[Failure]) -> dict[str, Any]:
    return {
        "run_id": end.run_id,
        "state": end.state.value,
        "reason": end.reason.value,
        "why": end.reason.sentence,
        "triggered_at": moment_of(end.triggered_at),
        "ended_at": moment_of(end.ended_at),
        "duration_us": None if end.ended_at is None else end.ended_at - end.triggered_at,
        "tasks": {state.lower(): count for state, count in end.counts.items()},
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
