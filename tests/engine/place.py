"""A place to run engines in: virtual time, memory that several engines share, and tasks by name."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from servo.adapters.memory import MemoryLock, MemoryLog, MemoryObjects
from servo.ports.executor import Work
from servo.ports.store import Store
from servo.runtime.engine import Engine
from servo.runtime.session import Session
from servo.testing import Chance, Process, VirtualLoop
from servo.worker.inline import InlineExecutor

T = TypeVar("T")
CODE = "deployment:test"
Calls = Mapping[str, Callable[[], Any]]
NOTHING: Calls = {}


def play(main: Callable[["Place"], Awaitable[T]], seed: int = 1) -> T:
    """Run a story to its end; nothing may go wrong in the background."""
    loop = VirtualLoop(Chance(seed))
    place = Place(loop, Chance(seed))

    async def story() -> T:
        return await main(place)

    result = loop.run(story())
    assert loop.accidents == []
    return result


class Place:
    def __init__(self, loop: VirtualLoop, chance: Chance) -> None:
        self.loop = loop
        self._chance = chance
        self.segments: list[bytes] = []
        self.values: dict[str, bytes] = {}
        self.lock: list[Any] = []
        self.begun: list[str] = []
        """Task names, in the order in which they began."""

    def process(self, name: str) -> Process:
        return Process(self.loop, name, self._chance)

    def store(self, *, lock: bool = True) -> Store:
        return Store(
            "local",
            "main",
            MemoryLog(self.segments),
            MemoryObjects(self.values),
            MemoryLock(self.lock) if lock else None,
        )

    def engine(
        self,
        name: str = "one",
        calls: Calls = NOTHING,
        *,
        capacity: int = 4,
        lock: bool = True,
        code: str = CODE,
        store: Store | None = None,
    ) -> Engine:
        """An engine whose tasks are looked up by the name of their asset; the rest do nothing."""
        process = self.process(name)

        def resolve(work: Work) -> Callable[[], object]:
            task = work.asset_key.partition("/")[2]
            call = calls.get(task)

            async def run() -> object:
                self.begun.append(task)
                return await call() if call is not None else None

            return run

        executor = InlineExecutor(resolve, process, capacity)
        return Engine(
            store or self.store(lock=lock), process, executor, loads=lambda ref: ref == code
        )

    def session(self, name: str = "one", calls: Calls = NOTHING, **options: Any) -> Session:
        return Session(self.engine(name, calls, **options))


async def forever() -> None:
    await asyncio.Event().wait()
