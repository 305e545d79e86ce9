"""Engines: those that run the assets of a loaded project in this process, and one that runs nothing."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from servo.ports.executor import Work
from servo.ports.store import Store
from servo.runtime.engine import Engine
from servo.runtime.project import Project
from servo.runtime.requests import code_ref
from servo.wiring.stores import system
from servo.worker.inline import CAPACITY, InlineExecutor, Made

Failed = Callable[[Work, BaseException], None]
"""Told of what an asset's code raised, in the thread that ran it: the ledger never has its text."""


def make_engine(
    project: Project,
    store: Store,
    *,
    concurrency: int = CAPACITY,
    failed: Failed | None = None,
    adopts: bool = True,
) -> Engine:
    """An engine that runs the assets of a loaded project in this process. `adopts`: also those of
    runs that others left unfinished."""
    own = code_ref(project.manifest)
    clock = system()
    executor = InlineExecutor(lambda work: _calling(project, work, failed), clock, concurrency)
    return Engine(store, clock, executor, loads=lambda ref: ref == own, adopts=adopts)


def make_idle_engine(store: Store) -> Engine:
    """An engine that needs nobody's code, because it runs nothing: it writes requests and, where
    nobody else leads, sees to what follows from them."""
    return Engine(store, system(), adopts=False)


def _calling(project: Project, work: Work, failed: Failed | None) -> Callable[[], object]:
    """The asset's function; that it returned means that a version was made."""
    function = project.functions[work.asset_key]

    async def finish(result: Awaitable[object]) -> Made:
        try:
            await result
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if failed is not None:
                failed(work, error)
            raise
        return Made()

    def call() -> object:
        try:
            result = function()
        except BaseException as error:
            if failed is not None:
                failed(work, error)
            raise
        return finish(result) if inspect.isawaitable(result) else Made()

    async def call_async() -> Made:
        return await finish(function())  # type: ignore[arg-type]  # a coroutine function was asked for

    return call_async if inspect.iscoroutinefunction(function) else call
