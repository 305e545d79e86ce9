"""Our answers to the questions of the outside vectors, through the public parts of servo.core.

Each adapter only translates: a Dagster or Airflow definition into ours, our keys into their labels.
It makes no decision of its own; where a case asks for something Servo does not have, it says so by
`NotImplemented`.
"""

import calendar
import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from servo.core import cron, ids
from servo.core.axes import TimeAxis
from servo.core.cron import Timeline
from servo.core.dimensions import Dimension, Grain, TimeDimension, scalar_label
from servo.core.keys import PartitionKey, Scalar, spell_scalar
from servo.core.keysets import PartitionSet
from servo.core.mappings import (
    AllPartitions,
    Dimensions,
    Follow,
    Identity,
    LatestPartition,
    OneDimension,
    PartitionMapping,
    SpecificPartitions,
    StaticMap,
    TimeWindow,
    connect,
)
from servo.core.partitions import Partitioning
from servo.core.zones import moment, seconds, zone
from servo.errors import Invalid
from servo.sdk.partitions import (
    DailyPartition,
    HourlyPartition,
    MonthlyPartition,
    StaticPartition,
    TimePartition,
    WeeklyPartition,
)

Case = dict[str, Any]

FAR = datetime(2200, 1, 1, tzinfo=UTC)
"""A window has bounds whether or not it has ended yet: cases that ask for them are bound here."""


# ---------------------------------------------------------------- ULIDs


def ulid(case: Case) -> bool:
    """Whether we agree with one record."""
    kind = case["kind"]
    if kind == "parse":
        return bool(_succeeds(lambda: ids.parse_ulid(case["text"])) == case["ok"])
    if kind == "case_insensitive":
        lower, upper = ids.parse_ulid(case["lower"]), ids.parse_ulid(case["upper"])
        return bool(lower == upper == case["upper"])
    if kind == "time":
        return bool(ids.ulid_milliseconds(case["text"]) == case["ms"])
    if kind == "encode_time":
        if case.get("error"):
            return not _succeeds(lambda: ids.encode_time(case["ms"]))
        return bool(ids.encode_time(case["ms"]) == case["text"])
    if kind == "binary":
        return bool(ids.ulid_bytes(case["text"]).hex() == case["uuid"].replace("-", "").lower())
    if kind == "monotonic":
        times = iter(case["ms"])
        randomness = ids.base32_decode(case["random_text"])
        source = ids.UlidSource(lambda: next(times), lambda bits: randomness)
        return bool([source() for _ in case["ms"]] == case["expect"])
    increment = {"increment": ids.increment_ulid, "increment_base32": ids.base32_increment}[kind]
    if case.get("error"):
        return not _succeeds(lambda: increment(case["text"]))
    return bool(increment(case["text"]) == case["next"])


def _succeeds(act: Callable[[], object]) -> bool:
    try:
        act()
    except Invalid:
        return False
    return True


# ---------------------------------------------------------------- cron


def fires(expression: str, tz: str, start: str, n: int, reverse: bool = False) -> list[str]:
    """n instants strictly after (before) start."""
    pattern = cron.parse(expression)
    at = datetime.fromisoformat(start).astimezone(UTC)
    if reverse:
        # No expression that fires at all waits longer than a cycle of the calendar.
        line = Timeline(pattern, zone(tz), seconds(at) - 400 * 366 * 86_400)
        last = line.before(seconds(at))
        numbers: Iterable[int] = range(last - 1, max(last - 1 - n, -1), -1)
    else:
        line = Timeline(pattern, zone(tz), seconds(at) + (at.microsecond == 0))
        numbers = range(n)
    return [moment(line[number].instant).isoformat() for number in numbers]


# ---------------------------------------------------------------- partitions


_GRAINS: dict[str, Grain] = {
    "HourlyPartitionsDefinition": "hour",
    "DailyPartitionsDefinition": "day",
    "WeeklyPartitionsDefinition": "week",
    "MonthlyPartitionsDefinition": "month",
    "TimeWindowPartitionsDefinition": "cron",
}


def _dimension(definition: Case, name: str) -> Dimension:
    if definition["type"] == "static":
        return StaticPartition(name, definition["keys"])
    tz = definition["timezone"]

    def local(text: str | None) -> str | None:
        if text is None:
            return None
        return (
            datetime.fromisoformat(text).astimezone(ZoneInfo(tz)).replace(tzinfo=None).isoformat()
        )

    exclude = []
    for text in definition.get("exclusions") or ():
        stamp = re.match(r"TimestampWithTimezone\(timestamp=([0-9.]+)", text)
        if stamp:
            text = local(datetime.fromtimestamp(float(stamp[1]), UTC).isoformat())
        exclude.append(text)
    return TimeDimension(
        name=name,
        grain=_GRAINS[definition["cls"]],
        cron=definition["cron"],
        start=local(definition["start"]) or "",
        end=local(definition["end"]),
        end_offset=definition["end_offset"],
        timezone=tz,
        format=definition["fmt"],
        exclude=tuple(exclude),
    )


def _partitioning(definition: Case) -> Partitioning:
    if definition["type"] == "multi":
        for each in definition["dims"].values():
            # Their multi-dimensional keys join labels with |, so a label must not contain it.
            if any("|" in key for key in each.get("keys", ())):
                raise ValueError("a label contains |")
        return Partitioning(tuple(_dimension(d, f"d_{n}") for n, d in definition["dims"].items()))
    return Partitioning((_dimension(definition, "d_only"),))


def _label(keys: PartitionSet, key: PartitionKey) -> str:
    """Their label of a key: those of its dimensions, joined. Keys that do not exist have one too."""
    shown = []
    for name, axis in zip(keys.names, keys.axes, strict=True):
        index = axis.find(spell_scalar(key[name]))
        if index is not None:
            shown.append(axis.label(index))
        elif isinstance(axis, TimeAxis):
            shown.append(_time_label(axis, key[name]))
        else:
            shown.append(scalar_label(key[name]))
    return "|".join(shown)


def _time_label(axis: TimeAxis, value: Scalar) -> str:
    if isinstance(value, datetime):
        local = value.astimezone(ZoneInfo(axis.dimension.timezone))
        return local.strftime(axis.dimension.format)
    assert isinstance(value, date)
    return value.strftime(axis.dimension.format)


def _locate(keys: PartitionSet, label: str) -> PartitionKey:
    parts = label.split("|") if len(keys.names) > 1 else [label]
    if len(parts) != len(keys.names):
        raise Invalid(f"{label} has {len(parts)} parts")
    values = {n: a.value(a.locate(p)) for n, a, p in zip(keys.names, keys.axes, parts, strict=True)}
    return PartitionKey(values)


def _iso(axis: TimeAxis, index: int) -> list[str]:
    window = axis.window(index)
    return [window.start.isoformat(), window.end.isoformat()]


def partitions(case: Case) -> Any:
    """The answer to one record of partitions.jsonl."""
    if case["op"].startswith("map_"):
        return _mapped(case)
    definition = case["definition"]
    kind = definition["type"]
    if kind == "cron_interval":
        return _interval(case)
    if kind in ("temporal_mapper", "product", "rollup_window", "rollup"):
        return _rolled(case)
    if kind in _DEFINED:
        return _defined(definition)
    partitioning = _partitioning(definition)
    keys = partitioning.keys(_now(case, definition))
    op, given = case["op"], case["input"]
    if op == "define":
        return None
    if op == "keys":
        return [_label(keys, key) for key in keys]
    if op == "count":
        return len(keys)
    if op == "has_key":
        try:
            return _locate(keys, given["key"]) in keys
        except Invalid:
            return False
    if op == "keys_in_range":
        chosen = keys.between(_locate(keys, given["start"]), _locate(keys, given["end"]))
        return [_label(keys, key) for key in chosen]
    if op in ("first_key", "last_key"):
        at = 0 if op == "first_key" else -1
        return _label(keys, keys[at]) if keys else None
    return _time_answer(op, given, keys.axes[0], partitioning)


_DEFINED: dict[str, Callable[..., Dimension]] = {
    "hourly": HourlyPartition,
    "daily": DailyPartition,
    "weekly": WeeklyPartition,
    "monthly": MonthlyPartition,
}
_WEEK = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def _defined(definition: Case) -> Dimension:
    """A definition by its offsets, which may be refused."""
    given = {
        what: definition[f"{what}_offset"]
        for what in ("minute", "hour", "day")
        if f"{what}_offset" in definition
    }
    if definition["type"] == "weekly" and "day" in given:
        at = given.pop("day")
        given["weekday"] = _WEEK[at] if at in range(7) else at
    start = definition.get("start") or "2024-01-01"
    return _DEFINED[definition["type"]]("w", start=start, **given)


def _now(case: Case, definition: Case) -> datetime:
    if not case["now"]:
        return FAR
    now = datetime.fromisoformat(case["now"])
    return now if now.tzinfo else now.replace(tzinfo=ZoneInfo(definition.get("timezone", "UTC")))


def _time_answer(op: str, given: Case, axis: Any, partitioning: Partitioning) -> Any:
    ever = partitioning.keys(FAR).axes[0]
    assert isinstance(axis, TimeAxis) and isinstance(ever, TimeAxis)
    if op == "window_of_key":
        try:
            return _iso(ever, ever.locate(given["key"]))
        except Invalid:
            # Dagster reads a label that is no key as the first window from there on.
            local = datetime.strptime(given["key"], axis.dimension.format)
            return _iso(ever, ever.starts_before(zone(axis.dimension.timezone).instant_of(local)))
    if op in ("next_key", "prev_key"):
        there = axis.locate(given["key"]) + (1 if op == "next_key" else -1)
        return axis.label(there) if 0 <= there < axis.count else None
    if op in ("first_window", "last_window"):
        if not axis.count:
            return None
        return _iso(axis, 0 if op == "first_window" else axis.count - 1)
    zone_of = ZoneInfo(axis.dimension.timezone)

    def instant(text: str) -> int:
        at = datetime.fromisoformat(text)
        return seconds(at if at.tzinfo else at.replace(tzinfo=zone_of))

    if op == "next_window":
        index = axis.starts_before(instant(given["end"]))
        return _iso(axis, index) if index < axis.count else None
    if op == "prev_window":
        index = axis.starts_before(instant(given["start"])) - 1
        return _iso(axis, index) if index >= 0 else None
    return NotImplemented


def _interval(case: Case) -> Any:
    """Airflow's data intervals: the windows of a cron partition."""
    definition, given = case["definition"], case["input"]

    def axis(now: datetime, start: str = "2000-01-01") -> TimeAxis:
        dimension = TimePartition(
            "w", cron=definition["cron"], start=start, timezone=definition["timezone"]
        )
        bound = Partitioning((dimension,)).keys(now).axes[0]
        assert isinstance(bound, TimeAxis)
        return bound

    if case["op"] in ("last_complete_window_at", "latest_window_without_catchup"):
        ended = axis(datetime.fromisoformat(given.get("at") or given["now"]))
        return _iso(ended, ended.count - 1)
    every = axis(FAR)
    if case["op"] == "windows_from":
        first = every.starts_before(seconds(datetime.fromisoformat(given["from"])))
        return [_iso(every, first + i) for i in range(given["n"])]
    if case["op"] == "next_window_after":
        end = seconds(datetime.fromisoformat(given["last"][1]))
        # The window that the last one's end falls into: the schedule may have been edited since.
        return _iso(every, every.starts_before(end + 1) - 1)
    return NotImplemented


_GRAIN_CRON = {
    "minute": "* * * * *",
    "hour": "0 * * * *",
    "day": "0 0 * * *",
    "week": "0 0 * * 1",
    "month": "0 0 1 * *",
    "quarter": "0 0 1 1,4,7,10 *",
    "year": "0 0 1 1 *",
}
_GRAIN_LABEL = {
    "minute": "%Y-%m-%dT%H:%M",
    "hour": "%Y-%m-%dT%H",
    "day": "%Y-%m-%d",
    "week": "%Y-%m-%d (W%V)",
    "month": "%Y-%m",
    "year": "%Y",
}
_MEMBER = {
    "hour": "minute",
    "day": "hour",
    "week": "day",
    "month": "day",
    "quarter": "month",
    "year": "month",
}


def _grain_axis(grain: str, tz: str = "UTC", label: str | None = None) -> TimeAxis:
    dimension = TimePartition(
        "w",
        cron=_GRAIN_CRON[grain],
        start="2000-01-01",
        timezone=tz,
        format=label or _GRAIN_LABEL.get(grain, "%Y-%m-%d"),
    )
    axis = Partitioning((dimension,)).keys(FAR).axes[0]
    assert isinstance(axis, TimeAxis)
    return axis


def _rolled(case: Case) -> Any:
    """Airflow's partition mappers: the window that holds an instant, and the windows within one."""
    definition, given, op = case["definition"], case["input"], case["op"]
    if op == "truncate_key" and definition["type"] == "product":
        parts = given["key"].split(definition["delimiter"])
        if len(parts) != len(definition["mappers"]):
            raise ValueError("wrong number of segments")
        return definition["delimiter"].join(map(_by_mapper, parts, definition["mappers"]))
    grain, tz = definition["grain"], definition.get("timezone") or "UTC"
    if op == "truncate_key":
        return _truncated(given["key"], grain, definition)
    if op == "rollup_members":
        backward = definition.get("direction") == "backward"
        start = datetime.fromisoformat(given["start"])
        at = zone(tz).instant_of(start) if start.tzinfo is None else seconds(start)
        members = _grain_axis(_MEMBER[grain], tz)
        over = _before(members, grain, at) if backward else _within(members, grain, tz, at)
        zone_of = ZoneInfo(tz)
        shown = (members.window(i).start.astimezone(zone_of).replace(tzinfo=None) for i in over)
        return [each.isoformat() for each in shown]
    if op == "rollup_upstream_keys":
        whole = _grain_axis(grain, tz, definition.get("output_format"))
        shown_as = definition.get("input_format") or _GRAIN_LABEL[_MEMBER[grain]]
        members = _grain_axis(_MEMBER[grain], tz)
        key = given["key"]
        quarter = re.fullmatch(r"([0-9]{4})-Q([1-4])", key)
        if quarter:
            key = f"{quarter[1]}-{3 * int(quarter[2]) - 2:02}-01"
        over = _within(members, grain, tz, seconds(whole.window(whole.locate(key)).start))
        zone_of = ZoneInfo(tz)
        return [members.window(i).start.astimezone(zone_of).strftime(shown_as) for i in over]
    return NotImplemented


def _within(members: TimeAxis, grain: str, tz: str, start: int) -> range:
    """The members of the window of that grain which holds an instant, from there on."""
    whole = _grain_axis(grain, tz)
    return members.overlapping(start, whole.end(whole.starts_before(start + 1) - 1))


def _before(members: TimeAxis, grain: str, start: int) -> range:
    """As many members as such a window has, the last of them being the one at an instant."""
    last = members.starts_before(start + 1) - 1
    if grain == "month":
        # A month back from there: to the day after the same day of the month before.
        here = members.window(last).start
        year, month = (here.year, here.month - 1) if here.month > 1 else (here.year - 1, 12)
        length = calendar.monthrange(year, month)[1]
        size = max(here.day, length)
    else:
        size = {"week": 7, "day": 24, "hour": 60, "quarter": 3, "year": 12}[grain]
    return range(last - size + 1, last + 1)


def _by_mapper(key: str, mapper: str) -> str:
    if mapper == "identity":
        return key
    return _truncated(key, mapper.removeprefix("start_of_"), {})


def _truncated(key: str, grain: str, definition: Case) -> str:
    tz = definition.get("timezone") or "UTC"
    axis = _grain_axis(grain, tz, definition.get("output_format"))
    shown = definition.get("input_format")
    at = datetime.strptime(key, shown) if shown else datetime.fromisoformat(key)
    instant = seconds(at if at.tzinfo else at.replace(tzinfo=ZoneInfo(tz)))
    start = axis.window(axis.starts_before(instant + 1) - 1).start.astimezone(ZoneInfo(tz))
    if grain == "quarter" and "output_format" not in definition:
        return f"{start.year}-Q{(start.month + 2) // 3}"
    return start.strftime(axis.dimension.format)


def _single(name: str, up: Partitioning, down: Partitioning) -> Dimensions:
    if name in {d.name for d in up.dimensions}:
        return Dimensions({name: Follow(down.dimensions[0].name)})
    return Dimensions({up.dimensions[0].name: Follow(name)})


def _mapping(mapping: Case, up: Partitioning, down: Partitioning) -> PartitionMapping | None:
    kind = mapping["type"]
    if kind == "MultiPartitionMapping":
        follow = {}
        for name, each in mapping["dims"].items():
            inner = _mapping(each["mapping"], up, down)
            assert inner is not None and not isinstance(inner, Dimensions)
            follow[f"d_{name}"] = Follow(f"d_{each['downstream']}", inner)
        return Dimensions(follow)
    simple: dict[str, OneDimension | None] = {
        "IdentityPartitionMapping": Identity(),
        "AllPartitionMapping": AllPartitions(),
        "LastPartitionMapping": LatestPartition(),
        "MultiToSingleDimensionPartitionMapping": None,
    }
    if kind == "MultiToSingleDimensionPartitionMapping" and mapping.get("partition_dimension_name"):
        return _single(f"d_{mapping['partition_dimension_name']}", up, down)
    if kind in simple:
        return simple[kind]
    if kind == "TimeWindowPartitionMapping":
        return TimeWindow(mapping["start_offset"], mapping["end_offset"])
    if kind == "StaticPartitionMapping":
        return StaticMap.of(mapping["map"])
    assert kind == "SpecificPartitionsPartitionMapping", kind
    return SpecificPartitions.of(mapping["keys"])


def _mapped(case: Case) -> Any:
    up, down = _partitioning(case["upstream"]), _partitioning(case["downstream"])
    now = _now(case, case["downstream"])
    ups, downs = up.keys(now), down.keys(now)
    link = connect(_mapping(case["mapping"], up, down), ups, downs, up, down)
    found: dict[str, None] = {}
    absent: dict[str, None] = {}
    if case["op"] == "map_upstream":
        for label in case["input"]["downstream_keys"]:
            needs = link.upstream(_locate(downs, label))
            assert needs.keys is not None
            found |= dict.fromkeys(_label(ups, key) for key in needs.keys)
            absent |= dict.fromkeys(_label(ups, key) for key in needs.absent)
        if case["mapping"].get("allow_nonexistent_upstream_partitions"):
            absent = {}
        return {"upstream_keys": list(found), "required_but_nonexistent": list(absent)}
    for label in case["input"]["upstream_keys"]:
        touched = link.downstream(_locate(ups, label))
        assert touched is not None
        found |= dict.fromkeys(_label(downs, key) for key in touched)
    return {"downstream_keys": list(found)}
