"""Zones read from tzdata's files say what `zoneinfo` says, and refuse what is no zone.

`zoneinfo` prefers the zones of the operating system; here it is told to read the tzdata package, so
that both sides see the same rules.
"""

import bisect
import importlib.resources
import itertools
import random
import threading
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from servo.core.zones import BEGINNING, END, EPOCH, Zone, moment, seconds, zone
from servo.errors import Invalid

NAMES = sorted((importlib.resources.files("tzdata") / "zones").read_text().split())
FROM, UNTIL = seconds(datetime(1900, 1, 1, tzinfo=UTC)), seconds(datetime(2200, 1, 1, tzinfo=UTC))


@pytest.fixture
def packaged_zones() -> Iterator[None]:
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath(to=before)
    zoneinfo.ZoneInfo.clear_cache()


def offset_by_zoneinfo(name: str, instant: int) -> int:
    local = moment(instant).astimezone(zoneinfo.ZoneInfo(name))
    offset = local.utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)


@pytest.mark.usefixtures("packaged_zones")
@pytest.mark.parametrize("share", range(8))
def test_every_zone_agrees_with_zoneinfo_at_its_changes_and_between(share: int) -> None:
    rng = random.Random(share)
    for name in NAMES[share::8]:
        ours = zone(name)
        near = {span.start + d for span in ours.spans(FROM, UNTIL) for d in (-1, 0, 1)}
        # Rules repeat after 400 years at most; the years from 2040 on differ only by weekday.
        rare = {at for at in near if at > 40 * 366 * 86_400 and rng.random() > 0.1}
        instants = (near - rare) | {rng.randrange(FROM, UNTIL) for _ in range(30)}
        for instant in instants:
            if FROM <= instant < UNTIL:
                assert ours.offset(instant) == offset_by_zoneinfo(name, instant), (name, instant)


@pytest.mark.usefixtures("packaged_zones")
def test_no_change_is_missed_between_two_listed_ones() -> None:
    for name in ("America/New_York", "Africa/Casablanca", "Europe/Dublin", "Antarctica/Troll"):
        starts = [span.start for span in zone(name).spans(FROM, UNTIL)]
        for instant in range(FROM, UNTIL, 11 * 86_400 + 17):
            at = bisect.bisect_right(starts, instant) - 1
            expected = zone(name).offset(starts[at])
            assert offset_by_zoneinfo(name, instant) == expected, (name, moment(instant))


def test_spans_cover_what_was_asked_without_gap() -> None:
    for name in ("UTC", "Asia/Kathmandu", "Europe/London", "Africa/Casablanca"):
        spans = zone(name).spans(FROM, UNTIL)
        assert spans[0].start <= FROM
        assert spans[-1].end == UNTIL
        for before, after in itertools.pairwise(spans):
            assert before.end == after.start
            assert before.offset != after.offset


def test_spans_reach_from_the_beginning_to_the_end_of_the_calendar() -> None:
    spans = zone("America/New_York").spans(BEGINNING, END)
    assert spans[0].start == BEGINNING
    assert spans[0].offset == -(4 * 3600 + 56 * 60 + 2)
    assert spans[-1].end == END
    assert moment(spans[-1].start).year == 9998


def test_before_the_beginning_the_first_offset_holds() -> None:
    assert zone("Asia/Kathmandu").offset(BEGINNING - 10**9) == 5 * 3600 + 41 * 60 + 16


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "../x", "Europe/../UTC", "/etc/passwd", "Europe", "America/Argentina", "zones",
        "Mars/Base", "europe/london ", "Europe/London\n", "Europe/Lon\0don", "tzdata.zi", "é",
        "__init__.py",
    ],
)  # fmt: skip
def test_what_is_no_zone_gets_one_sentence(name: str) -> None:
    with pytest.raises(Invalid) as refused:
        zone(name)
    assert str(refused.value).startswith(f"time zone {name!r} is not known; ")


def test_a_misspelled_zone_is_told_which_was_meant() -> None:
    with pytest.raises(Invalid, match=r"did you mean 'Europe/London'\?"):
        zone("Europe/Londn")


def test_a_time_in_a_gap_is_the_end_of_the_gap() -> None:
    new_york = zone("America/New_York")
    end = seconds(datetime(2024, 3, 10, 7, tzinfo=UTC))
    for minute in (0, 1, 30, 59):
        assert new_york.instant_of(datetime(2024, 3, 10, 2, minute)) == end
    assert new_york.instant_of(datetime(2024, 3, 10, 3)) == end
    assert new_york.instant_of(datetime(2024, 3, 10, 1, 59)) == end - 60


def test_a_time_that_occurs_twice_is_the_first() -> None:
    assert zone("America/New_York").instant_of(datetime(2024, 11, 3, 1, 30)) == seconds(
        datetime(2024, 11, 3, 5, 30, tzinfo=UTC)
    )
    assert zone("Australia/Lord_Howe").instant_of(datetime(2024, 4, 7, 1, 45)) == seconds(
        datetime(2024, 4, 6, 14, 45, tzinfo=UTC)
    )


def test_a_day_that_was_skipped_is_the_start_of_the_next() -> None:
    apia = zone("Pacific/Apia")
    after = seconds(datetime(2011, 12, 30, 10, tzinfo=UTC))
    assert apia.instant_of(datetime(2011, 12, 30)) == after
    assert apia.instant_of(datetime(2011, 12, 30, 23, 59)) == after
    assert apia.instant_of(datetime(2011, 12, 31)) == after


@pytest.mark.usefixtures("packaged_zones")
@pytest.mark.parametrize("name", ["America/St_Johns", "Asia/Kathmandu", "America/Juneau", "UTC"])
def test_local_times_that_exist_come_back(name: str) -> None:
    rng = random.Random(name)
    info = zoneinfo.ZoneInfo(name)
    for _ in range(500):
        instant = rng.randrange(FROM, UNTIL)
        local = moment(instant).astimezone(info)
        if local.fold == 0:
            assert zone(name).instant_of(local.replace(tzinfo=None)) == instant


def test_fractions_of_a_second_are_rounded_up() -> None:
    assert seconds(EPOCH) == 0
    assert seconds(EPOCH + timedelta(microseconds=1)) == 1
    assert seconds(EPOCH - timedelta(microseconds=1)) == 0


def test_threads_that_extend_one_zone_at_once_all_get_right_answers() -> None:
    fresh: Zone = zone.__wrapped__("America/New_York")
    summers = {y: seconds(datetime(y, 7, 1, tzinfo=UTC)) for y in range(2030, 2900, 7)}
    wrong: list[int] = []

    def ask(years: list[int]) -> None:
        wrong.extend(y for y in years if fresh.offset(summers[y]) != -4 * 3600)

    orders = [random.Random(i).sample(sorted(summers), len(summers)) for i in range(8)]
    threads = [threading.Thread(target=ask, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
