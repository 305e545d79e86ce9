"""What every `Log` adapter promises. A subclass gives `store`: a maker of handles to one log."""

import asyncio
from collections.abc import Callable

import pytest

from servo.core import segments
from servo.errors import Conflict, Invalid, Uncertain
from servo.ports.log import Log
from tests.contract.objects import run

Store = Callable[[], Log]


def segment(position: int, writer: str = "w", *, lines: int = 2, size: int = 40) -> bytes:
    """A segment of its own: other positions, writers and sizes have other bytes."""
    _, data = segments.encode(
        [b'{"n":%d,"text":"%s"}' % (i, b"x" * size) for i in range(lines)],
        position=position,
        prev_hash=segments.GENESIS,
        writer_id=writer,
        nonce=f"{writer}-{position}",
        epoch=1,
        kind="leader",
        written_at="2025-01-15T00:00:00.000000Z",
    )
    return data


async def filled(log: Log, count: int, *, size: int = 40) -> list[bytes]:
    made = [segment(position, size=size) for position in range(1, count + 1)]
    for position, data in enumerate(made, 1):
        await log.append(position, data)
    return made


async def everything(log: Log, limit: int | None = None) -> list[bytes]:
    found: list[bytes] = []
    while more := await (
        log.read(len(found) + 1) if limit is None else log.read(len(found) + 1, limit)
    ):
        found += more
    return found


async def compete(log: Log, writer: str, times: int) -> list[int]:
    """Append so many segments, each where the head is then; the positions that were won."""
    won: list[int] = []
    while len(won) < times:
        position = await log.head() + 1
        await asyncio.sleep(0)  # let the others see the same head
        try:
            await log.append(position, segment(position, writer))
        except Conflict:
            continue
        won.append(position)
    return won


class LostAnswers:
    """A log whose `append` says that nobody knows, before or after it happened."""

    def __init__(self, log: Log, when: str) -> None:
        self._log = log
        self._when = when

    async def append(self, position: int, data: bytes) -> None:
        if self._when == "after":
            await self._log.append(position, data)
        raise Uncertain("the answer was lost; read back")


class LogContract:
    def test_new_log_is_empty(self, store: Store) -> None:
        async def work() -> None:
            assert await store().head() == 0
            assert await store().read(1) == []
            assert await store().read(7) == []

        run(work())

    def test_segments_are_read_as_they_were_written(self, store: Store) -> None:
        async def work() -> None:
            log, other = store(), store()
            made = await filled(log, 12)
            assert await everything(other) == made
            assert await other.head() == 12
            assert await other.read(12) == made[11:]
            assert await other.read(13) == []
            assert [segments.parse(data, i).header.position for i, data in enumerate(made, 1)] == [
                *range(1, 13)
            ]

        run(work())

    def test_reader_follows_a_writer(self, store: Store) -> None:
        async def work() -> None:
            log, other = store(), store()
            for position in range(1, 30):
                assert await other.read(position) == []
                await log.append(position, segment(position))
                assert await other.read(position) == [segment(position)]
                assert await other.head() == position

        run(work())

    @pytest.mark.parametrize("limit", [0, 1, 100, 1000, 3000])
    def test_read_stops_once_the_limit_is_reached(self, store: Store, limit: int) -> None:
        async def work() -> None:
            log = store()
            made = await filled(log, 9)
            assert await everything(log, limit) == made
            found = await log.read(2, limit)
            assert found
            assert sum(map(len, found[:-1])) < max(limit, 1)

        run(work())

    @pytest.mark.parametrize("position", [0, 1, 2, 3, 5, 6, 99])
    def test_only_the_next_position_can_be_appended(self, store: Store, position: int) -> None:
        async def work() -> None:
            log = store()
            made = await filled(log, 3)
            with pytest.raises(Conflict, match=f"segment {position} .* head of the log is 3"):
                await log.append(position, segment(position, "other"))
            assert await everything(log) == made

        run(work())

    def test_first_position_is_one(self, store: Store) -> None:
        async def work() -> None:
            with pytest.raises(Conflict, match="head of the log is 0"):
                await store().append(2, segment(2))
            for start in (0, -1):
                with pytest.raises(Invalid, match="positions count from 1"):
                    await store().read(start)
            assert await store().head() == 0

        run(work())

    def test_what_is_no_segment_is_not_appended(self, store: Store) -> None:
        async def work() -> None:
            for data in (b"", b"\n", b"{}\n", segment(2), segment(1)[:-1]):
                with pytest.raises(Invalid, match="segment 1"):
                    await store().append(1, data)
            assert await store().head() == 0

        run(work())

    def test_one_writer_wins_each_position_and_there_are_no_gaps(self, store: Store) -> None:
        async def work() -> None:
            shared = store()
            logs = [shared, shared, shared, store(), store()]
            won = await asyncio.gather(*(compete(log, f"w{i}", 15) for i, log in enumerate(logs)))
            assert sorted(position for positions in won for position in positions) == [
                *range(1, 76)
            ]
            found = await everything(store())
            for writer, positions in enumerate(won):
                for position in positions:
                    assert found[position - 1] == segment(position, f"w{writer}")

        run(work())

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_reading_back_settles_a_lost_answer(self, store: Store, when: str) -> None:
        async def work() -> None:
            log = store()
            made = await filled(log, 2)
            with pytest.raises(Uncertain):
                await LostAnswers(store(), when).append(3, segment(3, "me"))
            found = await log.read(3)
            if found:
                header = segments.parse(found[0]).header
                assert (header.writer_id, header.nonce) == ("me", "me-3")
                with pytest.raises(Conflict):
                    await log.append(3, segment(3, "me"))
            else:
                await log.append(3, segment(3, "me"))
            assert await everything(store()) == [*made, segment(3, "me")]

        run(work())
