"""Stores for the tests of the simulator: one that is right, and some that are not."""

from collections.abc import AsyncIterator

from servo.ports.objects import ObjectInfo


class Register:
    """The smallest right store. (The one in servo.adapters.memory has a contract suite of its own.)"""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def get(self, path: str) -> bytes | None:
        return self.objects.get(path)

    async def get_range(self, path: str, start: int, length: int) -> bytes | None:
        data = self.objects.get(path)
        return None if data is None else data[start : start + length]

    async def head(self, path: str) -> ObjectInfo | None:
        data = self.objects.get(path)
        return None if data is None else ObjectInfo(path, len(data))

    async def put(self, path: str, data: bytes) -> None:
        self.objects[path] = data

    async def put_new(self, path: str, data: bytes) -> bool:
        return self.objects.setdefault(path, data) is data

    async def delete(self, path: str) -> None:
        self.objects.pop(path, None)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for path, data in [*self.objects.items()]:
            if path.startswith(prefix):
                yield ObjectInfo(path, len(data))


class Overwriting(Register):
    """Accepts conditional puts, and ignores the condition."""

    async def put_new(self, path: str, data: bytes) -> bool:
        self.objects[path] = data
        return True


class Lying(Register):
    """Says that it was first, now and then, when it was not."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def put_new(self, path: str, data: bytes) -> bool:
        self.asked += 1
        return await super().put_new(path, data) or self.asked % 7 == 0


class Forgetful(Register):
    """Answers, now and then, from before anything was written."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def get(self, path: str) -> bytes | None:
        self.asked += 1
        return None if self.asked % 7 == 0 else await super().get(path)
