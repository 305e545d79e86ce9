"""Cron expressions: what is read, what is refused and how, and what happens when clocks change.

Expected fire times are written as local times with their offset, taken from the zones' histories.
tests/property/test_cron_properties.py compares random expressions with cronsim.
"""

import random
import threading
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from servo.core import cron
from servo.core.cron import Fire, Timeline
from servo.core.zones import BEGINNING, END, moment, seconds, zone
from servo.errors import Invalid


def fires(expression: str, start: str, n: int, tz: str = "UTC") -> list[str]:
    """The first n fires at or after a local time, as `2024-01-01 06:00` (with `+0100` outside UTC)."""
    line = Timeline(cron.parse(expression), zone(tz), zone(tz).instant_of(at(start)))
    shown = "%Y-%m-%d %H:%M" + ("" if tz == "UTC" else "%z")
    return [moment(line[i].instant).astimezone(ZoneInfo(tz)).strftime(shown) for i in range(n)]


def at(local: str) -> datetime:
    return datetime.fromisoformat(local)


def days(expression: str, start: str, n: int) -> list[str]:
    return [fire[:10] for fire in fires(expression, start, n)]


# ---------------------------------------------------------------- grammar


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 6 * * *", ["2024-01-01 06:00", "2024-01-02 06:00"]),
        ("*/20 5 * * *", ["2024-01-01 05:00", "2024-01-01 05:20", "2024-01-01 05:40"]),
        ("10/25 5 * * *", ["2024-01-01 05:10", "2024-01-01 05:35", "2024-01-02 05:10"]),
        ("0 1-5/2 * * *", ["2024-01-01 01:00", "2024-01-01 03:00", "2024-01-01 05:00"]),
        ("0,30 0 * * *", ["2024-01-01 00:00", "2024-01-01 00:30", "2024-01-02 00:00"]),
        ("0 0 1 feb,MAR *", ["2024-02-01 00:00", "2024-03-01 00:00", "2025-02-01 00:00"]),
        ("0 0 * * 7", ["2024-01-07 00:00", "2024-01-14 00:00"]),
        ("0 0 * * 0", ["2024-01-07 00:00", "2024-01-14 00:00"]),
        ("0 0 * * Sat-SUN", ["2024-01-06 00:00", "2024-01-07 00:00", "2024-01-13 00:00"]),
        ("0 0 * * 6-7", ["2024-01-06 00:00", "2024-01-07 00:00", "2024-01-13 00:00"]),
        ("0 0 29 2 *", ["2024-02-29 00:00", "2028-02-29 00:00"]),
        ("0 0 ? * MON", ["2024-01-01 00:00", "2024-01-08 00:00"]),
        ("0 0 1 * ?", ["2024-01-01 00:00", "2024-02-01 00:00"]),
        ("@yearly", ["2024-01-01 00:00", "2025-01-01 00:00"]),
        ("@annually", ["2024-01-01 00:00", "2025-01-01 00:00"]),
        ("@monthly", ["2024-01-01 00:00", "2024-02-01 00:00"]),
        ("@weekly", ["2024-01-07 00:00", "2024-01-14 00:00"]),
        ("@daily", ["2024-01-01 00:00", "2024-01-02 00:00"]),
        ("@midnight", ["2024-01-01 00:00", "2024-01-02 00:00"]),
        ("@Hourly", ["2024-01-01 00:00", "2024-01-01 01:00"]),
    ],
)
def test_an_expression_fires_when_it_says(expression: str, expected: list[str]) -> None:
    assert fires(expression, "2024-01-01", len(expected)) == expected


def test_six_fields_begin_with_seconds() -> None:
    line = Timeline(cron.parse("15,45 30 6 * * *"), zone("UTC"), 0)
    assert [line[i].instant for i in range(3)] == [23_415, 23_445, 23_415 + 86_400]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 L * *", ["2023-01-31", "2023-02-28", "2023-03-31"]),
        ("0 0 L,15 * *", ["2023-01-15", "2023-01-31", "2023-02-15"]),
        ("0 0 28-L 2 *", ["2023-02-28", "2024-02-28", "2024-02-29"]),
        ("0 0 LW * *", ["2023-01-31", "2023-02-28", "2023-03-31", "2023-04-28"]),
        ("0 0 15W * *", ["2023-01-16", "2023-02-15", "2023-03-15", "2023-04-14"]),
        ("0 0 W15 * *", ["2023-01-16", "2023-02-15", "2023-03-15", "2023-04-14"]),
        ("0 0 1W * *", ["2023-01-02", "2023-02-01", "2023-03-01", "2023-04-03"]),
        ("0 0 31W * *", ["2023-01-31", "2023-02-28", "2023-03-31", "2023-04-28"]),
        ("0 0 * * 5#3", ["2023-01-20", "2023-02-17", "2023-03-17"]),
        ("0 0 * * FRI#5", ["2023-03-31", "2023-06-30"]),
        ("0 0 * * 0#1,7#2", ["2023-01-01", "2023-01-08", "2023-02-05"]),
        ("0 0 * * 5L", ["2023-01-27", "2023-02-24", "2023-03-31"]),
        ("0 0 * * L5", ["2023-01-27", "2023-02-24", "2023-03-31"]),
        ("0 0 * 2 1#5", ["2044-02-29", "2072-02-29"]),
    ],
)
def test_days_may_be_counted_from_the_end_and_by_weekday(
    expression: str, expected: list[str]
) -> None:
    assert days(expression, "2023-01-01", len(expected)) == expected


def test_two_restricted_day_fields_match_either() -> None:
    expected = ["2024-09-02", "2024-09-09", "2024-09-13", "2024-09-16"]
    assert days("0 0 13 * MON", "2024-09-01", 4) == expected


@pytest.mark.parametrize("expression", ["0 0 */2 * MON", "0 0 *,31 * MON"])
def test_a_day_field_that_begins_with_a_star_makes_both_match(expression: str) -> None:
    shown = days(expression, "2024-09-01", 3)
    assert all(datetime.fromisoformat(day).weekday() == 0 for day in shown)


def test_a_date_that_never_comes_is_no_obstacle_where_the_weekday_alone_is_enough() -> None:
    assert days("0 0 31 2 SUN", "2026-02-01", 3) == ["2026-02-01", "2026-02-08", "2026-02-15"]


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("", "it has 0 fields; expected minute, hour, day of month, month and day of week"),
        ("* * * *", "it has 4 fields"),
        ("0 0 1 * * 0 2030", "it has 7 fields"),
        ("@reboot", "it is none of @yearly"),
        ("@every 5m", "it is none of @yearly"),
        ("60 * * * *", "minute 60 is outside 0-59"),
        ("* 24 * * *", "hour 24 is outside 0-23"),
        ("* * 0 * *", "day of month 0 is outside 1-31"),
        ("* * * 13 *", "month 13 is outside 1-12"),
        ("* * * * 8", "day of week 8 is outside 0-7"),
        ("60 * * * * *", "second 60 is outside 0-59"),
        ("*/0 * * * *", "minute step must not be 0"),
        ("*/x * * * *", "minute step 'X' is not a number"),
        ("*/ * * * *", "minute step '' is not a number"),
        ("5-1 * * * *", "minute range '5-1' runs backwards"),
        ("0 0 * * FRI-MON", "day of week range 'FRI-MON' runs backwards"),
        ("0 0 * foo *", "month 'FOO' is not a number or one of JAN, FEB"),
        ("0 0 * * moon", "day of week 'MOON' is not a number or one of SUN, MON"),
        ("1, * * * *", "minute '' is not a number"),
        ("¹ * * * *", "minute '¹' is not a number"),
        ("1_0 * * * *", "minute '1_0' is not a number"),
        ("+1 * * * *", "minute '+1' is not a number"),
        ("? * * * *", "? is for the day of month"),
        ("0 0 32W * *", "day of month 32 is outside 1-31"),
        ("0 0 * * 1#6", "day of week '1#6': a month has at most 5 of a weekday"),
        ("0 0 * * 5,6#3", "day of week '5,6#3' mixes plain days with # or L; use one kind"),
        ("0 0 * * L", "day of week 'L' is not a number"),
        ("0 0 30 2 *", "it never fires: no day has day of month 30, month 2 and day of week *"),
        ("0 0 31 4,6,9,11 *", "it never fires"),
        ("0 0 */31 * 5#2", "it never fires"),
        ("99999999999999999999 * * * *", "minute '99999999999999999999' is not a number"),
    ],
)  # fmt: skip
def test_a_wrong_expression_gets_a_sentence(expression: str, sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        cron.parse(expression)
    assert str(refused.value).startswith(f"cron expression {expression!r}: {sentence}")


# ---------------------------------------------------------------- changes of clocks


@pytest.mark.parametrize(
    ("tz", "expression", "start", "expected"),
    [
        # New York, 2024-03-10: 02:00 -05:00 becomes 03:00 -04:00.
        ("America/New_York", "30 2 * * *", "2024-03-09",
         ["2024-03-09 02:30-0500", "2024-03-10 03:00-0400", "2024-03-11 02:30-0400"]),
        ("America/New_York", "0,15,30 2 * * *", "2024-03-10",
         ["2024-03-10 03:00-0400", "2024-03-11 02:00-0400"]),
        ("America/New_York", "30 2,3 * * *", "2024-03-10",
         ["2024-03-10 03:00-0400", "2024-03-10 03:30-0400", "2024-03-11 02:30-0400"]),
        ("America/New_York", "0 2,3 * * *", "2024-03-10",
         ["2024-03-10 03:00-0400", "2024-03-11 02:00-0400"]),
        ("America/New_York", "30 * * * *", "2024-03-10T01:00",
         ["2024-03-10 01:30-0500", "2024-03-10 03:30-0400"]),
        ("America/New_York", "*/30 2 * * *", "2024-03-10", ["2024-03-11 02:00-0400"]),
        ("America/New_York", "0 30 2 * * *", "2024-03-10", ["2024-03-11 02:30-0400"]),
        # 2024-11-03: 02:00 -04:00 becomes 01:00 -05:00.
        ("America/New_York", "30 1 * * *", "2024-11-03",
         ["2024-11-03 01:30-0400", "2024-11-04 01:30-0500"]),
        ("America/New_York", "30 * * * *", "2024-11-03T01:00",
         ["2024-11-03 01:30-0400", "2024-11-03 01:30-0500", "2024-11-03 02:30-0500"]),
        ("America/New_York", "*/30 1 * * *", "2024-11-03",
         ["2024-11-03 01:00-0400", "2024-11-03 01:30-0400", "2024-11-03 01:00-0500",
          "2024-11-03 01:30-0500", "2024-11-04 01:00-0500"]),
        ("America/New_York", "0 1-3 * * *", "2024-11-03",
         ["2024-11-03 01:00-0400", "2024-11-03 02:00-0500", "2024-11-03 03:00-0500"]),
        # London, 2024-03-31: 01:00 +00:00 becomes 02:00 +01:00; 2024-10-27: back at 02:00.
        ("Europe/London", "15 1 * * *", "2024-03-31",
         ["2024-03-31 02:00+0100", "2024-04-01 01:15+0100"]),
        ("Europe/London", "15 1 * * *", "2024-10-27",
         ["2024-10-27 01:15+0100", "2024-10-28 01:15+0000"]),
        # Lord Howe, 2024-10-06: 02:00 +10:30 becomes 02:30 +11:00; 2024-04-07: 02:00 becomes 01:30.
        ("Australia/Lord_Howe", "15 2 * * *", "2024-10-06",
         ["2024-10-06 02:30+1100", "2024-10-07 02:15+1100"]),
        ("Australia/Lord_Howe", "30 2 * * *", "2024-10-06",
         ["2024-10-06 02:30+1100", "2024-10-07 02:30+1100"]),
        ("Australia/Lord_Howe", "0 * * * *", "2024-10-06T01:00",
         ["2024-10-06 01:00+1030", "2024-10-06 03:00+1100"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2024-04-07",
         ["2024-04-07 01:45+1100", "2024-04-08 01:45+1030"]),
        ("Australia/Lord_Howe", "45 * * * *", "2024-04-07T01:00",
         ["2024-04-07 01:45+1100", "2024-04-07 01:45+1030", "2024-04-07 02:45+1030"]),
        # Kathmandu has no summer time; on 1986-01-01 it went from +05:30 to +05:45.
        ("Asia/Kathmandu", "5 0 * * *", "1985-12-31",
         ["1985-12-31 00:05+0530", "1986-01-01 00:15+0545", "1986-01-02 00:05+0545"]),
        ("Asia/Kathmandu", "0 * * * *", "1985-12-31T23:00",
         ["1985-12-31 23:00+0530", "1986-01-01 01:00+0545"]),
        ("Asia/Kathmandu", "0 0 * * *", "2024-03-10",
         ["2024-03-10 00:00+0545", "2024-03-11 00:00+0545"]),
        # Apia skipped 2011-12-30 altogether: Debian does not catch up on jumps of 3 hours or more.
        ("Pacific/Apia", "30 4 * * *", "2011-12-29",
         ["2011-12-29 04:30-1000", "2011-12-31 04:30+1400"]),
        ("Pacific/Apia", "0 0 * * *", "2011-12-29",
         ["2011-12-29 00:00-1000", "2011-12-31 00:00+1400"]),
        ("Pacific/Apia", "0 0 30 12 *", "2011-01-01", ["2012-12-30 00:00+1400"]),
        # St. John's changed at 00:01 until 2011.
        ("America/St_Johns", "0 0 * * *", "2010-03-14",
         ["2010-03-14 00:00-0330", "2010-03-15 00:00-0230"]),
        ("America/St_Johns", "30 0 * * *", "2010-03-14",
         ["2010-03-14 01:01-0230", "2010-03-15 00:30-0230"]),
        ("America/St_Johns", "0 0 * * *", "2010-11-06",
         ["2010-11-06 00:00-0230", "2010-11-07 00:00-0230", "2010-11-08 00:00-0330"]),
        ("America/St_Johns", "30 23 * * *", "2010-11-06",
         ["2010-11-06 23:30-0230", "2010-11-07 23:30-0330"]),
        # São Paulo had no midnight on 2018-11-04, and 23:00 twice on 2018-02-17.
        ("America/Sao_Paulo", "0 0 * * *", "2018-11-03",
         ["2018-11-03 00:00-0300", "2018-11-04 01:00-0200", "2018-11-05 00:00-0200"]),
        ("America/Sao_Paulo", "0 23 * * *", "2018-02-17",
         ["2018-02-17 23:00-0200", "2018-02-18 23:00-0300"]),
        # Casablanca is at +01:00 but for Ramadan: in 2024 from 03-10 03:00 to 04-14 02:00.
        ("Africa/Casablanca", "30 2 * * *", "2024-03-10",
         ["2024-03-10 02:30+0100", "2024-03-11 02:30+0000"]),
        ("Africa/Casablanca", "30 2 * * *", "2024-04-14",
         ["2024-04-14 03:00+0100", "2024-04-15 02:30+0100"]),
        ("Africa/Casablanca", "30 * * * *", "2024-03-10T02:00",
         ["2024-03-10 02:30+0100", "2024-03-10 02:30+0000", "2024-03-10 03:30+0000"]),
    ],
)  # fmt: skip
def test_clocks_that_change(tz: str, expression: str, start: str, expected: list[str]) -> None:
    assert fires(expression, start, len(expected), tz) == expected


def test_a_fire_after_a_gap_remembers_when_it_was_due() -> None:
    line = Timeline(
        cron.parse("30 2 * * *"),
        zone("America/New_York"),
        seconds(datetime(2024, 3, 10, 5, tzinfo=UTC)),
    )
    due = seconds(datetime(2024, 3, 10, 2, 30, tzinfo=UTC))
    assert line[0] == Fire(seconds(datetime(2024, 3, 10, 7, tzinfo=UTC)), due)


def test_a_fire_that_a_gap_moved_before_the_origin_is_not_found() -> None:
    moved = seconds(datetime(2024, 3, 10, 7, tzinfo=UTC))
    line = Timeline(cron.parse("30 2 * * *"), zone("America/New_York"), moved + 1)
    assert line.find(moved) is None
    assert line.before(moved + 1) == 0
    assert line.find(line[0].instant) == 0


# ---------------------------------------------------------------- exclusions and far ends


@pytest.mark.parametrize(
    ("excluded", "first"),
    [("30 2 * * *", "2024-03-11 06:00"), ("0 2 * * *", "2024-03-10 07:00"),
     ("0 3 * * *", "2024-03-10 07:00")],
)  # fmt: skip
def test_what_a_gap_swallowed_is_excluded_by_when_it_was_due(excluded: str, first: str) -> None:
    # The fires at 02:00 and 02:30 became one, at 03:00 (07:00 in UTC), which was due at 02:30.
    start = seconds(datetime(2024, 3, 10, 5, tzinfo=UTC))
    line = Timeline(
        cron.parse("0,30 2 * * *"), zone("America/New_York"), start, (cron.parse(excluded),)
    )
    assert moment(line[0].instant).strftime("%Y-%m-%d %H:%M") == first


def test_a_regular_fire_that_is_excluded_does_not_uncover_one_in_the_gap_before_it() -> None:
    start = seconds(datetime(2024, 3, 10, 5, tzinfo=UTC))
    line = Timeline(
        cron.parse("0 2,3 * * *"), zone("America/New_York"), start, (cron.parse("0 3 * * *"),)
    )
    assert moment(line[0].instant) == datetime(2024, 3, 11, 6, tzinfo=UTC)


def test_excluding_everything_is_noticed() -> None:
    daily = cron.parse("0 0 * * *")
    assert not cron.leaves_any(daily, (cron.parse("* * * * *"),))
    assert not cron.leaves_any(daily, (cron.parse("0 0 1-15 * *"), cron.parse("0 0 16-31 * *")))
    assert cron.leaves_any(daily, (cron.parse("0 0 1-30 * *"),))
    assert cron.leaves_any(daily, (cron.parse("5 0 * * *"),))


@pytest.mark.parametrize("expression", ["0 0 1 1 *", "0 0 * * *", "0 0 29 2 *", "* * * * * *"])
@pytest.mark.parametrize("tz", ["UTC", "America/New_York", "Pacific/Kiritimati"])
def test_the_calendar_ends_in_an_error_that_says_so(expression: str, tz: str) -> None:
    line = Timeline(cron.parse(expression), zone(tz), seconds(datetime(9900, 1, 1, tzinfo=UTC)))
    last = line.before(END + 10**9) - 1
    assert line.before(END) == last + 1
    assert line[last].instant < END
    assert line.find(END + 5) is None
    with pytest.raises(OverflowError, match="the calendar ends with the year 9998"):
        line[last + 1]


@pytest.mark.parametrize("tz", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_a_timeline_may_begin_where_the_calendar_does(tz: str) -> None:
    line = Timeline(cron.parse("0 0 1 1 *"), zone(tz), BEGINNING - 10**10)
    assert line.find(line[0].instant) == 0
    assert moment(line[2000].instant + 86_400).year - moment(line[0].instant + 86_400).year == 2000


def test_threads_that_extend_one_timeline_at_once_all_get_right_answers() -> None:
    tz = zone("America/New_York")
    line = Timeline(cron.parse("0 0 1 * *"), tz, 0)
    months = [datetime(y, m, 1) for y in range(1970, 2600, 3) for m in (1, 7)]
    wrong: list[datetime] = []

    def ask(order: list[datetime]) -> None:
        for month in order:
            number = (month.year - 1970) * 12 + month.month - 1
            instant = tz.instant_of(month)
            if line[number].instant != instant or line.find(instant) != number:
                wrong.append(month)

    orders = [random.Random(i).sample(months, len(months)) for i in range(6)]
    threads = [threading.Thread(target=ask, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_century_of_seconds_is_counted_without_walking() -> None:
    line = Timeline(cron.parse("* * * * * *"), zone("Europe/London"), 0)
    assert line.before(100 * 365 * 86_400) == 100 * 365 * 86_400
    assert line[3_000_000_000].instant == 3_000_000_000
    assert moment(line[0].instant) + timedelta(seconds=1) == moment(line[1].instant)


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("@reboot", "it is none of @yearly"),
        ("@", "it is none of @yearly"),
        ("CRON_TZ=UTC 0 6 * * *", "give the time zone apart, as timezone="),
        ("? 0 * * *", "? is for the day of month and the day of week only"),
        ("5", "it has 1 field; expected"),
        ("0 0 1 1 * 0 2030", "it has 7 fields; expected"),
    ],
)
def test_what_other_crons_know_is_refused_with_what_to_do(expression: str, sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        cron.parse(expression)
    assert sentence in str(refused.value)
