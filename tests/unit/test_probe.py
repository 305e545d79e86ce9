"""Stores that accept a condition and ignore it are refused before anything rests on them."""

import asyncio
from pathlib import Path

import pytest

from servo.adapters.disk import LocalDisk
from servo.adapters.local_objects import LocalObjects
from servo.adapters.memory import MemoryObjects
from servo.adapters.system import ulid_source
from servo.errors import Invalid, Unavailable
from servo.ledger.probe import probe


class Overwrites(MemoryObjects):
    """Ignores the condition."""

    async def put_new(self, path: str, data: bytes) -> bool:
        await self.put(path, data)
        return True


class OverwritesAndDenies(MemoryObjects):
    async def put_new(self, path: str, data: bytes) -> bool:
        there = await self.get(path) is not None
        await self.put(path, data)
        return not there


class SaysYesToBoth(MemoryObjects):
    """Keeps the first, and tells the second that it won."""

    async def put_new(self, path: str, data: bytes) -> bool:
        await super().put_new(path, data)
        return True


class SaysNoToAll(MemoryObjects):
    async def put_new(self, path: str, data: bytes) -> bool:
        return False


class KeepsNothing(MemoryObjects):
    told = 0

    async def put_new(self, path: str, data: bytes) -> bool:
        KeepsNothing.told += 1
        return KeepsNothing.told == 1


class CannotDelete(MemoryObjects):
    async def delete(self, path: str) -> None:
        raise Unavailable("the store is gone; wait")


def ask(kind: type[MemoryObjects], backing: dict[str, bytes] | None = None) -> None:
    shared: dict[str, bytes] = {} if backing is None else backing
    asyncio.run(probe(kind(shared), kind(shared), ulid_source()))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Overwrites, "let a second writer overwrite"),
        (OverwritesAndDenies, "let a second writer overwrite"),
        (SaysYesToBoth, "told two writers that each was the first"),
        (SaysNoToAll, "said that a name which nobody ever used is taken"),
        (KeepsNothing, "did not give back what had been written"),
    ],
)
def test_store_that_does_not_keep_two_writers_apart_is_refused(
    kind: type[MemoryObjects], message: str
) -> None:
    backing: dict[str, bytes] = {}
    with pytest.raises(
        Invalid, match=rf"this store cannot hold a workspace: .* {message}.*; use a"
    ):
        ask(kind, backing)
    assert backing == {}


def test_two_handles_that_see_different_stores_are_refused() -> None:
    with pytest.raises(Invalid, match="let a second writer overwrite"):
        asyncio.run(probe(MemoryObjects(), MemoryObjects(), ulid_source()))


def test_good_store_is_left_as_it_was() -> None:
    backing = {"a": b"1"}
    ask(MemoryObjects, backing)
    assert backing == {"a": b"1"}


def test_local_folder_passes(tmp_path: Path) -> None:
    a, b = (LocalObjects(LocalDisk(), str(tmp_path), ulid_source()) for _ in range(2))
    asyncio.run(probe(a, b, ulid_source()))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_store_that_cannot_remove_the_trace_just_now_still_passes() -> None:
    ask(CannotDelete)
