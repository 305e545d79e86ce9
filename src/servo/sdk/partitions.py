"""How users say what an asset is divided by.

    DailyPartition("date", start="2024-01-01")
    [HourlyPartition("hour", start="2024-01-01"), StaticPartition("region", ["eu", "us"])]

Each is a plain function that makes a dimension of servo.core.dimensions; the name is the user's.
`start` and `end` are local to `timezone`: a date, a datetime without offset, or its ISO spelling.
`end` is where the last window may end. `end_offset` adds windows that have not ended yet (or, when
negative, waits for more). `format` is how people see and type the keys; it is no part of identity.
`exclude` leaves out windows that start at the given times or match the given cron expressions.
"""

from collections.abc import Iterable
from datetime import date, datetime

from servo.core.dimensions import (
    DynamicDimension,
    Grain,
    StaticDimension,
    TenantDimension,
    TimeDimension,
    local_time,
)
from servo.core.keys import Scalar, normal_scalar, spell_scalar
from servo.errors import Invalid, did_you_mean

When = str | date | datetime
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def HourlyPartition(
    name: str,
    *,
    start: When,
    end: When | None = None,
    end_offset: int = 0,
    timezone: str = "UTC",
    minute: int = 0,
    format: str = "%Y-%m-%dT%H:%M",
    exclude: Iterable[When] = (),
) -> TimeDimension:
    """One partition for each hour, beginning `minute` minutes past it."""
    cron = f"{_number(name, 'minute', minute, 0, 59)} * * * *"
    return _time_dimension(name, "hour", cron, start, end, end_offset, timezone, format, exclude)


def DailyPartition(
    name: str,
    *,
    start: When,
    end: When | None = None,
    end_offset: int = 0,
    timezone: str = "UTC",
    hour: int = 0,
    minute: int = 0,
    format: str = "%Y-%m-%d",
    exclude: Iterable[When] = (),
) -> TimeDimension:
    """One partition for each day, beginning at `hour:minute`."""
    return _time_dimension(
        name,
        "day",
        f"{_time(name, hour, minute)} * * *",
        start,
        end,
        end_offset,
        timezone,
        format,
        exclude,
    )


def WeeklyPartition(
    name: str,
    *,
    start: When,
    end: When | None = None,
    end_offset: int = 0,
    timezone: str = "UTC",
    weekday: str = "monday",
    hour: int = 0,
    minute: int = 0,
    format: str = "%Y-%m-%d",
    exclude: Iterable[When] = (),
) -> TimeDimension:
    """One partition for each week, beginning on `weekday`."""
    if not isinstance(weekday, str) or weekday.lower() not in _WEEKDAYS:
        hint = did_you_mean(str(weekday), _WEEKDAYS)
        raise Invalid(f"partition {name!r}: weekday {weekday!r} is no day of the week{hint}")
    return _time_dimension(
        name,
        "week",
        f"{_time(name, hour, minute)} * * {_WEEKDAYS.index(weekday.lower())}",
        start,
        end,
        end_offset,
        timezone,
        format,
        exclude,
    )


def MonthlyPartition(
    name: str,
    *,
    start: When,
    end: When | None = None,
    end_offset: int = 0,
    timezone: str = "UTC",
    day: int = 1,
    hour: int = 0,
    minute: int = 0,
    format: str = "%Y-%m-%d",
    exclude: Iterable[When] = (),
) -> TimeDimension:
    """One partition for each month, beginning on `day` (a month without that day has none)."""
    first = _number(name, "day", day, 1, 31)
    return _time_dimension(
        name,
        "month",
        f"{_time(name, hour, minute)} {first} * *",
        start,
        end,
        end_offset,
        timezone,
        format,
        exclude,
    )


def TimePartition(
    name: str,
    *,
    cron: str,
    start: When,
    end: When | None = None,
    end_offset: int = 0,
    timezone: str = "UTC",
    format: str = "%Y-%m-%dT%H:%M",
    exclude: Iterable[When] = (),
) -> TimeDimension:
    """One partition from each fire of a cron expression to the next."""
    return _time_dimension(name, "cron", cron, start, end, end_offset, timezone, format, exclude)


def StaticPartition(name: str, values: Iterable[Scalar]) -> StaticDimension:
    """One partition for each listed value; ranges `a..b` follow the order of the list."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise Invalid(f"partition {name!r}: give a list of values, not {values!r}")
    return StaticDimension(
        name=name, values=tuple(spell_scalar(normal_scalar(value, name)) for value in values)
    )


def DynamicPartition(name: str) -> DynamicDimension:
    """Partitions whose keys are added and removed while Servo runs."""
    return DynamicDimension(name=name)


def TenantPartition(name: str = "tenant") -> TenantDimension:
    """One partition for each tenant."""
    return TenantDimension(name=name)


def _time_dimension(
    name: str,
    grain: Grain,
    cron: str,
    start: When,
    end: When | None,
    end_offset: int,
    timezone: str,
    format: str,
    exclude: Iterable[When],
) -> TimeDimension:
    if isinstance(exclude, str | date):
        exclude = [exclude]
    if not isinstance(exclude, Iterable):
        raise Invalid(f"partition {name!r}: exclude {exclude!r} is not a list of times or crons")
    return TimeDimension(
        name=name,
        grain=grain,
        cron=cron,
        start=_local(name, "start", start),
        end=None if end is None else _local(name, "end", end),
        end_offset=end_offset,
        timezone=timezone,
        format=format,
        exclude=tuple(
            one
            if isinstance(one, str) and (" " in one.strip() or one.startswith("@"))
            else _local(name, "exclude", one)
            for one in exclude
        ),
    )


def _local(name: str, what: str, when: When) -> str:
    text = when.isoformat() if isinstance(when, date) else when
    try:
        return local_time(text, what).isoformat()
    except Invalid as why:
        raise Invalid(f"partition {name!r}: {why}") from None


def _time(name: str, hour: int, minute: int) -> str:
    return f"{_number(name, 'minute', minute, 0, 59)} {_number(name, 'hour', hour, 0, 23)}"


def _number(name: str, what: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Invalid(f"partition {name!r}: {what} {value!r} is not between {low} and {high}")
    return value
