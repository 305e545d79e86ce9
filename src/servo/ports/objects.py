"""Objects: named, immutable-by-custom byte strings on a folder or an object store.

A handle is bound to one workspace's prefix (`{tenant}/{workspace}/`) and cannot leave it: paths are
relative, checked by `servo.core.paths.check_path`. What a call promises:

* **Durable**: `put` and `put_new` return when the bytes would survive a power cut.
* **Atomic**: a reader sees the whole object or none; never a part, also while it is written.
* **`put_new` has one winner** among any number of callers, whatever happens to them.
* **Unknown is said.** `Unavailable`: it did not happen. `Uncertain`: it may have happened, or may
  still; the caller reads back. `Invalid`: the path is wrong.

Held for every adapter by tests/contract/objects.py.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol


class ObjectInfo(NamedTuple):
    path: str
    size: int


class Objects(Protocol):
    async def get(self, path: str) -> bytes | None:
        """The whole object, or None if there is none."""
        ...

    async def get_range(self, path: str, start: int, length: int) -> bytes | None:
        """Up to `length` bytes from `start`: fewer where the object ends, b"" beyond its end."""
        ...

    async def head(self, path: str) -> ObjectInfo | None: ...

    async def put(self, path: str, data: bytes) -> None:
        """Create or replace. For the few objects that are hints and may be lost: leases, `_hint`."""
        ...

    async def put_new(self, path: str, data: bytes) -> bool:
        """Create if absent. False: there is one already, and nothing changed."""
        ...

    async def delete(self, path: str) -> None:
        """Also of what is not there."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Objects whose path begins with `prefix`, in no particular order. For repair and collection
        only: nothing that has to be right may depend on a listing."""
        ...
