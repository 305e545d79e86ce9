"""Partition definitions: which keys each kind has, what they are called, and how far they reach.

Also that questions about very large sets are answered without enumerating them, and that wrong
definitions get one sentence. Laws over random definitions: tests/property/test_partition_properties.py.
"""

import functools
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest

from servo.core.axes import TimeAxis, Window, bind
from servo.core.dimensions import Dimension, TimeDimension
from servo.core.keys import PartitionKey, Scalar, spell_scalar
from servo.core.keysets import PartitionSet
from servo.core.partitions import Partitioning
from servo.errors import Invalid
from servo.sdk.partitions import (
    DailyPartition,
    DynamicPartition,
    HourlyPartition,
    MonthlyPartition,
    StaticPartition,
    TenantPartition,
    TimePartition,
    WeeklyPartition,
)

NOW = datetime(2024, 1, 10, 12, tzinfo=UTC)
LATER = datetime(2025, 1, 10, tzinfo=UTC)

# What users write may be wrong in type, too.
daily: Any = functools.partial(DailyPartition, "d", start="2024-01-01")
weekly: Any = functools.partial(WeeklyPartition, "d", start="2024-01-01")
by_cron: Any = functools.partial(TimePartition, "d", start="2024-01-01")
static: Any = functools.partial(StaticPartition, "s")


def keys_of(*dimensions: Dimension, now: datetime = NOW) -> PartitionSet:
    return Partitioning(dimensions).keys(now)


def labels(*dimensions: Dimension, now: datetime = NOW) -> list[str]:
    keys = keys_of(*dimensions, now=now)
    return [keys.label(key).partition("=")[2] for key in keys]


def time_axis(dimension: TimeDimension, now: datetime = NOW) -> TimeAxis:
    return bind(dimension, now, {})


# ---------------------------------------------------------------- kinds


def test_hours_are_identified_by_the_instant_they_start() -> None:
    dimension = HourlyPartition("hour", start="2024-01-10T06:00", timezone="America/New_York")
    keys = keys_of(dimension)
    assert [str(key) for key in keys] == ["hour=t:2024-01-10T11:00:00.000000Z"]
    assert keys.label(keys[0]) == "hour=2024-01-10T06:00"
    assert keys.window(keys[0]) == Window(
        datetime(2024, 1, 10, 11, tzinfo=UTC), datetime(2024, 1, 10, 12, tzinfo=UTC)
    )


def test_hours_may_begin_past_the_hour() -> None:
    dimension = HourlyPartition("hour", start="2024-01-10T09:00", minute=15)
    assert labels(dimension) == ["2024-01-10T09:15", "2024-01-10T10:15"]


@pytest.mark.parametrize(
    ("dimension", "expected"),
    [
        (DailyPartition("d", start="2024-01-08"), ["d=d:2024-01-08", "d=d:2024-01-09"]),
        (DailyPartition("d", start="2024-01-08", hour=18), ["d=d:2024-01-08"]),
        (WeeklyPartition("d", start="2023-12-25"), ["d=d:2023-12-25", "d=d:2024-01-01"]),
        (WeeklyPartition("d", start="2023-12-25", weekday="Sunday"), ["d=d:2023-12-31"]),
        (MonthlyPartition("d", start="2023-11-01"), ["d=d:2023-11-01", "d=d:2023-12-01"]),
        (MonthlyPartition("d", start="2023-09-01", day=31), ["d=d:2023-10-31"]),
    ],
)
def test_days_weeks_and_months_are_identified_by_their_date(
    dimension: TimeDimension, expected: list[str]
) -> None:
    assert [str(key) for key in keys_of(dimension)] == expected


def test_a_cron_partition_lasts_from_one_fire_to_the_next() -> None:
    dimension = TimePartition("w", cron="0 9 * * MON-FRI", start="2024-01-04")
    keys = keys_of(dimension)
    assert [str(key) for key in keys] == [
        "w=t:2024-01-04T09:00:00.000000Z",
        "w=t:2024-01-05T09:00:00.000000Z",
        "w=t:2024-01-08T09:00:00.000000Z",
        "w=t:2024-01-09T09:00:00.000000Z",
    ]
    assert keys.window(keys[1]).end - keys.window(keys[1]).start == timedelta(days=3)


def test_a_list_keeps_its_order_and_its_types() -> None:
    keys = keys_of(StaticPartition("s", ["b", "a", 3, True, None, date(2024, 1, 1)]))
    assert [str(key) for key in keys] == [
        "s=s:b", "s=s:a", "s=i:3", "s=b:true", "s=n:null", "s=d:2024-01-01",
    ]  # fmt: skip


def test_values_that_look_alike_are_told_apart_by_their_tags() -> None:
    keys = keys_of(StaticPartition("s", ["3", 3, "s:eu", "eu"]))
    assert [keys.label(key) for key in keys] == ["s=s:3", "s=i:3", "s=s:s%3Aeu", "s=eu"]
    with pytest.raises(Invalid, match=r"s=3 is ambiguous; write s:3 or i:3"):
        keys.where(s="3")
    assert list(keys.where(s="i:3")) == [PartitionKey(s=3)]
    assert list(keys.where(s="s:eu")) == [PartitionKey(s="eu")]


def test_dynamic_and_tenant_keys_are_those_that_are_told_of() -> None:
    both = Partitioning((DynamicPartition("k"), TenantPartition()))
    assert len(both.keys(NOW)) == 0
    keys = both.keys(NOW, {"k": ["b", "a", "b"], "tenant": iter(["acme"]), "other": ["x"]})
    assert [str(key) for key in keys] == ["k=s:a,tenant=s:acme", "k=s:b,tenant=s:acme"]
    with pytest.raises(Invalid, match="partition dimension 'k' has no key 'c'"):
        keys.where(k="c")
    with pytest.raises(Invalid, match="has no key 'c'; it has no keys yet"):
        both.keys(NOW).where(k="c")


def test_dimensions_are_sorted_by_name_and_the_last_varies_fastest() -> None:
    keys = keys_of(StaticPartition("b", [1, 2]), StaticPartition("a", ["x", "y"]))
    shown = ["a=s:x,b=i:1", "a=s:x,b=i:2", "a=s:y,b=i:1", "a=s:y,b=i:2"]
    assert [str(key) for key in keys] == shown


def test_a_definition_survives_json() -> None:
    both = Partitioning((
        HourlyPartition("h", start="2024-01-01", timezone="Europe/London", exclude=["0 3 * * *"]),
        StaticPartition("s", ["a", 1]), DynamicPartition("k"), TenantPartition(),
    ))  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(both), type=Partitioning) == both


# ---------------------------------------------------------------- start, end and offset


@pytest.mark.parametrize(
    ("end_offset", "expected"),
    [(-3, []), (-1, ["08"]), (0, ["08", "09"]), (2, ["08", "09", "10", "11"])],
)
def test_an_end_offset_adds_or_holds_back_windows(end_offset: int, expected: list[str]) -> None:
    shown = labels(DailyPartition("d", start="2024-01-08", end_offset=end_offset))
    assert [label[-2:] for label in shown] == expected


def test_a_window_exists_from_the_instant_it_ends() -> None:
    dimension = DailyPartition("d", start="2024-01-01")
    end = datetime(2024, 1, 2, tzinfo=UTC)
    assert labels(dimension, now=end - timedelta(microseconds=1)) == []
    assert labels(dimension, now=end) == ["2024-01-01"]


def test_windows_ahead_of_a_start_in_the_future_are_counted_from_now() -> None:
    dimension = DailyPartition("d", start="2024-01-10", end_offset=3)
    assert labels(dimension, now=datetime(2024, 1, 1, tzinfo=UTC)) == []
    assert labels(dimension, now=datetime(2024, 1, 9, tzinfo=UTC)) == ["2024-01-10", "2024-01-11"]


def test_an_end_is_where_the_last_window_may_end() -> None:
    assert labels(daily(end="2024-01-03")) == [
        "2024-01-01", "2024-01-02",
    ]  # fmt: skip
    assert labels(daily(end="2024-01-03T12:00", end_offset=5)) == [
        "2024-01-01", "2024-01-02",
    ]  # fmt: skip
    assert labels(daily(end="2024-01-01")) == []
    assert labels(DailyPartition("d", start="2024-01-05", end="2024-01-01")) == []


def test_a_start_between_two_windows_waits_for_the_next() -> None:
    assert labels(DailyPartition("d", start="2024-01-07T00:01")) == ["2024-01-08", "2024-01-09"]


def test_a_start_may_be_a_date_or_a_datetime() -> None:
    for start in ("2024-01-09", date(2024, 1, 9), datetime(2024, 1, 9)):
        assert labels(DailyPartition("d", start=start)) == ["2024-01-09"]


def test_windows_may_be_excluded_by_time_and_by_cron() -> None:
    dimension = DailyPartition(
        "d", start="2024-01-03", exclude=["0 0 * * SAT,SUN", date(2024, 1, 5), "2024-01-09T00:00"]
    )
    keys = keys_of(dimension)
    assert [str(key["d"]) for key in keys] == ["2024-01-03", "2024-01-04", "2024-01-08"]
    # An excluded window is left out, not added to the one before it.
    assert keys.window(keys[1]).end == datetime(2024, 1, 5, tzinfo=UTC)
    assert PartitionKey(d=date(2024, 1, 5)) not in keys
    assert PartitionKey(d=date(2024, 1, 6)) not in keys


def test_excluding_a_time_that_occurs_twice_excludes_both() -> None:
    def hours(exclude: list[str]) -> int:
        tz = "America/New_York"
        start = datetime(2024, 11, 3)
        dimension = HourlyPartition(
            "h", start=start, end=date(2024, 11, 4), timezone=tz, exclude=exclude
        )
        return time_axis(dimension, LATER).count

    assert hours([]) == 25
    assert hours(["2024-11-03T01:00"]) == 23


def test_excluding_a_time_that_does_not_occur_excludes_nothing() -> None:
    dimension = HourlyPartition(
        "h", start="2024-03-10", end="2024-03-11", timezone="America/New_York",
        exclude=["2024-03-10T02:00"],
    )  # fmt: skip
    assert time_axis(dimension, LATER).count == 23


# ---------------------------------------------------------------- clocks that change


@pytest.mark.parametrize(
    ("tz", "day", "hours"),
    [
        ("America/New_York", "2024-03-10", 23),
        ("America/New_York", "2024-11-03", 25),
        ("Europe/London", "2024-03-31", 23),
        ("Europe/London", "2024-10-27", 25),
        # Half an hour: 02:00 to 02:30 is skipped, so the hour of 02:00 does not begin.
        ("Australia/Lord_Howe", "2024-10-06", 23),
        # 01:30 to 02:00 occurs twice, and 02:00 (the first time it is 01:30 again) once.
        ("Australia/Lord_Howe", "2024-04-07", 24),
        ("Asia/Kathmandu", "2024-03-31", 24),
        # 00:00 to 00:15 was skipped for good.
        ("Asia/Kathmandu", "1986-01-01", 23),
    ],
)
def test_an_hour_that_happens_twice_is_two_partitions_and_one_that_does_not_is_none(
    tz: str, day: str, hours: int
) -> None:
    end = date.fromisoformat(day) + timedelta(days=1)
    axis = time_axis(HourlyPartition("h", start=day, end=end, timezone=tz), LATER)
    assert axis.count == hours
    shown = [axis.label(i) for i in range(axis.count)]
    assert len(set(shown)) == hours
    assert [axis.locate(label) for label in shown] == list(range(hours))


def test_the_second_of_two_equal_hours_is_labelled_by_its_offset() -> None:
    axis = time_axis(
        HourlyPartition("h", start="2024-11-03", timezone="America/New_York"),
        LATER,
    )
    assert [axis.label(i) for i in range(4)] == [
        "2024-11-03T00:00", "2024-11-03T01:00", "2024-11-03T01:00-0500", "2024-11-03T02:00",
    ]  # fmt: skip
    assert axis.locate("2024-11-03T01:00") == 1
    assert axis.locate("2024-11-03T01:00-0500") == 2
    assert axis.locate("2024-11-03T01:00-04:00") == 1
    assert axis.locate("t:2024-11-03T06:00:00.000000Z") == 2


def test_half_an_hour_twice_makes_one_longer_hour() -> None:
    axis = time_axis(
        HourlyPartition("h", start="2024-04-07T01:00", timezone="Australia/Lord_Howe"),
        LATER,
    )
    assert [axis.label(i) for i in range(3)] == [
        "2024-04-07T01:00",
        "2024-04-07T02:00",
        "2024-04-07T03:00",
    ]
    assert axis.window(0).end - axis.window(0).start == timedelta(minutes=90)


@pytest.mark.parametrize(
    ("tz", "day", "length"),
    [
        ("America/New_York", "2024-03-10", 23), ("America/New_York", "2024-11-03", 25),
        ("Europe/London", "2024-03-31", 23), ("Europe/London", "2024-10-27", 25),
        ("Australia/Lord_Howe", "2024-10-06", 23.5), ("Australia/Lord_Howe", "2024-04-07", 24.5),
        ("Asia/Kathmandu", "2024-03-31", 24), ("Asia/Kathmandu", "1985-12-31", 24),
        ("America/Sao_Paulo", "2018-11-04", 23),
    ],
)  # fmt: skip
def test_a_day_is_as_long_as_it_was(tz: str, day: str, length: float) -> None:
    axis = time_axis(DailyPartition("d", start=day, timezone=tz), LATER)
    assert axis.label(0) == day
    assert axis.value(0) == date.fromisoformat(day)
    window = axis.window(0)
    assert window.end - window.start == timedelta(hours=length)
    assert axis.locate(day) == 0
    assert axis.find(f"d:{day}") == 0


def test_a_day_whose_beginning_falls_into_a_gap_keeps_its_date() -> None:
    axis = time_axis(
        DailyPartition("d", start="2024-03-10", timezone="America/New_York", hour=2, minute=30),
        LATER,
    )
    assert axis.window(0).start == datetime(2024, 3, 10, 7, tzinfo=UTC)
    assert axis.label(0) == "2024-03-10"


def test_a_day_that_a_gap_moves_past_midnight_keeps_its_date() -> None:
    # Midnight to 01:00 was skipped on 2018-11-04; 00:15 became 01:00.
    axis = time_axis(
        DailyPartition("d", start="2018-11-03", timezone="America/Sao_Paulo", minute=15)
    )
    assert [axis.value(i) for i in range(3)] == [date(2018, 11, d) for d in (3, 4, 5)]
    assert [axis.find(f"d:2018-11-0{d}") for d in (3, 4, 5)] == [0, 1, 2]


def test_a_day_that_was_skipped_is_no_partition() -> None:
    axis = time_axis(DailyPartition("d", start="2011-12-29", timezone="Pacific/Apia"))
    assert [axis.label(i) for i in range(3)] == ["2011-12-29", "2011-12-31", "2012-01-01"]
    assert axis.find("d:2011-12-30") is None


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("dimension", "label"),
    [
        (DailyPartition("d", start="2024-01-03", format="%d/%m/%Y"), "03/01/2024"),
        (DailyPartition("d", start="2024-01-03", format="%Y%d%m"), "20240301"),
        (WeeklyPartition("d", start="2024-01-01", format="%G-W%V"), "2024-W01"),
        (WeeklyPartition("d", start="2024-01-01", format="%Y-%m-%d (W%V)"), "2024-01-01 (W01)"),
        (WeeklyPartition("d", start="2024-01-01", format="%Y-W%W", weekday="sunday"), "2024-W01"),
        (MonthlyPartition("d", start="2023-11-01", format="%b %Y"), "Nov 2023"),
        (MonthlyPartition("d", start="2023-11-01", format="%Y-%m", day=15), "2023-11"),
        (TimePartition("d", cron="0 0 1 1 *", start="2022-01-01", format="%Y"), "2022"),
    ],
)
def test_a_format_is_for_people_and_is_read_back(dimension: TimeDimension, label: str) -> None:
    axis = time_axis(dimension)
    assert axis.label(0) == label
    assert [axis.locate(axis.label(i)) for i in range(axis.count)] == list(range(axis.count))


def test_whatever_the_format_iso_times_and_spelled_values_are_read() -> None:
    axis = time_axis(DailyPartition("d", start="2024-01-03", format="%d/%m/%Y", hour=6))
    for text in (
        "2024-01-04",
        "2024-01-04T06:00",
        "2024-01-04T06:00Z",
        "d:2024-01-04",
        "04/01/2024",
    ):
        assert axis.locate(text) == 1
    for text in (
        "2024-01-04T06:30",
        "2024-01-04T05:59:59.5Z",
        "2024-01-04x06:00",
        "t:2024-01-04T06:00:00.000000Z",
    ):
        with pytest.raises(Invalid, match="has no key"):
            axis.locate(text)


def test_a_fraction_of_a_second_is_no_other_key() -> None:
    keys = keys_of(HourlyPartition("h", start="2024-01-10"))
    assert PartitionKey(h=datetime(2024, 1, 10, 1, tzinfo=UTC)) in keys
    almost = datetime(2024, 1, 10, 0, 59, 59, 500_000, tzinfo=UTC)
    assert PartitionKey(h=almost) not in keys


# ---------------------------------------------------------------- very large sets


class Counted:
    """An axis that counts how often its values are asked for."""

    def __init__(self, axis: Any) -> None:
        self._axis = axis
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._axis, name)

    def value(self, index: int) -> Scalar:
        self.asked += 1
        value: Scalar = self._axis.value(index)
        return value


HUGE = (
    HourlyPartition("hour", start="1950-01-01", end="2050-01-01", timezone="America/New_York"),
    StaticPartition("region", [f"r{i}" for i in range(50)]),
    StaticPartition("tenant", [f"t{i}" for i in range(200)]),
    StaticPartition("tier", ["free", "pro", "max"]),
)
HOURS = 36_525 * 24
PER_HOUR = 50 * 200 * 3


@pytest.fixture
def huge() -> tuple[PartitionSet, Callable[[], int]]:
    """26 billion keys, and how many values of axes were asked for since."""
    keys = Partitioning(HUGE).keys(datetime(2060, 1, 1, tzinfo=UTC))
    axes = tuple(Counted(axis) for axis in keys.axes)
    return PartitionSet(keys.names, axes, keys.picks), lambda: sum(axis.asked for axis in axes)


Huge = tuple[PartitionSet, Callable[[], int]]


def key_at(hour: datetime, region: str, tenant: str, tier: str) -> PartitionKey:
    return PartitionKey(hour=hour, region=region, tenant=tenant, tier=tier)


def test_26_billion_keys_are_counted(huge: Huge) -> None:
    keys, asked = huge
    # Every hour that was lost in spring came back in autumn.
    assert len(keys) == HOURS * PER_HOUR == 26_298_000_000
    assert asked() == 0


def test_26_billion_keys_have_an_nth_one(huge: Huge) -> None:
    keys, asked = huge
    first = datetime(1950, 1, 1, 5, tzinfo=UTC)
    assert keys[0] == key_at(first, "r0", "t0", "free")
    assert keys[-1] == key_at(datetime(2050, 1, 1, 4, tzinfo=UTC), "r49", "t199", "max")
    number = 123_456 * PER_HOUR + 7 * 600 + 150 * 3 + 2
    assert keys[number] == key_at(first + timedelta(hours=123_456), "r7", "t150", "max")
    assert asked() == 3 * 4


def test_membership_in_26_billion_keys(huge: Huge) -> None:
    keys, asked = huge
    hour = datetime(2024, 11, 3, 6, tzinfo=UTC)
    assert key_at(hour, "r7", "t150", "max") in keys
    assert keys[keys.index(key_at(hour, "r7", "t150", "max"))] == key_at(hour, "r7", "t150", "max")
    assert key_at(hour + timedelta(minutes=1), "r7", "t150", "max") not in keys
    assert key_at(hour, "r50", "t150", "max") not in keys
    assert key_at(datetime(2050, 1, 1, 5, tzinfo=UTC), "r7", "t150", "max") not in keys
    assert asked() <= 4


def test_slices_of_26_billion_keys(huge: Huge) -> None:
    keys, asked = huge
    part = keys[10_000_000_000:20_000_000_000:7]
    assert len(part) == 1_428_571_429
    assert asked() == 0
    assert part[5] == keys[10_000_000_035]
    assert keys[10_000_000_036] not in part
    assert [keys.index(key) for key in keys[-3:]] == [len(keys) - 3, len(keys) - 2, len(keys) - 1]


def test_ranges_of_26_billion_keys(huge: Huge) -> None:
    keys, asked = huge
    year = keys.where(hour="2024-01-01T00:00..2024-12-31T23:00", tier=["pro", "max"], region="..r9")
    assert len(year) == 366 * 24 * 10 * 200 * 2
    assert asked() == 0
    assert year[0] == key_at(datetime(2024, 1, 1, 5, tzinfo=UTC), "r0", "t0", "pro")
    assert len(keys.between(year[0], year[-1])) == len(year)


def test_what_is_missing_of_26_billion_keys(huge: Huge) -> None:
    keys, asked = huge
    present = list(keys[:: len(keys) // 9_999])
    before = asked()
    missing = keys.missing([*present, PartitionKey(other=1)])
    assert len(missing) == len(keys) - len(present)
    assert asked() == before
    assert present[500] not in missing
    assert keys[1] in missing
    assert missing[0] == keys[1]
    assert missing.find(keys[1]) == 0
    assert missing[-1] == keys[-1]
    assert len(missing.where(tier="pro")) == len(keys) // 3 - sum(
        k["tier"] == "pro" for k in present
    )


def test_the_latest_of_26_billion_keys() -> None:
    keys = Partitioning(HUGE).keys(datetime(2060, 1, 1, tzinfo=UTC))
    assert len(keys.latest()) == PER_HOUR
    assert keys.latest()[-1] == keys[-1]


def test_equal_sets_of_26_billion_keys_are_seen_to_be_equal() -> None:
    one, other = (Partitioning(HUGE).keys(datetime(2060, 1, 1, tzinfo=UTC)) for _ in range(2))
    assert one == other
    assert one != other.missing([one[0]])


# ---------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: DailyPartition("my date", start="2024-01-01"), "'my date' is not allowed"),
        (lambda: DailyPartition("d", start="yesterday"), "'d': start 'yesterday' is not a date"),
        (lambda: DailyPartition("d", start="2024-02-30"), "start '2024-02-30' is not a date or time"),
        (lambda: DailyPartition("d", start="2024-01-01T00:00Z"), "has an offset; give the local time"),
        (lambda: DailyPartition("d", start=datetime(2024, 1, 1, tzinfo=UTC)), "has an offset"),
        (lambda: DailyPartition("d", start="0001-01-01"), "is outside the years 3 to 9997"),
        (lambda: daily(start=20240101), "start 20240101 is not a date or time"),
        (lambda: daily(end="x"), "partition 'd': end 'x' is not a date"),
        (lambda: daily(end_offset=1.5), "end_offset 1.5 is not an integer"),
        (lambda: daily(end_offset=True), "end_offset True is not an integer"),
        (lambda: daily(timezone="Mars"), "'d': time zone 'Mars' is not known"),
        (lambda: daily(timezone=None), "timezone None is not a string"),
        (lambda: daily(format="day"), "format 'day' does not show a time"),
        (lambda: daily(format=""), "format '' does not show a time"),
        (lambda: daily(hour=24), "partition 'd': hour 24 is not between 0 and 23"),
        (lambda: HourlyPartition("d", start="2024-01-01", minute=60), "minute 60 is not between 0"),
        (lambda: MonthlyPartition("d", start="2024-01-01", day=32), "day 32 is not between 1 and 31"),
        (lambda: weekly(weekday="mondy"), "did you mean 'monday'?"),
        (lambda: weekly(weekday=7), "weekday 7 is no day of the week"),
        (lambda: by_cron(cron="0 0 * *"), "'d': cron expression '0 0 * *':"),
        (lambda: by_cron(cron=5), "'d': cron 5 is not a string"),
        (lambda: daily(exclude=["0 0 * *"]), "cron expression '0 0 * *'"),
        (lambda: daily(exclude=["x"]), "partition 'd': exclude 'x' is not a date"),
        (lambda: daily(exclude=5), "exclude 5 is not a list"),
        (lambda: daily(exclude="@daily"), "exclude leaves no window at all"),
        (lambda: static([]), "partition 's' lists no values; give at least one"),
        (lambda: static(["a", "a"]), "partition 's' lists 'a' twice; remove one"),
        (lambda: static("abc"), "give a list of values, not 'abc'"),
        (lambda: static(5), "give a list of values, not 5"),
        (lambda: static([1.5]), "the float 1.5 cannot identify a partition"),
        (lambda: DynamicPartition(""), "partition dimension '' is not allowed"),
        (lambda: Partitioning(()), "a partitioning needs at least one dimension"),
        (lambda: Partitioning((DynamicPartition("a"), TenantPartition("a"))), "two partition"),
    ],
)  # fmt: skip
def test_a_wrong_definition_gets_a_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        make()
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"dat": "2024-01-03"}, "there is no partition dimension 'dat'; did you mean 'date'?"),
        ({"date": "2025-01-01"}, "has no key '2025-01-01'; it goes from 2024-01-03 to 2024-01-09"),
        ({"date": "soon"}, "partition dimension 'date' has no key 'soon'"),
        ({"date": "2024-01-05..2024-01-03"}, "runs backwards; swap its ends"),
        ({"date": "2024-01-05..soon"}, "has no key 'soon'"),
        ({"date": 1.5}, "the float 1.5 cannot identify a partition"),
        ({"date": [None, object()]}, "partition dimension 'date' has no key"),
        ({"date": datetime(2024, 1, 5)}, "has no time zone"),
        ({"region": "ue"}, "has no key 'ue'"),
        ({"region": "uss"}, "did you mean 'us'?"),
    ],
)
def test_a_wrong_choice_gets_a_sentence(choice: dict[str, Any], sentence: str) -> None:
    keys = keys_of(
        DailyPartition("date", start="2024-01-03"), StaticPartition("region", ["eu", "us"])
    )
    with pytest.raises(Invalid) as refused:
        keys.where(**choice)
    assert sentence in str(refused.value)


def test_an_open_range_of_no_windows_is_empty() -> None:
    keys = keys_of(DailyPartition("date", start="2030-01-01"))
    assert list(keys.where(date="..")) == []
    with pytest.raises(Invalid, match="no window of it has ended yet"):
        keys.where(date="2030-01-01..")


def test_an_end_offset_beyond_the_calendar_gets_a_sentence() -> None:
    dimension = DailyPartition("date", start="2024-01-01", end_offset=10**9)
    with pytest.raises(Invalid, match="end_offset 1000000000 reaches beyond the year 9998"):
        keys_of(dimension)


def test_windows_go_on_to_the_ends_of_the_calendar() -> None:
    axis = time_axis(MonthlyPartition("m", start="0003-01-01", timezone="America/New_York"))
    assert axis.value(0) == date(3, 1, 1)
    assert axis.find(spell_scalar(date(1000, 5, 1))) == 997 * 12 + 4
    late = time_axis(MonthlyPartition("m", start="9997-01-01"), datetime(9999, 12, 31, tzinfo=UTC))
    assert late.value(late.count - 1) == date(9998, 11, 1)
    assert late.find("d:9998-12-01") is None
    assert late.find("d:9999-12-31") is None


def test_a_window_needs_exactly_one_time_dimension() -> None:
    keys = keys_of(StaticPartition("s", ["a"]))
    with pytest.raises(Invalid, match="a time window needs one time dimension; s=s:a has 0"):
        keys.window(keys[0])


def test_a_range_of_times_is_cut_to_the_windows_there_are() -> None:
    keys = keys_of(DailyPartition("date", start="2024-01-03"))
    assert keys.where(date="2023-06-01..2024-01-04") == keys.where(date="..2024-01-04")
    assert len(keys.where(date="2024-01-08..2099-01-01")) == 2


def test_the_ends_of_a_range_need_not_be_keys() -> None:
    weeks = keys_of(WeeklyPartition("week", start="2023-01-02"))
    chosen = weeks.where(week="2023-11-01..2023-11-20T12:00")
    assert [str(key) for key in chosen] == [
        "week=d:2023-11-06",
        "week=d:2023-11-13",
        "week=d:2023-11-20",
    ]


def test_a_range_outside_of_all_windows_is_refused_with_what_there_is() -> None:
    keys = keys_of(DailyPartition("date", start="2024-01-03"))
    with pytest.raises(Invalid, match="holds no key; there are 2024-01-03 to 2024-01-09"):
        keys.where(date="2021-01-01..2022-01-01")


def test_the_ends_of_a_range_of_listed_values_must_be_among_them() -> None:
    keys = keys_of(StaticPartition("region", ["eu", "us"]))
    with pytest.raises(Invalid, match="has no key 'mars'"):
        keys.where(region="eu..mars")


HOURS_IN_LONDON = HourlyPartition("hour", start="2024-01-01", timezone="Europe/London")


@pytest.mark.parametrize(
    ("text", "count"),
    [("2024-03-31", 23), ("2024-10-27", 25), ("2024-03-30", 24), ("2024-02", 696)],
)
def test_a_day_or_a_month_stands_for_the_hours_that_start_in_it(text: str, count: int) -> None:
    keys = Partitioning((HOURS_IN_LONDON,)).keys(datetime(2025, 1, 1, tzinfo=UTC))
    assert len(keys.where(hour=text)) == count


def test_a_range_of_days_takes_the_hours_of_its_last_day() -> None:
    keys = Partitioning((HOURS_IN_LONDON,)).keys(datetime(2025, 1, 1, tzinfo=UTC))
    assert len(keys.where(hour="2024-10-26..2024-10-27")) == 49


def test_a_year_stands_for_its_days() -> None:
    keys = keys_of(DailyPartition("date", start="2022-12-30"))
    assert len(keys.where(date="2023")) == 365


def test_a_time_that_the_clock_skipped_is_not_the_hour_after_it() -> None:
    keys = Partitioning((HOURS_IN_LONDON,)).keys(datetime(2025, 1, 1, tzinfo=UTC))
    with pytest.raises(Invalid, match="holds no key"):
        keys.where(hour="2024-03-31T01:00..2024-03-31T01:00")
    with pytest.raises(Invalid, match="no window starts then; the nearest"):
        keys.where(hour="2024-03-31T01:00")


def test_a_day_within_a_week_is_no_key_and_the_nearest_are_told() -> None:
    keys = keys_of(WeeklyPartition("week", start="2023-01-02"))
    with pytest.raises(
        Invalid, match="no window starts then; the nearest: 2023-03-27 and 2023-04-03"
    ):
        keys.where(week="2023-03-29")


def test_what_is_no_time_is_told_how_to_write_one() -> None:
    keys = keys_of(DailyPartition("date", start="2023-01-02"))
    for text in ("31/03/2023", "2023-13-01", "2023-02-30", "soon"):
        with pytest.raises(Invalid, match=f"'{text}'; write a time like 2023-01-02"):
            keys.where(date=text)


def test_a_set_too_large_for_len_knows_its_size() -> None:
    many = keys_of(*(StaticPartition(f"d{i}", range(1000)) for i in range(7)))
    assert many.size == 10**21
    assert many
    assert str(many[10**20]).startswith("d0=i:100,")


def test_a_grain_and_a_cron_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(Invalid, match="does not make windows of a day"):
        TimeDimension(name="d", grain="day", cron="0 * * * *", start="2024-01-01")
