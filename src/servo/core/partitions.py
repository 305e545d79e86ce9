"""Partitionings: how an asset is divided, by one dimension or several.

Bound to a `now` and to the dynamic keys known then, a partitioning is the set of all its keys. From
here it goes down: servo.core.keysets has the set, axes its sides, dimensions their definitions.
"""

from datetime import datetime

import msgspec

from servo.core.axes import bind
from servo.core.dimensions import Dimension, DynamicKeys
from servo.core.keysets import PartitionSet, Picks
from servo.errors import Invalid


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

    def keys(self, now: datetime, dynamic: DynamicKeys | None = None) -> PartitionSet:
        """Every partition that exists at `now`."""
        axes = tuple(bind(d, now, dynamic or {}) for d in self.dimensions)
        return PartitionSet(
            tuple(d.name for d in self.dimensions), axes, tuple(Picks.all(a.count) for a in axes)
        )

    def describe(self) -> str:
        return " × ".join(dimension.describe() for dimension in self.dimensions)
