"""Sets of partitions that are never enumerated behave like the lists they stand for.

The model is the plain list of keys in order: the product of the values of each axis. Small random
partitionings make it affordable.
"""

import itertools
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from servo.core.axes import Holes, TimeAxis, bind
from servo.core.dimensions import Dimension, TimeDimension
from servo.core.keys import PartitionKey, Scalar, spell_scalar
from servo.core.keysets import PartitionSet, Picks
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
# Days around which clocks change in one of these zones.
DAYS = [
    date(2024, 3, 9), date(2024, 11, 2), date(2024, 3, 30), date(2024, 10, 26), date(2024, 4, 6),
    date(2024, 10, 5), date(1985, 12, 31), date(2023, 12, 31),
]  # fmt: skip
FORMATS = ["%Y-%m-%dT%H:%M", "%Y-%m-%d-%H:%M", "%Y%m%d%H%M", "%d.%m.%Y %H:%M"]
MAKERS = [HourlyPartition, DailyPartition, WeeklyPartition, MonthlyPartition]


@st.composite
def time_dimensions(draw: st.DrawFn, name: str = "t", exclude: bool = True) -> TimeDimension:
    try:
        return _time_dimension(draw, name, exclude)
    except Invalid as why:
        assert "exclude leaves no window at all" in str(why)
        assume(False)
        raise


def _time_dimension(draw: st.DrawFn, name: str, exclude: bool) -> TimeDimension:
    day = draw(st.sampled_from(DAYS))
    kind = draw(st.sampled_from(["hour", "day", "week", "month", "cron"]))
    options: dict[str, object] = {
        "start": day.isoformat() + draw(st.sampled_from(["", "T00:30", "T02:00"])),
        "timezone": draw(st.sampled_from(ZONES)),
        "end_offset": draw(st.integers(-2, 2)),
    }
    if draw(st.booleans()):
        options["end"] = (day + timedelta(days=draw(st.integers(-1, 40)))).isoformat()
    if exclude and draw(st.booleans()):
        crons = ["0 * * * 0", "0 0-5 * * *", "0 0 * * 6-7", "30 2 * * *", "0 1 * * *", "0 0 1 * *"]
        times = [f"{day}T01:00", f"{day}", f"{day + timedelta(days=1)}T01:00"]
        options["exclude"] = draw(st.lists(st.sampled_from(crons + times), max_size=3))
    if kind in ("hour", "cron"):
        options["format"] = draw(st.sampled_from(FORMATS))
    if kind == "hour":
        options["minute"] = draw(st.sampled_from([0, 0, 30]))
        return HourlyPartition(name, **options)  # type: ignore[arg-type]  # made above
    if kind == "cron":
        expressions = ["0 */6 * * *", "30 1,2 * * *", "*/30 * * * *", "0 2 * * MON-FRI"]
        options["cron"] = draw(st.sampled_from(expressions))
        return TimePartition(name, **options)  # type: ignore[arg-type]  # made above
    if kind == "day":
        options["hour"], options["minute"] = draw(st.sampled_from([(0, 0), (2, 30), (23, 45)]))
        return DailyPartition(name, **options)  # type: ignore[arg-type]  # made above
    if kind == "week":
        options["weekday"] = draw(st.sampled_from(["monday", "sunday", "thursday"]))
        options["format"] = draw(st.sampled_from(["%Y-%m-%d", "%G-W%V", "%Y-%m-%d (W%V)"]))
        return WeeklyPartition(name, **options)  # type: ignore[arg-type]  # made above
    options["day"] = draw(st.sampled_from([1, 15, 31]))
    options["format"] = draw(st.sampled_from(["%Y-%m-%d", "%Y-%m", "%b %Y"]))
    return MonthlyPartition(name, **options)  # type: ignore[arg-type]  # made above


VALUES = st.one_of(
    st.sampled_from(["eu", "us", "a..b", "", "i:3", "s:eu", "3", "2024-01-01", "é,=|%", "n:null"]),
    st.integers(-3, 5),
    st.booleans(),
    st.none(),
    st.dates(),
)


def static_dimensions(name: str) -> st.SearchStrategy[Dimension]:
    lists = st.lists(VALUES, min_size=1, max_size=4, unique_by=spell_scalar)
    return lists.map(lambda values: StaticPartition(name, values))


def now_of(days: int) -> datetime:
    return datetime(2024, 3, 9, 12, tzinfo=UTC) + timedelta(days=days)


@st.composite
def sets(draw: st.DrawFn) -> PartitionSet:
    dimensions: list[Dimension] = []
    if draw(st.booleans()):
        dimensions.append(draw(time_dimensions()))
    kinds = {"a": "static", "u": "static", "v": "dynamic", "w": "tenant"}
    size = 1 if dimensions else 0
    for name in draw(
        st.lists(st.sampled_from(sorted(kinds)), unique=True, min_size=1 - size, max_size=2)
    ):
        if kinds[name] == "static":
            dimensions.append(draw(static_dimensions(name)))
        else:
            dimensions.append(DynamicPartition(name) if name == "v" else TenantPartition(name))
    dynamic = {name: draw(st.sets(VALUES, max_size=3)) for name in ("v", "w")}
    # Few windows: a start soon before now.
    starts = [d.start[:10] for d in dimensions if isinstance(d, TimeDimension)]
    begin = datetime.fromisoformat(starts[0]).replace(tzinfo=UTC) if starts else now_of(0)
    now = begin + timedelta(
        hours=draw(st.integers(-30, 80)), days=draw(st.sampled_from([0, 0, 30]))
    )
    keys = Partitioning(tuple(dimensions)).keys(now, dynamic)
    if len(keys) > 600:
        axis = keys.axes[keys.names.index("t")]
        keys = keys.where(t=f"{axis.label(max(axis.count - 50, 0))}..")
    return keys


def model(keys: PartitionSet) -> list[PartitionKey]:
    """Every key, by the slow and sure way."""
    columns = [
        [axis.value(i) for i in pick] for axis, pick in zip(keys.axes, keys.picks, strict=True)
    ]
    return [
        PartitionKey(dict(zip(keys.names, values, strict=True)))
        for values in itertools.product(*columns)
    ]


@given(sets(), st.data())
def test_a_set_is_the_sequence_of_its_keys(keys: PartitionSet, data: st.DataObject) -> None:
    expected = model(keys)
    assert len(keys) == len(expected)
    assert list(keys) == expected
    assert [keys[i] for i in range(len(keys))] == expected
    assert [keys[i] for i in range(-len(keys), 0)] == expected
    for wrong in (len(keys), -len(keys) - 1):
        with pytest.raises(IndexError):
            keys[wrong]
    ends = st.one_of(st.none(), st.integers(-9, 9))
    step = data.draw(st.sampled_from([None, 1, 2, -1, -3]))
    cut = slice(data.draw(ends), data.draw(ends), step)
    part = keys[cut]
    assert list(part) == expected[cut]
    assert list(part[::-1]) == expected[cut][::-1]
    assert len(part) == len(expected[cut])
    for i, key in enumerate(expected):
        assert key in keys
        assert keys.find(key) == keys.index(key) == i
        assert keys.count(key) == 1
        assert (key in part) == (key in expected[cut])
        if key in part:
            assert part.index(key) == expected[cut].index(key)


@given(sets(), st.data())
def test_missing_is_set_difference_in_order(keys: PartitionSet, data: st.DataObject) -> None:
    expected = model(keys)
    chosen = st.lists(st.sampled_from(expected)) if expected else st.just([])
    strangers = [PartitionKey(zz=1), PartitionKey(dict.fromkeys(keys.names, "no such value"))]
    present = data.draw(chosen) + strangers
    missing = keys.missing(present)
    left = [key for key in expected if key not in set(present)]
    assert list(missing) == left
    assert len(missing) == len(left)
    assert [missing[i] for i in range(len(left))] == left
    for key in expected:
        assert (key in missing) == (key in left)
        assert missing.find(key) == (left.index(key) if key in left else None)
    again = data.draw(chosen)
    assert list(missing.missing(again)) == [key for key in left if key not in set(again)]
    assert list(keys.missing(missing)) == [key for key in expected if key not in set(left)]


@given(sets(), st.data())
def test_choosing_is_filtering(keys: PartitionSet, data: st.DataObject) -> None:
    expected = model(keys)
    holes = data.draw(st.lists(st.sampled_from(expected), max_size=5)) if expected else []
    some = keys.missing(holes)
    name = data.draw(st.sampled_from(keys.names))
    axis = keys.axes[keys.names.index(name)]
    if not axis.count:
        assert list(some.where(**{name: ".."})) == []
        return
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, axis.count - 1)] * 2)))
    order = {spell_scalar(axis.value(i)): i for i in range(axis.count)}

    def within(key: PartitionKey, first: int, last: int) -> bool:
        return first <= order[spell_scalar(key[name])] <= last

    left = [key for key in expected if key not in set(holes)]
    one = [key for key in left if within(key, low, low)]
    value = axis.value(low)
    if not isinstance(value, str):  # a text is read as a label or as a spelled value
        assert list(some.where(**{name: value})) == one
    assert list(some.where(**{name: axis.label(low)})) == one
    assert list(some.where(**{name: spell_scalar(axis.value(low))})) == one
    ends = spell_scalar(axis.value(low)), spell_scalar(axis.value(high))
    ranged = [key for key in left if within(key, low, high)]
    assert list(some.where(**{name: f"{ends[0]}..{ends[1]}"})) == ranged
    assert list(some.where(**{name: f"{ends[0]}.."})) == [
        key for key in left if within(key, low, axis.count - 1)
    ]
    assert list(some.where(**{name: f"..{ends[1]}"})) == [
        key for key in left if within(key, 0, high)
    ]
    both = some.where(**{name: [axis.label(low), axis.label(high)]})
    assert list(both) == [k for k in left if within(k, low, low) or within(k, high, high)]
    assert list(some.where(**{name: ()})) == []
    assert list(some.where()) == left


@given(sets(), st.data())
def test_between_is_a_range_on_every_dimension(keys: PartitionSet, data: st.DataObject) -> None:
    expected = model(keys)
    if not expected:
        return
    first, last = data.draw(st.tuples(st.sampled_from(expected), st.sampled_from(expected)))
    orders = [{spell_scalar(axis.value(i)): i for i in range(axis.count)} for axis in keys.axes]

    def place(key: PartitionKey) -> Sequence[int]:
        return [order[spell_scalar(key[n])] for n, order in zip(keys.names, orders, strict=True)]

    assert list(keys.between(first, last)) == [
        key
        for key in expected
        if all(a <= x <= b for a, x, b in zip(place(first), place(key), place(last), strict=True))
    ]


@given(sets())
def test_latest_is_the_last_window_with_everything_else(keys: PartitionSet) -> None:
    expected = model(keys)
    times = [n for n, a in zip(keys.names, keys.axes, strict=True) if isinstance(a, TimeAxis)]
    last = {name: expected[-1][name] for name in times} if expected else {}
    latest = [key for key in expected if all(key[name] == last[name] for name in times)]
    assert list(keys.latest()) == latest
    assert list(keys.latest(["no such dimension"])) == expected


@given(sets(), sets())
def test_sets_are_equal_if_their_keys_are(one: PartitionSet, other: PartitionSet) -> None:
    assert (one == other) == (model(one) == model(other))
    assert one == one.missing([])
    assert (one == one.missing(one[:1])) == (len(one) == 0)


# ---------------------------------------------------------------- axes


@given(sets())
def test_every_label_and_every_spelled_value_is_found_again(keys: PartitionSet) -> None:
    for axis in keys.axes:
        for i in range(axis.count):
            assert axis.locate(axis.label(i)) == i
            assert axis.locate(spell_scalar(axis.value(i))) == i
            assert axis.find(spell_scalar(axis.value(i))) == i


@given(time_dimensions(exclude=False), st.integers(0, 3000))
def test_windows_are_contiguous(dimension: TimeDimension, hours: int) -> None:
    begin = datetime.fromisoformat(dimension.start).replace(tzinfo=UTC)
    axis = bind(dimension, begin + timedelta(hours=hours), {})
    for i in range(min(axis.count, 300)):
        window = axis.window(i)
        assert window.start < window.end
        assert i + 1 == axis.count or window.end == axis.window(i + 1).start


@given(time_dimensions(), st.integers(0, 400))
def test_a_window_exists_once_it_has_ended(dimension: TimeDimension, hours: int) -> None:
    begin = datetime.fromisoformat(dimension.start).replace(tzinfo=UTC)
    now = begin + timedelta(hours=hours)
    if dimension.end_offset:
        return
    axis = bind(dimension, now, {})
    if axis.count:
        assert axis.window(axis.count - 1).end <= now
    if dimension.end is None:
        assert axis.window(axis.count).end > now


@given(time_dimensions(), st.integers(-100, 400), st.integers(-300, 300), st.integers(1, 300))
def test_overlapping_is_sharing_an_instant(
    dimension: TimeDimension, hours: int, quarters: int, width: int
) -> None:
    begin = datetime.fromisoformat(dimension.start).replace(tzinfo=UTC)
    axis = bind(dimension, begin + timedelta(hours=hours), {})
    start = seconds(begin) + quarters * 900
    end = start + width * 900
    over = axis.overlapping(start, end)
    near = range(over.start - 3, over.stop + 3)
    sharing = [i for i in near if axis.start(i) < end and axis.end(i) > start]
    assert sharing == list(over)


@given(time_dimensions(exclude=False), st.integers(1, 60))
def test_windows_before_the_first_go_on_backwards(dimension: TimeDimension, back: int) -> None:
    axis = bind(dimension, now_of(0), {})
    for i in range(-back, 0):
        assert axis.end(i) == axis.start(i + 1)
        assert axis.start(i) < axis.start(i + 1)


@settings(max_examples=30)
@given(time_dimensions(), st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)))
def test_any_time_is_a_key_or_is_not(dimension: TimeDimension, when: datetime) -> None:
    axis = bind(dimension, now_of(400), {})
    values: list[Scalar] = [when.date(), when.replace(tzinfo=UTC)]
    for value in values:
        found = axis.find(spell_scalar(value))
        assert found is None or axis.value(found) == value


# ---------------------------------------------------------------- parts


@given(st.sets(st.integers(0, 60)), st.integers(0, 80))
def test_holes_number_the_rest_without_gaps(gone: set[int], n: int) -> None:
    holes = Holes(sorted(gone))
    rest = [number for number in range(200) if number not in gone]
    assert holes.skip(n) == rest[n]
    assert holes.find(rest[n]) == n
    assert holes.rank(n) == sum(number < n for number in rest)
    assert holes.find(n) == (None if n in gone else rest.index(n))


RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda r: range(r[0], sum(r)))
)


@given(RANGES, RANGES, st.integers(0, 50))
def test_picks_are_a_sorted_set_of_indexes(ours: list[range], theirs: list[range], i: int) -> None:
    one, other = Picks(ours), Picks(theirs)
    expected = sorted({i for each in ours for i in each})
    assert list(one) == expected
    assert one.count == len(expected)
    assert [one.index(position) for position in range(one.count)] == expected
    assert one.find(i) == (expected.index(i) if i in expected else None)
    assert list(one & other) == sorted(set(expected) & set(other))
    assert all(a.stop < b.start for a, b in itertools.pairwise(one.ranges))


# ---------------------------------------------------------------- whatever people type


@settings(max_examples=200)
@given(sets(), st.text(max_size=20))
def test_any_text_is_a_choice_or_gets_a_sentence(keys: PartitionSet, text: str) -> None:
    for name, axis in zip(keys.names, keys.axes, strict=True):
        for choice in (text, f"{text}..", f"..{text}", f"d:{text}", f"t:{text}", [text]):
            try:
                keys.where(**{name: choice})
            except Invalid as why:
                assert str(why)
        try:
            axis.locate(text)
        except Invalid as why:
            assert repr(text) in str(why) or text in str(why)


TEXTS = [
    "2024-01-01", "UTC", "0 0 * * *", "@daily", "%Y", "monday", "0001-01-01", "9999-12-31", "%", "\0",
]  # fmt: skip
ANYTHING = st.one_of(
    st.text(max_size=12), st.none(), st.booleans(), st.integers(), st.floats(), st.dates(),
    st.binary(max_size=3), st.datetimes(), st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.text(), st.none(), max_size=1), st.sampled_from(TEXTS),
)  # fmt: skip


@settings(max_examples=300)
@given(
    st.sampled_from([*MAKERS, TimePartition]),
    st.one_of(st.just("date"), ANYTHING),
    st.dictionaries(
        st.sampled_from(["start", "end", "end_offset", "timezone", "format", "exclude"]), ANYTHING
    ),
)
def test_any_argument_makes_a_time_dimension_or_gets_a_sentence(
    make: object, name: object, given_: dict[str, object]
) -> None:
    options = {"start": "2024-01-01", **given_}
    if make is TimePartition:
        options["cron"] = given_.get("format", "@daily")
    try:
        dimension = make(name, **options)  # type: ignore[operator]  # anything is tried
        keys = Partitioning((dimension,)).keys(now_of(0))
        if len(keys):
            keys.label(keys[-1])
    except Invalid as why:
        assert str(why)


@given(ANYTHING, ANYTHING)
def test_any_argument_makes_a_list_dimension_or_gets_a_sentence(
    name: object, values: object
) -> None:
    for make in (
        lambda: StaticPartition(name, values),  # type: ignore[arg-type]  # anything is tried
        lambda: DynamicPartition(name),  # type: ignore[arg-type]
        lambda: TenantPartition(name),  # type: ignore[arg-type]
    ):
        try:
            make()
        except Invalid as why:
            assert str(why)
