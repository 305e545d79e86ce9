"""Dimensions: the ways in which an asset can be divided, as its definition holds them.

By windows of time, by a fixed list, by keys that come and go, by tenant. A definition says nothing
of how many keys there are; servo.core.axes binds it to a moment.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

import msgspec

from servo.core import cron
from servo.core.keys import DIMENSION_NAME, Scalar, parse_scalar, spell_scalar
from servo.core.zones import EPOCH, FIRST_YEAR, LAST_YEAR, zone
from servo.errors import Invalid

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
            excluded = [read_exclusion(text) for text in self.exclude]
            patterns = tuple(e for e in excluded if isinstance(e, cron.Pattern))
            if patterns and not cron.leaves_any(pattern, patterns):
                raise Invalid("exclude leaves no window at all; exclude fewer")
        except Invalid as why:
            raise Invalid(f"partition {self.name!r}: {why}") from None

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

    def describe(self) -> str:
        shown = ", ".join(scalar_label(parse_scalar(v)) for v in self.values[:3])
        more = f", … {len(self.values)} values" if len(self.values) > 3 else ""
        return f"{self.name} ({shown}{more})"


class DynamicDimension(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="dynamic"):
    """Keys that are added and removed while Servo runs; a plan is told which there are."""

    name: str

    def __post_init__(self) -> None:
        _check_name(self.name)

    def describe(self) -> str:
        return f"{self.name} (dynamic)"


class TenantDimension(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tenant"):
    """One key for each tenant that a plan is told of."""

    name: str

    def __post_init__(self) -> None:
        _check_name(self.name)

    def describe(self) -> str:
        return f"{self.name} (one per tenant)"


Dimension = TimeDimension | StaticDimension | DynamicDimension | TenantDimension


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


def read_exclusion(text: str) -> cron.Pattern | datetime:
    if " " in text.strip() or text.startswith("@"):
        return cron.parse(text)
    return local_time(text, "exclude")


def scalar_label(value: Scalar) -> str:
    """A value as people write it; not an identity."""
    return value if isinstance(value, str) else spell_scalar(value)[2:]
