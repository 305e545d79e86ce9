"""What the local log does beyond the contract: crashes, full disks, damage, and other processes."""

import asyncio
import errno
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from servo.adapters.disk import LocalDisk
from servo.adapters.local_log import LocalLog
from servo.core import segments
from servo.errors import Corrupt, Unavailable, Uncertain
from tests.contract.disks import Killed, Machine, SimulatedDisk
from tests.contract.log import compete, everything, filled, segment
from tests.contract.objects import run


def real(folder: Path, file_bytes: int = 2**23) -> LocalLog:
    return LocalLog(LocalDisk(), str(folder), file_bytes=file_bytes)


def simulated(machine: Machine, file_bytes: int = 2**23) -> LocalLog:
    return LocalLog(SimulatedDisk(machine), "/w", file_bytes=file_bytes)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "ledger").glob("*.jsonl"))


# ---------------------------------------------------------------- files


def test_file_is_named_by_its_first_segment_and_holds_the_bytes_as_they_are(tmp_path: Path) -> None:
    size = len(segment(1))
    made = run(filled(real(tmp_path, file_bytes=2 * size), 5))
    assert [path.name for path in files(tmp_path)] == [f"{first:020d}.jsonl" for first in (1, 3, 5)]
    assert b"".join(path.read_bytes() for path in files(tmp_path)) == b"".join(made)


def test_reading_any_position_first_finds_it(tmp_path: Path) -> None:
    made = run(filled(real(tmp_path, file_bytes=1000), 20))
    for start in range(1, 21):
        assert run(real(tmp_path).read(start, 1)) == [made[start - 1]]
    log = real(tmp_path)
    for start in (20, 3, 11, 4, 19, 1):
        assert run(log.read(start, 1)) == [made[start - 1]]


def test_closed_log_opens_its_files_again(tmp_path: Path) -> None:
    async def work() -> None:
        log = real(tmp_path)
        made = await filled(log, 2)
        log.close()
        assert await everything(log) == made
        log.close()
        await log.append(3, segment(3))
        assert await log.head() == 3

    run(work())


def test_logs_that_roll_at_other_sizes_do_not_miss_each_others_files(tmp_path: Path) -> None:
    async def work() -> None:
        logs = [real(tmp_path, file_bytes=size) for size in (1, 700, 2**23)]
        for position, log in zip(range(1, 40), itertools.cycle(logs), strict=False):
            await log.append(position, segment(position))
        assert await everything(real(tmp_path)) == [segment(p) for p in range(1, 40)]

    run(work())


def test_slow_append_sends_the_next_one_to_a_thread_and_a_fast_one_brings_it_back() -> None:
    async def work() -> None:
        machine = Machine()
        log = simulated(machine)
        loop = asyncio.get_running_loop()
        now = 0.0
        threads = 0

        def slow(name: str, when: str) -> None:
            nonlocal now
            now += 0.01

        async def counted(*call: object) -> None:
            nonlocal threads
            threads += 1
            getattr(log, "_append")(*call[1:])  # noqa: B009 - looks past the thread

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "time", lambda: now)
            patch.setattr(asyncio, "to_thread", counted)
            seen = []
            for position in range(1, 7):
                machine.fault = slow if position in (2, 3) else None
                await log.append(position, segment(position))
                seen.append(threads)
        assert seen == [0, 0, 1, 2, 2, 2]

    run(work())


# ---------------------------------------------------------------- torn ends


def test_torn_end_at_every_byte_is_invisible_and_cut_by_the_next_writer(tmp_path: Path) -> None:
    async def work() -> None:
        made = await filled(real(tmp_path), 2)
        [path] = files(tmp_path)
        whole = path.read_bytes()
        last = segment(3, "torn")
        for cut in range(len(last)):
            path.write_bytes(whole + last[:cut])
            reader, follower, writer = real(tmp_path), real(tmp_path), real(tmp_path)
            assert await reader.head() == 2
            assert await everything(reader) == made
            assert await follower.read(3) == []
            assert path.stat().st_size == len(whole) + cut, "a reader cut the log"
            await writer.append(3, segment(3, "next"))
            assert path.read_bytes() == whole + segment(3, "next")
            assert await follower.read(3) == [segment(3, "next")]

    run(work())


@pytest.mark.parametrize("file_bytes", [1, 2**23])
def test_torn_first_segment_of_a_file_is_cut(tmp_path: Path, file_bytes: int) -> None:
    async def work() -> None:
        made = await filled(real(tmp_path, file_bytes), 2)
        torn = tmp_path / "ledger" / f"{3:020d}.jsonl"
        for cut in (0, 1, 50):
            torn.write_bytes(segment(3, "torn")[:cut])
            assert await everything(real(tmp_path)) == made
        await real(tmp_path, file_bytes).append(3, segment(3))
        assert torn.read_bytes() == segment(3)
        assert await everything(real(tmp_path)) == [*made, segment(3)]

    run(work())


def test_torn_end_is_durably_gone_before_anything_is_written_over_it() -> None:
    # Otherwise a power cut could leave blocks of both, which is neither torn nor whole.
    machine = Machine()
    run(filled(simulated(machine), 2))
    [inode] = [inode for path, inode in machine.files.items() if path.endswith(".jsonl")]
    inode.data += segment(3)[:50]
    machine.calls.clear()
    run(simulated(machine).append(3, segment(3)))
    assert machine.calls == ["truncate", "sync", "append", "sync"]


@pytest.mark.parametrize("hole", [(0, 10), (100, 300), (300, 4000), (-1, None), (0, None)])
def test_blocks_that_were_never_written_are_a_torn_end(
    tmp_path: Path, hole: tuple[int, int | None]
) -> None:
    async def work() -> None:
        made = await filled(real(tmp_path), 2)
        [path] = files(tmp_path)
        whole, torn = path.read_bytes(), bytearray(segment(3, size=3000))
        torn[slice(*hole)] = bytes(len(torn[slice(*hole)]))
        path.write_bytes(whole + torn)
        assert await everything(real(tmp_path)) == made
        await real(tmp_path).append(3, segment(3))
        assert path.read_bytes() == whole + segment(3)

    run(work())


# ---------------------------------------------------------------- damage


async def verified(log: LocalLog) -> None:
    for position, data in enumerate(await everything(log), 1):
        segments.parse(data, position)


def test_changed_byte_anywhere_is_found_and_nothing_is_cut(tmp_path: Path) -> None:
    async def work() -> None:
        await filled(real(tmp_path), 3, size=5)
        [path] = files(tmp_path)
        whole = path.read_bytes()
        for at in range(len(whole) - len(segment(3, size=5))):
            changed = bytearray(whole)
            changed[at] ^= 0x01
            path.write_bytes(changed)
            with pytest.raises(Corrupt):
                await verified(real(tmp_path))
            try:
                await real(tmp_path).append(4, segment(4))
            except Corrupt:
                assert path.read_bytes() == changed
            else:
                assert path.read_bytes() == changed + segment(4)

    run(work())


def test_zeroed_block_before_a_segment_is_no_torn_end(tmp_path: Path) -> None:
    run(filled(real(tmp_path), 3))
    [path] = files(tmp_path)
    whole = path.read_bytes()
    start = len(segment(1))
    path.write_bytes(whole[:start] + bytes(start) + whole[2 * start :])
    with pytest.raises(Corrupt, match=rf"{path} is damaged at byte {start}, behind segment 1: .*"):
        run(real(tmp_path).head())
    with pytest.raises(Corrupt):
        run(real(tmp_path).append(4, segment(4)))


def test_swapped_and_missing_segments_are_named(tmp_path: Path) -> None:
    run(filled(real(tmp_path), 3))
    [path] = files(tmp_path)
    path.write_bytes(segment(1) + segment(3) + segment(2))
    with pytest.raises(
        Corrupt, match=f"{path} has segment 3 at byte {len(segment(1))}, where .* 2"
    ):
        run(real(tmp_path).head())
    path.write_bytes(segment(2))
    with pytest.raises(Corrupt, match=f"{path} has segment 2 at byte 0, where segment 1 should be"):
        run(real(tmp_path).append(2, segment(2)))


@pytest.mark.parametrize("left", [0, 10, len(segment(1)), len(segment(1)) + 100])
def test_truncated_file_in_the_middle_is_named(tmp_path: Path, left: int) -> None:
    run(filled(real(tmp_path, 2 * len(segment(1))), 6))
    middle = files(tmp_path)[1]
    middle.write_bytes(middle.read_bytes()[:left])
    log = real(tmp_path)
    assert len(run(log.read(1))) == 2
    with pytest.raises(
        Corrupt, match=rf"{middle} should end with segment 4, .* segment [234]; bring"
    ):
        run(log.read(3))
    assert run(log.read(5))


def test_missing_files_are_named(tmp_path: Path) -> None:
    run(filled(real(tmp_path, 2 * len(segment(1))), 8))
    first, second, third, _ = files(tmp_path)
    log = real(tmp_path)
    assert run(log.head()) == 8
    third.unlink()
    with pytest.raises(Corrupt, match=f"{third} is missing"):
        run(log.read(5))
    with pytest.raises(Corrupt, match=f"{second} should end with segment 6"):
        run(real(tmp_path).read(3))
    first.unlink()
    with pytest.raises(Corrupt, match=r"segment 1 is missing: the oldest file .* segment 3"):
        run(real(tmp_path).read(1))


@pytest.mark.parametrize("more", [segment(3), segment(3)[:50]], ids=["a segment", "a torn one"])
def test_file_that_reaches_into_the_next_is_named(tmp_path: Path, more: bytes) -> None:
    run(filled(real(tmp_path, 2 * len(segment(1))), 4))
    first = files(tmp_path)[0]
    first.write_bytes(first.read_bytes() + more)
    with pytest.raises(Corrupt, match=rf"{first} should end with segment 2, .* segment 3; bring"):
        run(real(tmp_path).read(1))


def test_log_that_lost_its_end_is_read_again_from_the_beginning(tmp_path: Path) -> None:
    async def work() -> None:
        made = await filled(real(tmp_path), 4)
        [path] = files(tmp_path)
        follower = real(tmp_path)
        assert await follower.head() == 4
        # A writer whose sync failed took segment 4 back, and another was appended.
        path.write_bytes(b"".join(made[:3]))
        assert await follower.head() == 3
        path.write_bytes(b"".join(made[:3]) + segment(4, "another", size=90) + segment(5))
        assert await follower.read(4) == [segment(4, "another", size=90), segment(5)]

    run(work())


# ---------------------------------------------------------------- failing disks


def test_full_disk_leaves_the_log_as_it_was_at_every_byte() -> None:
    async def work() -> None:
        for room in range(len(segment(3))):
            machine = Machine()
            log = simulated(machine)
            made = await filled(log, 2)
            before = {path: bytes(inode.data) for path, inode in machine.files.items()}
            machine.room = machine.used() + room
            with pytest.raises(Unavailable, match="the disk is full; make room, then") as refusal:
                await log.append(3, segment(3))
            assert not isinstance(refusal.value, Uncertain)
            assert {path: bytes(inode.data) for path, inode in machine.files.items()} == before
            assert await everything(log) == made
            machine.room = None
            await log.append(3, segment(3))
            assert await everything(simulated(machine)) == [*made, segment(3)]

    run(work())


def test_full_disk_when_a_new_file_is_begun_leaves_the_log_as_it_was() -> None:
    async def work() -> None:
        machine = Machine()
        log = simulated(machine, file_bytes=1)
        made = await filled(log, 2)
        for name in ("append", "create", "sync_folder", "sync"):
            machine.fail(name, "before", OSError(errno.ENOSPC, "No space left on device"))
            with pytest.raises(Unavailable, match="the disk is full"):
                await log.append(3, segment(3))
            assert await everything(simulated(machine)) == made
        await log.append(3, segment(3))
        assert await everything(simulated(machine)) == [*made, segment(3)]

    run(work())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["append", "sync"])
def test_failed_append_is_taken_back_before_anybody_is_answered(call: str, when: str) -> None:
    async def work() -> None:
        machine = Machine()
        log = simulated(machine)
        made = await filled(log, 2)
        machine.fail(call, when)
        with pytest.raises(Unavailable) as refusal:
            await log.append(3, segment(3, "failed"))
        assert isinstance(refusal.value, Uncertain) == (call == "sync")
        # Memory would show bytes that the disk may not have: reading them back would prove nothing.
        assert await everything(log) == made
        machine.power_cut()
        assert await everything(simulated(machine)) == made
        log = simulated(machine)
        await log.append(3, segment(3))
        machine.power_cut()
        assert await everything(simulated(machine)) == [*made, segment(3)]

    run(work())


@pytest.mark.parametrize("call", ["append", "sync"])
def test_failed_append_that_cannot_be_taken_back_is_taken_back_later(call: str) -> None:
    async def work() -> None:
        machine = Machine()
        log = simulated(machine)
        made = await filled(log, 2)

        def broken(name: str, when: str) -> None:
            if (name, when) in ((call, "after"), ("truncate", "before")):
                raise OSError(errno.EIO, "injected")

        machine.fault = broken
        with pytest.raises(Uncertain):
            await log.append(3, segment(3, "failed"))
        for call_again in (log.head(), log.read(1), log.append(3, segment(3))):
            with pytest.raises(Unavailable):
                await call_again
        machine.fault = None
        assert await everything(log) == made
        await log.append(3, segment(3))
        assert await everything(simulated(machine)) == [*made, segment(3)]

    run(work())


def test_failed_append_that_others_built_on_stands() -> None:
    async def work() -> None:
        machine = Machine()
        log, other = simulated(machine), simulated(machine)
        made = await filled(log, 2)

        def broken(name: str, when: str) -> None:
            if (name, when) in (("sync", "after"), ("truncate", "before")):
                raise OSError(errno.EIO, "injected")

        machine.fault = broken
        with pytest.raises(Uncertain):
            await log.append(3, segment(3, "uncertain"))
        machine.fault = None
        await other.append(4, segment(4))
        assert await everything(log) == [*made, segment(3, "uncertain"), segment(4)]

    run(work())


def test_segment_that_another_appended_after_a_cut_is_not_taken_back() -> None:
    async def work() -> None:
        machine = Machine()
        log, other = simulated(machine), simulated(machine)
        made = await filled(log, 2)

        def broken(name: str, when: str) -> None:
            if (name, when) == ("sync", "before"):
                raise OSError(errno.EIO, "injected")

        # The cut succeeds, and only its sync fails: the log stays in doubt about nothing.
        machine.fault = broken
        with pytest.raises(Uncertain):
            await log.append(3, segment(3, "a"))
        machine.fault = None
        await other.append(3, segment(3, "b"))
        assert await everything(log) == [*made, segment(3, "b")]

    run(work())


@pytest.mark.parametrize("file_bytes", [1, 1000, 2**23])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("power", ["stays", "is cut", "is cut and leaves zeros"])
def test_crash_at_every_call_loses_nothing_that_was_answered(
    file_bytes: int, when: str, power: str
) -> None:
    async def crash_at(call: int, keep: int) -> bool:
        """Whether the process died before it was done."""
        machine = Machine()
        disk = SimulatedDisk(machine)
        log = LocalLog(disk, "/w", file_bytes=file_bytes)
        machine.kill_at(call, when)
        answered = 0
        try:
            for position in range(1, 5):
                await log.append(position, segment(position))
                answered = position
            died = False
        except Killed:
            died = True
        machine.fault = None
        disk.die()
        if power != "stays":
            machine.power_cut(keep, zeros=power == "is cut and leaves zeros")

        for _ in range(2):
            found = await everything(simulated(machine, file_bytes))
            assert found == [segment(p) for p in range(1, len(found) + 1)]
            assert len(found) in (answered, answered + 1)
            following = simulated(machine, file_bytes)
            await following.append(len(found) + 1, segment(len(found) + 1))
            # Now that it was answered, it stands whatever comes.
            machine.power_cut()
            assert len(await everything(simulated(machine))) == len(found) + 1
            answered = len(found) + 1
        return died

    keeps = [0] if power == "stays" else [0, 1, 100, len(segment(1)) - 1, 10_000]
    for keep in keeps:
        call = 0
        while run(crash_at(call, keep)):
            call += 1
        assert call > 8


# ---------------------------------------------------------------- other processes

_COMPETITOR = """
import asyncio, json, sys
from servo.adapters.disk import LocalDisk
from servo.adapters.local_log import LocalLog
from tests.contract.log import compete
folder, writer = sys.argv[1:]
won = asyncio.run(compete(LocalLog(LocalDisk(), folder, file_bytes=20_000), writer, 50))
print(json.dumps(won))
"""


def test_four_processes_append_fifty_segments_each_without_a_gap(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _COMPETITOR, str(tmp_path), f"p{i}"],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        for i in range(4)
    ]
    won = []
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        won.append(json.loads(output))
    assert sorted(position for positions in won for position in positions) == [*range(1, 201)]
    found = run(everything(real(tmp_path)))
    assert len(files(tmp_path)) > 1
    for writer, positions in enumerate(won):
        for position in positions:
            assert found[position - 1] == segment(position, f"p{writer}")


def test_reader_beside_two_writers_sees_whole_segments_only(tmp_path: Path) -> None:
    async def work() -> None:
        writers = asyncio.gather(*(compete(real(tmp_path, 5000), name, 30) for name in "ab"))
        reader = real(tmp_path)
        at = 1
        while at <= 60:
            for data in await reader.read(at):
                segments.parse(data, at)
                at += 1
            await asyncio.sleep(0)
        await writers

    run(work())
