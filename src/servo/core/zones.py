"""Time zones as spans of constant offset from UTC.

A `Zone` answers one question: over which spans of absolute time (integer seconds since 1970) does
which offset hold? Cron and partitions count over these spans instead of walking the clock, so an
answer about a century costs about as many steps as the zone changed its clocks.

Zones come from the `tzdata` package, not from the operating system, so that one lock file gives
one set of rules on every machine. Its TZif files (RFC 8536) are read here rather than through
`zoneinfo`, which does not show the changes themselves: finding them by probing cost 20 ms a zone,
reading them costs less than one. tests/unit/test_zones.py compares every zone with `zoneinfo`.
"""

import bisect
import functools
import re
import struct
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from servo.errors import Invalid, did_you_mean

HOUR = 3_600
DAY = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL = EPOCH.toordinal()
FIRST_YEAR, LAST_YEAR = 2, 9998
"""A year less at both ends than `datetime` holds, so that an offset never leaves it."""
BEGINNING = (date(FIRST_YEAR, 1, 1).toordinal() - _EPOCH_ORDINAL) * DAY
END = (date(LAST_YEAR + 1, 1, 1).toordinal() - _EPOCH_ORDINAL) * DAY
"""The instants of these years: `BEGINNING <= instant < END`."""


class Span(NamedTuple):
    """`start <= instant < end` has local time `instant + offset`."""

    start: int
    end: int
    offset: int


class Zone:
    """One time zone. Changes by rule are worked out on demand and kept; an instance may be shared
    by threads, because what is kept is replaced as a whole and never changed in place."""

    def __init__(
        self, name: str, changes: list[tuple[int, int]], listed: int, rule: "_Rule | None"
    ) -> None:
        """`changes`: (instant, offset from then on), the first one at the beginning of time; they
        hold up to the instant `listed`, and the rule from there."""
        self.name = name
        self._listed = listed
        self._rule = rule
        self._known = (_year_of(listed) - 1, tuple(changes))
        """All changes up to and including that year, and the listed ones."""

    def __repr__(self) -> str:
        return f"Zone({self.name!r})"

    @property
    def never_changes(self) -> bool:
        return self._rule is None and len(self._known[1]) == 1

    def offset(self, instant: int) -> int:
        """Seconds to add to UTC at `instant`."""
        changes = self._changes(instant)
        return changes[max(bisect.bisect_right(changes, (instant, DAY * 9)) - 1, 0)][1]

    def spans(self, start: int, end: int) -> list[Span]:
        """The spans that meet `[start, end)`; the last one ends at `end`."""
        changes = self._changes(end)
        low = max(bisect.bisect_right(changes, (start, DAY * 9)) - 1, 0)
        high = bisect.bisect_left(changes, (end, -DAY * 9))
        ends = [at for at, _ in changes[low + 1 : high]] + [end]
        return [
            Span(at, until, offset)
            for (at, offset), until in zip(changes[low:high], ends, strict=True)
        ]

    def instant_of(self, local: datetime) -> int:
        """The instant of a naive local time: the first of two, the end of the gap of none."""
        wall = seconds(local.replace(tzinfo=UTC))
        for span in self.spans(wall - 2 * DAY, wall + 2 * DAY):
            if wall < span.end + span.offset:
                return max(wall - span.offset, span.start)
        raise AssertionError("no local time is more than two days from UTC")

    def _changes(self, until: int) -> tuple[tuple[int, int], ...]:
        year, changes = self._known
        if self._rule is None:
            return changes
        last = min(_year_of(until) + 1, LAST_YEAR)
        if last > year:
            # A few years more than asked for: growing one by one would be quadratic.
            last = min(last + 50, LAST_YEAR)
            more = [c for y in range(year + 1, last + 1) for c in self._rule.changes(y)]
            changes += tuple(sorted(c for c in more if c[0] > self._listed))
            self._known = (last, changes)
        return changes


class _Rule(NamedTuple):
    """What a POSIX TZ string says about all years after the listed ones."""

    standard: int
    summer: int
    start: str
    end: str

    def changes(self, year: int) -> list[tuple[int, int]]:
        return [
            (_rule_time(self.start, year) - self.standard, self.summer),
            (_rule_time(self.end, year) - self.summer, self.standard),
        ]


def _rule_time(rule: str, year: int) -> int:
    """The local time (seconds since 1970) of a rule such as `M3.2.0/2` or `J60` in a year."""
    day_text, _, time_text = rule.partition("/")
    time = _clock(time_text) if time_text else 2 * HOUR
    if day_text[0] == "M":
        month, week, weekday = map(int, day_text[1:].split("."))
        first = date(year, month, 1)
        day = (weekday - first.isoweekday()) % 7 + 7 * (week - 1)
        length = (date(year + month // 12, month % 12 + 1, 1) - first).days
        ordinal = first.toordinal() + (day if day < length else day - 7)
    elif day_text[0] == "J":
        # Day of the year from 1, never counting 29 February.
        ordinal = date(year, 1, 1).toordinal() + int(day_text[1:]) - 1
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        ordinal += leap and int(day_text[1:]) >= 60
    else:
        ordinal = date(year, 1, 1).toordinal() + int(day_text)
    return (ordinal - _EPOCH_ORDINAL) * DAY + time


def _clock(text: str) -> int:
    """`-3`, `+5:30`, `2:00:00` in seconds."""
    sign = -1 if text[0] == "-" else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")] + [0, 0]
    return sign * (parts[0] * HOUR + parts[1] * 60 + parts[2])


def _read(name: str, data: bytes) -> Zone:
    """A zone from a TZif file of version 2 or later."""

    def header(at: int) -> tuple[int, int, int, int, int, int]:
        return struct.unpack(">6I", data[at + 20 : at + 44])

    def size(counts: tuple[int, int, int, int, int, int], width: int) -> int:
        utc, standard, leap, times, types, chars = counts
        return times * (width + 1) + types * 6 + chars + leap * (width + 4) + standard + utc

    second = 44 + size(header(0), 4)
    counts = header(second)
    _, _, _, times, types, _ = counts
    at = second + 44
    instants = struct.unpack(f">{times}q", data[at : at + 8 * times])
    indexes = data[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack(">i", data[i : i + 4])[0] for i in range(at, at + 6 * types, 6)]
    changes = [(BEGINNING, offsets[0])]
    for instant, index in zip(instants, indexes, strict=True):
        # Renaming a zone or its summer time is listed too, but the clocks did not change.
        if offsets[index] != changes[-1][1] and instant > BEGINNING:
            changes.append((instant, offsets[index]))
    footer = data[second + 44 + size(counts, 8) :].decode().strip()
    return Zone(name, changes, instants[-1] if instants else BEGINNING, _rule(footer))


def _rule(footer: str) -> _Rule | None:
    label = r"(?:[A-Za-z]+|<[^>]+>)"
    match = re.fullmatch(rf"{label}([-+0-9:]+)(?:{label}([-+0-9:]*),([^,]+),([^,]+))?", footer)
    if not match or match[3] is None:
        return None
    standard = -_clock(match[1])
    summer = -_clock(match[2]) if match[2] else standard + HOUR
    return _Rule(standard, summer, match[3], match[4])


def seconds(moment: datetime) -> int:
    """Whole seconds since 1970 of an aware datetime, rounded up."""
    delta = moment - EPOCH
    return delta.days * DAY + delta.seconds + (1 if delta.microseconds else 0)


def moment(instant: int) -> datetime:
    """The UTC datetime of an instant."""
    return EPOCH + timedelta(seconds=instant)


def _year_of(instant: int) -> int:
    """The year of an instant, within the years that are known; off by a day at New Year at most."""
    ordinal = instant // DAY + _EPOCH_ORDINAL
    return date.fromordinal(min(max(ordinal, 366), date(LAST_YEAR, 12, 31).toordinal())).year


@functools.cache
def zone(name: str) -> Zone:
    """The zone of an IANA name such as `Europe/London`."""
    if name == "UTC":
        return Zone("UTC", [(BEGINNING, 0)], BEGINNING, None)
    # Only projects that name a zone pay for this; importlib.resources would cost five times more.
    import pkgutil

    if re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", name):
        try:
            data = pkgutil.get_data("tzdata", f"zoneinfo/{name}")
        except OSError:  # also for the name of a folder
            data = None
        if data is not None and data[:4] == b"TZif":
            return _read(name, data)
    known = (pkgutil.get_data("tzdata", "zones") or b"").decode().split()
    hint = did_you_mean(name, known) or "; use a name like 'Europe/London'"
    raise Invalid(f"time zone {name!r} is not known{hint}")
