"""Simulated storage: what a power cut leaves, what a lost answer means, and stores that are caught."""

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from servo.adapters.local_lock import LocalLock
from servo.adapters.local_log import LocalLog
from servo.adapters.local_objects import LocalObjects
from servo.adapters.memory import MemoryLog, MemoryObjects
from servo.core import segments
from servo.errors import Conflict, Unavailable, Uncertain
from servo.ports.disk import Disk, File
from servo.ports.log import Log
from servo.ports.objects import Objects
from servo.testing.chance import Chance
from servo.testing.loop import Gone, VirtualLoop
from servo.testing.processes import Process
from servo.testing.storage import (
    CALM,
    ROUGH,
    STORM,
    FaultyLog,
    FaultyObjects,
    History,
    Machine,
    Trouble,
    Weather,
)
from tests.sim.stores import Forgetful, Lying, Overwriting, Register


class World:
    """A loop, a machine and a process on it."""

    def __init__(self, seed: int, trouble: Trouble = CALM) -> None:
        self.chance = Chance(seed)
        self.loop = VirtualLoop(self.chance)
        self.weather = Weather(trouble)
        self.machine = Machine(self.loop, "m", self.chance, self.weather)
        self.process = Process(self.loop, "p", self.chance)

    def disk(self) -> Disk:
        return self.machine.disk(self.process)

    def reboot(self) -> Disk:
        self.machine.power_cut()
        self.process = self.process.again()
        return self.disk()


def opened(disk: Disk, path: str) -> File:
    file = disk.open(path, create=True)
    assert file is not None
    return file


def contents(disk: Disk, path: str) -> bytes | None:
    file = disk.open(path)
    return None if file is None else file.read(0, file.size())


# -- disks


def test_a_kill_loses_nothing_that_was_written() -> None:
    world = World(1)
    disk = world.disk()
    disk.make_folder("/a/b")
    opened(disk, "/a/b/x").append(b"hello")
    world.process.kill()
    with pytest.raises(Gone):
        disk.open("/a/b/x")
    world.process = world.process.again()
    assert contents(world.disk(), "/a/b/x") == b"hello"
    world.loop.close()


def test_a_power_cut_keeps_what_was_synced_and_tears_the_rest_at_any_byte() -> None:
    left = set()
    for seed in range(300):
        world = World(seed)
        disk = world.disk()
        disk.make_folder("/d")
        file = opened(disk, "/d/x")
        disk.sync_folder("/d")
        file.append(b"synced.")
        file.sync()
        file.append(b"0123456789")
        left.add(contents(world.reboot(), "/d/x"))
        world.loop.close()
    assert all(found is not None and found.startswith(b"synced.") for found in left)
    plain = {found for found in left if found is not None and b"\0" not in found}
    assert plain == {b"synced." + b"0123456789"[:length] for length in range(11)}
    # On some file systems the size is there before the bytes are.
    assert len(left) > len(plain)


def test_a_name_survives_a_power_cut_only_after_its_folder_was_synced() -> None:
    found = set()
    for seed in range(40):
        world = World(seed)
        disk = world.disk()
        disk.make_folder("/d")
        opened(disk, "/d/old").sync()
        disk.sync_folder("/d")
        opened(disk, "/d/new").sync()
        disk.rename("/d/old", "/d/renamed")
        assert sorted(disk.names("/d")) == ["new", "renamed"]
        found.add(tuple(sorted(world.reboot().names("/d"))))
        world.loop.close()
    # The changes of a folder survive in their order.
    assert found == {("old",), ("new", "old"), ("new", "renamed")}


def test_a_rename_between_folders_never_loses_the_file() -> None:
    for seed in range(60):
        world = World(seed)
        disk = world.disk()
        for folder in ("/a", "/b"):
            disk.make_folder(folder)
        opened(disk, "/a/x").sync()
        disk.sync_folder("/a")
        disk.rename("/a/x", "/b/x")
        if seed % 2:
            disk.sync_folder("/a")
        disk = world.reboot()
        assert disk.names("/a") + disk.names("/b")
        world.loop.close()


def test_a_shortening_that_was_not_synced_may_be_undone() -> None:
    found = set()
    for seed in range(100):
        world = World(seed)
        disk = world.disk()
        disk.make_folder("/d")
        file = opened(disk, "/d/x")
        disk.sync_folder("/d")
        file.append(b"abcdef")
        file.sync()
        file.truncate(3)
        file.append(b"XY")
        found.add(contents(world.reboot(), "/d/x"))
        world.loop.close()
    assert {b"abcdef", b"abc", b"abcX", b"abcXY"} <= found
    assert all(each is not None and each.startswith(b"abc") for each in found)


def test_bytes_of_a_failed_sync_may_be_lost_though_a_later_one_succeeds() -> None:
    lost = 0
    for seed in range(40):
        world = World(seed, Trouble(sync_error=1.0))
        world.weather.off()
        disk = world.disk()
        disk.make_folder("/d")
        file = opened(disk, "/d/x")
        disk.sync_folder("/d")
        file.append(b"first")
        world.weather.trouble = Trouble(sync_error=1.0)
        with pytest.raises(OSError, match="sync") as failure:
            file.sync()
        assert failure.value.errno == errno.EIO
        world.weather.off()
        file.append(b"second")
        file.sync()
        assert contents(disk, "/d/x") == b"firstsecond"
        lost += contents(world.reboot(), "/d/x") != b"firstsecond"
        world.loop.close()
    assert 10 < lost < 40


def test_a_full_disk_writes_nothing_and_has_room_again_later() -> None:
    world = World(1, Trouble(disk_full=1.0))
    disk = world.disk()
    disk.make_folder("/d")
    file = opened(disk, "/d/x")
    with pytest.raises(OSError, match="full") as failure:
        file.append(b"x")
    assert failure.value.errno == errno.ENOSPC
    assert file.size() == 0
    world.weather.off()
    file.append(b"x")
    world.loop.close()


def test_a_short_write_leaves_a_part() -> None:
    sizes = set()
    for seed in range(50):
        world = World(seed, Trouble(short_write=1.0))
        disk = world.disk()
        disk.make_folder("/d")
        file = opened(disk, "/d/x")
        with pytest.raises(OSError, match="part"):
            file.append(b"1234")
        sizes.add(file.size())
        world.loop.close()
    assert sizes == {0, 1, 2, 3, 4}


def test_a_lock_is_let_go_at_death_and_not_by_a_zombie() -> None:
    world = World(1)
    first, second = world.process, Process(world.loop, "q", world.chance)
    ours, theirs = world.machine.disk(first), world.machine.disk(second)
    ours.make_folder("/d")
    lock, other = LocalLock(ours, "/d/lock"), LocalLock(theirs, "/d/lock")
    assert lock.acquire()
    assert lock.acquire()
    assert not other.acquire()
    first.pause()
    assert not other.acquire()
    with pytest.raises(AssertionError, match=r"process q waits .* Process\('p', paused\)"):
        theirs.lock("/d/lock", wait=True)
    first.kill()
    assert other.acquire()
    world.loop.close()


def segment(position: int, prev_hash: str, text: str) -> bytes:
    _, data = segments.encode(
        [b'{"text":"%b"}' % text.encode(), b"{}"],
        position=position,
        prev_hash=prev_hash,
        writer_id="w",
        nonce=text,
        epoch=1,
        kind="leader",
        written_at="2025-01-15T00:00:00.000000Z",
    )
    return data


async def append_many(log: Log, acknowledged: list[bytes], name: str, count: int) -> None:
    """What a careful writer does: after any doubt it reads the log again."""
    known: list[bytes] = []
    for number in range(count):
        text = f"{name}-{number}"
        while not any(b'"%b"' % text.encode() in data for data in known):
            try:
                known += await read_all(log, len(known))
                prev = segments.parse(known[-1]).header.hash if known else segments.GENESIS
                data = segment(len(known) + 1, prev, text)
                await log.append(len(known) + 1, data)
                acknowledged.append(data)
                known.append(data)
            except Conflict:
                continue
            except Unavailable:
                # What was read may have been another's, who took it back when his sync failed.
                known.clear()
                await asyncio.sleep(0.1)
        await asyncio.sleep(0.01)


async def read_all(log: Log, known: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while more := await log.read(known + len(found) + 1):
        found += more
    return found


def check_chain(found: list[bytes]) -> None:
    prev = segments.GENESIS
    for position, data in enumerate(found, 1):
        header = segments.parse(data, position).header
        assert header.prev_hash == prev
        prev = header.hash


def in_order(acknowledged: list[bytes], found: list[bytes]) -> bool:
    places = [found.index(data) for data in acknowledged]
    return places == sorted(places)


def local_log(disk: Disk) -> Log:
    # Files that are full soon, so that new ones are begun under fire.
    return LocalLog(disk, "/work", file_bytes=1_500)


@pytest.mark.parametrize("cut", ["kill", "power"])
def test_a_local_log_keeps_every_acknowledged_segment_killed_at_every_call(cut: str) -> None:
    def run(kill_at: int | None, seed: int) -> int:
        world = World(seed)
        acknowledged: list[bytes] = []

        async def main() -> None:
            if kill_at is not None:
                world.process.kill_at_call(kill_at)
            writer = append_many(local_log(world.disk()), acknowledged, "a", 6)
            if await world.process.ended(world.process.spawn(writer)):
                return
            if cut == "power":
                world.machine.power_cut()
            for again in ("b", "c"):
                world.process = process = world.process.again()
                writer = append_many(local_log(world.disk()), acknowledged, again, 2)
                assert await process.ended(process.spawn(writer))
                assert process.crashes == []
                found = await read_all(local_log(world.disk()))
                check_chain(found)
                assert in_order(acknowledged, found)
                if cut == "power":
                    world.machine.power_cut()

        first = world.process
        world.loop.run(main())
        assert world.loop.accidents == []
        return first.calls

    calls = run(None, 0)
    assert calls > 60
    for kill_at in range(1, calls + 1):
        for seed in range(3):
            run(kill_at, seed)


# Not both at once: who dies between a sync that failed and taking back what it was about leaves a whole
# segment that no later sync makes durable, and that the next writer cannot tell from any other.
KILLS = Trouble(disk_full=0.01, short_write=0.03)
SYNC_ERRORS = Trouble(disk_full=0.001, short_write=0.01, sync_error=0.03)


@pytest.mark.parametrize("trouble", [KILLS, SYNC_ERRORS], ids=["kills", "sync_errors"])
def test_a_local_log_on_a_bad_disk_with_power_cuts_keeps_every_acknowledged_segment(
    trouble: Trouble,
) -> None:
    total = 0
    for seed in range(30):
        world = World(seed, trouble)
        acknowledged: list[bytes] = []

        async def main(world: World = world, acknowledged: list[bytes] = acknowledged) -> None:
            for life in range(3):
                processes = [Process(world.loop, f"{life}{name}", world.chance) for name in "xyz"]
                for process in processes:
                    log = local_log(world.machine.disk(process))
                    process.spawn(append_many(log, acknowledged, process.name, 8))
                if trouble is KILLS:
                    processes[0].kill_at_call(world.chance.below(100) + 1)
                await asyncio.sleep(world.chance.below(50) / 10)
                for process in processes:
                    assert process.crashes == []
                world.machine.power_cut()
            world.weather.off()
            reader = Process(world.loop, "reader", world.chance)
            found = await read_all(local_log(world.machine.disk(reader)))
            check_chain(found)
            assert in_order(acknowledged, found)

        world.loop.run(main())
        assert world.loop.accidents == []
        total += len(acknowledged)
    assert total > 1_000


def test_local_objects_are_whole_or_absent_and_what_was_acknowledged_is_there() -> None:
    def run(kill_at: int | None, seed: int) -> int:
        world = World(seed)
        done: dict[str, bytes] = {}
        sent: dict[str, set[bytes]] = {"a/x": set(), "a/y": set()}

        async def writer(objects: Objects) -> None:
            for number in range(3):
                data = b"%d" % number * 50
                for path, put in (("a/x", objects.put), ("a/y", objects.put_new)):
                    sent[path].add(data)
                    if await put(path, data) is not False:
                        done[path] = data

        async def main() -> None:
            if kill_at is not None:
                world.process.kill_at_call(kill_at)
            objects = LocalObjects(world.disk(), "/work", world.process.new_id)
            if not await world.process.ended(world.process.spawn(writer(objects))):
                world.machine.power_cut()
                world.process = world.process.again()
                again = LocalObjects(world.disk(), "/work", world.process.new_id)
                for path in sent:
                    data = await again.get(path)
                    assert data in sent[path] | {None}
                    if path in done:
                        assert data is not None
                        assert path == "a/x" or data == done[path]
                assert await again.put_new("a/y", b"late") is (await again.get("a/y") == b"late")

        first = world.process
        world.loop.run(main())
        assert first.crashes == []
        return first.calls

    calls = run(None, 0)
    for kill_at in range(1, calls + 1):
        for seed in range(3):
            run(kill_at, seed)


# -- stores over a wire


def test_lost_vanished_and_stalled_answers_are_all_uncertain_and_mean_different_things() -> None:
    async def put_through(world: World, trouble: Trouble) -> tuple[bytes | None, bytes | None]:
        world.weather.trouble = trouble
        store = MemoryObjects()
        objects = FaultyObjects(store, world.process, world.chance, world.weather)
        with pytest.raises(Uncertain):
            await objects.put_new("x", b"1")
        at_once = await store.get("x")
        await asyncio.sleep(200)
        return at_once, await store.get("x")

    async def main(world: World) -> None:
        assert await put_through(world, Trouble(lost=1.0)) == (b"1", b"1")
        assert await put_through(world, Trouble(vanished=1.0)) == (None, None)
        assert await put_through(world, Trouble(stalled=1.0)) == (None, b"1")

    world = World(1)
    world.loop.run(main(world))


def test_a_refused_request_did_not_happen_and_reads_are_never_uncertain() -> None:
    async def main(world: World) -> None:
        log = MemoryLog()
        faulty = FaultyLog(log, world.process, world.chance, world.weather)
        with pytest.raises(Unavailable) as refused:
            await faulty.append(1, segment(1, segments.GENESIS, "x"))
        assert type(refused.value) is Unavailable
        assert await log.head() == 0
        world.weather.trouble = Trouble(lost=1.0, vanished=1.0, stalled=1.0)
        assert await faulty.head() == 0
        assert await faulty.read(1) == []
        world.weather.off()
        with pytest.raises(Conflict):
            await faulty.append(2, segment(2, segments.GENESIS, "x"))

    world = World(1, Trouble(refused=1.0))
    world.loop.run(main(world))


def test_a_burst_refuses_a_fifth_of_the_calls_for_half_a_minute() -> None:
    async def main(world: World) -> None:
        objects = FaultyObjects(MemoryObjects(), world.process, world.chance, world.weather)
        world.weather.burst_until = 30.0
        refused = {True: 0, False: 0}
        total = {True: 0, False: 0}
        for _ in range(500):
            await asyncio.sleep(0.1)
            during = world.loop.time() < 30
            total[during] += 1
            with suppress(Unavailable):
                await objects.get("x")
                continue
            refused[during] += 1
        assert 0.1 < refused[True] / total[True] < 0.3
        assert refused[False] == 0

    world = World(1)
    world.loop.run(main(world))


def test_a_request_lands_though_its_sender_died_or_stopped_waiting() -> None:
    async def main(world: World) -> None:
        world.weather.trouble = Trouble(delay_us=1_000_000)
        store = MemoryObjects()
        objects = FaultyObjects(store, world.process, world.chance, world.weather)

        async def impatient() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(objects.put_new("x", b"1"), 1e-6)
            await objects.put_new("y", b"2")
            pytest.fail("a dead process got an answer")

        task = world.process.spawn(impatient())
        await asyncio.sleep(0.000_01)
        world.process.kill()
        assert [await store.get("x"), await store.get("y")] == [None, None]
        await asyncio.sleep(10)
        assert [await store.get("x"), await store.get("y")] == [b"1", b"2"]
        assert not task.done()

    world = World(1)
    world.loop.run(main(world))
    assert world.loop.accidents == []


def test_listing_and_ranges_go_over_the_wire_too() -> None:
    async def main(world: World) -> None:
        objects: Objects = History().recorded(
            FaultyObjects(MemoryObjects(), world.process, world.chance, world.weather),
            world.process,
        )
        await objects.put("a/x", b"12345")
        await objects.put("a/y", b"1")
        await objects.delete("a/y")
        assert [info async for info in objects.list("a/")] == [("a/x", 5)]
        assert await objects.get_range("a/x", 1, 3) == b"234"
        assert await objects.head("a/x") == ("a/x", 5)
        assert await objects.head("a/y") is None

    world = World(1)
    world.loop.run(main(world))


# -- histories


def race(store: Objects, seed: int, trouble: Trouble) -> History:
    """Clients that race for a few names, some of whom die, and then look again."""
    world = World(seed, trouble)
    history = History("manifests/")
    chance = world.chance.fork("race")

    async def client(process: Process) -> None:
        objects = history.recorded(
            FaultyObjects(store, process, world.chance, world.weather), process
        )
        for _ in range(15):
            path = f"manifests/{chance.below(4)}"
            with suppress(Unavailable):
                if chance.chance(0.5):
                    await objects.put_new(path, process.new_id().encode())
                else:
                    await objects.get(path)
            await objects.put("_hint", b"not recorded") if chance.chance(0.1) else None

    async def main() -> None:
        processes = [
            Process(world.loop, f"c{number}", world.chance)
            for number in range(5 + chance.below(16))
        ]
        tasks = [process.spawn(client(process)) for process in processes]
        for process in processes[::4]:
            process.kill_at_turn(1 + chance.below(30))
        for process in processes[1::4]:
            world.loop.call_later(chance.below(5), process.pause)
            world.loop.call_later(5 + chance.below(30), process.resume)
        for process, task in zip(processes, tasks, strict=True):
            await process.ended(task)
        world.weather.off()
        await asyncio.sleep(200)
        last = Process(world.loop, "last", world.chance)
        await last.ended(last.spawn(client(last)))

    world.loop.run(main())
    assert world.loop.accidents == []
    return history


def test_histories_of_racing_clients_are_linearizable() -> None:
    outcomes: set[tuple[str, str]] = set()
    for seed in range(40):
        for trouble in (ROUGH, STORM):
            history = race(Register(), seed, trouble)
            assert history.wrong() == [], seed
            assert set(history.events) <= {f"manifests/{number}" for number in range(4)}
            outcomes |= {(e["f"], e["type"]) for es in history.events.values() for e in es}
    assert {("cas", "ok"), ("cas", "fail"), ("cas", "info"), ("read", "ok")} <= outcomes


@pytest.mark.parametrize("broken", [Overwriting, Lying, Forgetful])
def test_a_store_that_breaks_its_promise_is_caught(broken: Callable[[], Objects]) -> None:
    caught = sum(bool(race(broken(), seed, ROUGH).wrong()) for seed in range(10))
    assert caught == 10


def test_a_history_is_written_as_other_checkers_read_it() -> None:
    async def main(world: World) -> None:
        objects = history.recorded(Register(), world.process)
        assert await objects.put_new("x", b"1")
        assert not await objects.put_new("x", b"2")
        await objects.get("x")

    history = History()
    world = World(1)
    world.loop.run(main(world))
    assert [line.split('"type":')[1][:-1] for line in history.lines("x").splitlines()] == [
        '"invoke","value":[null,"6b86b273ff34fce1"]',
        '"ok","value":[null,"6b86b273ff34fce1"]',
        '"invoke","value":[null,"d4735e3a265e16ee"]',
        '"fail","value":[null,"d4735e3a265e16ee"]',
        '"invoke","value":null',
        '"ok","value":"6b86b273ff34fce1"',
    ]
