"""The golden vectors in tests/vectors hold for our own code.

Their expected values were written without it: spellings by hand, digests by `sha256sum` and `base32`.
A failure here means that the format changed, not that the file needs an update.
"""

import json
import struct
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from servo.core import canonical
from servo.core.ids import queue_id
from servo.core.keys import AssetKey, Operation, PartitionKey, Scalar, TaskKey, partition_id
from servo.errors import Invalid

Row = dict[str, Any]

VECTORS = Path(__file__).parents[1] / "vectors"


def read(name: str) -> Row:
    loaded: Row = json.loads((VECTORS / name).read_text())
    return loaded


CANONICAL = read("canonical.json")
PARTITION_KEYS = read("partition_keys.json")
QUEUE_IDS = read("queue_ids.json")
TASK_KEYS = read("task_keys.json")


@pytest.mark.parametrize("file", [CANONICAL, PARTITION_KEYS, QUEUE_IDS, TASK_KEYS])
def test_each_file_says_how_another_language_uses_it(file: Row) -> None:
    assert len(file["about"]) > 200


# ---------------------------------------------------------------- canonical.json


def value_of(row: Row) -> Any:
    if "nested_lists" in row:
        value: list[Any] = []
        for _ in range(row["nested_lists"] - 1):
            value = [value]
        return value
    if "pairs" in row:
        return dict(row["pairs"])
    return json.loads(row["json"]) if "json" in row else row["value"]


@pytest.mark.parametrize("row", CANONICAL["cases"], ids=lambda row: row["name"])
def test_canonical_json_has_exactly_these_bytes(row: Row) -> None:
    assert canonical.dumps(value_of(row)) == row["canonical"].encode()


@pytest.mark.parametrize("row", CANONICAL["cases"], ids=lambda row: row["name"])
def test_fingerprint_is_this_one(row: Row) -> None:
    assert canonical.fingerprint(value_of(row)) == row["fingerprint"]


WORDS = {
    "float": "is the float",
    "integer_range": "outside [-2^63, 2^64-1]",
    "surrogate": "lone surrogate",
    "key": "keys must be plain strings",
    "depth": "nested deeper than 128 levels",
}


@pytest.mark.parametrize("row", CANONICAL["refused"], ids=lambda row: row["name"])
def test_canonical_json_refuses_this_value_for_this_reason(row: Row) -> None:
    with pytest.raises(Invalid) as refusal:
        canonical.dumps(value_of(row))
    assert WORDS[row["why"]] in str(refusal.value)


def double(bits: str) -> float:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert isinstance(value, float)
    return value


@pytest.mark.parametrize("row", CANONICAL["floats"], ids=lambda row: row["bits"])
def test_float_is_carried_as_this_text(row: Row) -> None:
    assert canonical.carry_float(double(row["bits"])) == row["carried"]


@pytest.mark.parametrize("row", CANONICAL["floats"], ids=lambda row: row["bits"])
def test_carried_float_reads_back_bit_by_bit(row: Row) -> None:
    value = canonical.read_float(row["carried"]["$float"])
    assert struct.pack(">d", value).hex() == row["bits"]


@pytest.mark.parametrize("bits", CANONICAL["float_bits_refused"])
def test_what_is_not_finite_is_not_carried(bits: str) -> None:
    with pytest.raises(Invalid, match="finite"):
        canonical.carry_float(double(bits))


@pytest.mark.parametrize("text", CANONICAL["float_texts_refused"])
def test_other_spellings_of_a_float_are_not_read(text: str) -> None:
    with pytest.raises(Invalid, match="shortest spelling"):
        canonical.read_float(text)


# ---------------------------------------------------------------- partition_keys.json


def scalar(row: Row) -> Scalar:
    kind = row["type"]
    if kind == "integer":
        return int(row["value"])
    if kind == "date":
        return date(row["year"], row["month"], row["day"])
    if kind == "timestamp":
        since = timedelta(microseconds=int(row["unix_microseconds"]))
        return datetime(1970, 1, 1, tzinfo=UTC) + since
    if kind == "float":
        return float(row["value"])  # type: ignore[return-value]  # which is the point
    value: Scalar = row.get("value")
    return value


def values(row: Row) -> dict[str, Scalar]:
    return {name: scalar(value) for name, value in row["values"].items()}


@pytest.mark.parametrize("row", PARTITION_KEYS["cases"], ids=lambda row: row["canonical"])
def test_partition_key_is_spelled_like_this(row: Row) -> None:
    assert str(PartitionKey(values(row))) == row["canonical"]


@pytest.mark.parametrize("row", PARTITION_KEYS["cases"], ids=lambda row: row["canonical"])
def test_spelling_parses_to_these_typed_values(row: Row) -> None:
    key, expected = PartitionKey.parse(row["canonical"]), values(row)
    typed = {name: (type(value), value) for name, value in key.items()}
    assert typed == {name: (type(value), value) for name, value in expected.items()}


@pytest.mark.parametrize("row", PARTITION_KEYS["cases"], ids=lambda row: row["canonical"])
def test_partition_has_this_folder(row: Row) -> None:
    assert partition_id(PartitionKey.parse(row["canonical"])) == row["partition_id"]


def test_asset_without_partitions_has_its_own_folder() -> None:
    assert partition_id(None) == PARTITION_KEYS["no_partitions"]


@pytest.mark.parametrize("row", PARTITION_KEYS["refused"], ids=lambda row: ascii(row["text"]))
def test_text_is_no_partition_key(row: Row) -> None:
    with pytest.raises(Invalid) as refusal:
        PartitionKey.parse(row["text"])
    assert repr(row["text"]) in str(refusal.value)


@pytest.mark.parametrize("row", PARTITION_KEYS["refused_values"], ids=ascii)
def test_values_make_no_partition_key(row: Row) -> None:
    with pytest.raises(Invalid):
        PartitionKey(values(row))


def test_partition_keys_sort_in_this_order() -> None:
    keys = sorted(PartitionKey.parse(row["canonical"]) for row in PARTITION_KEYS["cases"])
    assert [str(key) for key in keys] == PARTITION_KEYS["order"]


# ---------------------------------------------------------------- queue_ids.json


@pytest.mark.parametrize("row", QUEUE_IDS["cases"], ids=lambda row: row["id"])
def test_internal_id_has_this_queue_id(row: Row) -> None:
    assert queue_id(row["kind"], row["internal_id"]) == row["id"]


@pytest.mark.parametrize("kind", QUEUE_IDS["refused_kinds"], ids=ascii)
def test_kind_of_queue_id_is_one_lower_case_letter(kind: str) -> None:
    with pytest.raises(Invalid, match="one lower-case letter"):
        queue_id(kind, "x")


# ---------------------------------------------------------------- task_keys.json


@pytest.mark.parametrize("row", TASK_KEYS["assets"], ids=lambda row: row["display"])
def test_asset_key_has_these_two_spellings(row: Row) -> None:
    key = AssetKey(row["namespace"], row["name"])
    assert (key.canonical, str(key)) == (row["canonical"], row["display"])


@pytest.mark.parametrize("row", TASK_KEYS["assets"], ids=lambda row: row["display"])
def test_both_spellings_of_an_asset_key_parse(row: Row) -> None:
    key = AssetKey(row["namespace"], row["name"])
    assert AssetKey.parse(row["canonical"]) == AssetKey.parse(row["display"]) == key


@pytest.mark.parametrize("row", TASK_KEYS["refused_assets"], ids=lambda row: ascii(row["text"]))
def test_text_is_no_asset_key(row: Row) -> None:
    with pytest.raises(Invalid):
        AssetKey.parse(row["text"])


@pytest.mark.parametrize("row", TASK_KEYS["tasks"], ids=lambda row: row["canonical"])
def test_task_key_is_spelled_like_this(row: Row) -> None:
    partition = PartitionKey.parse(row["partition"]) if row["partition"] else None
    key = TaskKey(AssetKey(row["namespace"], row["name"]), partition, Operation(row["operation"]))
    assert str(key) == row["canonical"]


@pytest.mark.parametrize("row", TASK_KEYS["tasks"], ids=lambda row: row["canonical"])
def test_task_key_parses_into_its_parts(row: Row) -> None:
    key = TaskKey.parse(row["canonical"])
    partition = None if key.partition is None else str(key.partition)
    assert (key.asset.namespace, key.asset.name) == (row["namespace"], row["name"])
    assert (partition, key.operation.value) == (row["partition"], row["operation"])


@pytest.mark.parametrize("row", TASK_KEYS["refused_tasks"], ids=lambda row: ascii(row["text"]))
def test_text_is_no_task_key(row: Row) -> None:
    with pytest.raises(Invalid):
        TaskKey.parse(row["text"])
