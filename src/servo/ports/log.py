"""The log: numbered segments, appended one after the other, without gaps.

One segment is one atomic group commit (its bytes: `servo.core.segments`). Positions count from 1.

* `append` succeeds only if the head is `position - 1`, and returns when the segment is durable. Of
  any number of writers at one position exactly one succeeds; the others get `Conflict`.
* `Unavailable`: it was not appended, and will not be. `Uncertain`: it may have been, or may still be;
  the writer reads back and knows its own segment by writer id and nonce.
* A reader sees whole segments only, in order. What a crash left half-written at the end is not
  there; the next writer cuts it off. Anything else that is not a segment is `Corrupt`, which names
  the place: it is never read as empty.

Held for every adapter by tests/contract/log.py.
"""

from typing import Protocol

READ_BYTES = 8 * 2**20


class Log(Protocol):
    async def append(self, position: int, data: bytes) -> None: ...

    async def read(self, start: int, limit: int = READ_BYTES) -> list[bytes]:
        """Segments from position `start` on, each with its bytes as written: at least one if there
        is one, and no more once `limit` bytes are reached. Empty at the end."""
        ...

    async def head(self) -> int:
        """The position of the last segment; 0 if there is none."""
        ...
