"""A session: an engine at work in the background while its caller does other things.

It leads if nobody does. Otherwise it follows the leader, writes its own requests as reports, and
leads when the other one leaves. Two commands on one folder are two sessions.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from servo.core.states import is_terminal
from servo.errors import Unavailable
from servo.events.envelope import Placed
from servo.fold.tables.runs import Summary, summary
from servo.runtime.engine import PROBE_US, Engine


class Session:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._waiting: dict[str, asyncio.Future[Summary]] = {}
        self._live: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.engine.changed.append(self._changed)
        if not await self.engine.try_lead():
            await self.engine.open()
        self._live = asyncio.create_task(self._live_on())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._live is not None
        if self.engine.leading:
            await self.engine.close()
            await self._live
            await self.engine.leave()
            return
        self._live.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._live
        if kind is None and self.engine.failure is not None:
            raise self.engine.failure

    async def _live_on(self) -> None:
        try:
            while not self.engine.leading:
                await asyncio.sleep(PROBE_US / 1e6)
                with suppress(Unavailable):
                    await self.engine.follow()
                    await self.engine.try_lead()
                    await self._look_up()
            await self.engine.run()
        except BaseException as error:
            self._settle(error if isinstance(error, Exception) else _gone())
            if self.engine.leading:
                self.engine.give_up(error)
            raise
        self._settle(_gone())

    def _settle(self, error: Exception) -> None:
        """Nobody will hear of an end any more."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # it may be that nobody waits for it any more

    async def lived(self) -> None:
        """Wait until the engine has stopped, by itself or by an error, which is raised."""
        assert self._live is not None
        await asyncio.shield(self._live)

    async def ended(self, run_id: str) -> Summary:
        """Wait until a run has ended. An engine that cannot go on raises here."""
        waiting = self._waiting.get(run_id)
        if waiting is None or waiting.done():
            waiting = self._waiting[run_id] = asyncio.get_running_loop().create_future()
        try:
            await self.engine.settled()
            self._look()
            await self._look_up()
            if self._live is not None and self._live.done():
                self._settle(self.engine.failure or _gone())
            return await asyncio.shield(waiting)
        finally:
            if waiting.done() and self._waiting.get(run_id) is waiting:
                del self._waiting[run_id]

    async def _look_up(self) -> None:
        """Who begins to lead loads its state anew, and runs that have ended are not in it."""
        for run_id, waiting in list(self._waiting.items()):
            if not waiting.done() and run_id not in self.engine.state.runs:
                found = await self.engine.summary(run_id)
                if found is not None and is_terminal(found.state) and not waiting.done():
                    waiting.set_result(found)

    def _changed(self, placed: Sequence[Placed]) -> None:
        if self._waiting:
            self._look()

    def _look(self) -> None:
        """Only while there is no overlay: an end that is not durable is none."""
        for run_id, waiting in list(self._waiting.items()):
            run = self.engine.state.runs.get(run_id)
            if run is not None and run.ended and not waiting.done():
                row = self.engine.state.run_row(run_id)
                assert row is not None
                waiting.set_result(summary(row))


def _gone() -> Unavailable:
    return Unavailable("the engine was told to end before the run had")
