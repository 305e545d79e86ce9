"""Durations as people write them: `500ms`, `90s`, `10m`, `2h`, `1d`, `1h30m`.

Inside Servo a duration is a whole number of milliseconds. A bare number is refused, because it
would be seconds to some readers and milliseconds to others; so are fractions, because `1h30m` says
it better. A `timedelta` is taken as it is.
"""

import re
from datetime import timedelta

from servo.errors import Invalid

MAX_MS = 2**53 - 1
"""The longest duration: the largest integer that JavaScript reads from JSON without rounding."""

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"([0-9]{1,16})(ms|[dhms])")
_HOW = "write whole numbers with the units d, h, m, s and ms, largest first, like '10m' or '1h30m'"


def parse_duration(value: object) -> int:
    """Milliseconds of a duration such as `10m`, or of a `timedelta`; anything else is refused."""
    if isinstance(value, timedelta):
        return _from_timedelta(value)
    if not isinstance(value, str):
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise Invalid(f"duration {value!r} has no unit: write '{value}s' if it means seconds")
        raise Invalid(f"a duration is a string like '10m', not {value!r}")
    total, at, smaller = 0, 0, list(_UNITS)
    while at < len(value):
        part = _PART.match(value, at)
        if part is None:
            if value.isascii() and value.isdigit():
                raise Invalid(
                    f"duration {_short(value)} has no unit: write '10s' for seconds or '10m' for"
                    " minutes",
                    position=len(value),
                )
            raise Invalid(
                f"duration {_short(value)} is not understood at character {at + 1}: {_HOW}",
                position=at,
            )
        number, unit = part.groups()
        if unit not in smaller:
            raise Invalid(
                f"duration {_short(value)}: the unit {unit!r} is repeated or follows a smaller one;"
                f" {_HOW}",
                position=part.start(2),
            )
        smaller = smaller[smaller.index(unit) + 1 :]
        total += int(number) * _UNITS[unit]
        at = part.end()
    if at == 0:
        raise Invalid(f"duration '' is empty: {_HOW}", position=0)
    if total > MAX_MS:
        raise Invalid(f"duration {_short(value)} is longer than Servo can hold ({MAX_MS} ms)")
    return total


def format_duration(milliseconds: int) -> str:
    """The one spelling in largest units first; `parse_duration` reads it back as the same number."""
    if milliseconds < 0:
        raise Invalid(f"{milliseconds} ms is negative; a duration is zero or more")
    parts = []
    rest = milliseconds
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _from_timedelta(value: timedelta) -> int:
    milliseconds, rest = divmod(value, timedelta(milliseconds=1))
    if milliseconds < 0:
        raise Invalid(f"duration {value} is negative; use zero or more")
    if milliseconds > MAX_MS:
        raise Invalid(f"duration {value} is longer than Servo can hold ({MAX_MS} ms)")
    if rest:
        raise Invalid(f"duration {value} is not a whole number of milliseconds; round it")
    return milliseconds


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
