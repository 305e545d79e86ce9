"""Which upstream partitions a downstream partition needs: by name, by kind, and by what users say.

Expected keys are written as labels. That both directions agree is held by
tests/property/test_mapping_properties.py for all kinds of mappings.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
import pytest

from servo.core.dimensions import Dimension
from servo.core.keys import PartitionKey, Scalar
from servo.core.keysets import PartitionSet
from servo.core.mappings import (
    ABSENT_LIMIT,
    AllPartitions,
    Connection,
    Dimensions,
    Follow,
    Identity,
    LatestPartition,
    PartitionMapping,
    TimeWindow,
    check_mapping,
    connect,
)
from servo.core.partitions import Partitioning
from servo.errors import Invalid
from servo.sdk.mappings import LastN, SpecificPartitions, StaticMap
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

NOW = datetime(2024, 2, 10, tzinfo=UTC)
DYNAMIC: dict[str, list[Scalar]] = {"tenant": ["acme", "bolt"], "customer": ["acme"], "k": ["k1"]}

DAILY = DailyPartition("date", start="2024-01-01")
REGION = StaticPartition("region", ["eu", "us"])


class Linked:
    """A connection whose questions and answers are labels."""

    def __init__(
        self,
        up: Iterable[Dimension],
        down: Iterable[Dimension],
        mapping: PartitionMapping | None = None,
        now: datetime = NOW,
    ) -> None:
        upstream, downstream = Partitioning(tuple(up)), Partitioning(tuple(down))
        self.ups, self.downs = upstream.keys(now, DYNAMIC), downstream.keys(now, DYNAMIC)
        self.link: Connection = connect(mapping, self.ups, self.downs, upstream, downstream)

    def needs(self, **labels: str) -> list[str]:
        found = self.link.upstream(only(self.downs, labels)).keys
        assert found is not None
        return [shown(self.ups, key) for key in found]

    def lacks(self, **labels: str) -> list[str]:
        return [str(key) for key in self.link.upstream(only(self.downs, labels)).absent]

    def touches(self, **labels: str) -> list[str]:
        found = self.link.downstream(only(self.ups, labels))
        assert found is not None
        return [shown(self.downs, key) for key in found]


def only(keys: PartitionSet, labels: dict[str, str]) -> PartitionKey:
    (key,) = keys.where(**labels)
    return key


def shown(keys: PartitionSet, key: PartitionKey) -> str:
    return ",".join(part.partition("=")[2] for part in keys.label(key).split(", "))


# ---------------------------------------------------------------- without a mapping


def test_dimensions_of_one_name_are_linked_by_value() -> None:
    link = Linked([DAILY, REGION], [DAILY, REGION])
    assert link.needs(date="2024-01-05", region="eu") == ["2024-01-05,eu"]
    assert link.touches(date="2024-01-05", region="eu") == ["2024-01-05,eu"]
    assert link.link.same_keys


def test_the_only_time_dimensions_are_linked_whatever_their_names() -> None:
    link = Linked([DailyPartition("day", start="2024-01-01"), REGION], [REGION, DAILY])
    assert link.needs(date="2024-01-05", region="eu") == ["2024-01-05,eu"]
    assert not link.link.same_keys


def test_equal_lists_are_linked_whatever_their_names() -> None:
    link = Linked([StaticPartition("area", ["eu", "us"])], [REGION])
    assert link.needs(region="us") == ["us"]


def test_tenants_are_linked_whatever_their_names() -> None:
    link = Linked([TenantPartition("customer")], [TenantPartition()])
    assert link.needs(tenant="acme") == ["acme"]
    assert link.lacks(tenant="bolt") == ["customer=s:bolt"]
    assert link.touches(customer="acme") == ["acme"]


def test_a_dimension_that_only_upstream_has_is_needed_entirely() -> None:
    link = Linked([DAILY, REGION], [DAILY])
    assert link.needs(date="2024-01-05") == ["2024-01-05,eu", "2024-01-05,us"]
    assert link.touches(date="2024-01-05", region="us") == ["2024-01-05"]


def test_a_dimension_that_only_downstream_has_is_free() -> None:
    link = Linked([DAILY], [DAILY, REGION])
    assert link.needs(date="2024-01-05", region="us") == ["2024-01-05"]
    assert link.touches(date="2024-01-05") == ["2024-01-05,eu", "2024-01-05,us"]


def test_an_unpartitioned_asset_needs_everything() -> None:
    both = Partitioning((DAILY, REGION))
    keys = both.keys(NOW)
    link = connect(None, keys, None, both, None)
    assert link.upstream(None).keys == keys
    assert link.downstream(keys[0]) is None


def test_an_unpartitioned_upstream_touches_everything() -> None:
    both = Partitioning((DAILY, REGION))
    keys = both.keys(NOW)
    link = connect(None, None, keys, None, both)
    assert link.upstream(keys[3]).keys is None
    assert link.downstream(None) == keys


# ---------------------------------------------------------------- roll-ups


def test_a_week_needs_its_days() -> None:
    link = Linked([DAILY], [WeeklyPartition("week", start="2024-01-01")])
    days = [f"2024-01-{day:02}" for day in range(8, 15)]
    assert link.needs(week="2024-01-08") == days
    assert link.touches(date="2024-01-14") == ["2024-01-08"]


def test_a_month_needs_the_weeks_that_overlap_it() -> None:
    weeks = WeeklyPartition("week", start="2023-12-01")
    link = Linked([weeks], [MonthlyPartition("month", start="2024-01-01")])
    expected = ["2024-01-01", "2024-01-08", "2024-01-15", "2024-01-22", "2024-01-29"]
    assert link.needs(month="2024-01-01") == expected
    # The week of 29 January belongs to February as well, whose window has not ended.
    assert link.touches(week="2024-01-29") == ["2024-01-01"]


def test_a_day_needs_its_month_and_says_that_it_is_not_there_yet() -> None:
    link = Linked([MonthlyPartition("month", start="2024-01-01")], [DAILY])
    assert link.needs(date="2024-01-31") == ["2024-01-01"]
    assert link.needs(date="2024-02-01") == []
    assert link.lacks(date="2024-02-01") == ["month=d:2024-02-01"]
    assert len(link.touches(month="2024-01-01")) == 31


def test_a_day_before_the_first_week_lacks_the_week_it_lies_in() -> None:
    link = Linked([WeeklyPartition("week", start="2024-01-08")], [DAILY])
    assert link.needs(date="2024-01-05") == []
    assert link.lacks(date="2024-01-05") == ["week=d:2024-01-01"]


@pytest.mark.parametrize(
    ("tz", "day", "hours"),
    [
        ("America/New_York", "2024-03-10", 23),
        ("America/New_York", "2024-11-03", 25),
        ("Europe/London", "2024-03-31", 23),
        ("Europe/London", "2024-10-27", 25),
        # Half an hour more or less: an hour that begins at 02:00 is skipped, none is added.
        ("Australia/Lord_Howe", "2024-10-06", 23),
        ("Australia/Lord_Howe", "2024-04-07", 24),
        ("Asia/Kathmandu", "2024-03-10", 24),
    ],
)
def test_a_day_needs_as_many_hours_as_it_has(tz: str, day: str, hours: int) -> None:
    link = Linked(
        [HourlyPartition("hour", start="2024-01-01", timezone=tz)],
        [DailyPartition("date", start="2024-01-01", timezone=tz)],
        now=datetime(2025, 1, 1, tzinfo=UTC),
    )
    needed = link.needs(date=day)
    assert len(needed) == hours
    assert needed[0] == f"{day}T00:00"
    assert needed[-1] == f"{day}T23:00"


def test_days_of_different_zones_overlap_two_by_two() -> None:
    tokyo = DailyPartition("date", start="2024-01-01", timezone="Asia/Tokyo")
    link = Linked([tokyo], [DAILY])
    assert link.needs(date="2024-01-05") == ["2024-01-05", "2024-01-06"]
    assert link.touches(date="2024-01-05") == ["2024-01-04", "2024-01-05"]


# ---------------------------------------------------------------- mappings that users name


def test_all_partitions() -> None:
    link = Linked([REGION], [DAILY], AllPartitions())
    assert link.needs(date="2024-01-05") == ["eu", "us"]
    assert len(link.touches(region="eu")) == 40


def test_the_latest_partition() -> None:
    link = Linked([DAILY], [REGION], LatestPartition())
    assert link.needs(region="eu") == ["2024-02-09"]
    assert link.touches(date="2024-02-09") == ["eu", "us"]
    assert link.touches(date="2024-02-08") == []


def test_the_latest_window_with_the_same_region() -> None:
    link = Linked([DAILY, REGION], [REGION], LatestPartition())
    assert link.needs(region="eu") == ["2024-02-09,eu"]


def test_the_latest_of_nothing_is_nothing() -> None:
    link = Linked([DailyPartition("date", start="2025-01-01")], [REGION], LatestPartition())
    assert link.needs(region="eu") == []


def test_the_last_three_days() -> None:
    link = Linked([DAILY], [DAILY], LastN(3))
    assert link.needs(date="2024-01-05") == ["2024-01-03", "2024-01-04", "2024-01-05"]
    assert link.needs(date="2024-01-02") == ["2024-01-01", "2024-01-02"]
    assert link.lacks(date="2024-01-02") == []
    assert link.touches(date="2024-01-05") == ["2024-01-05", "2024-01-06", "2024-01-07"]
    assert link.touches(date="2024-02-09") == ["2024-02-09"]


def test_the_day_before() -> None:
    link = Linked([DAILY], [DAILY], TimeWindow(-1, -1))
    assert link.needs(date="2024-01-05") == ["2024-01-04"]
    assert link.needs(date="2024-01-01") == []
    assert link.touches(date="2024-02-09") == []


def test_history_before_the_first_downstream_window_is_read_if_it_is_there() -> None:
    link = Linked([DAILY], [DailyPartition("date", start="2024-01-05")], TimeWindow(-2, 0))
    assert link.needs(date="2024-01-05") == ["2024-01-03", "2024-01-04", "2024-01-05"]
    assert link.touches(date="2024-01-03") == ["2024-01-05"]
    assert link.touches(date="2024-01-02") == []


def test_windows_yet_to_come_are_not_waited_for() -> None:
    link = Linked([DAILY], [DAILY], TimeWindow(0, 1))
    assert link.needs(date="2024-02-08") == ["2024-02-08", "2024-02-09"]
    assert link.needs(date="2024-02-09") == ["2024-02-09"]
    assert link.lacks(date="2024-02-09") == []
    ahead = Linked([DAILY], [DAILY], TimeWindow(1, 2))
    assert ahead.needs(date="2024-02-09") == []
    assert ahead.touches(date="2024-02-09") == ["2024-02-07", "2024-02-08"]


def test_what_downstream_excludes_is_read_by_the_windows_around_it() -> None:
    workdays = DailyPartition("date", start="2024-01-01", exclude=["0 0 * * 6-7"])
    link = Linked([DAILY], [workdays], TimeWindow(-1, 0))
    # Monday reads Friday to Monday.
    expected = ["2024-01-05", "2024-01-06", "2024-01-07", "2024-01-08"]
    assert link.needs(date="2024-01-08") == expected
    assert link.touches(date="2024-01-06") == ["2024-01-08"]


def test_offsets_far_before_the_calendar_are_cut() -> None:
    link = Linked([DAILY], [MonthlyPartition("month", start="2024-01-01")], TimeWindow(-(10**6), 0))
    assert len(link.needs(month="2024-01-01")) == 31


def test_a_static_map() -> None:
    up = StaticPartition("shop", ["p", "q1", "q2", "r"])
    down = StaticPartition("group", ["p1", "p2", "q"])
    link = Linked([up], [down], StaticMap({"p": ["p1", "p2"], "q1": "q", "q2": "q"}))
    assert link.needs(group="q") == ["q1", "q2"]
    assert link.touches(shop="p") == ["p1", "p2"]
    assert link.touches(shop="r") == []


def test_a_static_map_may_name_dynamic_keys_that_are_not_there() -> None:
    link = Linked([DynamicPartition("k")], [REGION], StaticMap({"k1": "eu", "gone": "us"}))
    assert link.needs(region="eu") == ["k1"]
    assert link.needs(region="us") == []


def test_specific_partitions() -> None:
    link = Linked([REGION], [DAILY], SpecificPartitions("us", "mars"))
    assert link.needs(date="2024-01-05") == ["us"]
    assert link.lacks(date="2024-01-05") == ["region=s:mars"]
    assert link.touches(region="eu") == []


def test_dimensions_are_mapped_one_by_one() -> None:
    link = Linked(
        [DailyPartition("day", start="2024-01-01"), StaticPartition("r", ["eu", "us"])],
        [DAILY, StaticPartition("region", ["eu", "mars"])],
        Dimensions({"day": Follow("date", TimeWindow(-1, 0)), "r": Follow("region")}),
    )
    assert link.needs(date="2024-01-05", region="eu") == ["2024-01-04,eu", "2024-01-05,eu"]
    assert link.lacks(date="2024-01-05", region="mars") == [
        "day=d:2024-01-04,r=s:mars",
        "day=d:2024-01-05,r=s:mars",
    ]


def test_a_dimension_that_is_not_named_is_needed_entirely() -> None:
    link = Linked([DAILY, REGION], [DAILY, REGION], Dimensions({"date": Follow()}))
    assert link.needs(date="2024-01-05", region="eu") == ["2024-01-05,eu", "2024-01-05,us"]


def test_what_is_absent_is_named_up_to_a_limit() -> None:
    seconds = TimePartition("second", cron="* * * * * *", start="2025-01-01")
    link = Linked([seconds], [DAILY])
    assert len(link.lacks(date="2024-01-05")) == ABSENT_LIMIT


def test_a_mapping_survives_json() -> None:
    mapping = Dimensions(
        {"date": Follow("day", TimeWindow(-1, 0)), "r": Follow(None, StaticMap({"a": ["b", 1]}))}
    )
    assert msgspec.json.decode(msgspec.json.encode(mapping), type=Dimensions) == mapping


# ---------------------------------------------------------------- what cannot be mapped


@pytest.mark.parametrize(
    ("up", "down", "mapping", "why"),
    [
        ([REGION], [DAILY], None, "they have no dimension in common; say which partitions are meant"),
        ([DynamicPartition("k")], [DynamicPartition("l")], None, "they have no dimension in common"),
        ([DAILY, REGION], [DAILY], Identity(), "some upstream dimensions have no counterpart"),
        ([DAILY], [DailyPartition("a", start="2024-01-01"), DailyPartition("b", start="2024-01-01")],
         None, "upstream dimension 'date' could follow a or b; say which with Dimensions"),
        ([REGION], [StaticPartition("x", ["eu", "us"]), StaticPartition("y", ["eu", "us"])],
         None, "upstream dimension 'region' could follow x or y"),
        ([REGION], [REGION], TimeWindow(), "TimeWindow needs a time dimension on both sides"),
        ([DAILY], [REGION], TimeWindow(), "TimeWindow finds no downstream dimension to follow"),
        ([DAILY, DailyPartition("e", start="2024-01-01")], [DAILY], TimeWindow(),
         "TimeWindow is for one dimension, and it is not clear which"),
        ([DAILY, REGION], [DAILY], SpecificPartitions("eu"), "SpecificPartitions is for one dimension"),
        ([REGION], [StaticPartition("r", ["x"])], StaticMap({"mars": "x"}),
         "the static map names 's:mars', which is no upstream key"),
        ([REGION], [StaticPartition("r", ["x"])], StaticMap({"eu": "y"}),
         "the static map names 's:y', which is no downstream key"),
        ([DAILY], [DAILY], Dimensions({"day": Follow()}), "names 'day', which is no upstream dimension"),
        ([DAILY], [DAILY], Dimensions({"date": Follow("day")}), "follows 'day', which is no downstream"),
        ([DAILY], [REGION], Dimensions({"date": Follow()}), "Identity needs a downstream dimension"),
        ([DAILY], [REGION], Dimensions({"date": Follow("region", TimeWindow())}),
         "TimeWindow needs a time dimension on both sides"),
    ],
)  # fmt: skip
def test_what_cannot_be_mapped_is_refused_naming_both(
    up: list[Dimension], down: list[Dimension], mapping: PartitionMapping | None, why: str
) -> None:
    upstream, downstream = Partitioning(tuple(up)), Partitioning(tuple(down))
    with pytest.raises(Invalid) as refused:
        check_mapping(mapping, upstream, downstream)
    sentence = str(refused.value)
    assert f"[{upstream.describe()}] cannot be mapped to [{downstream.describe()}]" in sentence
    assert why in sentence
    with pytest.raises(Invalid) as again:
        Linked(up, down, mapping)
    assert str(again.value) == sentence


@pytest.mark.parametrize("mapping", [Identity(), TimeWindow(), StaticMap({"eu": "us"})])
def test_following_needs_a_partitioned_downstream(mapping: PartitionMapping) -> None:
    with pytest.raises(
        Invalid, match=r"\[region \(eu, us\)\] cannot be mapped to \[no partitions\]"
    ):
        check_mapping(mapping, Partitioning((REGION,)), None)


@pytest.mark.parametrize("wrong", [0, -1, True, "3", 1.5])
def test_last_n_counts_windows(wrong: int) -> None:
    with pytest.raises(Invalid, match="give how many windows, at least 1"):
        LastN(wrong)


def test_a_time_window_ends_after_it_starts() -> None:
    with pytest.raises(Invalid, match="ends before it starts; swap the offsets"):
        TimeWindow(1, 0)
    with pytest.raises(Invalid, match="the offset 'x' is not a number of windows"):
        TimeWindow("x", 0)  # type: ignore[arg-type]  # wrong on purpose


def test_a_static_map_is_made_from_a_dict() -> None:
    with pytest.raises(Invalid, match="give a dict from upstream to downstream values"):
        StaticMap(["eu"])  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(Invalid, match=r"the float 1\.5 cannot identify a partition"):
        StaticMap({"eu": [1.5]})  # type: ignore[list-item]  # wrong on purpose


@pytest.mark.parametrize("key", [None, PartitionKey(day=1), PartitionKey(date="2024-01-05")])
def test_a_key_that_does_not_exist_is_named(key: PartitionKey | None) -> None:
    link = Linked([DAILY], [DAILY]).link
    with pytest.raises(Invalid, match=r"no downstream partition|does not exist"):
        link.upstream(key)
    with pytest.raises(Invalid, match=r"no upstream partition|does not exist"):
        link.downstream(key)
