"""Small places for tests that set the scene themselves: engines on a virtual loop, one store."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from servo.core.keys import TaskKey
from servo.core.plain import to_plain
from servo.core.plan import Plan, PlannedAsset, PlannedTask, PlanRequest, fingerprint
from servo.core.policies import RetryPolicy, Timeouts
from servo.events.audit import AuditRecorded
from servo.ports.executor import Work
from servo.ports.objects import Objects
from servo.ports.store import Store
from servo.runtime.engine import Engine
from servo.testing import (
    CALM,
    Chance,
    FaultyLog,
    FaultyObjects,
    Process,
    Trouble,
    VirtualLoop,
    Weather,
)
from servo.wiring.stores import memory_store
from servo.worker.inline import InlineExecutor

T = TypeVar("T")

Code = Callable[[Work], Callable[[], Awaitable[object]]]


class Place:
    """A workspace in a cloud: one true store, and a way to it for each process."""

    def __init__(
        self, seed: int = 1, trouble: Trouble = CALM, objects: Objects | None = None
    ) -> None:
        self.chance = Chance(seed)
        self.loop = VirtualLoop(self.chance.fork("order"))
        self.weather = Weather(trouble)
        self.true = memory_store()
        if objects is not None:
            self.true = self.true._replace(objects=objects)
        self.processes: dict[str, Process] = {}

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(main)

    def process(self, name: str) -> Process:
        return self.processes.setdefault(name, Process(self.loop, name, self.chance))

    def store(self, process: Process) -> Store:
        draw = self.chance.fork(f"wire {process.name}")
        return self.true._replace(
            log=FaultyLog(self.true.log, process, draw, self.weather),
            objects=FaultyObjects(self.true.objects, process, draw, self.weather),
            lock=None,
        )

    def engine(self, name: str, code: Code | None = None, slots: int = 32) -> Engine:
        process = self.process(name)
        executor = InlineExecutor(code, process, slots) if code is not None else None
        return Engine(self.store(process), process, executor, loads=lambda _: True)

    def alone(self, code: Code, slots: int = 32) -> Engine:
        """An engine at the store itself, without a wire: for what is about amounts."""
        process = self.process("alone")
        return Engine(
            self.true, process, InlineExecutor(code, process, slots), loads=lambda _: True
        )


def noted(subject: str) -> AuditRecorded:
    return AuditRecorded(action="noted", subject=subject)


def plan_of(upstreams: Mapping[str, Sequence[str]], heartbeat_ms: int = 30_000) -> Plan:
    """Tasks by name, each with the names of those it needs, which come before it."""
    asset = PlannedAsset(
        code_version="v",
        kind="python",
        config={},
        dependencies=(),
        windows=(),
        checks=(),
        gating={},
        retry=to_plain(RetryPolicy()),
        timeouts=to_plain(Timeouts(heartbeat_ms=heartbeat_ms)),
        resources={},
        priority=0,
    )
    stages: dict[str, int] = {}
    tasks = []
    for name, above in upstreams.items():
        stages[name] = max((stages[each] for each in above), default=-1) + 1
        tasks.append(
            PlannedTask(
                key=TaskKey.spell(f"t/{name}", None),
                asset=f"t/{name}",
                stage=stages[name],
                upstreams=tuple(TaskKey.spell(f"t/{each}", None) for each in sorted(above)),
                rerun=True,
            )
        )
    assets = {f"t/{name}": asset for name in upstreams}
    tasks.sort(key=lambda task: task.key)
    return Plan(
        fingerprint=fingerprint(assets, tasks),
        request=PlanRequest(selection="*"),
        now="2025-01-15T00:00:00Z",
        assets=assets,
        tasks=tuple(tasks),
    )


def taking(seconds: float) -> Code:
    """Code that takes so long and makes nothing."""

    def resolve(work: Work) -> Callable[[], Awaitable[object]]:
        async def call() -> object:
            await asyncio.sleep(seconds)
            return None

        return call

    return resolve
