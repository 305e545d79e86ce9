"""Mappings that are easier to write as calls; the others are the values of servo.core.mappings."""

from collections.abc import Iterable, Mapping

from servo.core import mappings
from servo.core.keys import Scalar
from servo.errors import Invalid


def LastN(n: int) -> mappings.TimeWindow:  # reads as a value where it is used
    """The last `n` windows, the one being made included."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise Invalid(f"LastN({n!r}): give how many windows, at least 1")
    return mappings.TimeWindow(1 - n, 0)


def StaticMap(  # reads as a value where it is used
    table: Mapping[Scalar, Scalar | Iterable[Scalar]],
) -> mappings.StaticMap:
    """Listed pairs: `{upstream value: downstream value or values}`."""
    return mappings.StaticMap.of(table)


def SpecificPartitions(*values: Scalar) -> mappings.SpecificPartitions:  # as above
    """Always these upstream partitions."""
    return mappings.SpecificPartitions.of(values)
