"""The lease: who is probably alive. It is for liveness only; the claim in the ledger is for safety.

    holder     writes the lease with a new nonce at least three times a term
    observer   calls it expired after seeing one nonce for a whole term on its own monotonic clock
    released   a lease without a holder: nobody has to wait for it

No clock of one machine is compared with that of another. On a local folder the operating system's
lock says more and at once, and there is no lease.
"""

import msgspec

from servo.errors import Unavailable
from servo.ports.objects import Objects
from servo.ports.system import System

TERM_US = 10_000_000
PATH = "lease"


class _Lease(msgspec.Struct, frozen=True):
    writer_id: str | None
    nonce: str


class Lease:
    """One process's view of the lease, and its hold on it."""

    def __init__(self, objects: Objects, system: System, writer_id: str) -> None:
        self._objects = objects
        self._system = system
        self._writer_id = writer_id
        self._renewed: int | None = None
        self._seen: tuple[bytes, int] | None = None

    async def is_free(self) -> bool:
        """Whether nobody seems to hold it. The first look at a held one only starts the clock."""
        try:
            data = await self._objects.get(PATH)
        except Unavailable:
            return False
        if data is None or _holder(data) in (None, self._writer_id):
            return True
        now = self._system.monotonic()
        if self._seen is None or self._seen[0] != data:
            self._seen = (data, now)
        return now - self._seen[1] >= TERM_US

    async def renew(self) -> None:
        """Write it anew if a quarter of the term is over. After a failure the next call tries again."""
        now = self._system.monotonic()
        if self._renewed is not None and now - self._renewed < TERM_US // 4:
            return
        if await self._write(self._writer_id):
            self._renewed = now

    async def is_ours(self) -> bool:
        """Whether the lease names this writer: of two that found it free, one."""
        try:
            data = await self._objects.get(PATH)
        except Unavailable:
            return False
        return data is not None and _holder(data) == self._writer_id

    async def release(self) -> None:
        self._renewed = None
        await self._write(None)

    async def _write(self, writer_id: str | None) -> bool:
        lease = _Lease(writer_id, self._system.new_id())
        try:
            await self._objects.put(PATH, msgspec.json.encode(lease))
        except Unavailable:
            return False
        return True


def _holder(data: bytes) -> str | None:
    try:
        return msgspec.json.decode(data, type=_Lease).writer_id
    except msgspec.DecodeError:
        return None
