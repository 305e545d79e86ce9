"""The journal: one writer's hand on the log.

    own       a segment that carries this writer's id and the nonce of this append
    settle    find out what became of an append whose answer was lost

An append ends in exactly one way: it is durable, or the position belongs to somebody else
(`Conflict`), or it certainly did not and will not happen (`Unavailable`). A lost answer is none of
these. The request may even land later, so the same bytes are offered again for the same position
until one of the three is known; whichever copy lands first, it is the same segment.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeVar

from servo.core import segments
from servo.core.segments import Header, Segment
from servo.errors import Conflict, Corrupt, Unavailable, Uncertain
from servo.ports.log import Log

T = TypeVar("T")

PATIENCE = 8
"""How often what certainly did not happen is tried again before the caller is told: two seconds."""


class Journal:
    def __init__(self, log: Log, writer_id: str, new_id: Callable[[], str]) -> None:
        self._log = log
        self._writer_id = writer_id
        self._new_id = new_id

    async def append(
        self,
        lines: Sequence[bytes],
        *,
        position: int,
        prev_hash: str,
        epoch: int,
        kind: Literal["leader", "reporter"],
        written_at: str,
    ) -> Header:
        """Write one segment; return when it is durable."""
        header, data = segments.encode(
            lines,
            position=position,
            prev_hash=prev_hash,
            writer_id=self._writer_id,
            nonce=self._new_id(),
            epoch=epoch,
            kind=kind,
            written_at=written_at,
        )
        unsure = False
        tries = 0
        while True:
            try:
                await self._log.append(position, data)
            except Conflict:
                if await self._is_own(header):
                    return header
                raise
            except Uncertain:
                unsure = True
            except Unavailable:
                # While a copy may still land, "it did not happen" would be a guess.
                if tries >= PATIENCE and not unsure:
                    raise
            else:
                return header
            if unsure and await self._settled(header):
                return header
            tries += 1
            await asyncio.sleep(backoff(tries, header.nonce))

    async def _settled(self, header: Header) -> bool:
        """Whether the segment is there. `Conflict`: another one is."""
        try:
            found = await self._log.read(header.position, 1)
        except Unavailable:
            return False
        if not found:
            return False
        if _is(header, found[0]):
            return True
        raise Conflict(f"segment {header.position} was written by somebody else")

    async def _is_own(self, header: Header) -> bool:
        found: list[bytes] | None = None
        tries = 0
        while found is None:
            try:
                found = await self._log.read(header.position, 1)
            except Unavailable:
                tries += 1
                await asyncio.sleep(backoff(tries, header.nonce))
        if not found:
            raise Corrupt(
                f"the ledger ends before segment {header.position - 1}, which was read before: it"
                " was cut short; restore it from a copy"
            )
        return _is(header, found[0])

    async def read(self, start: int) -> list[Segment]:
        """Segments from a position on, each checked; empty at the end."""
        found = await patiently(lambda: self._log.read(start), self._writer_id)
        return [segments.parse(data, start + i) for i, data in enumerate(found)]

    async def head(self) -> int:
        return await patiently(self._log.head, self._writer_id)


async def patiently(read: Callable[[], Awaitable[T]], seed: str) -> T:
    """What a read gives, also if it is refused a few times. Not for writes: see `append`."""
    tries = 0
    while True:
        try:
            return await read()
        except Unavailable:
            tries += 1
            if tries >= PATIENCE:
                raise
        await asyncio.sleep(backoff(tries, seed))


def _is(header: Header, data: bytes) -> bool:
    found = segments.parse_header(data[: data.index(b"\n")])
    return (found.writer_id, found.nonce) == (header.writer_id, header.nonce)


def backoff(tries: int, seed: str) -> float:
    """Seconds to wait: doubling from 5 ms to 1 s, each between half and all of it, so that writers
    who met once do not meet again."""
    longest: float = min(0.005 * 2 ** min(tries, 16), 1.0)
    draw = hashlib.sha256(f"{seed}:{tries}".encode()).digest()[0] / 255
    return longest * (0.5 + draw / 2)
