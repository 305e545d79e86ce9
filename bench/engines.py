"""What the benchmarks of the engine share: a durable workspace on this disk, and plans of a size."""

import os
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from servo.adapters.disk import LocalDisk
from servo.adapters.system import RealSystem
from servo.core.keys import TaskKey
from servo.core.plain import to_plain
from servo.core.plan import Plan, PlannedAsset, PlannedTask, PlanRequest, fingerprint
from servo.core.policies import RetryPolicy, Timeouts
from servo.runtime.engine import Engine
from servo.runtime.session import Session
from servo.wiring.stores import store_on
from servo.worker.inline import InlineExecutor

CODE = "process:bench"


def no_op() -> None:
    """What every task of a benchmark does."""


@asynccontextmanager
async def session(folder: Path, call: Callable[[], object] = no_op) -> AsyncIterator[Session]:
    """A leading engine in a folder, whose tasks all call one function."""
    system = RealSystem()
    store = store_on(LocalDisk, str(folder / "local" / "main"), system.new_id)
    executor = InlineExecutor(lambda _: call, system)
    async with Session(Engine(store, system, executor, loads=lambda ref: ref == CODE)) as opened:
        assert opened.engine.leading
        yield opened


def plan(upstreams: dict[str, tuple[str, ...]]) -> Plan:
    """One asset, one partition key per task: `upstreams` maps each name to those it needs."""
    asset = PlannedAsset(
        code_version="bench",
        kind="python",
        config={},
        dependencies=(),
        windows=(),
        checks=(),
        gating={},
        retry=to_plain(RetryPolicy()),
        timeouts=to_plain(Timeouts()),
        resources={},
        priority=0,
    )
    keys = {name: TaskKey.spell("bench/step", f"n=s:{name}") for name in upstreams}
    stages: dict[str, int] = {}
    tasks = []
    for name, above in upstreams.items():  # those that are needed come first
        stages[name] = max((stages[other] for other in above), default=-1) + 1
        tasks.append(
            PlannedTask(
                key=keys[name],
                asset="bench/step",
                partition=f"n=s:{name}",
                stage=stages[name],
                upstreams=tuple(keys[other] for other in above),
                rerun=True,
            )
        )
    tasks.sort(key=lambda task: task.key)
    assets = {"bench/step": asset}
    return Plan(
        fingerprint=fingerprint(assets, tasks),
        request=PlanRequest(),
        now="2025-01-15T00:00:00Z",
        assets=assets,
        tasks=tuple(tasks),
    )


def chain(length: int) -> Plan:
    return plan({f"{i:06}": (f"{i - 1:06}",) if i else () for i in range(length)})


def fan(width: int) -> Plan:
    return plan({f"{i:06}": () for i in range(width)})


def raw_append(folder: Path, size: int, count: int) -> list[float]:
    """Seconds for each of some appends of `size` bytes with fdatasync, and nothing else."""
    data = b"x" * size
    file = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    times = []
    try:
        for _ in range(count):
            started = perf_counter()
            os.write(file, data)
            os.fdatasync(file)
            times.append(perf_counter() - started)
    finally:
        os.close(file)
    return times


def p50(times: list[float]) -> float:
    return statistics.median(times)


def folder() -> "tempfile.TemporaryDirectory[str]":
    """On this machine's disk: `/tmp` may be memory, so it is made beside the benchmarks."""
    return tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".run-")
