"""A process that dies: an engine with work to do, on a disk that kills it where it is told to.

    python -m tests.crash.child LIFE      one life (a `Life` as JSON), then the process ends
    python -m tests.crash.child           a nursery: each line of its input is a list of lives that are
                                          lived at once, each in a process of its own; forked, because
                                          starting Python takes longer than a life does. It answers
                                          each line with their exit statuses

Every life does the same: lead or follow, deploy, ask for its runs under their run keys, wait until
they have ended, publish, leave. So a life that died is gone on with by living it again. What callers
were told is in `acks` before anything else happens: what stands there must not be lost.
"""

import asyncio
import fcntl
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from servo.adapters.disk import LocalDisk
from servo.adapters.local_lock import LocalLock
from servo.adapters.local_log import LocalLog
from servo.adapters.local_objects import LocalObjects
from servo.adapters.system import RealSystem
from servo.core.definitions import AssetDefinition, Dependency, Manifest
from servo.core.keys import AssetKey
from servo.core.partitions import Partitioning
from servo.core.plan import Plan, PlanRequest
from servo.core.planner import PlanningState, make_plan
from servo.core.policies import RetryPolicy
from servo.core.segments import Place
from servo.errors import ServoError
from servo.events.audit import AuditRecorded
from servo.events.envelope import Fact, Placed
from servo.events.execution import TaskStarted
from servo.events.orchestration import LeaderClaimed
from servo.ledger import publisher
from servo.ledger.manifest import find_newest
from servo.ports.executor import Report, Work
from servo.ports.store import Store
from servo.runtime import engine as engines
from servo.runtime import requests
from servo.runtime import session as sessions
from servo.runtime.engine import Engine
from servo.runtime.session import Session
from servo.sdk.partitions import StaticPartition
from servo.testing.crashes import CrashingDisk, Watch
from servo.worker.inline import InlineExecutor, Made

PATIENCE = 60.0
"""Seconds after which a life hangs, as far as a nursery can tell."""
FILE_BYTES = 12_000
"""So that a life fills a few files of the log."""
MERGE_FILES = 3
PUBLISH_US = 4_000
PROBE_US = 20_000
REVISIONS = 5

MATRIX = ("chain", "fan", "broken")
"""The runs of an ordinary life: 16 tasks."""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    name: str
    """No other life of the folder has it."""
    at: str | None = None
    nth: int = 1
    runs: tuple[str, ...] = MATRIX
    hold: str | None = None
    """Tasks that are held wait for a lock on this file; without one they go on at once."""
    killed_after: float | None = None
    """Seconds; by the nursery."""


class Ack(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody was told."""

    key: str = ""
    """The idempotency key of a fact that is durable at a place."""
    position: int = 0
    index: int = 0
    run_key: str = ""
    run_id: str = ""
    published: int = 0


# --- Work -----------------------------------------------------------------------------------------


def _assets() -> list[AssetDefinition]:
    quick = RetryPolicy(initial_delay_ms=1, max_delay_ms=5, max_attempts=5)
    twice = RetryPolicy(initial_delay_ms=1, max_delay_ms=5, max_attempts=2)
    parts = Partitioning((StaticPartition("part", range(6)),))

    def made(
        name: str,
        *needs: str,
        retry: RetryPolicy = quick,
        partitions: Partitioning | None = None,
    ) -> AssetDefinition:
        return AssetDefinition(
            key=AssetKey(*name.split(".")),
            dependencies=tuple(Dependency(upstream=AssetKey(*n.split("."))) for n in needs),
            retry=retry,
            partitions=partitions,
            code_version="1",
        )

    return [
        made("chain.a"),
        made("chain.b", "chain.a"),
        made("chain.c", "chain.b"),
        made("chain.d", "chain.c"),
        made("fan.source"),
        made("fan.part", "fan.source", partitions=parts),
        made("fan.total", "fan.part"),
        made("broken.good"),
        made("broken.bad", retry=twice),
        made("broken.below", "broken.bad"),
        made("broken.stubborn", retry=twice),
        made("held.one"),
        made("held_too.one"),
    ]


MANIFEST = Manifest(assets=tuple(_assets()))
CODE = requests.code_ref(MANIFEST)


def plan_of(run: str) -> Plan:
    state = PlanningState(datetime(2026, 1, 1, tzinfo=UTC))
    return make_plan(PlanRequest(selection=f"{run}.*"), MANIFEST, state)


def code(life: Life, work: Work, began: Callable[[str], None]) -> Callable[[], object]:
    """What a task does: functions and coroutines, right and wrong."""
    namespace, name = work.asset_key.split("/")

    def call() -> object:
        began(work.attempt_id)
        if name == "bad":
            raise ValueError("wrong at each attempt, and no reason to try again")
        if name == "stubborn" or (work.partition_key.endswith("3") and work.attempt == 1):
            raise ConnectionError("somebody else's fault, so it is tried again")
        if namespace.startswith("held") and life.hold is not None:
            with open(life.hold) as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
        return Made(row_count=len(work.task_key))

    async def call_async() -> object:
        await asyncio.sleep(0)
        return call()

    return call_async if name == "part" else call


# --- One life -------------------------------------------------------------------------------------


class _Diary:
    """What this life leaves behind for those who examine it."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._acks, self._began, self._reached = (
            os.open(f"{folder}/{name}", flags) for name in ("acks", "began", "reached")
        )

    def ack(self, ack: Ack) -> None:
        os.write(self._acks, msgspec.json.encode(ack) + b"\n")
        os.fsync(self._acks)

    def fact(self, place: Place, fact: Fact) -> None:
        self.ack(Ack(key=fact.key(), position=place.position, index=place.index))

    def began(self, attempt_id: str) -> None:
        os.write(self._began, f"{attempt_id}\n".encode())

    def reached(self, point: str) -> None:
        os.write(self._reached, f"{point}\n".encode())


def say(what: str) -> None:
    os.write(1, f"{what}\n".encode())


class _Lock(LocalLock):
    def acquire(self) -> bool:
        held = super().acquire()
        if not held:
            say("refused")
        return held


class _Telling(InlineExecutor):
    """Writes down which reports of its workers were acknowledged."""

    diary: _Diary

    def start(self, writer_id: str, report: Report, alive: Callable[[str], None]) -> str:
        def reported(facts: Sequence[Fact]) -> "asyncio.Future[Place]":
            answer = report(facts)
            answer.add_done_callback(lambda done: self._answered(done, facts))
            return answer

        return super().start(writer_id, reported, alive)

    def _answered(self, answer: "asyncio.Future[Place]", facts: Sequence[Fact]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            for index, fact in enumerate(facts, answer.result().index):
                self.diary.fact(Place(answer.result().position, index), fact)
                if type(fact) is TaskStarted:
                    say(f"began {fact.task_key}")


def store_in(folder: str, disk: Callable[[], Any] = LocalDisk) -> Store:
    root = f"{folder}/store"
    return Store(
        "local",
        "main",
        LocalLog(disk(), root, file_bytes=FILE_BYTES),
        LocalObjects(disk(), root, RealSystem().new_id),
        _Lock(disk(), f"{root}/leader.lock"),
    )


async def live(life: Life) -> None:
    diary = _Diary(life.folder)
    watch = Watch(diary.reached, life.at, life.nth)
    store = store_in(life.folder, lambda: CrashingDisk(LocalDisk(), watch))
    system = RealSystem()
    executor = _Telling(lambda work: code(life, work, diary.began), system, 3)
    executor.diary = diary
    engine = Engine(store, system, executor, loads=lambda ref: ref == CODE)

    def changed(placed: Sequence[Placed]) -> None:
        for event in placed:
            fact = event.event.payload
            if type(fact) is LeaderClaimed and fact.writer_id == engine.writer_id:
                say("leads")

    async def record(numbers: range) -> None:
        for number in numbers:
            fact = AuditRecorded(action="lived", subject=f"{life.name}-{number}")
            diary.fact(await engine.submit([fact], source="client"), fact)

    async def ask(run: str) -> str:
        found = await requests.trigger(engine, plan_of(run), code_ref=CODE, run_key=run)
        diary.ack(Ack(run_key=run, run_id=found.run_id))
        say(f"promised {run}")
        return found.run_id

    async def see(run_id: str, run: str) -> None:
        ended = await session.ended(run_id)
        say(f"ended {run} {ended.state}")

    engine.changed.append(changed)
    async with Session(engine) as session:
        if not engine.leading:
            say("follows")
        await requests.deploy(engine, MANIFEST)
        await record(range(2))
        asked = {await ask(run): run for run in life.runs}
        await asyncio.gather(record(range(2, 9)), *(see(*each) for each in asked.items()))
        # On a slow machine a life is over before there was anything to merge.
        last = 9
        while (await find_newest(store.objects)).revision < REVISIONS:
            await record(range(last, last := last + 1))
            await asyncio.sleep(PUBLISH_US / 1e6)
        led = engine.leading
    if led:
        diary.ack(Ack(published=engine.state.position))


def main(life: Life) -> int:
    publisher.MERGE_FILES = MERGE_FILES
    engines.PUBLISH_US = PUBLISH_US
    sessions.PROBE_US = PROBE_US  # type: ignore[attr-defined]  # it has a name of its own for it
    try:
        asyncio.run(live(life))
    except ServoError as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        return 1
    return 0


# --- The nursery ----------------------------------------------------------------------------------


def _born(life: Life) -> int:
    """The process id of a new process that lives it."""
    os.makedirs(life.folder, exist_ok=True)
    process = os.fork()
    if process:
        return process
    status = 70
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(os.open(f"{life.folder}/stderr", os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        status = main(life)
    except BaseException:  # noqa: BLE001 - a fork must never return into the nursery
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)


def _died(process: int, seconds: float | None) -> int:
    """Its exit status, as in `subprocess`; -SIGALRM if it hung."""
    handle = os.pidfd_open(process)
    hung = False
    if not select.select([handle], [], [], PATIENCE if seconds is None else seconds)[0]:
        hung = seconds is None
        os.kill(process, signal.SIGKILL)
    os.close(handle)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return -signal.SIGALRM if hung else status


def nursery() -> None:
    for line in sys.stdin:
        lives = msgspec.json.decode(line, type=list[Life])
        processes = [_born(life) for life in lives]
        ends = [_died(each, life.killed_after) for each, life in zip(processes, lives, strict=True)]
        sys.stdout.write(msgspec.json.encode(ends).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(main(msgspec.json.decode(sys.argv[1], type=Life)))
    nursery()
