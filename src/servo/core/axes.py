"""Axes: dimensions at a moment, their values numbered from 0.

A list has its values one by one. Time has windows, each from one fire of a cron pattern to the next;
a window exists once it has ended, `end_offset` windows more or less. Hourly and cron partitions are
identified by the instant the window starts (`t`), daily, weekly and monthly ones by its local date
(`d`); the display format never enters identity. Rules over changes of clocks are those of
servo.core.cron. No question is answered by going through an axis.
"""

import bisect
import contextlib
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import NamedTuple, Protocol, overload

from servo.core import cron
from servo.core.cron import Timeline
from servo.core.dimensions import (
    Dimension,
    DynamicKeys,
    StaticDimension,
    TimeDimension,
    local_time,
    read_exclusion,
    scalar_label,
)
from servo.core.keys import Scalar, normal_scalar, parse_scalar, spell_scalar
from servo.core.zones import (
    BEGINNING,
    DAY,
    EPOCH,
    FIRST_YEAR,
    LAST_YEAR,
    moment,
    seconds,
    zone,
)
from servo.errors import Invalid, did_you_mean


class Axis(Protocol):
    """A dimension bound to a moment: values numbered from 0 to count - 1."""

    @property
    def count(self) -> int: ...
    def value(self, index: int) -> Scalar: ...
    def find(self, spelled: str) -> int | None:
        """The number of a value in canonical spelling (`d:2024-01-01`), or None."""

    def label(self, index: int) -> str:
        """How people see the value; `locate` reads it back."""

    def locate(self, text: str) -> int:
        """The number of a label or of a spelled value (`d:2024-01-01`); Invalid if there is none."""

    def stretch(self, text: str) -> range:
        """The numbers a text stands for: mostly one; on a time axis `2024-03` is all windows that
        start in March, and `2024-03-31` all that start on that day. Invalid if there are none."""

    def bound(self, text: str, *, last: bool) -> int:
        """Where a range from (or, if `last`, to) a text begins (or ends), both included. On a time
        axis any time will do, so that ranges intersect; on a list it must be a value."""


@overload
def bind(dimension: TimeDimension, now: datetime, dynamic: DynamicKeys) -> "TimeAxis": ...
@overload
def bind(dimension: Dimension, now: datetime, dynamic: DynamicKeys) -> Axis: ...
def bind(dimension: Dimension, now: datetime, dynamic: DynamicKeys) -> Axis:
    """The axis of a dimension at `now`, with the dynamic keys that are known then."""
    if isinstance(dimension, TimeDimension):
        return _time_axis(dimension, seconds(now) if now.microsecond == 0 else seconds(now) - 1)
    if isinstance(dimension, StaticDimension):
        return _list_axis(dimension.name, dimension.values)
    return _dynamic_axis(dimension.name, dynamic)


class Holes:
    """Numbers left out of 0, 1, 2, …: the rest is numbered again without gaps."""

    __slots__ = ("_shifted", "numbers")

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self._shifted = [number - i for i, number in enumerate(numbers)]

    def skip(self, n: int) -> int:
        """The n-th number that is not a hole."""
        return n + bisect.bisect_right(self._shifted, n)

    def rank(self, number: int) -> int:
        """How many numbers below this one are not holes."""
        return number - bisect.bisect_left(self.numbers, number)

    def find(self, number: int) -> int | None:
        """The inverse of `skip`; None for a hole."""
        if not self.numbers:
            return number
        at = bisect.bisect_left(self.numbers, number)
        if at < len(self.numbers) and self.numbers[at] == number:
            return None
        return number - at


class ListAxis:
    """Values one by one."""

    def __init__(self, name: str, values: tuple[Scalar, ...]) -> None:
        self.name = name
        self.values = values
        self.count = len(values)
        self._numbers = {spell_scalar(value): i for i, value in enumerate(values)}

    def value(self, index: int) -> Scalar:
        return self.values[index]

    def find(self, spelled: str) -> int | None:
        return self._numbers.get(spelled)

    def label(self, index: int) -> str:
        value = self.values[index]
        label = scalar_label(value)
        # Where the plain form would be read as something else, the spelled one is shown.
        return label if self._read(label) == [index] else spell_scalar(value)

    def locate(self, text: str) -> int:
        fits = self._read(text)
        if len(fits) > 1:
            spelled = " or ".join(spell_scalar(self.values[i]) for i in fits)
            raise Invalid(f"{self.name}={text} is ambiguous; write {spelled}")
        if not fits:
            labels = [self.label(i) for i in range(min(self.count, 1000))]
            hint = did_you_mean(text, labels) or (
                f"; it has {', '.join(labels[:5])}{', …' if self.count > 5 else ''}"
                if labels
                else "; it has no keys yet"
            )
            raise Invalid(f"partition dimension {self.name!r} has no key {text!r}{hint}")
        return fits[0]

    def stretch(self, text: str) -> range:
        index = self.locate(text)
        return range(index, index + 1)

    def bound(self, text: str, *, last: bool) -> int:
        return self.locate(text)

    def _read(self, text: str) -> list[int]:
        """What a text may mean: the value spelled so, or else those that look so."""
        spelled = self._numbers.get(text)
        return self._labelled.get(text, []) if spelled is None else [spelled]

    @functools.cached_property
    def _labelled(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, value in enumerate(self.values):
            found.setdefault(scalar_label(value), []).append(i)
        return found


class Window(NamedTuple):
    """`start <= instant < end`, in UTC."""

    start: datetime
    end: datetime


class TimeAxis:
    """The windows of a time dimension that exist at a moment."""

    def __init__(self, dimension: TimeDimension, now: int) -> None:
        self.dimension = dimension
        self.name = dimension.name
        self._zone = zone(dimension.timezone)
        self._dates = dimension.grain in ("day", "week", "month")
        self._tag = "d:" if self._dates else "t:"
        self._pattern = cron.parse(dimension.cron)
        exclude = [read_exclusion(text) for text in dimension.exclude]
        self._patterns = tuple(e for e in exclude if isinstance(e, cron.Pattern))
        self._origin = self._zone.instant_of(local_time(dimension.start, "start"))
        # All fires, which bound the windows; and those that start a window which is not excluded.
        self._ticks = Timeline(self._pattern, self._zone, self._origin)
        self._line = self._timeline(self._origin)
        self._history = self._line, 0, self._origin
        gone = {
            number
            for local in exclude
            if isinstance(local, datetime)
            for number in self._due_at(local)
        }
        self._gone = Holes(sorted(gone))
        self._contiguous = not exclude
        self.count = self._count(now)

    def _timeline(self, origin: int) -> Timeline:
        return Timeline(self._pattern, self._zone, origin, self._patterns)

    def _due_at(self, local: datetime) -> Iterator[int]:
        """The fires that are due at a local time: two if it occurs twice and both fire."""
        due = (local - EPOCH.replace(tzinfo=None)) // timedelta(seconds=1)
        for span in self._zone.spans(due - 2 * DAY, due + 2 * DAY):
            # A fire that was due in a gap starts where the next span does.
            number = self._line.find(max(due - span.offset, span.start))
            if number is not None and self._line[number].local == due:
                yield number

    def _count(self, now: int) -> int:
        try:
            ended = self._elapsed(now) + self.dimension.end_offset
            if self.dimension.end is not None:
                end = self._zone.instant_of(local_time(self.dimension.end, "end"))
                ended = min(ended, self._ticks.before(end + 1) - 1)
            return self.starts_before(self._ticks[ended - 1].instant + 1) if ended > 0 else 0
        except OverflowError:
            raise Invalid(
                f"partition {self.name!r}: end_offset {self.dimension.end_offset} reaches beyond"
                f" the year {LAST_YEAR}; use a smaller one"
            ) from None

    def _elapsed(self, now: int) -> int:
        """How many windows, excluded ones too, have ended since the start; negative before it."""
        if now >= self._origin:
            return self._ticks.before(now + 1) - 1
        return -1 - Timeline(self._pattern, self._zone, max(now + 1, BEGINNING)).before(
            self._origin
        )

    def starts_before(self, instant: int) -> int:
        """How many windows start before an instant, whether or not they have ended."""
        return self._gone.rank(self._line.before(instant))

    def _position(self, instant: int) -> int:
        """Like `starts_before`, but going on before the first window: there it is negative."""
        if instant >= self._origin:
            return self.starts_before(instant)
        line, there = self._past(instant)
        return line.before(instant) - there

    def _past(self, instant: int) -> tuple[Timeline, int]:
        """A timeline that begins at or before an instant (or with the calendar), and how many
        windows it has before the first one."""
        line, there, begin = self._history
        if instant < begin and begin > BEGINNING:
            # Twice as far as before: going back step by step would be quadratic.
            begin = max(min(instant, 2 * begin - self._origin), BEGINNING)
            line = self._timeline(begin)
            there = line.before(self._origin)
            self._history = line, there, begin
        return line, there

    def _fire(self, index: int) -> cron.Fire:
        """What starts a window. Negative numbers go on before the first one, until the calendar
        begins."""
        if index >= 0:
            return self._line[self._gone.skip(index)]
        line, there, begin = self._history
        while there < -index and begin > BEGINNING:
            line, there = self._past(2 * begin - self._origin - 400 * DAY)
            begin = self._history[2]
        return line[max(there + index, 0)]

    def start(self, index: int) -> int:
        """The instant a window starts. Negative numbers go on before the first one."""
        return self._fire(index).instant

    def end(self, index: int) -> int:
        start = self.start(index)
        if index < 0:
            return Timeline(self._pattern, self._zone, start + 1)[0].instant
        return self._ticks[self._ticks.before(start + 1)].instant

    def window(self, index: int) -> Window:
        return Window(moment(self.start(index)), moment(self.end(index)))

    def value(self, index: int) -> Scalar:
        return self._value(self._fire(index))

    def _value(self, fire: cron.Fire) -> Scalar:
        if self._dates:
            return date.fromordinal(fire.local // DAY + EPOCH.toordinal())
        return moment(fire.instant)

    def find(self, spelled: str) -> int | None:
        if spelled[:2] != self._tag:
            return None
        # The spelling was checked when the key was made.
        if self._dates:
            number = self._date_number(date.fromisoformat(spelled[2:]))
        else:
            since = datetime.fromisoformat(spelled[2:]) - EPOCH
            if since.microseconds:
                return None
            number = self._line.find(since.days * DAY + since.seconds)
        index = None if number is None else self._gone.find(number)
        return index if index is not None and index < self.count else None

    def _date_number(self, value: date) -> int | None:
        if not FIRST_YEAR < value.year < LAST_YEAR:
            return None
        midnight = self._zone.instant_of(datetime(value.year, value.month, value.day))
        number = self._line.before(midnight)
        try:
            # A fire due just before midnight that a gap moved past it belongs to the day before.
            for near in (number, number + 1):
                if self._value(self._line[near]) == value:
                    return near
        except OverflowError:
            pass
        return None

    def overlapping(self, start: int, end: int) -> range:
        """The windows that share an instant with `[start, end)`: existing, still to come, or from
        before the first one (negative)."""
        first = self._position(start + 1) - 1
        if not self._contiguous and self.end(first) <= start:
            first += 1
        return range(first, max(self._position(end), first))

    def absent(self, start: int, end: int, limit: int) -> list[Scalar]:
        """What the windows that share an instant with `[start, end)` and do not exist would be
        called: those before the first and after the last."""
        over = self.overlapping(start, end)
        before = range(over.start, min(over.stop, 0))
        after = range(max(over.start, self.count), over.stop)
        return [self.value(i) for i in itertools.islice(itertools.chain(before, after), limit)]

    def label(self, index: int) -> str:
        fire = self._fire(index)
        local = EPOCH.replace(tzinfo=None) + timedelta(seconds=fire.local)
        text = local.strftime(self.dimension.format)
        if not self._dates and self._zone.instant_of(local) < fire.instant:
            # The second of two equal times on the wall clock: say which by its offset.
            offset = timezone(timedelta(seconds=fire.local - fire.instant))
            text += local.replace(tzinfo=offset).strftime("%z")
        return text

    def locate(self, text: str) -> int:
        index = self._locate(text)
        if index is None:
            raise self._no_key(text)
        return index

    def stretch(self, text: str) -> range:
        found = self._stretch(text)
        if not found:
            raise self._no_key(text)
        return found

    def bound(self, text: str, *, last: bool) -> int:
        found = self._stretch(text)
        if found is not None:
            return found.stop - 1 if last else found.start
        moment = self._moment(text)
        if moment is None:
            raise self._no_key(text)
        # A time inside a gap is before what starts at the end of the gap.
        at, exists = moment
        return min(self.starts_before(at + (last and exists)), self.count) - last

    def _stretch(self, text: str) -> range | None:
        """As `stretch`; None where a text names neither a key nor a period."""
        index = self._locate(text)
        period = _PERIOD.fullmatch(text)
        if period and (index is None or self.label(index) != text):
            year, month, day = (int(part) if part else None for part in period.groups())
            if not (day and self._dates) and FIRST_YEAR < (year or 0) < LAST_YEAR:
                with contextlib.suppress(ValueError):
                    first = datetime(year or 1, month or 1, day or 1)
                    days = 1 if day else 31 if month else 366
                    after = first + timedelta(days=days)
                    after = (
                        after if day else after.replace(day=1, month=after.month if month else 1)
                    )
                    bounds = (self._zone.instant_of(first), self._zone.instant_of(after))
                    start, stop = (min(self.starts_before(at), self.count) for at in bounds)
                    return range(start, stop)
        return None if index is None else range(index, index + 1)

    def _moment(self, text: str) -> tuple[int, bool] | None:
        """The instant that a label, a spelled value or an ISO time stands for, window or not; and
        whether that time exists on the clock."""
        shown = self.dimension.format
        if text[:2] in ("d:", "t:"):
            text = text[2:]
        readings = itertools.chain(
            () if shown in _ISO_FORMATS else _read_time(text, shown),
            _read_iso(text),
        )
        for parsed in readings:
            if not FIRST_YEAR < parsed.year < LAST_YEAR:
                continue
            if parsed.tzinfo is not None:
                return seconds(parsed), True
            at = self._zone.instant_of(parsed)
            wall = EPOCH.replace(tzinfo=None) + timedelta(seconds=at + self._zone.offset(at))
            return at, wall == parsed
        return None

    def _no_key(self, text: str) -> Invalid:
        moment = self._moment(text)
        if not self.count:
            hint = "no window of it has ended yet"
        elif moment is None and self._stretch(text) is None:
            hint = f"write a time like {self.label(0)}"
        else:
            at, exists = moment or (self.start(0) - 1, True)
            if self.start(0) <= at < self.end(self.count - 1):
                index = self.starts_before(at + exists) - 1
                near = [self.label(i) for i in (index, index + 1) if 0 <= i < self.count]
                hint = f"no window starts then; the nearest: {' and '.join(near)}"
            else:
                hint = f"it goes from {self.label(0)} to {self.label(self.count - 1)}"
        return Invalid(f"partition dimension {self.name!r} has no key {text!r}; {hint}")

    def _locate(self, text: str) -> int | None:
        if text[:2] in ("d:", "t:"):
            return self.find(spell_scalar(parse_scalar(text)))
        # A format of one's own comes first: `%Y%d%m` looks like ISO 8601 and is not.
        shown = self.dimension.format
        for pattern in () if shown in _ISO_FORMATS else (shown, shown + "%z"):
            for parsed in _read_time(text, pattern):
                found = self._near(parsed, text)
                # In a label, an offset tells two equal times apart; elsewhere it is not part of it.
                if found is not None and (pattern is shown or self.label(found) == text):
                    return found
        for parsed in _read_iso(text):
            if self._dates and len(text) <= 10:
                return self.find(f"d:{parsed.date().isoformat()}")
            return self._near(parsed, text)
        return None

    def _near(self, parsed: datetime, text: str) -> int | None:
        """The window that starts at a time, or that is labelled so."""
        if not FIRST_YEAR < parsed.year < LAST_YEAR or parsed.microsecond:
            return None
        if parsed.tzinfo is not None:
            instant = seconds(parsed)
            index = self.starts_before(instant)
            return index if index < self.count and self.start(index) == instant else None
        # The format may leave out the time of day: the first window from there on. One more on
        # either side: gaps move fires, and weeks have several numberings.
        index = self.starts_before(self._zone.instant_of(parsed))
        for near in (index, index + 1, index - 1):
            if 0 <= near < self.count and (self.label(near) == text or self._local(near) == parsed):
                return near
        return None

    def _local(self, index: int) -> datetime:
        return EPOCH.replace(tzinfo=None) + timedelta(seconds=self._fire(index).local)


_PERIOD = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
_ISO_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M")
"""Labels in these are read as ISO 8601, like all labels in the end; strptime has a slow first call."""


def _read_iso(text: str) -> Iterator[datetime]:
    # Python reads any character between date and time as ISO 8601.
    if text[10:11] in ("", "T", " "):
        with contextlib.suppress(ValueError):
            yield datetime.fromisoformat(text)


def _read_time(text: str, pattern: str) -> Iterator[datetime]:
    """What time a label may mean."""
    readings = [(text, pattern)]
    if re.search("%[GUVW]", pattern):
        # strptime ignores or refuses a week without a weekday, and an ISO week beside a date.
        loose = pattern.replace("%V", "%U").replace("%G", "%Y")
        readings += [(text + " 1", pattern + " %u"), (text, loose), (text + " 1", loose + " %u")]
    for given, shown in readings:
        try:
            yield datetime.strptime(given, shown)
        except (ValueError, re.error):  # re.error: the format has a directive twice
            continue


@functools.lru_cache(maxsize=1024)
def _time_axis(dimension: TimeDimension, now: int) -> TimeAxis:
    return TimeAxis(dimension, now)


@functools.lru_cache(maxsize=1024)
def _list_axis(name: str, values: tuple[str, ...]) -> ListAxis:
    return ListAxis(name, tuple(parse_scalar(value) for value in values))


def _dynamic_axis(name: str, dynamic: DynamicKeys) -> ListAxis:
    spelled = {spell_scalar(normal_scalar(value, name)) for value in dynamic.get(name, ())}
    return _list_axis(name, tuple(sorted(spelled)))
