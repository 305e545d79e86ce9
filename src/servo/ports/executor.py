"""Executors: what runs an attempt and reports how it went.

* `submit` is idempotent by attempt id: asking twice runs once. It does not wait for the attempt.
* An executor holds an attempt from `submit` until its result is acknowledged (durable), so that
  `held` never misses one whose report is still on its way.
* Reports go to the function it was started with; its answer is there when they are durable. An error
  there (`Fenced`) means that the attempt is no longer anybody's business: the executor lets it go.
* `cancel` asks: the attempt reports `cancelled` when it has stopped, or finishes as if not asked.
"""

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from servo.core.segments import Place
from servo.events.envelope import Fact


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, with what a worker has to know to run it."""

    run_id: str
    task_key: str
    attempt: int
    attempt_id: str
    asset_key: str
    asset_id: str | None
    partition_key: str
    code_ref: str
    code_version: str
    heartbeat_ms: int
    execution_ms: int | None


Report = Callable[[Sequence[Fact]], "Future[Place]"]
"""Facts that belong together: they become durable together."""


class Executor(Protocol):
    def start(self, writer_id: str, report: Report, alive: Callable[[str], None]) -> str:
        """Begin to take work. Returns where attempts will run, for `DispatchRequested`:
        `process:WRITER` if they die with the process. `alive` is told the id of each attempt that
        gave a sign of life."""
        ...

    def slots(self) -> int:
        """How many more attempts it would take now."""
        ...

    def held(self) -> frozenset[str]:
        """Ids of the attempts it has."""
        ...

    def submit(self, work: Work) -> None: ...

    def cancel(self, attempt_id: str) -> None: ...

    async def close(self) -> None:
        """Tell what still runs to end, report it as interrupted, and return."""
        ...

    def abandon(self) -> None:
        """The engine failed: stop what can be stopped, at once, and report nothing."""
        ...
