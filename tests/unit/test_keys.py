"""Keys: what they are made from, what they refuse, and that they are values.

Spellings are in the golden vectors (test_golden_vectors.py), laws on random keys in
tests/property/test_identity_properties.py.
"""

import copy
import enum
import pickle
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from servo.core.keys import (
    AssetKey,
    Operation,
    PartitionKey,
    TaskKey,
    normal_scalar,
    parse_scalar,
)
from servo.errors import Invalid


class Region(str, enum.Enum):  # noqa: UP042 - the older way, which prints itself as Region.EU
    EU = "eu"


class Shard(enum.IntEnum):
    FIRST = 1


class Name(str):
    """Prints itself differently from what it is."""

    __slots__ = ()

    def __str__(self) -> str:
        return "other"

    def __format__(self, spec: str) -> str:
        return "other"


class Count(int):
    def __int__(self) -> int:
        return 99

    def __format__(self, spec: str) -> str:
        return "99"


class Day(date):
    def isoformat(self) -> str:
        return "someday"


class Stamp(datetime):
    """As pandas has it: a datetime that counts nanoseconds."""

    nanosecond = 0

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        return "sometime"


class FineStamp(Stamp):
    nanosecond = 5


class NoAnswer(tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str:
        return "nowhere"


ORDERS = AssetKey("sales", "orders")
DAY = PartitionKey(date=date(2025, 1, 15), region="eu")
TASK = TaskKey(ORDERS, DAY)
KEYS = [ORDERS, DAY, TASK]


def refusal(act: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(Invalid) as caught:
        act(*args, **named)
    message = str(caught.value)
    assert message.isprintable(), "one line that any terminal shows"
    return message


# ---------------------------------------------------------------- asset keys


def test_bare_name_takes_the_default_namespace() -> None:
    assert AssetKey.parse("orders", "sales") == ORDERS


def test_full_name_ignores_the_default_namespace() -> None:
    assert AssetKey.parse("sales.orders", "other") == ORDERS


def test_bare_name_without_a_default_namespace_is_refused() -> None:
    assert "'orders' is not of the form namespace.name" in refusal(AssetKey.parse, "orders")


@pytest.mark.parametrize("part", ["", "A", "1a", "a-b", "a b", "a\n", "é", None, 5, b"a"])
def test_asset_part_names_itself_when_refused(part: Any) -> None:
    assert f"asset name {part!r} is not allowed" in refusal(AssetKey, "sales", part)
    assert f"asset namespace {part!r} is not allowed" in refusal(AssetKey, part, "orders")


def test_asset_key_keeps_what_an_enum_is_and_not_what_it_prints() -> None:
    key = AssetKey(Region.EU, Name("orders"))
    assert key.canonical == "eu/orders"
    assert (type(key.namespace), type(key.name)) == (str, str)


# ---------------------------------------------------------------- partition keys


def test_partition_key_is_a_mapping_in_order_of_names() -> None:
    key = PartitionKey(b=2, a=1)
    assert isinstance(key, Mapping)
    assert list(key.items()) == [("a", 1), ("b", 2)]


def test_partition_key_takes_any_mapping() -> None:
    assert PartitionKey(MappingProxyType({"a": 1})) == PartitionKey(a=1) == PartitionKey({"a": 1})


def test_partition_key_of_a_partition_key_is_equal() -> None:
    assert PartitionKey(DAY) == DAY


def test_names_that_are_words_in_python_come_in_a_mapping() -> None:
    assert str(PartitionKey({"class": 1}, self=2, values=3)) == "class=i:1,self=i:2,values=i:3"


def test_dimension_given_twice_is_refused() -> None:
    assert "'a' is given twice" in refusal(PartitionKey, {"a": 1}, a=2)


@pytest.mark.parametrize("thing", ["date=d:2025-01-15", [("a", 1)], 0, 7, [], "", {"a"}, date.max])
def test_partition_key_of_something_else_is_refused(thing: Any) -> None:
    assert "made from a mapping" in refusal(PartitionKey, thing)


def test_partition_key_without_dimensions_is_refused() -> None:
    assert "at least one dimension" in refusal(PartitionKey)


@pytest.mark.parametrize("name", [1, None, "", "a-b", "1a", "a\n", "é", ("a",)])
def test_dimension_name_names_itself_when_refused(name: Any) -> None:
    assert f"dimension name {name!r} is not allowed" in refusal(PartitionKey, {"ok": 1, name: 1})


def test_dimension_name_is_what_an_enum_is() -> None:
    key = PartitionKey({Region.EU: 1})
    assert str(key) == "eu=i:1"
    assert [type(name) for name in key] == [str]


def test_missing_dimension_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        DAY["hour"]


# ---------------------------------------------------------------- values of partition keys


@pytest.mark.parametrize(
    ("value", "normal", "spelled"),
    [
        (Region.EU, "eu", "s:eu"),
        (Name("eu"), "eu", "s:eu"),
        (Shard.FIRST, 1, "i:1"),
        (Count(1), 1, "i:1"),
        (Day(2025, 1, 15), date(2025, 1, 15), "d:2025-01-15"),
        (
            Stamp(2025, 1, 15, tzinfo=UTC),
            datetime(2025, 1, 15, tzinfo=UTC),
            "t:2025-01-15T00:00:00.000000Z",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_subclass_becomes_what_it_is_made_of(value: Any, normal: Any, spelled: str) -> None:
    key = PartitionKey(x=value)
    assert str(key) == f"x={spelled}"
    assert (type(key["x"]), key["x"]) == (type(normal), normal)


def test_true_and_one_and_their_strings_are_different_partitions() -> None:
    keys = {PartitionKey(x=value) for value in (True, 1, "1", "true", "True", None, "null")}
    assert len(keys) == 7


def test_date_and_its_midnight_are_different_partitions() -> None:
    midnight = datetime(2025, 1, 15, tzinfo=UTC)
    assert PartitionKey(x=date(2025, 1, 15)) != PartitionKey(x=midnight)


def test_timestamps_of_one_instant_are_one_partition() -> None:
    noon = datetime(2025, 1, 15, 12, tzinfo=UTC)
    zones = [timezone(timedelta(hours=14)), ZoneInfo("Asia/Kathmandu"), ZoneInfo("Europe/London")]
    assert {PartitionKey(x=noon.astimezone(zone)) for zone in zones} == {PartitionKey(x=noon)}


def test_hour_that_happens_twice_is_two_partitions() -> None:
    first = datetime(2025, 11, 2, 1, 30, tzinfo=ZoneInfo("America/New_York"))
    second = first.replace(fold=1)
    assert str(PartitionKey(x=first)) == "x=t:2025-11-02T05:30:00.000000Z"
    assert str(PartitionKey(x=second)) == "x=t:2025-11-02T06:30:00.000000Z"


def test_fold_does_not_enter_identity_once_in_utc() -> None:
    at = datetime(2025, 1, 15, tzinfo=UTC)
    folded = PartitionKey(x=at.replace(fold=1))
    assert folded == PartitionKey(x=at)
    value = folded["x"]
    assert isinstance(value, datetime) and value.fold == 0


@pytest.mark.parametrize(
    "at",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(minutes=1))),
        datetime(1, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone(-timedelta(minutes=1))),
        datetime(9999, 12, 31, 23, tzinfo=ZoneInfo("America/New_York")),
    ],
)
def test_timestamp_that_leaves_the_calendar_in_utc_is_refused(at: datetime) -> None:
    assert "outside the years 1 to 9999 in UTC" in refusal(PartitionKey, x=at)


@pytest.mark.parametrize(
    "at",
    [datetime(2025, 1, 15), datetime(2025, 1, 15, tzinfo=NoAnswer()), Stamp(2025, 1, 15)],
    ids=["naive", "no answer", "naive subclass"],
)
def test_timestamp_without_an_offset_is_refused(at: datetime) -> None:
    assert "has no time zone; add one" in refusal(PartitionKey, x=at)


def test_timestamp_with_nanoseconds_is_refused() -> None:
    at = FineStamp(2025, 1, 15, tzinfo=UTC)
    assert "finer than a microsecond" in refusal(PartitionKey, x=at)


@pytest.mark.parametrize(
    "value", [1.0, 0.5, float("nan"), Decimal(1), b"x", [], {}, (), object(), 1j, int, timedelta(1)]
)
def test_value_of_another_type_is_refused_with_its_dimension(value: Any) -> None:
    message = refusal(PartitionKey, shard=value)
    assert "'shard'" in message and type(value).__name__ in message


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**5000], ids=int.bit_length)
def test_integer_beyond_64_bits_is_refused(value: int) -> None:
    assert "'shard': the integer does not fit into 64 bits" in refusal(PartitionKey, shard=value)


def test_string_with_a_lone_surrogate_is_refused() -> None:
    assert "'x': the string holds a lone surrogate" in refusal(PartitionKey, x="a\ud800")


def test_normal_scalar_leaves_a_normal_one_alone() -> None:
    for value in (None, True, 1, "x", date(2025, 1, 15), datetime(2025, 1, 15, tzinfo=UTC)):
        assert normal_scalar(value, "x") == value


# ---------------------------------------------------------------- parsing


@pytest.mark.parametrize("thing", [None, 5, b"a=i:1", ["a=i:1"], ORDERS])
@pytest.mark.parametrize(
    "parse",
    [AssetKey.parse, PartitionKey.parse, TaskKey.parse, parse_scalar],
    ids=["asset", "partition", "task", "scalar"],
)
def test_parsing_something_else_is_refused(parse: Any, thing: Any) -> None:
    assert f"not {type(thing).__name__}" in refusal(parse, thing)


def test_parsed_key_holds_exactly_a_string() -> None:
    key = PartitionKey.parse(Name("x=i:1"))
    assert type(key.canonical) is str and key.canonical == "x=i:1"


def test_refusal_names_the_dimension_and_what_is_wrong() -> None:
    message = refusal(PartitionKey.parse, "date=d:2025-02-30,region=s:eu")
    assert message == (
        "partition key 'date=d:2025-02-30,region=s:eu': dimension 'date':"
        " 'd:2025-02-30' is not a real date spelled YYYY-MM-DD"
    )


def test_unknown_operation_is_refused_with_those_there_are() -> None:
    message = refusal(TaskKey.parse, "a/b:run")
    assert message.endswith("'run' is not one of materialize, check, backfill")


def test_brackets_inside_values_do_not_confuse_task_keys() -> None:
    key = TaskKey(ORDERS, PartitionKey(x="a]:check", y="[b"), Operation.BACKFILL)
    assert TaskKey.parse(str(key)).partition == key.partition


# ---------------------------------------------------------------- task keys


def test_task_key_materializes_the_whole_asset_unless_told() -> None:
    assert str(TaskKey(ORDERS)) == "sales/orders:materialize"


@pytest.mark.parametrize(
    ("args", "wrong"),
    [
        (("sales/orders",), "'sales/orders' is no AssetKey"),
        ((None,), "None is no AssetKey"),
        ((ORDERS, "date=d:2025-01-15"), "'date=d:2025-01-15' is no PartitionKey"),
        ((ORDERS, {"a": 1}), "{'a': 1} is no PartitionKey"),
        ((ORDERS, None, "materialize"), "'materialize' is no Operation"),
        ((ORDERS, None, None), "None is no Operation"),
    ],
)
def test_task_key_of_something_else_is_refused(args: tuple[Any, ...], wrong: str) -> None:
    assert wrong in refusal(TaskKey, *args)


# ---------------------------------------------------------------- keys as values


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_key_survives_pickling(key: Any, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(key, protocol))  # noqa: S301 - our own bytes
    assert again == key and hash(again) == hash(key) and type(again) is type(key)


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copy_of_a_key_is_equal(key: Any, copied: Any) -> None:
    assert copied(key) == key


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_key_cannot_be_changed(key: Any) -> None:
    with pytest.raises(AttributeError, match="is immutable"):
        key.canonical = "x"
    with pytest.raises(AttributeError, match="is immutable"):
        key.anything = "x"
    with pytest.raises(AttributeError, match="is immutable"):
        del key.canonical
    assert key.canonical


def test_partition_key_has_no_item_assignment() -> None:
    with pytest.raises(TypeError):
        DAY["date"] = 1  # type: ignore[index]


def test_keys_of_different_kinds_are_never_equal() -> None:
    assert PartitionKey(a=1) != {"a": 1}
    assert ORDERS != "sales/orders"
    assert TaskKey(ORDERS) != ORDERS


def test_keys_of_different_kinds_have_no_order() -> None:
    with pytest.raises(TypeError):
        sorted([ORDERS, TASK])


def test_keys_compare_in_every_way() -> None:
    a, b = PartitionKey(x=1), PartitionKey(x=2)
    assert a < b and a <= b and b > a and b >= a and a != b
    assert not (b < a or b <= a or a > b or a >= b or a == b)
    same = PartitionKey(x=1)
    assert a <= same and a >= same and not (a < same or a > same)


def test_repr_shows_what_a_person_would_write() -> None:
    assert repr(ORDERS) == "AssetKey('sales.orders')"
    assert repr(TASK) == "TaskKey('sales/orders[date=d:2025-01-15,region=s:eu]:materialize')"
