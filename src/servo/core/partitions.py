"""Partitions: how an asset is divided, and sets of partition keys that are never enumerated.

Vocabulary. A *dimension* is one way of dividing (by time, by a fixed list, by keys that come and
go). A *partitioning* is one or more dimensions; it is part of an asset's definition. Bound to a
`now` and to the dynamic keys known then, each dimension becomes an *axis*, numbered from 0, and the
partitioning becomes a `PartitionSet`: the product of its axes, in which the last dimension (by
name) varies fastest.

A `PartitionSet` is a product of index ranges minus a sorted list of holes. Counting, membership,
n-th key, slices, ranges and "which are missing" cost a few steps per axis (and per hole), whatever
the size: a hundred years of hours in fifty regions is no larger than its definition.

Time. A partition stands for the window from one fire of a cron pattern to the next. Hourly and cron
partitions are identified by the instant the window starts (`t`), daily, weekly and monthly ones by
its local date (`d`); the display format never enters identity. A window exists once it has ended,
`end_offset` windows more or less. Rules over changes of clocks are those of servo.core.cron.
"""

import bisect
import contextlib
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any, Literal, NamedTuple, Protocol, overload

import msgspec

from servo.core import cron
from servo.core.cron import Timeline
from servo.core.keys import (
    DIMENSION_NAME,
    PartitionKey,
    Scalar,
    normal_scalar,
    parse_scalar,
    spell_scalar,
)
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

Grain = Literal["hour", "day", "week", "month", "cron"]
_GRAIN_CRON = {
    "hour": r"\d+ \* \* \* \*",
    "day": r"\d+ \d+ \* \* \*",
    "week": r"\d+ \d+ \* \* [0-7]",
    "month": r"\d+ \d+ \d+ \* \*",
    "cron": r".*",
}
DynamicKeys = Mapping[str, Iterable[Scalar]]
"""The keys of dynamic and tenant dimensions as of a plan, by dimension name."""


# ---------------------------------------------------------------- dimensions (definitions)


class TimeDimension(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="time"):
    """Windows of time. Users make it with HourlyPartition, DailyPartition and so on.

    `start` and `end` are local times of the zone, spelled `2024-01-01T00:00:00`; `exclude` holds
    cron expressions and local times whose windows are left out.
    """

    name: str
    grain: Grain
    cron: str
    start: str
    end: str | None = None
    end_offset: int = 0
    timezone: str = "UTC"
    format: str = "%Y-%m-%d"
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_name(self.name)
        try:
            for what, text in (("cron", self.cron), ("timezone", self.timezone)):
                if not isinstance(text, str):
                    raise Invalid(f"{what} {text!r} is not a string")
            pattern = cron.parse(self.cron)
            if not re.fullmatch(_GRAIN_CRON[self.grain], self.cron):
                raise Invalid(f"cron {self.cron!r} does not make windows of a {self.grain}")
            zone(self.timezone)
            local_time(self.start, "start")
            if self.end is not None:
                local_time(self.end, "end")  # at or before the start: there are no partitions
            if isinstance(self.end_offset, bool) or not isinstance(self.end_offset, int):
                raise Invalid(f"end_offset {self.end_offset!r} is not an integer")
            _check_format(self.format)
            excluded = [_excluded(text) for text in self.exclude]
            patterns = tuple(e for e in excluded if isinstance(e, cron.Pattern))
            if patterns and not cron.leaves_any(pattern, patterns):
                raise Invalid("exclude leaves no window at all; exclude fewer")
        except Invalid as why:
            raise Invalid(f"partition {self.name!r}: {why}") from None

    def axis(self, now: datetime, dynamic: DynamicKeys) -> "TimeAxis":
        return _time_axis(self, seconds(now) if now.microsecond == 0 else seconds(now) - 1)

    def describe(self) -> str:
        what = {"hour": "hourly", "day": "daily", "week": "weekly", "month": "monthly"}
        kind = what.get(self.grain, f"by cron {self.cron!r}")
        return f"{self.name} ({kind} from {self.start[:10]}, {self.timezone})"


class StaticDimension(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="static"):
    """A fixed list of values, in the order in which they are listed. `values` are spelled with
    their tags (`s:eu`, `i:3`), so that their types survive JSON."""

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not self.values:
            raise Invalid(f"partition {self.name!r} lists no values; give at least one")
        seen = set()
        for value in self.values:
            parse_scalar(value)
            if value in seen:
                shown = scalar_label(parse_scalar(value))
                raise Invalid(f"partition {self.name!r} lists {shown!r} twice; remove one")
            seen.add(value)

    def axis(self, now: datetime, dynamic: DynamicKeys) -> "ListAxis":
        return _list_axis(self.name, self.values)

    def describe(self) -> str:
        shown = ", ".join(scalar_label(parse_scalar(v)) for v in self.values[:3])
        more = f", … {len(self.values)} values" if len(self.values) > 3 else ""
        return f"{self.name} ({shown}{more})"


class DynamicDimension(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="dynamic"):
    """Keys that are added and removed while Servo runs; a plan is told which there are."""

    name: str

    def __post_init__(self) -> None:
        _check_name(self.name)

    def axis(self, now: datetime, dynamic: DynamicKeys) -> "ListAxis":
        return _dynamic_axis(self.name, dynamic)

    def describe(self) -> str:
        return f"{self.name} (dynamic)"


class TenantDimension(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tenant"):
    """One key for each tenant that a plan is told of."""

    name: str

    def __post_init__(self) -> None:
        _check_name(self.name)

    def axis(self, now: datetime, dynamic: DynamicKeys) -> "ListAxis":
        return _dynamic_axis(self.name, dynamic)

    def describe(self) -> str:
        return f"{self.name} (one per tenant)"


Dimension = TimeDimension | StaticDimension | DynamicDimension | TenantDimension


class Partitioning(msgspec.Struct, frozen=True):
    """One or more dimensions, kept sorted by name."""

    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        names = [dimension.name for dimension in self.dimensions]
        if not names:
            raise Invalid("a partitioning needs at least one dimension; leave it out for none")
        for name in names:
            if names.count(name) > 1:
                raise Invalid(f"two partition dimensions are named {name!r}; rename one")
        ordered = tuple(sorted(self.dimensions, key=lambda d: d.name))
        msgspec.structs.force_setattr(self, "dimensions", ordered)

    def keys(self, now: datetime, dynamic: DynamicKeys | None = None) -> "PartitionSet":
        """Every partition that exists at `now`."""
        axes = tuple(d.axis(now, dynamic or {}) for d in self.dimensions)
        return PartitionSet(
            tuple(d.name for d in self.dimensions), axes, tuple(Picks.all(a.count) for a in axes)
        )

    def describe(self) -> str:
        return " × ".join(dimension.describe() for dimension in self.dimensions)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not DIMENSION_NAME.match(name):
        raise Invalid(
            f"partition dimension {name!r} is not allowed: use letters, digits and _,"
            " not beginning with a digit"
        )


def _check_format(text: str) -> None:
    """A format must show something, or people could not tell partitions apart."""
    try:
        shown = EPOCH.strftime(text)
        if shown and shown != text:
            return
    except (TypeError, ValueError):  # no string; a null or a lone surrogate in it
        pass
    raise Invalid(f"format {text!r} does not show a time; use one like '%Y-%m-%d'")


def local_time(text: str, what: str) -> datetime:
    """A local date or time in ISO spelling, without an offset and within the years we count."""
    try:
        parsed = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise Invalid(f"{what} {text!r} is not a date or time like 2024-01-31T06:00") from None
    if parsed.tzinfo is not None:
        raise Invalid(f"{what} {text!r} has an offset; give the local time and timezone=")
    if not FIRST_YEAR < parsed.year < LAST_YEAR:
        raise Invalid(f"{what} {text!r} is outside the years {FIRST_YEAR + 1} to {LAST_YEAR - 1}")
    return parsed


def _excluded(text: str) -> cron.Pattern | datetime:
    if " " in text.strip() or text.startswith("@"):
        return cron.parse(text)
    return local_time(text, "exclude")


# ---------------------------------------------------------------- axes (dimensions at a `now`)


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


def scalar_label(value: Scalar) -> str:
    """A value as people write it; not an identity."""
    return value if isinstance(value, str) else spell_scalar(value)[2:]


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
        exclude = [_excluded(text) for text in dimension.exclude]
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
        elif moment is None and not _PERIOD.fullmatch(text):
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


# ---------------------------------------------------------------- sets of keys


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


_NO_HOLES = Holes(())


class Picks:
    """Some indexes of an axis: sorted, disjoint, non-empty ranges."""

    __slots__ = ("_before", "_starts", "count", "ranges")

    def __init__(self, ranges: Iterable[range]) -> None:
        merged: list[range] = []
        for each in sorted((r for r in ranges if r), key=lambda r: r.start):
            if merged and each.start <= merged[-1].stop:
                merged[-1] = range(merged[-1].start, max(merged[-1].stop, each.stop))
            else:
                merged.append(each)
        self.ranges = merged
        self._starts = [r.start for r in merged]
        self._before = list(itertools.accumulate((len(r) for r in merged), initial=0))
        self.count = self._before[-1]

    @classmethod
    def all(cls, count: int) -> "Picks":
        return cls((range(count),))

    @classmethod
    def of(cls, indexes: Iterable[int]) -> "Picks":
        return cls(range(i, i + 1) for i in indexes)

    def index(self, position: int) -> int:
        at = bisect.bisect_right(self._before, position) - 1
        return self.ranges[at].start + position - self._before[at]

    def find(self, index: int) -> int | None:
        at = bisect.bisect_right(self._starts, index) - 1
        if at < 0 or index >= self.ranges[at].stop:
            return None
        return self._before[at] + index - self._starts[at]

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(self.ranges)

    def __and__(self, other: "Picks") -> "Picks":
        found, i, j = [], 0, 0
        while i < len(self.ranges) and j < len(other.ranges):
            a, b = self.ranges[i], other.ranges[j]
            found.append(range(max(a.start, b.start), min(a.stop, b.stop)))
            i, j = (i + 1, j) if a.stop < b.stop else (i, j + 1)
        return Picks(found)


class PartitionSet(Sequence[PartitionKey]):
    """Partition keys in order, as a product of picks on axes minus holes (numbers in the product).

    Behaves as a sequence; `len` may exceed any memory.
    """

    __slots__ = ("_holes", "_size", "axes", "names", "picks")

    def __init__(
        self,
        names: tuple[str, ...],
        axes: tuple[Axis, ...],
        picks: tuple[Picks, ...],
        holes: Holes = _NO_HOLES,
    ) -> None:
        self.names = names
        self.axes = axes
        self.picks = picks
        self._holes = holes
        self._size = 1
        for pick in picks:
            self._size *= pick.count

    @property
    def size(self) -> int:
        """How many keys there are; `len` is the same, and cannot say more than 2^63 - 1."""
        return self._size - len(self._holes.numbers)

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    @overload
    def __getitem__(self, at: int) -> PartitionKey: ...
    @overload
    def __getitem__(self, at: slice) -> "KeySlice": ...
    def __getitem__(self, at: int | slice) -> "PartitionKey | KeySlice":
        numbers = range(self.size)
        if isinstance(at, slice):
            return KeySlice(self, numbers[at])
        return self._key(self._holes.skip(numbers[at]))

    def _key(self, number: int) -> PartitionKey:
        values: list[Scalar] = []
        for axis, pick in zip(reversed(self.axes), reversed(self.picks), strict=True):
            number, position = divmod(number, pick.count)
            values.append(axis.value(pick.index(position)))
        return _make_key(self.names, values[::-1])

    def __contains__(self, key: object) -> bool:
        return self.find(key) is not None

    def find(self, key: object) -> int | None:
        """The number of a key in this set, or None."""
        if not isinstance(key, PartitionKey):
            return None
        numbers = self._numbers((key,))
        return self._holes.find(numbers[0]) if numbers else None

    def index(self, key: Any, start: int = 0, stop: int | None = None) -> int:
        found = self.find(key)
        if found is None or found not in range(self.size)[start:stop]:
            raise ValueError(f"{key} is not in this set of partitions")
        return found

    def count(self, key: object) -> int:
        return int(key in self)

    def _numbers(self, keys: Iterable[PartitionKey]) -> list[int]:
        """The numbers of those keys that are in the product. Many keys share their parts, so each
        part is looked up once, by its spelling; and all keys are cut into parts in one go, because
        a list for each would wake the garbage collector."""
        size = len(self.names)
        spelled = [text for key in keys if (text := key.canonical).count(",") == size - 1]
        if not spelled or not self._size:
            return []
        parts = ",".join(spelled).split(",")
        columns: list[Iterable[int]] = []
        stride, outside = 1, -self._size  # a sum with that in it is negative
        for at in range(size - 1, -1, -1):
            column = parts[at::size]
            prefix = f"{self.names[at]}="
            find, position = self.axes[at].find, self.picks[at].find
            steps = {}
            for part in dict.fromkeys(column):
                index = find(part[len(prefix) :]) if part.startswith(prefix) else None
                found = None if index is None else position(index)
                steps[part] = outside if found is None else found * stride
            columns.append(map(steps.__getitem__, column))
            stride *= self.picks[at].count
        return [number for number in map(sum, zip(*columns, strict=True)) if number >= 0]

    def __iter__(self) -> Iterator[PartitionKey]:
        holes = iter(self._holes.numbers)
        hole = next(holes, None)
        # What does not change with every key is spelled once.
        parts: list[list[tuple[str, Scalar]]] = []
        for name, axis, pick in zip(self.names[1:], self.axes[1:], self.picks[1:], strict=True):
            values = [axis.value(i) for i in pick]
            parts.append([(f"{name}={spell_scalar(v)}", v) for v in values])
        number = 0
        first, axis = self.names[0], self.axes[0]
        for i in self.picks[0]:
            value = axis.value(i)
            head = (f"{first}={spell_scalar(value)}", value)
            for rest in itertools.product(*parts):
                if number == hole:
                    hole = next(holes, None)
                else:
                    chosen = (head, *rest)
                    yield PartitionKey._trusted(
                        dict(zip(self.names, (v for _, v in chosen), strict=True)),
                        ",".join(text for text, _ in chosen),
                    )
                number += 1

    def missing(self, present: Iterable[PartitionKey]) -> "PartitionSet":
        """The keys of this set that are not among `present` (which may hold others too)."""
        numbers = {*self._numbers(present), *self._holes.numbers}
        return PartitionSet(self.names, self.axes, self.picks, Holes(sorted(numbers)))

    def where(self, /, **choices: "Choice | Iterable[Choice]") -> "PartitionSet":
        """The keys with these values on these dimensions: a value, a label, a range `"a..b"` (both
        ends included, either may be left out), or several of them."""
        picks = list(self.picks)
        for name, choice in choices.items():
            if name not in self.names:
                known = ", ".join(self.names)
                raise Invalid(
                    f"there is no partition dimension {name!r}{did_you_mean(name, self.names)};"
                    f" the dimensions are: {known}"
                )
            at = self.names.index(name)
            several = (
                choice if isinstance(choice, Iterable) and not isinstance(choice, str) else [choice]
            )
            chosen = Picks(_choose(self.axes[at], name, each) for each in several)
            picks[at] = picks[at] & chosen
        return self._rebuilt(picks)

    def between(self, first: PartitionKey, last: PartitionKey) -> "PartitionSet":
        """From one key to another, both included, on every dimension by itself."""
        picks = []
        for name, axis, pick in zip(self.names, self.axes, self.picks, strict=True):
            ends = []
            for key in (first, last):
                index = axis.find(spell_scalar(key[name])) if name in key else None
                if index is None:
                    raise Invalid(f"the partition {key} does not exist here; check {name!r}")
                ends.append(index)
            picks.append(pick & Picks([range(ends[0], ends[1] + 1)]))
        return self._rebuilt(picks)

    def _rebuilt(self, picks: Sequence[Picks]) -> "PartitionSet":
        smaller = PartitionSet(self.names, self.axes, tuple(picks))
        if not self._holes.numbers:
            return smaller
        # Holes are numbers of the old product: give each its number in the new one.
        return smaller.missing(self._key(number) for number in self._holes.numbers)

    def latest(self, names: Iterable[str] | None = None) -> "PartitionSet":
        """The last window of the named time dimensions (of all, if not given), with everything on
        the others."""
        wanted = self.names if names is None else set(names)
        picks = [
            Picks.of([pick.index(pick.count - 1)])
            if name in wanted and isinstance(axis, TimeAxis) and pick.count
            else pick
            for name, axis, pick in zip(self.names, self.axes, self.picks, strict=True)
        ]
        return self._rebuilt(picks)

    def window(self, key: PartitionKey) -> Window:
        """The window of a key with exactly one time dimension."""
        times = [
            (n, a) for n, a in zip(self.names, self.axes, strict=True) if isinstance(a, TimeAxis)
        ]
        if len(times) != 1:
            raise Invalid(f"a time window needs one time dimension; {key} has {len(times)}")
        name, axis = times[0]
        index = axis.find(spell_scalar(key[name])) if name in key else None
        if index is None:
            raise Invalid(f"the partition {key} does not exist")
        return axis.window(index)

    def label(self, key: PartitionKey) -> str:
        """A key as people read it: `date=2024-01-15, region=eu`."""
        shown = []
        for name, axis in zip(self.names, self.axes, strict=True):
            index = axis.find(spell_scalar(key[name]))
            shown.append(
                f"{name}={scalar_label(key[name]) if index is None else axis.label(index)}"
            )
        return ", ".join(shown)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionSet):
            return NotImplemented
        if (self.names, self.axes) == (other.names, other.axes):
            # The same axes, so the same picks and holes are the same keys: no need to look at them.
            mine = [pick.ranges for pick in self.picks], self._holes.numbers
            if mine == ([pick.ranges for pick in other.picks], other._holes.numbers):
                return True
        return self.size == other.size and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # compared by content, which may be endless to hash

    def __repr__(self) -> str:
        return f"<{self.size} partitions by {', '.join(self.names)}>"


class KeySlice(Sequence[PartitionKey]):
    """A slice of a set; made without making its keys."""

    __slots__ = ("_numbers", "_of")

    def __init__(self, of: PartitionSet, numbers: range) -> None:
        self._of = of
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> PartitionKey: ...
    @overload
    def __getitem__(self, at: slice) -> "KeySlice": ...
    def __getitem__(self, at: int | slice) -> "PartitionKey | KeySlice":
        if isinstance(at, slice):
            return KeySlice(self._of, self._numbers[at])
        return self._of[self._numbers[at]]

    def __contains__(self, key: object) -> bool:
        return self._of.find(key) in self._numbers

    def index(self, key: Any, start: int = 0, stop: int | None = None) -> int:
        found = self._of.find(key)
        if found is None or found not in self._numbers[start:stop]:
            raise ValueError(f"{key} is not in this slice of partitions")
        return self._numbers.index(found)

    def count(self, key: object) -> int:
        return int(key in self)


Choice = Scalar
"""A typed value, or a text: a label, a spelled value, or a range of either."""


def _choose(axis: Axis, name: str, choice: Choice) -> range:
    if isinstance(choice, str):
        # A listed value may itself contain two dots: it wins over the range.
        if ".." in choice and not _has(axis, choice):
            first, last = _ends(axis, choice)
            low = axis.bound(first, last=False) if first else 0
            high = axis.bound(last, last=True) if last else axis.count - 1
            if high < low and (first or last):
                raise Invalid(f"the range {name}={choice} {_empty(axis, first, last)}")
            return range(low, high + 1)
        return axis.stretch(choice)
    else:
        index = axis.locate(spell_scalar(normal_scalar(choice, name)))
    return range(index, index + 1)


def _empty(axis: Axis, first: str, last: str) -> str:
    """Why a range holds nothing."""
    if not axis.count:
        return "holds no key; no window of it has ended yet"
    if first and last and axis.bound(last, last=False) <= axis.bound(first, last=True):
        return "runs backwards; swap its ends"
    return f"holds no key; there are {axis.label(0)} to {axis.label(axis.count - 1)}"


def _ends(axis: Axis, choice: str) -> tuple[str, str]:
    """The two ends of a range, either of which may contain two dots, too."""
    cuts = [at for at in range(len(choice) - 1) if choice[at : at + 2] == ".."]
    ends = [(choice[:at], choice[at + 2 :]) for at in cuts]
    if len(ends) > 1:
        for first, last in ends:
            if (not first or _has(axis, first)) and (not last or _has(axis, last)):
                return first, last
    return ends[0]


def _has(axis: Axis, text: str) -> bool:
    try:
        axis.locate(text)
    except Invalid:
        return False
    return True


def _make_key(names: Sequence[str], values: Sequence[Scalar]) -> PartitionKey:
    return PartitionKey._trusted(
        dict(zip(names, values, strict=True)),
        ",".join(f"{n}={spell_scalar(v)}" for n, v in zip(names, values, strict=True)),
    )
