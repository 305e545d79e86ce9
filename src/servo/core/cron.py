"""Cron expressions, counted rather than walked.

    minute hour day-of-month month day-of-week          0 6 * * MON-FRI
    second minute hour day-of-month month day-of-week   0 0 6 * * *
    @yearly @monthly @weekly @daily @hourly

Vocabulary. A *pattern* says at which local times an expression fires. A *timeline* places a
pattern in a time zone: the sequence of instants, numbered from an origin, that answers "how many
before t" and "which is the n-th" in a few steps, however long the sequence.

What is accepted: `*`, lists, ranges, steps, names of months and days, `7` for Sunday, `?` for `*`
in the two day fields, `L` (last day), `LW`, `15W` (the weekday nearest to the 15th), `5L` or `L5`
(last Friday), `5#3` (third Friday). Days follow Debian: if the day-of-month or the day-of-week
field begins with `*` both must match, otherwise either.

Over a change of clocks, Debian's rule: a job at a fixed time (five fields, neither minute nor hour
begins with `*`) that falls into a gap runs at the end of the gap, and one whose time occurs twice
runs the first time; all others run whenever the wall clock matches. Like Debian, a jump of three
hours or more (a country crossing the date line) is not a gap to catch up on: that day has no fire.
tests/property/test_cron_properties.py compares with cronsim; tests/outside has the cases of other
projects.
"""

import bisect
import functools
import re
from datetime import date
from typing import NamedTuple

from servo.core.zones import BEGINNING, DAY, END, Span, Zone
from servo.errors import Invalid

_MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
_DAYS = "SUN MON TUE WED THU FRI SAT".split()
_MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NICKNAMES = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_LONGEST_GAP = 3 * 3600
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first_name: int = 0

    def number(self, text: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.first_name
        # str.isdigit accepts digits of other scripts, int() accepts signs and underscores.
        if not (text.isascii() and text.isdigit()) or len(text) > 4:
            if text == "?":
                raise Invalid("? is for the day of month and the day of week only; write *")
            raise Invalid(f"{self.name} {text!r} is not a number{self._or_name()}")
        value = int(text)
        if not self.low <= value <= self.high:
            raise Invalid(f"{self.name} {value} is outside {self.low}-{self.high}")
        return value

    def _or_name(self) -> str:
        return f" or one of {', '.join(self.names)}" if self.names else ""

    def values(self, text: str) -> set[int]:
        """One term of a list: `*`, `a`, `a-b`, and any of these with `/step`."""
        body, slash, step_text = text.partition("/")
        step = 1
        if slash:
            if not (step_text.isascii() and step_text.isdigit()) or len(step_text) > 9:
                raise Invalid(f"{self.name} step {step_text!r} is not a number")
            step = int(step_text)
            if step == 0:
                raise Invalid(f"{self.name} step must not be 0")
        if body == "*":
            low, high = self.low, self.high
        elif "-" in body:
            first, _, last = body.partition("-")
            low = self.number(first)
            # L ends a range of days at the end of the month; SUN ends a week as 7.
            if last == "L" and self is _DOM:
                high = self.high
            elif last == "SUN" and self is _DOW:
                high = 7
            else:
                high = self.number(last)
            if high < low:
                raise Invalid(f"{self.name} range {body!r} runs backwards")
        else:
            low = self.number(body)
            high = self.high if slash else low
        return set(range(low, high + 1, step))


_SECOND = _Field("second", 0, 59)
_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DOM = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, tuple(_MONTHS), 1)
_DOW = _Field("day of week", 0, 7, tuple(_DAYS))


class Pattern:
    """A parsed expression: which days, and which times of a day."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        text = _NICKNAMES.get(expression.strip().upper(), expression)
        fields = text.upper().split()
        try:
            if fields and fields[0].startswith("@"):
                raise Invalid(f"it is none of {', '.join(_NICKNAMES).lower()}")
            if fields and "=" in fields[0]:
                raise Invalid("it sets a variable; give the time zone apart, as timezone=")
            self._parse(fields)
        except Invalid as why:
            raise Invalid(f"cron expression {expression!r}: {why}") from None

    def _parse(self, fields: list[str]) -> None:
        if len(fields) not in (5, 6):
            count = f"{len(fields)} field" + "s" * (len(fields) != 1)
            raise Invalid(
                f"it has {count}; expected minute, hour, day of month, month and day of week, with"
                " seconds before them if at all"
            )
        second, minute, hour, dom, month, dow = ["0"] * (6 - len(fields)) + fields
        self.fixed = len(fields) == 5 and minute[0] != "*" and hour[0] != "*"
        seconds = _union(_SECOND, second)
        minutes = _union(_MINUTE, minute)
        hours = _union(_HOUR, hour)
        self.times = tuple(
            3600 * h + 60 * m + s
            for h in sorted(hours)
            for m in sorted(minutes)
            for s in sorted(seconds)
        )
        dom, dow = ("*" if field == "?" else field for field in (dom, dow))
        self._both_days = dom[0] == "*" or dow[0] == "*"
        self._months = _union(_MONTH, month)
        self._dom, self._last_day, self._near = set[int](), False, set[int]()
        for term in dom.split(","):
            if term == "L":
                self._last_day = True
            elif near := re.fullmatch(r"([0-9]{1,2}|L)W|W([0-9]{1,2})", term):
                day = near[1] or near[2]
                self._near.add(31 if day == "L" else _DOM.number(day))
            else:
                self._dom |= _DOM.values(term)
        self._dow, self._nth = set[int](), set[tuple[int, int]]()
        plain = False
        for term in dow.split(","):
            if nth := re.fullmatch(r"([0-9A-Z]+)#([0-9])", term):
                if not 1 <= int(nth[2]) <= 5:
                    raise Invalid(f"day of week {term!r}: a month has at most 5 of a weekday")
                self._nth.add((_DOW.number(nth[1]) % 7, int(nth[2])))
            elif last := re.fullmatch(r"([0-7])L|L([0-7])", term):
                self._nth.add((int(last[1] or last[2]) % 7, -1))
            else:
                self._dow |= {day % 7 for day in _DOW.values(term)}
                plain = True
        if plain and self._nth:
            raise Invalid(f"day of week {dow!r} mixes plain days with # or L; use one kind")
        # Debian and cronsim accept `0 0 31 2 0` too: the 31st never comes, but the Sundays do.
        certain = not self._both_days or (
            min(self._dom, default=31) <= 28 if len(self._dow) == 7 else len(self._dom) == 31
        )
        if not certain and not any(
            self.days(leap, new_year) for leap in (False, True) for new_year in range(7)
        ):
            raise Invalid(
                f"it never fires: no day has day of month {dom}, month {month} and day of week {dow}"
            )

    def days(self, leap: bool, new_year: int) -> int:
        """Bit *i* is set if day *i* of a year matches; `new_year` is its first weekday, Sunday 0."""
        mask, first = 0, 0
        for month, length in enumerate(_MONTH_LENGTHS, 1):
            length += leap and month == 2
            if month in self._months:
                mask |= self._month_days((new_year + first) % 7, length) << first
            first += length
        return mask

    def _month_days(self, first_weekday: int, length: int) -> int:
        in_month = (1 << length) - 1
        by_date = sum(1 << (day - 1) for day in self._dom if day <= length)
        if self._last_day:
            by_date |= 1 << (length - 1)
        for near in self._near:
            by_date |= 1 << (_nearest_weekday(min(near, length), first_weekday, length) - 1)
        by_week = 0
        for weekday in self._dow:
            by_week |= _EVERY_WEEK << ((weekday - first_weekday) % 7)
        by_week &= in_month
        for weekday, nth in self._nth:
            first = (weekday - first_weekday) % 7
            day = first + 7 * (nth - 1) if nth > 0 else first + 7 * ((length - 1 - first) // 7)
            if day < length:
                by_week |= 1 << day
        return by_date & by_week if self._both_days else by_date | by_week


_EVERY_WEEK = sum(1 << (7 * week) for week in range(5))


def _union(field: _Field, text: str) -> set[int]:
    return set().union(*(field.values(term) for term in text.split(",")))


def _nearest_weekday(day: int, first_weekday: int, length: int) -> int:
    """The Monday to Friday nearest to a day without leaving the month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


@functools.lru_cache(maxsize=512)
def parse(expression: str) -> Pattern:
    return Pattern(expression)


class _Calendar:
    """The local fires of a pattern without those of some excluded patterns, numbered from
    0001-01-01. Every year is one of fourteen kinds, and years repeat after 400."""

    def __init__(self, pattern: Pattern, excluded: tuple[Pattern, ...]) -> None:
        self._pattern = pattern
        self._excluded = excluded
        self._kinds: dict[tuple[bool, int], list[tuple[int, tuple[int, ...]]]] = {}
        leap = self._year(4)
        every_day = len(leap) == 1 and leap[0][0].bit_count() == 366
        # The common case needs no calendar at all: the same times every day.
        self._daily = leap[0][1] if every_day else None
        self._daily_index = {time: i for i, time in enumerate(self._daily or ())}
        self.step = _even_step(self._daily)
        """Seconds between any two fires in a row, if always the same."""
        # Fires before each year of a 400-year cycle, and after all of them.
        self._before = [0]
        for year in range(1, 1 if every_day else 401):
            self._before.append(
                self._before[-1] + sum(m.bit_count() * len(t) for m, t in self._year(year))
            )
        self._cycle = self._before[-1]

    def _year(self, year: int) -> list[tuple[int, tuple[int, ...]]]:
        """(days, times of these days): days that share their times are together."""
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        kind = leap, date((year - 1) % 400 + 1, 1, 1).isoweekday() % 7
        if kind not in self._kinds:
            classes = [(self._pattern.days(*kind), frozenset[int]())]
            for pattern in self._excluded:
                days = pattern.days(*kind)
                classes = [
                    (part, times)
                    for mask, gone in classes
                    for part, times in (
                        (mask & ~days, gone),
                        (mask & days, gone | set(pattern.times)),
                    )
                    if part
                ]
            self._kinds[kind] = [
                (mask, times)
                for mask, gone in classes
                if (times := tuple(t for t in self._pattern.times if t not in gone))
            ]
        return self._kinds[kind]

    def find(self, local: int) -> int | None:
        """The rank of the fire at exactly this local time, if there is one."""
        day, time = divmod(local, DAY)
        if self._daily is not None:
            index = self._daily_index.get(time)
            if index is None:
                return None
            return (day + _EPOCH_ORDINAL - 1) * len(self._daily) + index
        rank = self.rank(local)
        return rank if self.rank(local + 1) > rank else None

    def rank(self, local: int) -> int:
        """How many fires lie before a local time (seconds since 1970, on a wall clock)."""
        day, time = divmod(local, DAY)
        if self._daily is not None:
            return (day + _EPOCH_ORDINAL - 1) * len(self._daily) + bisect.bisect_left(
                self._daily, time
            )
        when = date.fromordinal(day + _EPOCH_ORDINAL)
        cycles, year = divmod(when.year - 1, 400)
        total = cycles * self._cycle + self._before[year]
        index = when.timetuple().tm_yday - 1
        for mask, times in self._year(when.year):
            total += (mask & ((1 << index) - 1)).bit_count() * len(times)
            if mask >> index & 1:
                total += bisect.bisect_left(times, time)
        return total

    def fire(self, rank: int) -> int:
        """The local time of a fire; the inverse of `rank`."""
        if self._daily is not None:
            day, index = divmod(rank, len(self._daily))
            return (day - _EPOCH_ORDINAL + 1) * DAY + self._daily[index]
        cycles, rest = divmod(rank, self._cycle)
        year = bisect.bisect_right(self._before, rest) - 1
        rest -= self._before[year]
        classes = self._year(year + 1)
        low, high = 0, 366  # the day that holds it: the last one with at most `rest` fires before
        while high - low > 1:
            middle = (low + high) // 2
            below = (1 << middle) - 1
            if sum((mask & below).bit_count() * len(times) for mask, times in classes) <= rest:
                low = middle
            else:
                high = middle
        below = (1 << low) - 1
        rest -= sum((mask & below).bit_count() * len(times) for mask, times in classes)
        times = next(times for mask, times in classes if mask >> low & 1)
        new_year = date(400 * cycles + year + 1, 1, 1).toordinal() - _EPOCH_ORDINAL
        return (new_year + low) * DAY + times[rest]


def _even_step(times: tuple[int, ...] | None) -> int | None:
    if not times or DAY % len(times):
        return None
    step = DAY // len(times)
    return step if times == tuple(range(times[0], times[0] + DAY, step)) else None


def leaves_any(pattern: Pattern, excluded: tuple[Pattern, ...]) -> bool:
    """Whether a pattern still fires without the fires of the excluded patterns."""
    return _calendar(pattern, excluded).rank(END) > 0


@functools.lru_cache(maxsize=512)
def _calendar(pattern: Pattern, excluded: tuple[Pattern, ...]) -> _Calendar:
    return _Calendar(pattern, excluded)


class Fire(NamedTuple):
    """An instant, and the local time it was scheduled for (they differ only after a gap)."""

    instant: int
    local: int


class _Piece(NamedTuple):
    """A stretch of the timeline with one offset. If `caught_up` is given, its first fire is the one
    that a gap just before it swallowed, and `caught_up` is when that was due."""

    start: int
    offset: int
    first: int  # number of the piece's first fire
    rank: int  # the calendar's rank of its first regular fire
    local: int  # local time from which regular fires count
    local_end: int
    caught_up: int | None

    def regular(self) -> int:
        return self.first + (self.caught_up is not None)


class _Covered(NamedTuple):
    """What is known of a timeline: pieces that cover the instants before `end`, and two of their
    columns for bisection. Replaced as a whole, so that threads may share a timeline."""

    end: int
    pieces: list[_Piece]
    starts: list[int]
    firsts: list[int]


class Timeline:
    """The fires of a pattern in a zone at or after `origin`, numbered from 0. With `excluded`
    patterns: without the fires that are due at a local time which one of them matches."""

    def __init__(
        self, pattern: Pattern, zone: Zone, origin: int, excluded: tuple[Pattern, ...] = ()
    ) -> None:
        self._fixed = pattern.fixed
        self._all = _calendar(pattern, ())
        self._calendar = _calendar(pattern, excluded)
        self._zone = zone
        origin = min(max(origin, BEGINNING), END)
        # Begin early: the origin may lie just after a change.
        self._low = max(origin - 3 * DAY, BEGINNING)
        self._covered = _Covered(self._low, [], [], [])
        self._extend(origin + DAY)
        self._base = 0
        self._base = self.before(origin)
        # Evenly spaced fires in a zone that never changes need no calendar at all.
        self._step = self._calendar.step if zone.never_changes else None
        self._first = self[0].instant if self._step else 0

    def before(self, instant: int) -> int:
        """How many fires lie at or after the origin and before `instant`; never negative."""
        piece = self._piece_at(instant)
        if piece is None:
            return 0
        number = piece.first
        if instant > piece.start:
            local = min(max(instant + piece.offset, piece.local), piece.local_end)
            number = piece.regular() + self._calendar.rank(local) - piece.rank
        return max(number - self._base, 0)

    def find(self, instant: int) -> int | None:
        """The number of the fire at exactly this instant, if there is one."""
        if self._step:
            number, rest = divmod(instant - self._first, self._step)
            return number if rest == 0 <= number and instant < END else None
        piece = self._piece_at(instant)
        if piece is None:
            return None
        start, offset, first, rank, local_start, local_end, caught_up = piece
        number = first - self._base
        if caught_up is None or instant != start:
            local = instant + offset
            found = self._calendar.find(local)
            if found is None or not local_start <= local < local_end:
                return None
            number += found - rank + (caught_up is not None)
        return number if number >= 0 else None

    def _piece_at(self, instant: int) -> _Piece | None:
        covered = self._covered
        if instant >= covered.end:
            covered = self._extend(instant)
        at = bisect.bisect_right(covered.starts, instant) - 1
        return covered.pieces[at] if at >= 0 else None

    def __getitem__(self, number: int) -> Fire:
        """The fire of that number (not negative); OverflowError when the calendar ends first."""
        number += self._base
        covered = self._covered
        while (piece := self._piece_of(covered, number)) is None:
            if covered.end == END:
                raise OverflowError("the calendar ends with the year 9998")
            # Each step doubles what is covered: it is worked out again from its beginning.
            covered = self._extend(2 * covered.end - self._low + 40 * 366 * DAY)
        if number == piece.first and piece.caught_up is not None:
            return Fire(piece.start, piece.caught_up)
        local = self._calendar.fire(piece.rank + number - piece.regular())
        return Fire(local - piece.offset, local)

    def _piece_of(self, covered: _Covered, number: int) -> _Piece | None:
        at = bisect.bisect_right(covered.firsts, number) - 1
        # Pieces without fires share their number with the next one: the last of them is meant.
        piece = covered.pieces[at]
        if number >= piece.regular() and (
            number - piece.regular() >= self._calendar.rank(piece.local_end) - piece.rank
        ):
            return None
        return piece

    def _extend(self, end: int) -> _Covered:
        """Cover the instants up to and including `end`, as far as the calendar goes."""
        end = min(end + 400 * DAY, END)
        if end <= self._covered.end:
            return self._covered
        pieces: list[_Piece] = []
        number, reached, previous = 0, None, None
        for span in self._zone.spans(self._low, end):
            piece = self._piece(span, previous, reached, number)
            number = piece.regular() + self._calendar.rank(piece.local_end) - piece.rank
            reached, previous = piece.local_end, span
            pieces.append(piece)
        self._covered = covered = _Covered(
            end, pieces, [piece.start for piece in pieces], [piece.first for piece in pieces]
        )
        return covered

    def _piece(self, span: Span, previous: Span | None, reached: int | None, number: int) -> _Piece:
        local, local_end = span.start + span.offset, span.end + span.offset
        caught_up = None
        if self._fixed and previous is not None and reached is not None:
            gap_start = span.start + previous.offset
            if span.offset < previous.offset:
                # What occurs twice fired the first time.
                local = max(local, reached)
                local_end = max(local_end, local)
            elif span.offset - previous.offset < _LONGEST_GAP:
                due = self._all.rank(local)
                missed = due > self._all.rank(max(gap_start, reached))
                if missed and self._all.find(local) is None:
                    swallowed = self._all.fire(due - 1)
                    if self._calendar.find(swallowed) is not None:
                        caught_up = swallowed
        return _Piece(
            span.start, span.offset, number, self._calendar.rank(local), local, local_end, caught_up
        )
