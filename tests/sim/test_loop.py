"""The virtual event loop: asyncio as it is, on a clock that jumps, in an order that a seed decides."""

import asyncio
import contextvars

import pytest

from servo.testing.chance import Chance
from servo.testing.loop import Stuck, VirtualLoop


def test_time_jumps_to_the_next_timer() -> None:
    loop = VirtualLoop()

    async def main() -> list[float]:
        seen = [loop.time()]
        await asyncio.sleep(86_400)
        seen.append(loop.time())
        await asyncio.sleep(0)
        seen.append(loop.time())
        return seen

    assert loop.run(main()) == [0.0, 86_400.0, 86_400.0]


def test_asyncio_works_as_usual() -> None:
    loop = VirtualLoop(Chance(1))

    async def main() -> list[object]:
        lock, event, queue = asyncio.Lock(), asyncio.Event(), asyncio.Queue[int]()
        inside = 0

        async def careful() -> int:
            nonlocal inside
            async with lock:
                inside += 1
                assert inside == 1
                await asyncio.sleep(1)
                inside -= 1
            return round(loop.time())

        results: list[object] = list(await asyncio.gather(careful(), careful(), careful()))
        loop.call_later(5, event.set)
        loop.call_soon_threadsafe(queue.put_nowait, 7)
        await event.wait()
        results.append(await queue.get())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 10)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1))
            group.create_task(asyncio.sleep(2))
        results.append(round(loop.time()))
        return results

    results = loop.run(main())
    assert sorted(results[:3], key=str) == [1, 2, 3]
    assert results[3:] == [7, 30]
    assert loop.accidents == []


def test_a_cancelled_timer_does_not_move_the_clock() -> None:
    loop = VirtualLoop()

    async def main() -> float:
        for _ in range(500):
            loop.call_later(1_000, pytest.fail).cancel()
        await asyncio.sleep(1)
        return loop.time()

    assert loop.run(main()) == 1.0


def test_a_function_in_a_thread_runs_whole_and_answers_later() -> None:
    loop = VirtualLoop(Chance(3))
    steps: list[str] = []

    def work(text: str) -> str:
        steps.append(text)
        return text.upper()

    def fail() -> None:
        raise KeyError("x")

    async def main() -> str:
        running = asyncio.ensure_future(asyncio.to_thread(work, "work"))
        steps.append("asked")
        answer = await running
        with pytest.raises(KeyError):
            await loop.run_in_executor(None, fail)
        return answer

    assert loop.run(main()) == "WORK"
    assert steps == ["asked", "work"]
    assert loop.accidents == []


def test_a_world_where_nothing_can_happen_is_stuck_and_says_who_waits() -> None:
    async def wait_for_godot() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(wait_for_godot(), name="vladimir")

    with pytest.raises(Stuck, match=r"vladimir at .*wait_for_godot"):
        VirtualLoop().run(main())


def test_a_world_that_spins_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servo.testing.loop.SPIN_TURNS", 1_000)

    async def main() -> None:
        asyncio.get_running_loop().call_later(1, lambda: None)
        while True:  # noqa: ASYNC110  # the very thing that is to be found
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="spins"):
        VirtualLoop().run(main())


def order_of_tasks(seed: int | None) -> list[str]:
    loop = VirtualLoop(None if seed is None else Chance(seed))
    order: list[str] = []

    async def walk(name: str) -> None:
        for step in range(4):
            order.append(f"{name}{step}")
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(walk(name) for name in "abcd"))

    loop.run(main())
    return order


def test_the_same_seed_gives_the_same_order_and_others_give_others() -> None:
    assert all(order_of_tasks(seed) == order_of_tasks(seed) for seed in range(20))
    orders = {tuple(order_of_tasks(seed)) for seed in range(200)}
    assert len(orders) > 100
    # One task gets ahead of another by more than a step: turns are not in lock-step.
    assert any(order.index("a3") < order.index("d1") for order in orders)
    assert any(order.index("d3") < order.index("a1") for order in orders)


def test_without_chance_first_come_is_first_served() -> None:
    assert order_of_tasks(None) == [f"{name}{step}" for step in range(4) for name in "abcd"]


def test_plain_callbacks_keep_the_order_that_asyncio_promises() -> None:
    for seed in range(50):
        loop = VirtualLoop(Chance(seed))
        order: list[int] = []

        async def main(loop: VirtualLoop = loop, order: list[int] = order) -> None:
            others = [asyncio.create_task(asyncio.sleep(0)) for _ in range(5)]
            for number in range(10):
                loop.call_soon(order.append, number)
            await asyncio.gather(*others)
            await asyncio.sleep(1)

        loop.run(main())
        assert order == list(range(10))


def test_sets_of_tasks_and_futures_are_walked_in_the_same_order_every_time() -> None:
    def walk(size: int) -> list[int]:
        loop = VirtualLoop(Chance(9))
        ballast = [object() for _ in range(size * 37)]

        async def number(value: int) -> int:
            await asyncio.sleep(1)
            return value

        async def main() -> list[int]:
            futures: list[asyncio.Future[int]] = [loop.create_future() for _ in range(20)]
            for value, future in enumerate(futures):
                loop.call_soon(future.set_result, value)
            tasks = [asyncio.create_task(number(100 + value)) for value in range(20)]
            done, _ = await asyncio.wait([*tasks, *futures])
            return [task.result() for task in done]

        result = loop.run(main())
        del ballast
        return result

    runs = [walk(size) for size in range(4)]
    assert runs[0] == runs[1] == runs[2] == runs[3]


def test_what_goes_wrong_where_nobody_looks_is_kept() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        loop.call_soon(lambda: 1 // 0, context=contextvars.Context())
        await asyncio.sleep(1)

    loop.run(main())
    assert len(loop.accidents) == 1
    assert "ZeroDivisionError" in loop.accidents[0]


def test_forks_of_chance_do_not_disturb_each_other() -> None:
    one, other = Chance(5), Chance(5)
    other.bits(64)
    assert one.fork("a").bits(200) == other.fork("a").bits(200)
    assert one.fork("a").bits(64) != one.fork("b").bits(64)
    assert Chance(5).fork("a").bits(64) != Chance(6).fork("a").bits(64)


def test_chance_draws_from_all_there_is() -> None:
    chance = Chance(1)
    assert {chance.below(6) for _ in range(200)} == set(range(6))
    assert {chance.choose("xyz") for _ in range(100)} == set("xyz")
    assert 150 < sum(chance.chance(0.2) for _ in range(1_000)) < 250
    assert not any(chance.chance(0.0) for _ in range(1_000))
    assert all(0.001 <= chance.delay(1_000, 2_000) <= 0.002 for _ in range(100))
    assert all(chance.bits(80) < 2**80 for _ in range(100))
    assert max(chance.bits(80) for _ in range(100)) > 2**78
    items = list(range(50))
    chance.shuffle(items)
    assert items != list(range(50))
    assert sorted(items) == list(range(50))
