"""Simulated processes: death without last words, zombies, clocks that are wrong."""

import asyncio
import gc
import os
import subprocess
import sys
from contextlib import suppress

import pytest

from servo.core.ids import parse_ulid, ulid_milliseconds
from servo.ports.system import System
from servo.testing.chance import Chance
from servo.testing.loop import Gone, VirtualLoop
from servo.testing.processes import EPOCH, Clock, Process
from servo.testing.storage import ROUGH, FaultyObjects, History, Weather
from servo.testing.trace import Trace
from tests.sim.stores import Register


def make(seed: int = 1, name: str = "p") -> tuple[VirtualLoop, Process]:
    chance = Chance(seed)
    loop = VirtualLoop(chance)
    return loop, Process(loop, name, chance)


def test_a_killed_process_runs_no_finally_block() -> None:
    loop, process = make()
    said: list[str] = []

    async def inner() -> None:
        lock = asyncio.Lock()
        await lock.acquire()
        try:
            # Nobody but this frame knows the lock: nothing but the loop keeps the coroutine.
            await lock.acquire()
        finally:
            said.append("inner finally")

    async def body() -> None:
        loop.call_later(3, said.append, "timer")
        task = asyncio.create_task(inner())
        try:
            while True:
                await asyncio.sleep(1)
                said.append("tick")
        except BaseException:
            said.append("except")
            raise
        finally:
            said.append("finally")
            del task

    async def main() -> None:
        task = process.spawn(body())
        process.kill_at(2.5)
        assert not await process.ended(task)
        assert loop.time() == 2.5
        del task
        gc.collect()
        await asyncio.sleep(100)
        assert said == ["tick", "tick"]

    loop.run(main())
    assert process.state == "dead"
    assert loop.accidents == []


def test_what_is_left_at_the_end_of_the_world_can_touch_nothing() -> None:
    loop, process = make()
    reached: list[str] = []

    async def body() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reached.append("finally")
            with suppress(Exception):
                process.now()
            reached.append("touched the clock")

    async def stubborn() -> None:
        event = asyncio.Event()
        try:
            await event.wait()
        finally:
            await event.wait()

    async def main() -> None:
        process.spawn(body())
        process.spawn(stubborn())
        await asyncio.sleep(10)
        process.kill()

    loop.run(main())
    assert reached == ["finally"]


def test_a_process_can_be_killed_at_each_of_its_turns() -> None:
    async def body(steps: list[int]) -> None:
        for step in range(5):
            await asyncio.sleep(0.1)
            steps.append(step)

    def run(kill_at: int | None) -> tuple[list[int], int]:
        loop, process = make()
        steps: list[int] = []

        async def main() -> None:
            if kill_at is not None:
                process.kill_at_turn(kill_at)
            await process.ended(process.spawn(body(steps)))

        loop.run(main())
        return steps, process.turns

    whole, turns = run(None)
    assert whole == [0, 1, 2, 3, 4]
    reached = [run(turn)[0] for turn in range(1, turns + 1)]
    assert [steps for i, steps in enumerate(reached) if not i or reached[i - 1] != steps] == [
        whole[:length] for length in range(5)
    ]


def test_a_zombie_goes_on_after_resume_as_if_nothing_had_happened() -> None:
    loop, process = make()
    seen: list[tuple[str, int]] = []

    def note(what: str) -> None:
        seen.append((what, round(loop.time())))

    async def body() -> None:
        begin = process.monotonic()
        loop.call_later(15, note, "timer")
        try:
            async with asyncio.timeout(30):
                for _ in range(3):
                    await asyncio.sleep(10)
                    note("tick")
        except TimeoutError:
            note("timeout")
        assert process.monotonic() - begin == round(loop.time() * 1_000_000)

    async def main() -> bool:
        task = process.spawn(body())
        await asyncio.sleep(12)
        process.pause()
        assert process.state == "paused"
        await asyncio.sleep(100)
        assert seen == [("tick", 10)]
        process.resume()
        return await process.ended(task)

    assert loop.run(main())
    assert seen[0] == ("tick", 10)
    # Overdue at once, all of them, and in the order in which they were due.
    assert seen[1:3] == [("timer", 112), ("timeout", 112)] or seen[1:4] == [
        ("timer", 112),
        ("tick", 112),
        ("timeout", 112),
    ]
    assert process.crashes == []


def test_a_zombie_can_be_killed() -> None:
    loop, process = make()
    seen: list[float] = []

    async def body() -> None:
        await asyncio.sleep(1)
        seen.append(loop.time())

    async def main() -> None:
        process.spawn(body())
        process.pause()
        await asyncio.sleep(5)
        process.kill()
        process.resume()
        await asyncio.sleep(5)

    loop.run(main())
    assert seen == []


def test_code_that_was_dying_can_touch_nothing() -> None:
    loop, process = make()

    async def body() -> None:
        process.kill()
        with pytest.raises(Gone):
            process.now()
        process.new_id()

    async def main() -> bool:
        return await process.ended(process.spawn(body()))

    assert loop.run(main()) is False
    assert process.crashes == []
    assert loop.accidents == []


def test_the_error_of_a_spawned_task_is_kept() -> None:
    loop, process = make()

    async def body() -> None:
        raise ValueError("x")

    async def main() -> bool:
        return await process.ended(process.spawn(body()))

    assert loop.run(main())
    assert [type(error) for error in process.crashes] == [ValueError]


def test_clocks_are_skewed_drift_and_jump_and_monotonic_ones_only_grow() -> None:
    loop = VirtualLoop()
    clock = Clock(loop, skew_us=-5_000_000, drift_ppm=100)
    process: System = (real := Process(loop, "p", Chance(1), clock=clock))
    other = Process(loop, "q", Chance(1))

    async def main() -> None:
        assert process.now() == EPOCH - 5_000_000
        before = process.monotonic()
        await asyncio.sleep(1_000)
        assert process.now() == EPOCH - 5_000_000 + 1_000_000_000 + 100_000
        assert other.now() == EPOCH + 1_000_000_000
        real.clock.jump(-3_600_000_000)
        assert process.now() < EPOCH
        assert process.monotonic() - before == 1_000_000_000
        assert process.monotonic() != other.monotonic()

    loop.run(main())


def test_ids_are_unique_ulids_that_only_grow_within_a_process_whatever_its_clock_does() -> None:
    def ids() -> list[list[str]]:
        loop = VirtualLoop()
        processes = [Process(loop, name, Chance(7)) for name in "ab"]
        processes.append(processes[0].again())
        found: list[list[str]] = [[] for _ in processes]
        for step in range(50):
            for process, mine in zip(processes, found, strict=True):
                mine.append(process.new_id())
            processes[0].clock.jump(-10_000 if step % 3 else 9_000)
        loop.close()
        return found

    found = ids()
    every = [one for mine in found for one in mine]
    assert len(set(every)) == len(every)
    assert all(parse_ulid(one) == one for one in every)
    assert all(mine == sorted(mine) for mine in found)
    assert ulid_milliseconds(found[1][0]) == EPOCH // 1000
    assert ids() == found


def test_the_next_life_has_a_new_name_and_the_same_clock() -> None:
    loop, first = make(name="engine")
    first.clock.jump(77)
    first.kill()
    second = first.again()
    third = second.again()
    assert [second.name, third.name] == ["engine.2", "engine.3"]
    assert second.now() == EPOCH + 77
    with pytest.raises(RuntimeError, match="again"):
        first.spawn(asyncio.sleep(1))
    loop.close()


def race(seed: int) -> tuple[list[str], Trace]:
    """Two processes that take turns at a register, and die and come back, under a seed."""
    chance = Chance(seed)
    loop = VirtualLoop(chance)
    trace = Trace(loop.microseconds)
    weather, history, register = Weather(ROUGH), History(), Register()
    order: list[str] = []

    async def body(process: Process) -> None:
        objects = history.recorded(FaultyObjects(register, process, chance, weather), process)
        for number in range(20):
            name = f"n{number:03d}"
            with suppress(Exception):
                won = await objects.put_new(name, process.new_id().encode())
                trace.note(process.name, "put_new", path=name, won=won)
                order.append(f"{process.name} {name} {won}")

    async def main() -> None:
        processes = [Process(loop, name, chance, trace=trace) for name in ("a", "b")]
        tasks = [process.spawn(body(process)) for process in processes]
        processes[0].kill_at_turn(15)
        for process, task in zip(processes, tasks, strict=True):
            if not await process.ended(task):
                process = process.again()
                await process.ended(process.spawn(body(process)))

    loop.run(main())
    assert history.wrong() == []
    return order, trace


def test_two_processes_interleave_by_the_seed_alone() -> None:
    for seed in range(5):
        one, other = race(seed)[1], race(seed)[1]
        assert one.first_difference(other) is None
        assert one.digest() == other.digest()
        assert len(one.happenings) > 20
    assert len({tuple(race(seed)[0]) for seed in range(20)}) == 20
    assert race(1)[1].first_difference(race(2)[1]) is not None


def test_the_trace_of_a_seed_is_the_same_in_another_python() -> None:
    digests = {
        subprocess.run(
            [
                sys.executable,
                "-c",
                "import tests.sim.test_processes as t; print(t.race(3)[1].digest())",
            ],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert digests == {race(3)[1].digest()}
