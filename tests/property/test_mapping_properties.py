"""Both directions of a mapping say the same: a downstream key needs an upstream key exactly if the
upstream key touches it.

This holds at the ends too. A stretch of windows that reaches beyond the last downstream window is
cut there in both directions (windows yet to come are not waited for), and one that reaches before
the first goes on (servo.core.mappings._Windows), so the law below has no exception.
"""

from datetime import UTC, datetime, timedelta

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from servo.core.axes import TimeAxis
from servo.core.dimensions import Dimension, StaticDimension, TimeDimension
from servo.core.keys import PartitionKey, Scalar
from servo.core.keysets import PartitionSet
from servo.core.mappings import (
    AllPartitions,
    Connection,
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
from servo.core.zones import seconds
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

ZONES = ["UTC", "America/New_York", "Europe/London", "Australia/Lord_Howe", "Asia/Kathmandu"]
# Shortly before clocks change in the first three, and in the fourth.
STARTS = [datetime(2024, 3, 8), datetime(2024, 3, 29), datetime(2024, 10, 25), datetime(2024, 4, 5)]
DYNAMIC: dict[str, list[Scalar]] = {"k": ["k1", "k2", "k3"], "tenant": ["acme", "bolt"]}


@st.composite
def time_dimension(draw: st.DrawFn, name: str, begin: datetime) -> TimeDimension:
    start = begin + timedelta(hours=draw(st.integers(-60, 60)))
    tz = draw(st.sampled_from(ZONES))
    offset = draw(st.sampled_from([0, 0, 0, 1, -1]))
    end = draw(st.sampled_from([None, None, begin + timedelta(days=5)]))
    exclude = draw(st.sampled_from([(), (), (), ("0 0 * * 6-7",), ("0 5-20 * * *",)]))
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return HourlyPartition(
            name, start=start, end=end, timezone=tz, end_offset=offset, exclude=exclude
        )
    if kind == 1:
        return DailyPartition(
            name, start=start, end=end, timezone=tz, end_offset=offset, exclude=exclude
        )
    if kind == 2:
        return WeeklyPartition(name, start=start, timezone=tz, end_offset=offset)
    if kind == 3:
        return MonthlyPartition(name, start=start - timedelta(days=60), timezone=tz)
    cron = draw(st.sampled_from(["0 */6 * * *", "30 1,2 * * *", "15 * * * 1-5"]))
    return TimePartition(name, cron=cron, start=start, timezone=tz, end_offset=offset)


def other_dimension(name: str) -> st.SearchStrategy[Dimension]:
    if name == "k":
        return st.just(DynamicPartition(name))
    if name == "tenant":
        return st.just(TenantPartition(name))
    values: list[Scalar] = ["a", "b", "c", 1, 2]
    lists = st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)
    return lists.map(lambda values: StaticPartition(name, values))


@st.composite
def partitioning(draw: st.DrawFn, begin: datetime) -> Partitioning:
    names = st.lists(st.sampled_from(["k", "s", "r", "tenant"]), unique=True, max_size=2)
    dimensions = [draw(other_dimension(name)) for name in draw(names)]
    if not dimensions or draw(st.booleans()):
        name = draw(st.sampled_from(["date", "time"]))
        dimensions.append(draw(time_dimension(name, begin)))
    return Partitioning(tuple(dimensions))


@st.composite
def one_dimension(draw: st.DrawFn, up: Dimension, down: Dimension | None) -> OneDimension:
    kinds: list[OneDimension] = [AllPartitions(), LatestPartition(), Identity()]
    if isinstance(up, TimeDimension) and isinstance(down, TimeDimension):
        first = draw(st.integers(-4, 4))
        kinds += [TimeWindow(first, first + draw(st.integers(0, 4)))] * 3
    if isinstance(up, StaticDimension):
        some = draw(st.sets(st.sampled_from(up.values), min_size=1))
        kinds.append(SpecificPartitions(tuple(sorted(some))))
        if isinstance(down, StaticDimension):
            pair = st.tuples(st.sampled_from(up.values), st.sampled_from(down.values))
            kinds.append(StaticMap(tuple(sorted(draw(st.sets(pair, max_size=4))))))
    return draw(st.sampled_from(kinds))


@st.composite
def mappings(draw: st.DrawFn, up: Partitioning, down: Partitioning) -> PartitionMapping | None:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return None
    if kind == 1:
        first = draw(st.integers(-4, 4))
        simple: list[OneDimension] = [Identity(), AllPartitions(), LatestPartition()]
        return draw(st.sampled_from([*simple, TimeWindow(first, first + 2)]))
    follow = {}
    for dimension in up.dimensions:
        if draw(st.booleans()):
            target = draw(st.sampled_from(down.dimensions))
            follow[dimension.name] = Follow(target.name, draw(one_dimension(dimension, target)))
    return Dimensions(follow)


@st.composite
def connections(draw: st.DrawFn) -> tuple[Connection, PartitionSet, PartitionSet]:
    begin = draw(st.sampled_from(STARTS))
    up, down = draw(partitioning(begin)), draw(partitioning(begin))
    now = begin.replace(tzinfo=UTC) + timedelta(hours=draw(st.integers(-70, 70)))
    mapping = draw(mappings(up, down))
    ups, downs = up.keys(now, DYNAMIC), down.keys(now, DYNAMIC)
    try:
        return connect(mapping, ups, downs, up, down), ups, downs
    except Invalid as why:
        assert up.describe() in str(why)
        assert down.describe() in str(why)
        assume(False)
        raise


@settings(max_examples=300)
@given(connections(), st.data())
def test_what_is_needed_is_what_touches(
    connection: tuple[Connection, PartitionSet, PartitionSet], data: st.DataObject
) -> None:
    link, ups, downs = connection
    # All pairs of a few keys from each side, with those at the ends.
    some_ups = sample(ups, data)
    some_downs = sample(downs, data)
    needs = {d: link.upstream(d).keys for d in some_downs}
    for u in some_ups:
        touched = link.downstream(u)
        assert touched is not None
        for d, needed in needs.items():
            assert needed is not None
            assert (u in needed) == (d in touched), (u, d)


def sample(keys: PartitionSet, data: st.DataObject) -> list[PartitionKey]:
    if len(keys) <= 40:
        return list(keys)
    middle = data.draw(st.lists(st.integers(0, len(keys) - 1), max_size=20))
    return [keys[i] for i in {0, 1, len(keys) - 2, len(keys) - 1, *middle}]


@given(connections())
def test_what_is_needed_and_absent_does_not_exist(
    connection: tuple[Connection, PartitionSet, PartitionSet],
) -> None:
    link, ups, downs = connection
    for d in downs[:20]:
        needs = link.upstream(d)
        assert needs.keys is not None
        assert all(key in ups for key in needs.keys[:20])
        for key in needs.absent:
            assert key not in ups
            assert set(key) == set(ups.names)


@given(partitioning(STARTS[0]), st.integers(0, 80))
def test_a_partitioning_maps_to_itself_key_by_key(both: Partitioning, hours: int) -> None:
    keys = both.keys(STARTS[0].replace(tzinfo=UTC) + timedelta(hours=hours), DYNAMIC)
    for mapping in (None, Identity()):
        link = connect(mapping, keys, keys, both, both)
        assert link.same_keys
        for key in keys[:30]:
            assert link.upstream(key).keys == keys.between(key, key)
            assert link.downstream(key) == keys.between(key, key)


GRAINS = {
    "hour": HourlyPartition,
    "day": DailyPartition,
    "week": WeeklyPartition,
    "month": MonthlyPartition,
}


@settings(max_examples=40)
@given(
    st.sampled_from([("hour", "day"), ("day", "week"), ("hour", "week"), ("hour", "month")]),
    st.sampled_from(ZONES),
    st.sampled_from(STARTS),
)
def test_a_roll_up_covers_every_upstream_window_exactly_once(
    grains: tuple[str, str], tz: str, begin: datetime
) -> None:
    small, large = grains
    start = datetime(begin.year, begin.month, 1)
    up = Partitioning((GRAINS[small]("fine", start=start, timezone=tz),))
    down = Partitioning((GRAINS[large]("coarse", start=start, timezone=tz),))
    now = begin.replace(tzinfo=UTC) + timedelta(days=40)
    ups, downs = up.keys(now), down.keys(now)
    link = connect(None, ups, downs, up, down)
    covered: list[PartitionKey] = []
    for d in downs:
        needs = link.upstream(d)
        assert needs.keys is not None
        assert not needs.absent
        covered += needs.keys
        # The parts make up the whole.
        assert ups.window(needs.keys[0]).start == downs.window(d).start
        assert ups.window(needs.keys[-1]).end == downs.window(d).end
    axis = downs.axes[0]
    assert isinstance(axis, TimeAxis)
    inside = [
        u for u in ups if axis.start(0) <= seconds(ups.window(u).start) < axis.end(axis.count - 1)
    ]
    assert covered == inside


@given(st.sampled_from(ZONES), st.sampled_from(STARTS))
def test_a_fan_out_needs_the_one_window_that_holds_it(tz: str, begin: datetime) -> None:
    start = datetime(begin.year, begin.month, 1)
    up = Partitioning((MonthlyPartition("month", start=start, timezone=tz),))
    down = Partitioning((DailyPartition("day", start=start, timezone=tz),))
    now = begin.replace(tzinfo=UTC) + timedelta(days=70)
    ups, downs = up.keys(now), down.keys(now)
    link = connect(None, ups, downs, up, down)
    for d in downs:
        needs = link.upstream(d)
        assert needs.keys is not None
        day = d["day"]
        expected = [u for u in ups if str(u["month"])[:7] == str(day)[:7]]
        assert list(needs.keys) == expected
        # The month that is not over is needed, and does not exist yet.
        assert len(needs.absent) == 1 - len(expected)
