"""Structs as plain data and back; hostile JSON."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from servo.core import canonical
from servo.core.keys import AssetKey, PartitionKey, TaskKey
from servo.core.plain import from_plain, read_json, to_plain, user_data
from servo.errors import Invalid

OUTSIDE = Path(__file__).parents[2].parent / "shared" / "vectors" / "json_parsing.jsonl"


class Tier(StrEnum):
    GOLD = "gold"


class OldTier(str, Enum):  # noqa: UP042 - the older way, which prints itself as OldTier.GOLD
    GOLD = "gold"


class Float64(float):
    """Prints itself as NumPy's does."""

    def __repr__(self) -> str:
        return f"np.float64({float(self)!r})"


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    asset: AssetKey
    partition: PartitionKey | None = None
    task: TaskKey | None = None
    ratio: float = 0.5
    tier: Tier = Tier.GOLD
    data: Mapping[str, Any] = {}


ORDERS = AssetKey("sales", "orders")


def refusal(act: Any, *args: Any) -> str:
    with pytest.raises(Invalid) as caught:
        act(*args)
    message = str(caught.value)
    assert message.isprintable(), "one line that any terminal shows"
    return message


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# ---------------------------------------------------------------- there and back


def test_keys_become_their_canonical_strings() -> None:
    key = PartitionKey(x=1)
    thing = Thing(asset=ORDERS, partition=key, task=TaskKey(ORDERS, key))
    plain = to_plain(thing)
    assert (plain["asset"], plain["partition"]) == ("sales/orders", "x=i:1")
    assert plain["task"] == "sales/orders[x=i:1]:materialize"
    assert from_plain(plain, Thing, "thing") == thing


def test_floats_are_carried_at_any_depth_and_come_back() -> None:
    thing = Thing(asset=ORDERS, ratio=1.0, data={"a": [{"b": 0.1}, 1]})
    plain = to_plain(thing)
    assert plain["ratio"] == {"$float": "1.0"}
    assert plain["data"] == {"a": [{"b": {"$float": "0.1"}}, 1]}
    assert from_plain(plain, Thing, "thing") == thing


def test_plain_data_is_what_canonical_json_takes() -> None:
    thing = Thing(asset=ORDERS, data={"a": 0.1})
    assert from_plain(read_json(canonical.dumps(to_plain(thing)), "thing"), Thing, "thing") == thing


def test_plain_data_of_plain_data_is_the_same() -> None:
    plain = to_plain(Thing(asset=ORDERS, data={"a": 0.1}))
    assert to_plain(plain) == plain


def test_any_mapping_has_a_plain_form() -> None:
    assert to_plain(MappingProxyType({"a": MappingProxyType({"b": 1})})) == {"a": {"b": 1}}


def test_float_of_a_subclass_is_carried_as_the_number_it_is() -> None:
    assert to_plain([Float64(0.8)]) == [{"$float": "0.8"}]


def test_set_has_the_same_plain_form_in_every_process() -> None:
    words = [f"w{n}" for n in range(100)]
    assert to_plain({"x": set(words)}) == {"x": sorted(words)}


def test_type_without_a_plain_form_is_refused_by_name() -> None:
    assert "the type object has no plain form" in refusal(to_plain, {"x": object()})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_float_that_is_not_finite_is_refused(value: float) -> None:
    assert "use a finite number" in refusal(to_plain, {"x": [value]})


def test_value_too_deep_for_a_plain_form_is_refused() -> None:
    assert "nested too deeply" in refusal(to_plain, nested(100_000))


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "Object missing required field `asset`"),
        ([], "Expected `object`, got `array`"),
        ({"asset": 5}, "not int - at `$.asset`"),
        ({"asset": "Sales"}, "'Sales' is not of the form namespace.name - at `$.asset`"),
        ({"asset": "a/b", "partition": "x=i:01"}, "without leading zeros - at `$.partition`"),
        ({"asset": "a/b", "partition": ["x=i:1"]}, "not list - at `$.partition`"),
        ({"asset": "a/b", "task": "a/b"}, "is not of the form namespace/name[partition]:operation"),
        ({"asset": "a/b", "ratio": "0.5"}, "Expected `float`, got `str` - at `$.ratio`"),
        ({"asset": "a/b", "ratio": {"$float": "0.50"}}, "'0.50'} is not a float in its shortest"),
        ({"asset": "a/b", "ratio": {"$float": "nan"}}, "'nan'} is not a float in its shortest"),
        ({"asset": "a/b", "tier": "go\nld"}, "Invalid enum value 'go\\nld' - at `$.tier`"),
        ({"asset": "a/b", "data": [1]}, "Expected `object`, got `array` - at `$.data`"),
    ],
)
def test_wrong_data_gives_one_sentence_with_the_path(data: Any, problem: str) -> None:
    message = refusal(from_plain, data, Thing, "the thing")
    assert message.startswith("the thing cannot be read: ")
    assert problem in message


def test_unknown_fields_are_ignored() -> None:
    data = {"asset": "sales/orders", "colour": "red", "later": {"x": [1]}}
    assert from_plain(data, Thing, "thing") == Thing(asset=ORDERS)


@pytest.mark.parametrize("text", [b"", b" ", b"{", b'{"a":', b"\xff\xfe", b'"\\ud800"', b"nul"])
def test_text_that_is_not_json_is_refused(text: bytes) -> None:
    assert refusal(read_json, text, "the thing").startswith("the thing is not JSON: ")


def test_text_with_a_lone_surrogate_is_refused() -> None:
    assert "the thing is not JSON" in refusal(read_json, '"\ud800"', "the thing")


@pytest.mark.parametrize("depth", [500, 900, 1_100, 100_000])
@pytest.mark.parametrize("pair", [("[", "]"), ('{"a":', "}")], ids=["lists", "dicts"])
def test_deep_json_is_read_or_refused_in_a_sentence(depth: int, pair: tuple[str, str]) -> None:
    text = (pair[0] * depth + "1" + pair[1] * depth).encode()
    try:
        from_plain(read_json(text, "the thing"), Any, "the thing")
    except Invalid as why:
        assert "the thing is nested too deeply" in str(why)


def outside() -> list[Any]:
    if not OUTSIDE.exists():
        skip = pytest.mark.skip(reason=f"{OUTSIDE} is not here")
        return [pytest.param("absent", "either", b"", marks=skip)]
    rows = [json.loads(line) for line in OUTSIDE.read_text().splitlines()]
    return [
        pytest.param(row["id"], row["expect"], base64.b64decode(row["bytes_b64"]), id=row["id"])
        for row in rows
    ]


@pytest.mark.parametrize(("name", "expect", "text"), outside())
def test_outside_document_is_accepted_or_refused_in_a_sentence(
    name: str, expect: str, text: bytes
) -> None:
    try:
        from_plain(read_json(text, "the document"), Any, "the document")
        got = "accept"
    except Invalid as why:
        assert str(why).startswith("the document "), name
        got = "reject"
    assert expect in ("either", got)


# ---------------------------------------------------------------- what users hand in


def test_user_data_is_copied() -> None:
    given: dict[str, Any] = {"a": [1]}
    kept = user_data(given, "config")
    given["a"].append(2)
    assert kept == {"a": [1]}


def test_user_data_becomes_exactly_what_reads_back() -> None:
    given = {Tier.GOLD: (Float64(0.5), OldTier.GOLD), "m": MappingProxyType({"a": True})}
    kept = user_data(given, "config")
    assert json.dumps(kept) == '{"gold": [0.5, "gold"], "m": {"a": true}}'
    assert [type(item) for item in kept["gold"]] == [float, str]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": [{"b c": float("nan")}]}, "config.a[0]['b c'] is nan; use a finite number"),
        ({"a": 2**64}, "config.a is an integer outside [-2^63, 2^64-1]; give it as a string"),
        ({"a": 10**5000}, "config.a is an integer outside"),
        ({"a": {1: 2}}, "config.a has a key of type int; use a string"),
        ({"a": {"$float": "0.8"}}, "config.a has the key '$float', which marks floats; rename it"),
        ({"$float": 1, "b": 2}, "config has the key '$float'"),
        ({"a": {1, 2}}, "config.a is of type set, which JSON cannot hold"),
        ({"a": b"x"}, "config.a is of type bytes"),
        ({"a": datetime(2025, 1, 15, tzinfo=UTC)}, "config.a is of type datetime.datetime"),
        ({"a": Decimal(1)}, "config.a is of type decimal.Decimal"),
        ({"a": PartitionKey(x=1)}, "config.a is of type servo.core.keys.PartitionKey"),
        ({"a": object()}, "config.a is of type object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_user_data_that_would_not_read_back_is_refused(value: Any, problem: str) -> None:
    assert refusal(user_data, value, "config").startswith(problem)


def test_user_data_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "contains itself" in refusal(user_data, loop, "config")
