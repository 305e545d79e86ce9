"""Timelines that are counted agree with cron that is walked, and with themselves.

There are two walkers: Debian's rule written out minute by minute, and cronsim, which follows Debian
too. Differences of cronsim, each left out below and decided for Debian's rule as servo.core.cron
states it:

- a range of one value with a step, `5-5/10`, is that value (cronsim reads it as `5/10`);
- a jump of three hours or more is no gap to catch up on (cronsim catches up on any);
- after a gap that does not begin and end on the hour, or that swallows midnight, cronsim walks on
  from a time that does not exist (`* 1 * * *` on Lord Howe in 1981, `* 0 * * 0` in Tehran in 2015);
- asked in an hour that occurs twice, cronsim may answer with a fixed time of its first occurrence,
  which has passed (such answers are skipped here, as are repeated ones).

Before 1972 offsets have seconds, and cronsim moves what falls into a gap minute by minute.
"""

import bisect
import itertools
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from servo.core import cron
from servo.core.cron import Fire, Timeline
from servo.core.zones import DAY, moment, seconds, zone
from servo.errors import Invalid

ZONES = [
    "UTC", "America/New_York", "Europe/London", "Australia/Lord_Howe", "Asia/Kathmandu",
    "Pacific/Apia", "America/St_Johns", "America/Sao_Paulo", "Africa/Casablanca", "Pacific/Chatham",
    "Europe/Dublin", "Antarctica/Troll", "Africa/Cairo", "Asia/Gaza", "America/Nuuk", "Asia/Tehran",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def packaged_zones() -> Iterator[None]:
    """cronsim asks zoneinfo, which would read the zones of the operating system."""
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath(to=before)
    zoneinfo.ZoneInfo.clear_cache()


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    one = st.integers(low, high).map(str)
    spread = st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)
    ranged = spread.map(lambda ends: f"{ends[0]}-{ends[1]}")
    wide = spread.filter(lambda ends: ends[0] < ends[1]).map(lambda ends: f"{ends[0]}-{ends[1]}")
    step = st.integers(1, high + 2).map(str)
    stepped = st.tuples(st.one_of(st.just("*"), one, wide), step).map("/".join)
    term = st.one_of(one, ranged, stepped)
    return st.one_of(st.just("*"), term, st.lists(term, min_size=1, max_size=3).map(",".join), one)


DOM = st.one_of(st.just("*"), numbers(1, 31), st.just("L"), st.just("LW"), st.just("L,13"))
MONTH = st.one_of(st.just("*"), numbers(1, 12), st.sampled_from(["JAN", "mar-Oct", "Nov,2"]))
DOW = st.one_of(
    st.just("*"),
    numbers(0, 7),
    st.sampled_from(["MON-FRI", "sun", "5L", "0L", "7L,1L", "MON#5", "2#1,4#3", "0#2", "7#1"]),
)
FIVE = st.tuples(numbers(0, 59), numbers(0, 23), DOM, MONTH, DOW).map(" ".join)
# Times around which clocks change come up often.
FIXED = st.tuples(
    numbers(0, 59), st.sampled_from(["0", "1", "2", "3", "0-3", "23", "1,2", "2/7"]),
    st.just("*"), st.just("*"), st.sampled_from(["*", "0", "6-7"]),
).map(" ".join)  # fmt: skip
SIX = st.tuples(st.sampled_from(["0", "7", "*/20"]), FIVE).map(" ".join)
EXPRESSIONS = st.one_of(FIXED, FIVE, SIX)


@st.composite
def starts(draw: st.DrawFn, low: int = 1972, high: int = 2080) -> tuple[str, int]:
    """A zone and an instant, often within two days of a change."""
    tz = draw(st.sampled_from(ZONES))
    first, last = (seconds(datetime(y, 1, 1, tzinfo=UTC)) for y in (low, high))
    changes = [span.start for span in zone(tz).spans(first, last)][1:]
    if changes and draw(st.integers(0, 3)) > 0:
        near = draw(st.sampled_from(changes))
        return tz, near + draw(st.integers(-2 * DAY, 2 * DAY))
    return tz, draw(st.integers(first, last))


def parsed(expression: str) -> cron.Pattern:
    try:
        return cron.parse(expression)
    except Invalid as why:
        # The expressions above can only be wrong in asking for a day that never comes.
        assert "it never fires" in str(why) or "mixes plain days" in str(why)
        assume(False)
        raise


def reached(line: Timeline, number: int) -> Fire:
    """A fire, unless it is so rare that the calendar ends before it."""
    try:
        return line[number]
    except OverflowError:
        assume(False)
        raise


def cronsim_errs(pattern: cron.Pattern, tz: str, start: int, end: int) -> bool:
    spans = zone(tz).spans(start - 3 * DAY, end + 3 * DAY)
    for before, after in itertools.pairwise(spans):
        old, new = after.start + before.offset, after.start + after.offset
        if new - old >= 3 * 3600:
            return True
        if not pattern.fixed and (old % 3600 or new % 3600 or old + -old % DAY < new):
            return True
    return False


@settings(max_examples=400)
@given(EXPRESSIONS, starts())
def test_a_timeline_fires_when_cronsim_does(expression: str, start: tuple[str, int]) -> None:
    tz, origin = start
    pattern = parsed(expression)
    line = Timeline(pattern, zone(tz), origin + 1)
    theirs = CronSim(expression, moment(origin).astimezone(zoneinfo.ZoneInfo(tz)))
    last = origin
    for number in range(6):
        try:
            ours = line[number].instant
        except OverflowError:
            break
        if ours > origin + 8 * 366 * DAY or cronsim_errs(pattern, tz, last, ours):
            break  # cronsim gives up after 50 years, and is slow before that
        after = (at for fire in theirs if (at := seconds(fire.astimezone(UTC))) > last)
        assert ours == next(after), number
        last = ours


def walked(pattern: cron.Pattern, tz: str, origin: int, until: int) -> list[int]:
    """Debian's rule, minute by minute on the wall clock, from a while before the origin."""
    calendar = cron._calendar(pattern, ())
    fires: list[int] = []
    before = reached = None
    for instant in range(origin - origin % 60 - 2 * DAY, until, 60):
        wall = instant + zone(tz).offset(instant)
        due = calendar.find(wall) is not None
        if pattern.fixed and before is not None and reached is not None:
            jump = wall - before - 60
            if 0 < jump < 3 * 3600:
                skipped = range(max(before + 60, reached), wall, 60)
                due = due or any(calendar.find(time) is not None for time in skipped)
            due = due and wall >= reached
        if due and instant >= origin:
            fires.append(instant)
        before, reached = wall, max(reached or wall, wall + 60)
    return fires


@given(st.one_of(FIXED, FIVE), starts())
def test_counting_equals_walking(expression: str, start: tuple[str, int]) -> None:
    tz, origin = start
    pattern = parsed(expression)
    line = Timeline(pattern, zone(tz), origin)
    until = origin + 2 * DAY
    fires = walked(pattern, tz, origin, until)
    assert line.before(until) == len(fires)
    assert [line[number].instant for number in range(len(fires))] == fires
    for instant in range(origin, until, 1_801):
        assert line.before(instant) == bisect.bisect_left(fires, instant)
        assert (line.find(instant) is not None) == (instant in fires)


@given(EXPRESSIONS, starts(), st.integers(0, 3000))
def test_before_and_getitem_are_inverse(
    expression: str, start: tuple[str, int], number: int
) -> None:
    tz, origin = start
    line = Timeline(parsed(expression), zone(tz), origin)
    fire = reached(line, number)
    reached(line, number + 1)
    assert line.before(fire.instant) == number
    assert line.before(fire.instant + 1) == number + 1
    assert line.find(fire.instant) == number
    assert line[number + 1].instant > fire.instant
    if line[number + 1].instant > fire.instant + 1:
        assert line.find(fire.instant + 1) is None
        assert line.before(line[number + 1].instant - 1) == number + 1


@given(EXPRESSIONS, starts(), st.integers(1, 40 * 366 * DAY))
def test_timelines_of_one_pattern_differ_only_by_their_first_number(
    expression: str, start: tuple[str, int], later: int
) -> None:
    tz, origin = start
    pattern = parsed(expression)
    early, late = (Timeline(pattern, zone(tz), at) for at in (origin, origin + later))
    skipped = early.before(origin + later)
    for number in (0, 1, 7, 50):
        assert reached(late, number) == early[skipped + number]


@given(EXPRESSIONS, starts(), st.lists(st.integers(0, 400), min_size=1, max_size=5))
def test_extending_never_changes_earlier_answers(
    expression: str, start: tuple[str, int], years: list[int]
) -> None:
    tz, origin = start
    pattern = parsed(expression)
    line = Timeline(pattern, zone(tz), origin)
    before = [line[number] for number in range(5)]
    counts = {year: line.before(origin + year * 365 * DAY) for year in years}
    reached(line, counts[years[0]] + 500)
    assert [line[number] for number in range(5)] == before
    assert {year: line.before(origin + year * 365 * DAY) for year in years} == counts
    fresh = Timeline(pattern, zone(tz), origin)
    assert {year: fresh.before(origin + year * 365 * DAY) for year in sorted(years)} == counts


@given(EXPRESSIONS, st.lists(EXPRESSIONS, min_size=1, max_size=2), starts())
def test_excluding_patterns_is_filtering_by_when_fires_are_due(
    expression: str, excluded: list[str], start: tuple[str, int]
) -> None:
    tz, origin = start
    pattern, gone = parsed(expression), tuple(parsed(each) for each in excluded)
    every = Timeline(pattern, zone(tz), origin)
    some = Timeline(pattern, zone(tz), origin, gone)
    calendars = [cron._calendar(each, ()) for each in gone]
    fires = [reached(every, number) for number in range(100)]
    kept = [fire for fire in fires if all(c.find(fire.local) is None for c in calendars)]
    assert some.before(fires[-1].instant + 1) == len(kept)
    assert [some[number] for number in range(len(kept))] == kept
    for fire in fires:
        assert some.find(fire.instant) == (kept.index(fire) if fire in kept else None)


@given(EXPRESSIONS, starts(3, 9000))
def test_far_origins_are_no_different(expression: str, start: tuple[str, int]) -> None:
    tz, origin = start
    line = Timeline(parsed(expression), zone(tz), origin)
    for number in (0, 1, 20):
        fire = reached(line, number)
        assert fire.instant >= origin
        assert line.find(fire.instant) == number


GARBAGE = st.text("0123456789*/-,#LW?abcJANMONsun¹ ", max_size=6)


@given(st.lists(st.one_of(GARBAGE, numbers(0, 31), st.just("*")), min_size=4, max_size=7))
def test_what_cronsim_refuses_is_refused_but_for_what_is_documented(fields: list[str]) -> None:
    expression = " ".join(fields)
    try:
        cron.parse(expression)
    except Invalid as why:
        assert str(why).startswith(f"cron expression {expression!r}: ")
        return
    try:
        CronSim(expression, datetime(2024, 1, 1))
    except CronSimError:
        day_fields = expression.upper().split()[-3::2]
        # Ours alone: ?, 15W and W15, L5, 1-L, and Sunday as the end of a week.
        assert any(mark in field for field in day_fields for mark in ("?", "W", "L", "-SUN")), (
            expression
        )


@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_gets_a_sentence(text: str) -> None:
    try:
        cron.parse(text)
    except Invalid as why:
        assert str(why).startswith(f"cron expression {text!r}: ")
