"""Definitions: the JSON form of a manifest, and what a wrong one says."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from servo.core import canonical, definitions
from servo.core.definitions import (
    AssetDefinition,
    AssetKind,
    CheckDefinition,
    CheckPhase,
    CodeLocation,
    Dependency,
    Manifest,
    ScheduleDefinition,
    SensorDefinition,
    dump,
    load,
)
from servo.core.dimensions import (
    Dimension,
    DynamicDimension,
    StaticDimension,
    TenantDimension,
    TimeDimension,
)
from servo.core.keys import AssetKey
from servo.core.mappings import (
    AllPartitions,
    Dimensions,
    Follow,
    Identity,
    LatestPartition,
    PartitionMapping,
    SpecificPartitions,
    StaticMap,
    TimeWindow,
)
from servo.core.partitions import Partitioning
from servo.core.policies import (
    GATING_PRESETS,
    GatingPolicy,
    Resources,
    RetryPolicy,
    Severity,
    Timeouts,
)
from servo.errors import Invalid

MAPPINGS: list[PartitionMapping] = [
    Identity(),
    AllPartitions(),
    LatestPartition(),
    TimeWindow(-6, 0),
    StaticMap.of({"eu": ["de", "fr"], 1: True, None: "none"}),
    SpecificPartitions.of(["a b", 3, False, None]),
    Dimensions({"date": Follow("day", TimeWindow(-1, 0)), "region": Follow(), "x": Follow("y")}),
]

START = "2024-01-01T00:00:00"
DIMENSIONS: list[Dimension] = [
    TimeDimension(name="hour", grain="hour", cron="0 * * * *", start=START, format="%Y-%m-%dT%H"),
    TimeDimension(
        name="day",
        grain="day",
        cron="30 6 * * *",
        start=START,
        end="2025-01-01T00:00:00",
        end_offset=-2,
        timezone="America/New_York",
        exclude=("0 0 * * 6", "2024-12-25"),
    ),
    TimeDimension(name="week", grain="week", cron="0 0 * * 1", start=START),
    TimeDimension(name="month", grain="month", cron="0 0 1 * *", start=START, end_offset=1),
    TimeDimension(name="at", grain="cron", cron="*/15 9-17 * * 1-5", start=START),
    StaticDimension(name="region", values=("s:us-east", "s:a%20b", "i:-3", "b:true", "n:null")),
    DynamicDimension(name="customer"),
    TenantDimension(name="tenant"),
]

CODE = CodeLocation(module="shop.sales", function="orders", file="shop/sales.py", line=41)

CHECK = CheckDefinition(
    name="not_empty",
    kind="row_count",
    severity=Severity.CRITICAL,
    phase=CheckPhase.PRE,
    parameters={"min": 1, "ratio": 0.8, "ranges": [[0.0, 1.5], [-0.0, 1e-7]], "note": "½"},
    timeout_ms=1_000,
    code=CODE,
    code_version="sha256:3",
)

FULL = AssetDefinition(
    key=AssetKey("sales", "orders"),
    kind=AssetKind.SQL,
    description='Orders, "cleaned"\nand joined \U0001f600',
    owners=("ann", "bob@example.com"),
    tags={"tier": "gold", "": "empty", "é": "ü"},
    group="finance",
    partitions=Partitioning(tuple(DIMENSIONS)),
    dependencies=(
        Dependency(
            upstream=AssetKey("raw", "orders"),
            parameter="raw_orders",
            mapping=TimeWindow(-1, 0),
            require_quality=False,
        ),
        Dependency(upstream=AssetKey("raw", "users")),
    ),
    code=CODE,
    code_version="sha256:abc",
    checks=(CHECK, CheckDefinition(name="fresh", kind="freshness")),
    gating=GatingPolicy.custom({"error": "quarantine"}, default="warn", name="mine"),
    retry=RetryPolicy(
        max_attempts=7, multiplier=1.1, retry_on=("ValueError", "transient"), jitter_percent=0
    ),
    timeouts=Timeouts(dispatch_ack_ms=1, heartbeat_ms=2, execution_ms=None),
    resources=Resources(cpu_millicores=1500, memory_bytes=2**40, gpus=0),
    priority=-5,
    config={"threshold": 0.1, "deep": {"list": [1, 2.5, None, True, {"x": -1e300}]}, "whole": 1.0},
    metadata={"big": 2**64 - 1, "small": -(2**63), "text": "\x00\u2028"},
    renamed_from=AssetKey("sales", "old_orders"),
)

SCHEDULE = ScheduleDefinition(
    name="nightly",
    selection="+tag:tier=gold",
    cron="0 3 * * *",
    timezone="Europe/London",
    partitions={"region": ("eu", "us"), "day": ("2024-01-01..2024-01-31",)},
    enabled=False,
)

SENSOR = SensorDefinition(
    name="files", selection="sales.orders", code=CODE, interval_ms=1_000, enabled=False
)

MANIFEST = Manifest(namespace="sales", assets=(FULL,), schedules=(SCHEDULE,), sensors=(SENSOR,))


def asset(name: str = "orders", **fields: Any) -> AssetDefinition:
    return AssetDefinition(key=AssetKey("sales", name), **fields)


def with_asset(**fields: Any) -> bytes:
    """The JSON of a manifest with one asset that has these fields."""
    data = {"schema_version": 1, "assets": [{"key": "sales/orders", **fields}]}
    return json.dumps(data).encode()


def refusal(act: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(Invalid) as caught:
        act(*args, **named)
    message = str(caught.value)
    assert message.isprintable(), "one line that any terminal shows"
    return message


# ---------------------------------------------------------------- there and back


def test_manifest_with_everything_in_it_round_trips() -> None:
    assert load(dump(MANIFEST)) == MANIFEST


def test_every_field_of_the_full_example_differs_from_its_default() -> None:
    # Otherwise the round trip above would not notice a field that is lost.
    for struct in (FULL, CHECK, FULL.dependencies[0], SCHEDULE, SENSOR, CODE, FULL.resources):
        for field in msgspec.structs.fields(type(struct)):
            assert getattr(struct, field.name) != field.default, (type(struct), field.name)


def test_empty_manifest_round_trips() -> None:
    assert load(dump(Manifest())) == Manifest()


def test_asset_with_nothing_but_a_key_round_trips() -> None:
    manifest = Manifest(assets=(asset(),))
    assert load(dump(manifest)) == manifest


@pytest.mark.parametrize("mapping", MAPPINGS, ids=lambda m: type(m).__name__)
def test_mapping_round_trips(mapping: PartitionMapping) -> None:
    dependency = Dependency(upstream=AssetKey("a", "b"), mapping=mapping)
    manifest = Manifest(assets=(asset(dependencies=(dependency,)),))
    (again,) = load(dump(manifest)).assets[0].dependencies
    assert again == dependency and type(again.mapping) is type(mapping)


def test_every_kind_of_mapping_is_tried() -> None:
    assert {type(mapping) for mapping in MAPPINGS} == set(PartitionMapping.__args__)


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda d: d.name)
def test_dimension_round_trips(dimension: Dimension) -> None:
    manifest = Manifest(assets=(asset(partitions=Partitioning((dimension,))),))
    assert load(dump(manifest)) == manifest


def test_every_kind_of_dimension_is_tried() -> None:
    assert {type(dimension) for dimension in DIMENSIONS} == set(Dimension.__args__)


@pytest.mark.parametrize("kind", AssetKind)
def test_kind_of_asset_round_trips(kind: AssetKind) -> None:
    manifest = Manifest(assets=(asset(kind=kind),))
    assert load(dump(manifest)).assets[0].kind is kind


@pytest.mark.parametrize("policy", GATING_PRESETS.values(), ids=GATING_PRESETS.keys())
def test_gating_preset_round_trips(policy: GatingPolicy) -> None:
    manifest = Manifest(assets=(asset(gating=policy),))
    assert load(dump(manifest)) == manifest


def test_manifest_is_canonical_json() -> None:
    text = dump(MANIFEST)
    assert canonical.dumps(json.loads(text)) == text


def test_manifest_read_and_written_again_has_the_same_bytes() -> None:
    assert dump(load(dump(MANIFEST))) == dump(MANIFEST)


def test_keys_are_written_in_their_canonical_spelling() -> None:
    (written,) = json.loads(dump(MANIFEST))["assets"]
    assert written["key"] == "sales/orders"
    assert written["renamed_from"] == "sales/old_orders"
    assert written["dependencies"][0]["upstream"] == "raw/orders"


# ---------------------------------------------------------------- floats


def test_floats_are_carried_as_text() -> None:
    (written,) = json.loads(dump(MANIFEST))["assets"]
    assert written["retry"]["multiplier"] == {"$float": "1.1"}
    assert written["config"]["threshold"] == {"$float": "0.1"}
    assert written["config"]["whole"] == {"$float": "1.0"}
    assert written["checks"][0]["parameters"]["ranges"] == [
        [{"$float": "0.0"}, {"$float": "1.5"}],
        [{"$float": "-0.0"}, {"$float": "1e-07"}],
    ]


def test_floats_come_back_as_floats_and_integers_as_integers() -> None:
    again = load(dump(Manifest(assets=(asset(metadata={"f": 1.0, "i": 1, "b": True}),))))
    metadata = again.assets[0].metadata
    assert [type(metadata[name]) for name in "fib"] == [float, int, bool]


def test_minus_zero_stays_minus_zero() -> None:
    again = load(dump(Manifest(assets=(asset(metadata={"f": -0.0}),))))
    assert repr(again.assets[0].metadata["f"]) == "-0.0"


@pytest.mark.parametrize("field", ["config", "metadata"])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_float_that_is_not_finite_is_refused_where_it_is_declared(
    field: str, number: float
) -> None:
    message = refusal(asset, **{field: {"a": [number]}})
    assert message.startswith(f"asset sales.orders: {field}.a[0] is {number!r}; use a finite")


def test_carried_float_in_another_spelling_is_refused() -> None:
    text = with_asset(retry={"multiplier": {"$float": "2"}})
    assert "'2'} is not a float in its shortest spelling" in refusal(load, text)


# ---------------------------------------------------------------- one content, one text


def test_order_of_declaration_does_not_enter_the_bytes() -> None:
    assets = [asset(name) for name in "cab"]
    schedules = [msgspec.structs.replace(SCHEDULE, name=name) for name in "cab"]
    sensors = [msgspec.structs.replace(SENSOR, name=name) for name in "cab"]

    def manifest(turn: Any) -> bytes:
        return dump(
            Manifest(
                assets=tuple(turn(assets)),
                schedules=tuple(turn(schedules)),
                sensors=tuple(turn(sensors)),
            )
        )

    assert manifest(list) == manifest(reversed) == manifest(lambda x: [x[1], x[2], x[0]])


def test_order_of_dimensions_and_of_mappings_does_not_enter_the_bytes() -> None:
    def manifest(turn: Any) -> bytes:
        tags = dict(turn(list({"a": "1", "b": "2"}.items())))
        partitions = Partitioning(tuple(turn(DIMENSIONS)))
        return dump(Manifest(assets=(asset(tags=tags, partitions=partitions),)))

    assert manifest(list) == manifest(reversed)


SCRIPT = """
import sys
from tests.unit.test_definitions import MANIFEST, dump
sys.stdout.buffer.write(dump(MANIFEST))
"""


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    def written(seed: int) -> bytes:
        env = {**os.environ, "PYTHONHASHSEED": str(seed)}
        path = os.pathsep.join(filter(None, sys.path))
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env={**env, "PYTHONPATH": path}, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    assert written(1) == written(2) == dump(MANIFEST)


def test_definition_keeps_what_was_declared_when_the_dict_changes_later() -> None:
    tags, config = {"tier": "gold"}, {"deep": [1]}
    declared = asset(tags=tags, config=config)
    tags["tier"] = "lead"
    config["deep"].append(2)
    assert (declared.tags, declared.config) == ({"tier": "gold"}, {"deep": [1]})


class Settings(Mapping[str, Any]):
    """A mapping that is no dict."""

    def __getitem__(self, key: str) -> Any:
        return {"a": (1, 2)}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def test_any_mapping_and_tuple_read_back_equal() -> None:
    schedule = msgspec.structs.replace(SCHEDULE, partitions=MappingProxyType({"a": ("b",)}))
    manifest = Manifest(
        assets=(asset(config=Settings(), tags=MappingProxyType({"a": "b"})),), schedules=(schedule,)
    )
    assert load(dump(manifest)).assets == manifest.assets


# ---------------------------------------------------------------- versions


def test_version_is_written() -> None:
    assert json.loads(dump(Manifest()))["schema_version"] == definitions.SCHEMA_VERSION == 1


def test_newer_version_is_refused_with_what_to_do() -> None:
    assert refusal(load, b'{"schema_version":2}') == (
        "this manifest has schema version 2, and this Servo knows up to 1; upgrade Servo to read it"
    )


def test_newer_version_is_refused_before_fields_that_only_it_understands() -> None:
    text = b'{"schema_version":2,"assets":{"sales/orders":{"kind":"spark"}}}'
    assert "upgrade Servo" in refusal(load, text)


@pytest.mark.parametrize("version", [0, -1])
def test_version_that_never_was_is_refused(version: int) -> None:
    text = json.dumps({"schema_version": version}).encode()
    assert "which there never was" in refusal(load, text)


@pytest.mark.parametrize("text", [b"{}", b'{"fingerprint":"v1:sha256:0","tasks":[]}'])
def test_other_json_is_not_taken_for_an_empty_manifest(text: bytes) -> None:
    assert "missing required field `schema_version`" in refusal(load, text)


@pytest.mark.parametrize("version", ["1", 1.0, True, None, [1]])
def test_version_that_is_no_integer_is_refused(version: Any) -> None:
    text = json.dumps({"schema_version": version}).encode()
    assert "Expected `int`" in refusal(load, text)


def test_manifest_of_a_newer_version_cannot_be_made_either() -> None:
    assert "upgrade Servo" in refusal(Manifest, schema_version=2)


# What is in these is the user's: there, nothing is unknown.
USERS_OWN = {"tags", "config", "metadata", "parameters", "follow"}


def with_unknown_fields(value: Any) -> Any:
    if isinstance(value, list):
        return [with_unknown_fields(item) for item in value]
    if not isinstance(value, dict) or "$float" in value:
        return value
    known = {
        name: item if name in USERS_OWN else with_unknown_fields(item)
        for name, item in value.items()
    }
    return {**known, "added_later": {"x": [1, {"y": None}]}}


def test_unknown_fields_of_every_struct_are_ignored() -> None:
    manifest = msgspec.structs.replace(MANIFEST, schedules=())  # partitions there: the user's own
    data = with_unknown_fields(json.loads(dump(manifest)))
    assert load(json.dumps(data).encode()) == manifest


# ---------------------------------------------------------------- wrong content


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"key": 5}, "an asset key is a string like 'analytics.orders', not int - at"),
        ({"key": "Orders"}, "'Orders' is not of the form namespace.name - at `$.assets[0].key`"),
        ({"key": None}, "- at `$.assets[0].key`"),
        ({"kind": "cobol"}, "Invalid enum value 'cobol' - at `$.assets[0].kind`"),
        ({"kind": 1}, "- at `$.assets[0].kind`"),
        ({"description": 1}, "Expected `str`, got `int` - at `$.assets[0].description`"),
        ({"owners": "ann"}, "Expected `array`, got `str` - at `$.assets[0].owners`"),
        ({"owners": [1]}, "Expected `str`, got `int` - at `$.assets[0].owners[0]`"),
        ({"tags": ["a"]}, "Expected `object`, got `array` - at `$.assets[0].tags`"),
        ({"tags": {"a": 1}}, "Expected `str`, got `int` - at `$.assets[0].tags[...]`"),
        ({"priority": "1"}, "Expected `int`, got `str` - at `$.assets[0].priority`"),
        ({"priority": True}, "Expected `int`, got `bool` - at `$.assets[0].priority`"),
        ({"priority": 1.0}, "Expected `int`, got `float` - at `$.assets[0].priority`"),
        ({"config": []}, "Expected `object`, got `array` - at `$.assets[0].config`"),
        ({"partitions": []}, "Expected `object | null`, got `array` - at `$.assets[0].partitions`"),
        (
            {"partitions": {"dimensions": [{"type": "lunar", "name": "x"}]}},
            "Invalid value 'lunar' - at `$.assets[0].partitions.dimensions[0].type`",
        ),
        (
            {"partitions": {"dimensions": [{"type": "static", "name": "x"}]}},
            "missing required field `values` - at `$.assets[0].partitions.dimensions[0]`",
        ),
        (
            {"dependencies": [{"upstream": "raw orders"}]},
            "is not of the form namespace.name - at `$.assets[0].dependencies[0].upstream`",
        ),
        (
            {"dependencies": [{"upstream": "a/b", "mapping": {"type": "magic"}}]},
            "Invalid value 'magic' - at `$.assets[0].dependencies[0].mapping.type`",
        ),
        (
            {"checks": [{"name": "x", "kind": "y", "severity": "fatal"}]},
            "Invalid enum value 'fatal' - at `$.assets[0].checks[0].severity`",
        ),
        (
            {"retry": {"multiplier": "2"}},
            "Expected `float`, got `str` - at `$.assets[0].retry.multiplier`",
        ),
        ({"code": {"module": "m"}}, "required field `function` - at `$.assets[0].code`"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_type_gives_one_sentence_with_the_path(fields: dict[str, Any], problem: str) -> None:
    message = refusal(load, with_asset(**fields))
    assert message.startswith("the manifest cannot be read: ")
    assert problem in message


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"retry": {"max_attempts": 0}}, "retry policy: max_attempts is 0; give 1 or more"),
        ({"priority": 10**7}, "asset sales.orders: priority 10000000 is not within"),
        ({"partitions": {"dimensions": []}}, "a partitioning needs at least one dimension"),
        (
            {"checks": [{"name": "x", "kind": "y", "timeout_ms": 0}]},
            "check 'x': timeout_ms is 0; give 1 to",
        ),
        (
            {"checks": [{"name": "x", "kind": "y"}] * 2},
            "asset sales.orders: two checks are named 'x'; rename one",
        ),
        (
            {"dependencies": [{"upstream": f"a/{n}", "parameter": "p"} for n in "bc"]},
            "asset sales.orders: two inputs are named 'p'; rename one",
        ),
        (
            {"metadata": {"a": {"$float": 1}}},
            "asset sales.orders: metadata.a has the key '$float', which marks floats; rename it",
        ),
        ({"metadata": {"a": 10**30}}, "asset sales.orders: metadata.a is an integer outside"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_value_gives_one_sentence_that_names_the_thing(
    fields: dict[str, Any], problem: str
) -> None:
    message = refusal(load, with_asset(**fields))
    assert message.startswith(f"the manifest cannot be read: {problem}")


@pytest.mark.parametrize("field", ["tags", "config", "metadata"])
@pytest.mark.parametrize("value", [None, [], "x", 5, {"a"}])
def test_data_that_is_no_dict_is_refused(field: str, value: Any) -> None:
    message = refusal(asset, **{field: value})
    assert message.startswith(f"asset sales.orders: {field} is {value!r}; give a dict")


def test_tag_that_looks_like_a_carried_float_is_refused() -> None:
    assert "has the key '$float'" in refusal(asset, tags={"$float": "0.8"})


def test_bounds_of_a_check_that_json_cannot_hold_are_refused() -> None:
    message = refusal(CheckDefinition, name="x", kind="y", parameters={"among": {1, 2}})
    assert message.startswith("check 'x': parameters.among is of type set, which JSON cannot hold")


@pytest.mark.parametrize("timeout", [0, -1, 2**60])
def test_timeout_of_a_check_has_bounds(timeout: int) -> None:
    message = refusal(CheckDefinition, name="x", kind="y", timeout_ms=timeout)
    assert f"timeout_ms is {timeout}; give 1 to" in message


@pytest.mark.parametrize("interval", [999, 0, -1, 2**60])
def test_interval_of_a_sensor_has_bounds(interval: int) -> None:
    message = refusal(SensorDefinition, name="s", selection="*", code=CODE, interval_ms=interval)
    assert message.startswith(f"sensor 's': interval_ms is {interval}; give 1000 to")


@pytest.mark.parametrize(
    "fields", [{"cron": "61 * * * *"}, {"cron": ""}, {"timezone": "Mars/Base"}], ids=str
)
def test_schedule_that_never_fires_is_refused_by_name(fields: dict[str, str]) -> None:
    given = {"name": "nightly", "selection": "*", "cron": "0 3 * * *", **fields}
    assert refusal(ScheduleDefinition, **given).startswith("schedule 'nightly': ")


def test_two_schedules_of_one_name_are_refused() -> None:
    message = refusal(Manifest, schedules=(SCHEDULE, SCHEDULE))
    assert message == "two schedules are named 'nightly'; rename one"


def test_two_sensors_of_one_name_are_refused() -> None:
    message = refusal(Manifest, sensors=(SENSOR, SENSOR))
    assert message == "two sensors are named 'files'; rename one"


def test_broken_text_is_refused_when_written_with_its_path() -> None:
    message = refusal(dump, Manifest(assets=(asset(description="\ud800"),)))
    assert message.startswith("canonical JSON: $.assets[0].description holds a lone surrogate")


@pytest.mark.parametrize("cut", range(1, 200, 13))
def test_manifest_that_was_cut_short_is_refused(cut: int) -> None:
    assert "was the file cut short?" in refusal(load, dump(MANIFEST)[:-cut])


# ---------------------------------------------------------------- the graph


def test_graph_names_both_ends_of_a_dependency_that_cannot_be_mapped() -> None:
    daily = asset("daily", partitions=Partitioning((DIMENSIONS[1],)))
    dependency = Dependency(upstream=daily.key, mapping=Identity())
    manifest = Manifest(assets=(daily, asset("whole", dependencies=(dependency,))))
    assert refusal(lambda: manifest.graph).startswith("sales.daily → sales.whole: ")


def test_graph_refuses_two_assets_of_one_key() -> None:
    assert "sales.orders" in refusal(lambda: Manifest(assets=(asset(), asset())).graph)


def test_a_part_that_refuses_itself_is_told_with_its_path() -> None:
    data = json.loads(dump(Manifest(assets=(AssetDefinition(key=AssetKey("a", "b")),))))
    data["assets"][0]["retry"]["max_attempts"] = 0
    with pytest.raises(Invalid, match=r"max_attempts is 0; .* at `\$\.assets\[0\]\.retry`"):
        load(json.dumps(data).encode())


def test_a_selection_that_cannot_be_read_is_refused_where_it_is_declared() -> None:
    with pytest.raises(Invalid, match="schedule 'nightly': "):
        ScheduleDefinition(name="nightly", selection="((", cron="0 1 * * *")
    with pytest.raises(Invalid, match="sensor 'files': "):
        SensorDefinition(name="files", selection="and", code=CODE)
