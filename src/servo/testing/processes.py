"""Simulated operating-system processes: they start, sleep, wake as zombies and die at any point.

    process   a name, a clock, a source of ids, and all tasks and callbacks that came from `spawn`
    turn      one resumption of its code: a task after an await, a callback or a timer
    zombie    a process that was paused and goes on later, not knowing it

* A task belongs to the process in whose code it was created, and so does every callback and timer:
  the contextvar of `servo.testing.loop` goes along. Awaiting a coroutine makes its code one's own;
  awaiting a *task* of another process does not.
* **After `kill` no code of it runs any more**, not even `finally` blocks: the loop does not call it.
  Its coroutines are kept until the world ends, so that freeing them runs nothing either. Where the
  process dies within a stretch of synchronous code (`kill_at_call`, a power cut), the stretch is
  unwound by `Gone`: code on the way out runs, but whatever it tries to touch raises `Gone` again.
* **While paused nothing of it runs; then everything goes on** as if nothing had happened: what became
  ready meanwhile runs in order, timers are overdue, clocks have gone on. It keeps its locks.
* Ids are unique over all processes of a world whose names are unique; `again` makes a new name.

Implements `servo.ports.system.System`. Held by tests/sim/test_processes.py.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from servo.core.ids import base32_encode, encode_time, increment_ulid
from servo.testing.chance import Chance
from servo.testing.loop import GATE, Gate, Gone, VirtualLoop
from servo.testing.trace import Trace

T = TypeVar("T")

EPOCH = 1_736_899_200_000_000
"""When every world begins: 2025-01-15T00:00:00Z in microseconds."""


class Clock:
    """The wall clock of one machine: wrong from the start, wrong in its pace, and it may jump."""

    def __init__(self, loop: VirtualLoop, *, skew_us: int = 0, drift_ppm: int = 0) -> None:
        self._loop = loop
        self._skew = skew_us
        self._drift_ppm = drift_ppm

    def now(self) -> int:
        elapsed = self._loop.microseconds()
        return EPOCH + elapsed + elapsed * self._drift_ppm // 1_000_000 + self._skew

    def jump(self, by_us: int) -> None:
        """Forwards or back, as when somebody sets it."""
        self._skew += by_us


class Process:
    def __init__(
        self,
        loop: VirtualLoop,
        name: str,
        chance: Chance,
        *,
        clock: Clock | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.name = name
        self.clock = clock or Clock(loop)
        self.crashes: list[BaseException] = []
        """Errors with which spawned tasks ended."""
        self.calls = 0
        """How many calls its disk has been asked; what `kill_at_call` counts."""
        self._loop = loop
        self._chance = chance.fork(f"process {name}")
        self._root = chance
        self._trace = trace
        self._life = 1
        self._first_name = name
        self._gate = Gate(loop, name)
        self._context = contextvars.Context()
        self._context.run(GATE.set, self._gate)
        self._death: asyncio.Future[None] = loop.create_future()
        self._on_death: list[Callable[[], None]] = []
        self._fatal_call = 0
        self._fatal_write = 0
        self._fatal_folder = ""
        # "Some moment" is another one for every process: comparing two of them shows.
        self._monotonic_zero = self._chance.below(10**12)
        self._last_id = ""

    def __repr__(self) -> str:
        return f"Process({self.name!r}, {self.state})"

    # -- the System port

    def now(self) -> int:
        self.check()
        return self.clock.now()

    def monotonic(self) -> int:
        self.check()
        return self._monotonic_zero + self._loop.microseconds()

    def new_id(self) -> str:
        fresh = encode_time(self.now() // 1000) + base32_encode(self._chance.bits(80), 16)
        # As the real source does: within a millisecond, or after a jump back, ids only grow.
        if fresh[:10] <= self._last_id[:10]:
            fresh = increment_ulid(self._last_id)
        self._last_id = fresh
        return fresh

    # -- life

    @property
    def alive(self) -> bool:
        return not self._gate.dead

    @property
    def state(self) -> str:
        if self._gate.dead:
            return "dead"
        return "paused" if self._gate.paused else "running"

    @property
    def turns(self) -> int:
        """How many turns it has had. A run without a kill says which ones there are to be killed at."""
        return self._gate.turns

    def check(self) -> None:
        """Called by whatever the process touches: a dead one touches nothing."""
        if self._gate.dead:
            raise Gone(f"process {self.name} is dead")

    def spawn(self, coro: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Start a task of this process; from anywhere, normally from outside of it."""
        if not self.alive:
            coro.close()
            raise RuntimeError(f"process {self.name} is dead; start another with again()")
        task_name = f"{self.name}:{name}" if name else None
        task = self._loop.create_task(coro, name=task_name, context=self._context.copy())
        # Outside its context: who looks at the end is not the process itself.
        task.add_done_callback(self._finished, context=contextvars.Context())
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Gone):
            self.crashes.append(error)
            self._note("crash", error=type(error).__name__)

    async def ended(self, task: asyncio.Task[Any]) -> bool:
        """Wait, from outside, until a task of it has ended (True) or never will (False)."""
        await asyncio.wait({task, self._death}, return_when=asyncio.FIRST_COMPLETED)
        return task.done() and not self._died_in(task)

    @staticmethod
    def _died_in(task: asyncio.Task[Any]) -> bool:
        return not task.cancelled() and isinstance(task.exception(), Gone)

    def on_death(self, callback: Callable[[], None]) -> None:
        """What the operating system does when it dies, such as letting go of its locks."""
        self._on_death.append(callback)

    def kill(self) -> None:
        """`kill -9`, at this instant. Also of a paused or dead one."""
        if self._gate.dead:
            return
        self._gate.shut()
        self._note("killed", turns=self.turns)
        for callback in self._on_death:
            callback()
        self._death.set_result(None)

    def kill_at(self, seconds: float) -> None:
        """At a virtual time of the loop."""
        self._loop.call_at(seconds, self.kill, context=contextvars.Context())

    def kill_at_turn(self, count: int) -> None:
        """At its `count`-th turn from now, which does not run: at every await, one after the other."""
        self._gate.at_turn(count, self.kill)

    def kill_at_call(self, count: int) -> None:
        """At its `count`-th call of a disk from now, which does not happen, or happens in part."""
        self._fatal_call = self.calls + count

    def kill_at_write(self, count: int, folder: str) -> None:
        """In the middle of the `count`-th time from now that it writes to a file of a folder."""
        self._fatal_write, self._fatal_folder = count, folder

    def disk_write(self, folder: str) -> bool:
        """As `disk_call`, for a write to a file of a folder."""
        if self._fatal_write > 0 and folder == self._fatal_folder:
            self._fatal_write -= 1
            if not self._fatal_write:
                self._fatal_call = self.calls + 1
        return self.disk_call()

    def disk_call(self) -> bool:
        """Counted by the disk before each call; True: the process dies in this one."""
        self.check()
        self.calls += 1
        return self.calls == self._fatal_call

    def pause(self) -> None:
        """Stop it, as a closed laptop lid does. Timers and locks stay."""
        self._gate.pause()
        self._note("paused")

    def resume(self) -> None:
        self._gate.resume()
        self._note("resumed")

    def again(self) -> "Process":
        """The next life of this process: a new name and new ids, on the same machine's clock."""
        life = self._life + 1
        name = f"{self._first_name}.{life}"
        process = Process(self._loop, name, self._root, clock=self.clock, trace=self._trace)
        process._life, process._first_name = life, self._first_name
        return process

    def _note(self, what: str, **details: object) -> None:
        if self._trace is not None:
            self._trace.note(self.name, what, **details)
