"""A store, a log and a lock in memory, with the contracts and the bytes of the real ones.

For tests and the simulator. Handles that are given one backing see each other as processes do that
share a folder; without one, each handle stands alone. Nothing survives, so nothing is ever uncertain.
"""

import builtins
from collections.abc import AsyncIterator

from servo.core.paths import check_path, check_prefix
from servo.core.segments import check_framing
from servo.errors import Conflict, Invalid
from servo.ports.log import READ_BYTES
from servo.ports.objects import ObjectInfo


class MemoryObjects:
    def __init__(self, backing: dict[str, bytes] | None = None) -> None:
        self._objects = {} if backing is None else backing

    async def get(self, path: str) -> bytes | None:
        return self._objects.get(check_path(path))

    async def get_range(self, path: str, start: int, length: int) -> bytes | None:
        if start < 0 or length < 0:
            raise Invalid(f"{path!r} has no {length} bytes from {start}; both count from 0")
        data = self._objects.get(check_path(path))
        return None if data is None else data[start : start + length]

    async def head(self, path: str) -> ObjectInfo | None:
        data = self._objects.get(check_path(path))
        return None if data is None else ObjectInfo(path, len(data))

    async def put(self, path: str, data: bytes) -> None:
        self._objects[check_path(path)] = bytes(data)

    async def put_new(self, path: str, data: bytes) -> bool:
        if check_path(path) in self._objects:
            return False
        self._objects[path] = bytes(data)
        return True

    async def delete(self, path: str) -> None:
        self._objects.pop(check_path(path), None)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        for path, data in builtins.list(self._objects.items()):
            if path.startswith(prefix):
                yield ObjectInfo(path, len(data))


class MemoryLog:
    def __init__(self, backing: list[bytes] | None = None) -> None:
        self._segments = [] if backing is None else backing

    async def append(self, position: int, data: bytes) -> None:
        check_framing(position, data)
        if position != len(self._segments) + 1:
            raise Conflict(
                f"segment {position} cannot be appended: the head of the log is"
                f" {len(self._segments)}; read on from there"
            )
        self._segments.append(bytes(data))

    async def read(self, start: int, limit: int = READ_BYTES) -> list[bytes]:
        if start < 1:
            raise Invalid(f"there is no segment {start}: positions count from 1")
        found: list[bytes] = []
        size = 0
        while start <= len(self._segments) and (not found or size < limit):
            found.append(self._segments[start - 1])
            size += len(found[-1])
            start += 1
        return found

    async def head(self) -> int:
        return len(self._segments)


class MemoryLock:
    """The backing is a list of the one who holds it."""

    def __init__(self, backing: list[object] | None = None) -> None:
        self._holders: list[object] = [] if backing is None else backing

    def acquire(self) -> bool:
        if not self._holders:
            self._holders.append(self)
        return self._holders[0] is self

    def release(self) -> None:
        if self in self._holders:
            self._holders.remove(self)
