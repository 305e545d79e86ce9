"""A real asyncio event loop on a virtual clock.

    turn    one round of the loop: everything that was ready when it began is run once
    gate    what a simulated process hangs on: a callback runs only if the gate of its context is
            open; at a dead gate it is kept and never run, at a paused one it waits

* Time does not pass while code runs. When nothing is ready, the clock jumps to the next timer; when
  there is no timer either, the world stands still for ever: `Stuck`, which names who waits. So does
  a world that spins without letting time pass.
* Everything is decided by the seed. With a `Chance` the order of tasks within a turn is no longer
  first come, first served: some are shuffled, and some are put off to the next turn. Callbacks that
  are not tasks keep their order, which asyncio promises.
* Nothing depends on where an object lies in memory: tasks and futures hash by their number, so that
  a set of them (`asyncio.wait`, `TaskGroup`) is walked in the same order every time. Sets of strings
  are not: PYTHONHASHSEED moves them, and code that must repeat itself sorts.
* `run_in_executor` and `asyncio.to_thread` run the function on the loop, whole, at a later turn; its
  answer comes later still. There are no threads, no sockets and no signals.
* What goes wrong where nobody looks (a callback raises, a task's error is never retrieved) is kept
  in `accidents`, to be asserted on; not what a dead process leaves behind.

Held by tests/sim/test_loop.py.
"""

import asyncio
import contextvars
import heapq
import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from servo.testing.chance import Chance

T = TypeVar("T")

SPIN_TURNS = 1_000_000
"""So many turns at one instant are taken for a loop that never ends."""
# Drawn once for each world: some bugs want calm for a long time, others want disorder at every turn.
_PERTURB = (0.1, 0.3, 0.8)
_PUT_OFF = (0.1, 0.3, 0.6)
_THREAD_US = 300
_PURGE_TIMERS = 100


class Stuck(AssertionError):
    """Nothing can happen any more, or nothing but spinning: the simulated code waits for ever."""


class Gone(BaseException):
    """Raised inside a process that is dead by now, by whatever it tries to touch.

    Nobody is meant to catch it: it unwinds the stretch of code in which the process died.
    """


class Gate:
    """Lets the callbacks of one process through, or not. `turns` counts those that ran."""

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.name = name
        self.turns = 0
        self.dead = False
        self.paused = False
        self._loop = loop
        self._fuse = 0
        self._blow: Callable[[], None] | None = None
        self._waiting: list[asyncio.Handle] = []
        # The one attribute that the loop looks at for each callback.
        self.watched = False
        loop.gates.append(self)

    def shut(self) -> None:
        """For ever. What waits is kept, because freeing a coroutine would run its `finally`."""
        self.dead = self.watched = True

    def pause(self) -> None:
        self.paused = self.watched = True

    def resume(self) -> None:
        if self.dead or not self.paused:
            return
        self.paused = False
        self.watched = self._fuse > 0
        self._loop.make_ready(self._waiting)
        self._waiting = []

    def at_turn(self, count: int, blow: Callable[[], None]) -> None:
        """Call `blow` instead of running the `count`-th turn from now."""
        self._fuse, self._blow = count, blow
        self.watched = True

    def admits(self, handle: asyncio.Handle) -> bool:
        if self._fuse and not self.dead and not self.paused:
            self._fuse -= 1
            if not self._fuse:
                self.watched = False
                assert self._blow is not None
                self._blow()
        if self.dead or self.paused:
            self._waiting.append(handle)
            return False
        return True

    def forget(self) -> None:
        self._waiting.clear()


GATE: contextvars.ContextVar[Gate | None] = contextvars.ContextVar("GATE", default=None)
"""The gate of the process whose code runs; inherited by every task and callback it creates."""


class _Task(asyncio.Task[Any]):
    """A task with a place of its own in every set."""

    __slots__ = ("gate", "number")
    number: int
    gate: Gate | None

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    __slots__ = ("gate", "number")
    number: int
    gate: Gate | None

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    # What the base class keeps and typeshed does not tell.
    _ready: deque[Any]
    _scheduled: list[Any]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, chance: Chance | None = None) -> None:
        self.accidents: list[str] = []
        self.gates: list[Gate] = []
        self._now = 0.0
        self._order = chance.fork("order") if chance else None
        self._perturbed = self._order.choose(_PERTURB) if self._order else 0.0
        self._put_off = self._order.choose(_PUT_OFF) if self._order else 0.0
        self._threads = chance.fork("threads") if chance else None
        self._spins = 0
        self._tasks: list[_Task] = []
        self._count = 0
        self._sweep_at = 256
        super().__init__()
        self.set_exception_handler(_note_accident)

    # -- time

    def time(self) -> float:
        """Seconds since the beginning of this world."""
        return self._now

    def microseconds(self) -> int:
        return round(self._now * 1_000_000)

    # -- one turn

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        if ready or self._stopping:
            self._spins += 1
            if self._spins > SPIN_TURNS:
                raise Stuck(
                    f"{SPIN_TURNS:,} turns at {self._now:.6f} s without letting time pass: something"
                    f" spins. {self._who_waits()}"
                )
        else:
            self._jump()
            scheduled = self._scheduled
        while scheduled and scheduled[0]._when <= self._now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if handle._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(handle)
        count = len(ready)
        if count > 1 and self._order is not None and self._order.chance(self._perturbed):
            count -= self._perturb(self._order)
        gate_of = GATE
        for _ in range(count):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            gate = handle._context.get(gate_of)
            if gate is not None:
                if gate.watched and not gate.admits(handle):
                    continue
                gate.turns += 1
            handle._run()

    def _jump(self) -> None:
        if len(self._scheduled) > _PURGE_TIMERS and self._timer_cancelled_count * 2 > len(
            self._scheduled
        ):
            kept = []
            for handle in self._scheduled:
                if handle._cancelled:
                    handle._scheduled = False
                else:
                    kept.append(handle)
            heapq.heapify(kept)
            self._scheduled = kept
            self._timer_cancelled_count = 0
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        if not scheduled:
            raise Stuck(f"at {self._now:.6f} s nothing can happen any more. {self._who_waits()}")
        if scheduled[0]._when > self._now:
            self._now = scheduled[0]._when
            self._spins = 0

    def _perturb(self, order: Chance) -> int:
        """Shuffle the tasks among their places in this turn; how many are put off to the next."""
        handles = list(self._ready)
        places = [i for i, handle in enumerate(handles) if _is_task(handle)]
        if len(places) < 2:
            return 0
        tasks = [handles[i] for i in places]
        order.shuffle(tasks)
        for place, handle in zip(places, tasks, strict=True):
            handles[place] = handle
        # One stays, so that a turn always gets something done.
        late = {place for place in places[1:] if order.chance(self._put_off)}
        self._ready.clear()
        self._ready.extend(h for i, h in enumerate(handles) if i not in late)
        self._ready.extend(handles[i] for i in sorted(late))
        return len(late)

    def make_ready(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)

    def _who_waits(self) -> str:
        waiting = [task for task in self._tasks if not task.done()]
        dead = [gate.name for gate in self.gates if gate.dead]
        paused = [gate.name for gate in self.gates if gate.paused and not gate.dead]
        lines = [f"Waiting: {', '.join(_described(task) for task in waiting[:20]) or 'nobody'}"]
        if len(waiting) > 20:
            lines.append(f"and {len(waiting) - 20} more")
        if paused:
            lines.append(f"paused: {', '.join(paused)}")
        if dead:
            lines.append(f"dead: {', '.join(dead[-20:])}")
        return "; ".join(lines)

    # -- futures, tasks and threads

    def create_future(self) -> asyncio.Future[Any]:
        future = _Future(loop=self)
        future.number = self._count = self._count + 1
        future.gate = GATE.get()
        return future

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        self._check_closed()
        number = self._count = self._count + 1
        gate = GATE.get() if context is None else context.get(GATE)
        if name is None:
            # asyncio's own names count on through the whole Python process.
            name = f"{gate.name if gate else 'task'}#{number}"
        # The number must be there before the constructor: it puts the task into a set.
        task = _Task.__new__(_Task)
        task.number, task.gate = number, gate
        _Task.__init__(task, coro, loop=self, name=str(name), context=context)
        self._tasks.append(task)
        if len(self._tasks) > self._sweep_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._sweep_at = max(256, 2 * len(self._tasks))
        return task

    def run_in_executor(  # type: ignore[override]  # a plain function that returns a future, as in asyncio
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Gone:
                return  # the process died inside: nobody is told
            except Exception as error:  # noqa: BLE001  # handed to who waits for it
                later(_fail, error)
            else:
                later(_answer, result)

        def later(callback: Callable[..., None], *args: object) -> None:
            if self._threads is None:
                self.call_soon(callback, *args)
            else:
                self.call_later(self._threads.delay(0, _THREAD_US), callback, *args)

        def _answer(result: T) -> None:
            if not future.done():
                future.set_result(result)

        def _fail(error: Exception) -> None:
            if not future.done():
                future.set_exception(error)

        later(work)
        return future

    def _check_closed(self) -> None:
        if self.is_closed():
            raise RuntimeError("this world has ended")

    def _write_to_self(self) -> None:
        """There is no sleeping selector to wake."""

    def _process_events(self, event_list: object) -> None:
        """There is no input or output."""

    # -- the end

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end, then end the world: whatever is left in it never runs again."""
        try:
            return self.run_until_complete(main)
        finally:
            self.close()

    def close(self) -> None:
        """End the world. Coroutines that are left are closed, with nothing to touch any more."""
        if self.is_closed():
            return
        for gate in self.gates:
            gate.shut()
        super().close()
        with _silence():
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio.gather does
                    _close(task.get_coro())
            self._tasks.clear()
            for gate in self.gates:
                gate.forget()


def _is_task(handle: Any) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), _Task)


def _described(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    where = f" at {frames[0].f_code.co_qualname}:{frames[0].f_lineno}" if frames else ""
    return f"{task.get_name()}{where}"


def _note_accident(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    gate = getattr(context.get("future"), "gate", None)
    if gate is not None and gate.dead:
        return  # who would have looked at it is no more
    loop.accidents.append(f"{context.get('message')}: {context.get('exception')!r}")


def _close(coro: Any) -> None:
    try:
        coro.close()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001  # a dead process's last words are nobody's business
        return


@contextmanager
def _silence() -> Iterator[None]:
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = hook
