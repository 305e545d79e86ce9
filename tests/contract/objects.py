"""What every `Objects` adapter promises. A subclass gives `store`: a maker of handles to one store."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from servo.errors import Invalid, Uncertain
from servo.ports.objects import ObjectInfo, Objects

T = TypeVar("T")
Store = Callable[[], Objects]

BAD_PATHS = [
    *(
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "../a",
        "a/../b",
        "a/..",
        "a/.",
        "./a",
        ".tmp/a",
        "a/.b",
    ),
    *(
        "a\\b",
        "a b",
        "a\nb",
        "a\n",
        "a\0b",
        "é",
        "a?b",
        "a*",
        "~",
        "C:",
        "a%2f",
        "a" * 201,
        "a/" * 500 + "a",
    ),
]
BAD_PREFIXES = ["/", "..", "../", "a/../", "//", ".tmp", "a b", "a\n", "é"]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def listed(objects: Objects, prefix: str) -> set[ObjectInfo]:
    return {info async for info in objects.list(prefix)}


class LostAnswers:
    """A store whose next `put_new` says that nobody knows, before or after it happened."""

    def __init__(self, objects: Objects, when: str) -> None:
        self._objects = objects
        self._when = when

    async def put_new(self, path: str, data: bytes) -> bool:
        if self._when == "after":
            await self._objects.put_new(path, data)
        raise Uncertain("the answer was lost; read back")


class ObjectsContract:
    def test_what_was_put_is_got(self, store: Store) -> None:
        async def work() -> None:
            a, b = store(), store()
            await a.put("x/y.json", b"one")
            assert await b.get("x/y.json") == b"one"
            await b.put("x/y.json", b"")
            assert await a.get("x/y.json") == b""

        run(work())

    def test_what_is_not_there_is_none(self, store: Store) -> None:
        async def work() -> None:
            objects = store()
            await objects.put("a/b", b"1")
            for path in ("x", "a", "a/b/c", "a/x", "x/y"):
                assert await objects.get(path) is None
                assert await objects.get_range(path, 0, 1) is None
                assert await objects.head(path) is None
                await objects.delete(path)
            assert await objects.get("a/b") == b"1"

        run(work())

    def test_range_ends_where_the_object_ends(self, store: Store) -> None:
        async def work() -> None:
            objects = store()
            await objects.put("x", b"0123456789")
            found = [
                await objects.get_range("x", *r) for r in ((0, 4), (3, 2), (8, 9), (10, 1), (99, 5))
            ]
            assert found == [b"0123", b"34", b"89", b"", b""]
            assert await objects.get_range("x", 2, 0) == b""
            for start, length in ((-1, 2), (0, -1)):
                with pytest.raises(Invalid):
                    await objects.get_range("x", start, length)

        run(work())

    def test_head_tells_the_size(self, store: Store) -> None:
        async def work() -> None:
            objects = store()
            await objects.put("a/b", b"12345")
            assert await objects.head("a/b") == ObjectInfo("a/b", 5)

        run(work())

    def test_second_put_new_changes_nothing(self, store: Store) -> None:
        async def work() -> None:
            a, b = store(), store()
            assert await a.put_new("m/1", b"first")
            assert not await b.put_new("m/1", b"second")
            assert await a.get("m/1") == b"first"
            await b.delete("m/1")
            assert await b.put_new("m/1", b"third")

        run(work())

    def test_sixteen_writers_at_once_have_one_winner(self, store: Store) -> None:
        async def work() -> None:
            handles = [store() for _ in range(16)]
            for round_ in range(10):
                won = await asyncio.gather(
                    *(h.put_new(f"m/{round_}", b"%d" % i) for i, h in enumerate(handles))
                )
                assert won.count(True) == 1
                assert await handles[0].get(f"m/{round_}") == b"%d" % won.index(True)

        run(work())

    def test_large_objects_have_one_winner_and_are_seen_whole(self, store: Store) -> None:
        async def work() -> None:
            size = 3 * 2**20
            pieces = [bytes([65 + i]) * size for i in range(4)]
            watching = True

            async def watch() -> int:
                looks = 0
                while watching:
                    seen = await store().get("big")
                    assert seen is None or seen in pieces
                    looks += 1
                    await asyncio.sleep(0)
                return looks

            watcher = asyncio.create_task(watch())
            won = await asyncio.gather(*(store().put_new("big", piece) for piece in pieces))
            watching = False
            assert await watcher
            assert won.count(True) == 1
            assert await store().get("big") == pieces[won.index(True)]
            assert (
                await store().get_range("big", 5, 2 * 2**20) == pieces[won.index(True)][: 2 * 2**20]
            )

        run(work())

    def test_listing_gives_every_object_below_a_prefix(self, store: Store) -> None:
        async def work() -> None:
            objects = store()
            for path in ("a/1", "a/2", "a/b/3", "ab/4", "b"):
                await objects.put(path, path.encode())
            everything = {"a/1", "a/2", "a/b/3", "ab/4", "b"}
            for prefix in ("", "a", "a/", "a/b", "a/b/", "a/1", "b", "x", "a/x/"):
                expected = {ObjectInfo(p, len(p)) for p in everything if p.startswith(prefix)}
                assert await listed(objects, prefix) == expected

        run(work())

    @pytest.mark.parametrize("path", BAD_PATHS, ids=ascii)
    def test_handle_cannot_leave_its_prefix(self, store: Store, path: str) -> None:
        async def work() -> None:
            objects = store()
            for call in (
                objects.get(path),
                objects.get_range(path, 0, 1),
                objects.head(path),
                objects.put(path, b"x"),
                objects.put_new(path, b"x"),
                objects.delete(path),
            ):
                with pytest.raises(Invalid, match="is not a path inside a workspace"):
                    await call
            assert await listed(objects, "") == set()

        run(work())

    @pytest.mark.parametrize("prefix", BAD_PREFIXES, ids=ascii)
    def test_listing_cannot_leave_its_prefix(self, store: Store, prefix: str) -> None:
        with pytest.raises(Invalid):
            run(listed(store(), prefix))

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_reading_back_settles_a_lost_answer(self, store: Store, when: str) -> None:
        async def work() -> None:
            lost, objects = LostAnswers(store(), when), store()
            with pytest.raises(Uncertain):
                await lost.put_new("m/1", b"mine")
            found = await objects.get("m/1")
            assert found == (b"mine" if when == "after" else None)
            # Trying again is safe: what is there afterwards is what we wrote, once.
            assert await objects.put_new("m/1", b"mine") is (when == "before")
            assert await objects.get("m/1") == b"mine"

        run(work())
