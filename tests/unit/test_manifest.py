"""Manifests: exact bytes, finding the newest whatever the hint says, and naming what is broken."""

import asyncio
import json

import msgspec
import pytest

from servo.core.segments import GENESIS, digest
from servo.errors import Corrupt, Invalid, Uncertain
from servo.ledger import manifest as manifests
from servo.ledger.manifest import (
    EMPTY,
    HINT_PATH,
    File,
    Manifest,
    TableFiles,
    find_newest,
    load_base,
    manifest_path,
    parse,
    sealed,
    store_base,
)
from servo.ledger.objects import get_value, put_value
from tests.unit.stored_tables import FakeObjects, Fault, fail_once, hash_at

FILE = File(
    path="tables/tasks/00000000000000000001-x.parquet",
    sha256=hash_at(7),
    rows=2,
    bytes=100,
    key_range=(("run_1", "a"), ("run_2", "z")),
    position_range=(3, 4),
)


def following(parent: Manifest, **changes: object) -> tuple[Manifest, bytes]:
    made = msgspec.structs.replace(
        parent, revision=parent.revision + 1, parent_hash=parent.hash, hash=""
    )
    return sealed(msgspec.structs.replace(made, **changes))


def chain(length: int) -> FakeObjects:
    """A store with that many revisions and no hint."""
    objects = FakeObjects()
    newest = EMPTY
    for _ in range(length):
        newest, data = following(newest, position=newest.position + 1)
        objects.stored[manifest_path(newest.revision)] = data
    return objects


def test_the_bytes_of_a_manifest() -> None:
    made, data = sealed(
        Manifest(
            format=1,
            revision=1,
            parent_hash=GENESIS,
            epoch=2,
            published_at="2025-01-15T00:00:00.000000Z",
            position=4,
            ledger_hash=hash_at(4),
            tables={
                "tasks": TableFiles(
                    schema_version=1, l0=(FILE,), l0_since="2025-01-15T00:00:00.000000Z"
                )
            },
        )
    )
    zeros = "0" * 63
    assert data.decode() == (
        '{"epoch":2,"format":1,'
        f'"ledger_hash":"sha256:{zeros}4","packs":null,"parent_hash":"sha256:{zeros}0",'
        '"position":4,"published_at":"2025-01-15T00:00:00.000000Z","revision":1,'
        '"tables":{"tasks":{"base":null,"l0":[{"bytes":100,"key_range":[["run_1","a"],["run_2","z"]],'
        '"path":"tables/tasks/00000000000000000001-x.parquet","position_range":[3,4],"rows":2,'
        f'"sha256":"sha256:{zeros}7"}}],"l0_since":"2025-01-15T00:00:00.000000Z",'
        '"schema_version":1}}}'
    )
    assert made.hash == digest(data)
    assert parse(data, 1) == made
    assert manifest_path(1) == "manifests/00000000000000000001.json"


def test_a_manifest_with_fields_of_a_later_servo_is_read_and_hashed_as_written() -> None:
    _, data = following(EMPTY)
    fields = {**json.loads(data), "later": {"a": 1}}
    written = json.dumps(fields).encode()
    assert parse(written, 1).hash == digest(written)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "revision 3 cannot be read"),
        (b"\xff\xfe", "revision 3 cannot be read"),
        (b"{}", "revision 3 cannot be read"),
        (b'{"format":1', "revision 3 cannot be read"),
    ],
)
def test_a_manifest_that_is_none_is_named_by_its_revision(data: bytes, message: str) -> None:
    with pytest.raises(Corrupt, match=message):
        parse(data, 3)


def test_a_manifest_at_the_place_of_another_is_corrupt() -> None:
    _, data = following(EMPTY)
    with pytest.raises(Corrupt, match="where revision 3 should be lies revision 1"):
        parse(data, 3)


def test_a_format_of_a_later_servo_says_to_upgrade() -> None:
    _, data = following(EMPTY, format=2)
    with pytest.raises(Corrupt, match="revision 1 has format 2, and this Servo reads 1; upgrade"):
        parse(data, 1)


@pytest.mark.parametrize(
    "changes", [{"published_at": "yesterday"}, {"position": -1}, {"epoch": -1}]
)
def test_a_manifest_that_no_publisher_writes_is_corrupt(changes: dict[str, object]) -> None:
    _, data = following(EMPTY, **changes)
    with pytest.raises(Corrupt, match="revision 1 says what no publisher writes"):
        parse(data, 1)


def test_before_anything_is_published_the_newest_is_empty() -> None:
    assert asyncio.run(find_newest(FakeObjects())) == EMPTY


HINTS = [
    None,
    b"",
    b"\xff",
    b"{}",
    b"[]",
    b"null",
    b'{"revision":null}',
    b'{"revision":"x"}',
    b'{"revision":true}',
    b'{"revision":-1}',
    b'{"revision":0}',
    b'{"revision":1}',
    b'{"revision":2}',
    b'{"revision":5}',
    b'{"revision":12}',
    b'{"revision":13}',
    b'{"revision":14}',
    b'{"revision":100000}',
    b'{"revision":9223372036854775806}',
    b'{"revision":9223372036854775807}',
    b'{"revision":123456789012345678901234567890}',
]


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize("length", [0, 1, 2, 13])
def test_the_newest_is_found_whatever_the_hint_says(length: int, hint: bytes | None) -> None:
    objects = chain(length)
    if hint is not None:
        objects.stored[HINT_PATH] = hint
    assert asyncio.run(find_newest(objects)).revision == length


def test_a_good_hint_makes_it_three_calls() -> None:
    objects = chain(1000)
    objects.stored[HINT_PATH] = b'{"revision":1000}'
    asyncio.run(find_newest(objects))
    assert len(objects.calls) == 3


def test_an_old_hint_costs_probes_by_the_logarithm() -> None:
    objects = chain(1000)
    objects.stored[HINT_PATH] = b'{"revision":1}'
    assert asyncio.run(find_newest(objects)).revision == 1000
    assert len(objects.calls) < 30


def test_what_is_published_during_the_search_is_found() -> None:
    objects, later = chain(4), chain(6)

    def publish(number: int, name: str, path: str) -> Fault | None:
        if path == manifest_path(4) and name == "get":
            objects.stored.update(later.stored)
        return None

    objects.fail = publish
    assert asyncio.run(find_newest(objects)).revision == 6


def test_a_changed_newest_manifest_is_corrupt_and_never_skipped() -> None:
    objects = chain(3)
    objects.stored[manifest_path(3)] = b"\x00" * 50
    with pytest.raises(Corrupt, match="revision 3 cannot be read"):
        asyncio.run(find_newest(objects))


def test_a_broken_chain_is_named() -> None:
    first, _ = following(EMPTY)
    other, _ = following(EMPTY, epoch=1)
    child, _ = following(other, epoch=1)
    with pytest.raises(Corrupt, match=r"revision 2 names .* as its parent, but revision 1 hashes"):
        manifests.check_follows(first, child)


@pytest.mark.parametrize(
    "changes", [{"position": 1}, {"epoch": 1}, {"published_at": "2024-01-01T00:00:00.000000Z"}]
)
def test_a_chain_that_goes_back_is_named(changes: dict[str, object]) -> None:
    parent, _ = following(EMPTY, position=2, epoch=2, published_at="2025-01-01T00:00:00.000000Z")
    child, _ = following(parent, **changes)
    with pytest.raises(Corrupt, match="revision 2 goes back behind revision 1"):
        manifests.check_follows(parent, child)


def test_moments_are_spelled_so_that_texts_sort_like_them() -> None:
    moments = [0, 1, 999_999, 1_000_000, 1_700_000_000_123_456, 4_000_000_000_000_000]
    texts = [manifests.moment_text(moment) for moment in moments]
    assert texts[1] == "1970-01-01T00:00:00.000001Z"
    assert sorted(texts) == texts
    assert [manifests.moment_of(text) for text in texts] == moments


def test_a_base_list_comes_back_equal() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        ref = await store_base(objects, [FILE])
        assert await load_base(objects, ref) == [FILE]

    asyncio.run(scenario())


def test_a_value_is_stored_once_under_its_hash() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        ref = await put_value(objects, b"plan")
        assert ref == digest(b"plan") == await put_value(objects, b"plan")
        assert await get_value(objects, ref) == b"plan"
        assert list(objects.stored) == [f"objects/{ref[7:]}"]

    asyncio.run(scenario())


def test_a_value_that_was_changed_or_is_gone_is_named() -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        ref = await put_value(objects, b"plan")
        [path] = objects.stored
        objects.stored[path] = b"plot"
        with pytest.raises(Corrupt, match=f"{path} was changed"):
            await get_value(objects, ref)
        with pytest.raises(Corrupt, match=f"{path} was changed"):
            await put_value(objects, b"plan")
        del objects.stored[path]
        with pytest.raises(Corrupt, match=f"{path} is gone"):
            await get_value(objects, ref)

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["lost before", "lost after"])
def test_a_lost_answer_about_a_value_is_settled(fault: Fault) -> None:
    async def scenario() -> None:
        objects = FakeObjects()
        objects.fail = fail_once(1, fault)
        assert await get_value(objects, await put_value(objects, b"plan")) == b"plan"

    asyncio.run(scenario())


def test_a_store_that_loses_every_answer_is_uncertain() -> None:
    objects = FakeObjects()
    objects.fail = lambda number, name, path: "lost before" if name == "put_new" else None
    with pytest.raises(Uncertain, match=r"nobody knows whether objects/.* was written"):
        asyncio.run(put_value(objects, b"plan"))


@pytest.mark.parametrize("ref", ["", "sha256:", "md5:" + "0" * 64, "sha256:" + "G" * 64, "../x"])
def test_a_ref_that_is_none_is_refused(ref: str) -> None:
    with pytest.raises(Invalid, match="is not the name of a stored value"):
        asyncio.run(get_value(FakeObjects(), ref))
