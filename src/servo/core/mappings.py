"""Mappings: which upstream partitions a downstream partition needs, and the other way round.

A *mapping* is part of a dependency's definition and says nothing about size or time. `connect`
binds it to the partitions of both sides and gives a `Connection`, which answers in both directions
with sets that are not enumerated.

A connection is made of *links*, one per upstream dimension: either it follows a downstream
dimension by a rule, or it stands alone (all of it, the latest, some values). Downstream dimensions
that nothing follows are free: every one of their keys needs the same upstream partitions.

Without a mapping, dimensions are linked by name, then by being alike (the same definition, or the
only time dimension on either side); what is left over upstream is needed entirely.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from servo.core.axes import Axis, TimeAxis
from servo.core.dimensions import Dimension, StaticDimension, TenantDimension, TimeDimension
from servo.core.keys import PartitionKey, Scalar, normal_scalar, parse_scalar, spell_scalar
from servo.core.keysets import PartitionSet, Picks
from servo.core.partitions import Partitioning
from servo.errors import Invalid

ABSENT_LIMIT = 1000
"""How many upstream partitions that do not exist are named; there may be millions."""


# ---------------------------------------------------------------- mappings (definitions)


class Identity(msgspec.Struct, frozen=True, tag_field="type", tag="identity"):
    """The same value upstream; time windows of unequal length: those that overlap."""


class AllPartitions(msgspec.Struct, frozen=True, tag_field="type", tag="all"):
    """Every upstream partition."""


class LatestPartition(msgspec.Struct, frozen=True, tag_field="type", tag="latest"):
    """The last upstream partition that exists."""


class TimeWindow(msgspec.Struct, frozen=True, tag_field="type", tag="time_window"):
    """The upstream windows that overlap a stretch of the downstream asset's own windows: from
    `start_offset` to `end_offset` windows relative to the one being made, both included. Windows
    yet to come are not waited for; those from before the first are read if they are there."""

    start_offset: int = 0
    end_offset: int = 0

    def __post_init__(self) -> None:
        for offset in (self.start_offset, self.end_offset):
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise Invalid(f"TimeWindow: the offset {offset!r} is not a number of windows")
        if self.end_offset < self.start_offset:
            raise Invalid(
                f"TimeWindow({self.start_offset}, {self.end_offset}) ends before it starts;"
                " swap the offsets"
            )


class StaticMap(msgspec.Struct, frozen=True, tag_field="type", tag="static_map"):
    """Listed pairs (upstream value, downstream value), spelled with their tags."""

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, table: Mapping[Scalar, Scalar | Iterable[Scalar]]) -> "StaticMap":
        """From `{upstream value: downstream value or values}`."""
        if not isinstance(table, Mapping):
            raise Invalid(f"StaticMap({table!r}): give a dict from upstream to downstream values")
        pairs = set()
        for upstream, downstream in table.items():
            several = (
                downstream
                if isinstance(downstream, Iterable) and not isinstance(downstream, str)
                else [downstream]
            )
            for one in several:
                pairs.add((_spell(upstream), _spell(one)))
        return cls(tuple(sorted(pairs)))


class SpecificPartitions(msgspec.Struct, frozen=True, tag_field="type", tag="specific"):
    """Always these upstream values, spelled with their tags."""

    values: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[Scalar]) -> "SpecificPartitions":
        return cls(tuple(sorted({_spell(value) for value in values})))


OneDimension = (
    Identity | AllPartitions | LatestPartition | TimeWindow | StaticMap | SpecificPartitions
)


class Follow(msgspec.Struct, frozen=True):
    """How one upstream dimension follows a downstream one (of the same name if not given)."""

    downstream: str | None = None
    mapping: OneDimension = Identity()


class Dimensions(msgspec.Struct, frozen=True, tag_field="type", tag="dimensions"):
    """A rule for each upstream dimension by name; one that is not named is needed entirely."""

    follow: dict[str, Follow]


PartitionMapping = OneDimension | Dimensions


def _spell(value: Scalar) -> str:
    return spell_scalar(normal_scalar(value, "mapping"))


# ---------------------------------------------------------------- rules: a mapping between two axes


class Found(NamedTuple):
    """Indexes of the upstream axis, and values it should have but does not."""

    picks: Picks
    absent: Sequence[Scalar] = ()


class _Rule:
    """A mapping between an upstream axis and a downstream one; `down` is None if it stands alone."""

    def __init__(self, up: Axis, down: Axis | None) -> None:
        self.up = up
        self.down = down

    def upstream(self, index: int) -> Found:
        raise NotImplementedError

    def downstream(self, index: int) -> Picks:
        raise NotImplementedError


class _Same(_Rule):
    down: Axis

    def upstream(self, index: int) -> Found:
        value = self.down.value(index)
        found = self.up.find(spell_scalar(value))
        return Found(Picks(()), [value]) if found is None else Found(Picks.of([found]))

    def downstream(self, index: int) -> Picks:
        found = self.down.find(spell_scalar(self.up.value(index)))
        return Picks(()) if found is None else Picks.of([found])


class _Windows(_Rule):
    """Upstream windows that overlap a stretch of downstream windows: from the one `_first` windows
    after the one being made to the one `_last` after it, with what lies between (the windows that
    the downstream asset excludes too).

    At the ends. A window yet to come downstream is not waited for: the stretch ends with the last
    window that exists, and if it would begin after that one, nothing is needed. Windows before
    the downstream asset's first one count on (they are history, which upstream may have).
    Both directions clip alike, so that u is needed by d exactly if u touches d.
    """

    up: TimeAxis
    down: TimeAxis

    def __init__(self, up: Axis, down: Axis | None, window: TimeWindow) -> None:
        super().__init__(up, down)
        self._first, self._last = window.start_offset, window.end_offset

    def upstream(self, index: int) -> Found:
        last = min(index + self._last, self.down.count - 1)
        if last < index + self._first:
            return Found(Picks(()))
        start, end = self.down.start(index + self._first), self.down.end(last)
        over = self.up.overlapping(start, end)
        # History may or may not be there, unlike what belongs to the window that is being made.
        own = max(start, self.down.start(index))
        absent = over.start < 0 or over.stop > self.up.count
        return Found(
            Picks([range(max(over.start, 0), min(over.stop, self.up.count))]),
            self.up.absent(own, end, ABSENT_LIMIT) if absent and own < end else [],
        )

    def downstream(self, index: int) -> Picks:
        # Where nothing overlaps (downstream excludes that time), this is the empty range at the
        # place where it would be: stretches that reach from before it to after it need it.
        over = self.down.overlapping(self.up.start(index), self.up.end(index))
        if over.start >= self.down.count:
            return Picks(())
        first = max(over.start - self._last, 0)
        stop = min(over.stop, self.down.count) - self._first
        return Picks([range(first, min(stop, self.down.count))])


class _Alone(_Rule):
    """The same upstream values whatever is made downstream."""

    def __init__(
        self, up: Axis, down: Axis | None, needed: Picks, absent: Sequence[Scalar]
    ) -> None:
        super().__init__(up, down)
        self._needed = needed
        self._absent = absent

    def upstream(self, index: int) -> Found:
        return Found(self._needed, self._absent)

    def downstream(self, index: int) -> Picks:
        count = 1 if self.down is None else self.down.count
        return Picks(()) if self._needed.find(index) is None else Picks.all(count)


class _Whole(_Alone):
    """All of them."""


class _Listed(_Rule):
    down: Axis

    def __init__(self, up: Axis, down: Axis | None, pairs: Iterable[tuple[str, str]]) -> None:
        super().__init__(up, down)
        self._to_up: dict[int, list[int]] = {}
        self._to_down: dict[int, list[int]] = {}
        for upstream, downstream in pairs:
            here, there = self.up.find(upstream), self.down.find(downstream)
            if here is None or there is None:
                continue  # a dynamic key or a window that does not exist now; see _check_link
            self._to_up.setdefault(there, []).append(here)
            self._to_down.setdefault(here, []).append(there)

    def upstream(self, index: int) -> Found:
        return Found(Picks.of(self._to_up.get(index, ())))

    def downstream(self, index: int) -> Picks:
        return Picks.of(self._to_down.get(index, ()))


def _rule(mapping: OneDimension, up: Axis, down: Axis | None) -> _Rule:
    if isinstance(mapping, AllPartitions):
        return _Whole(up, down, Picks.all(up.count), [])
    if isinstance(mapping, LatestPartition):
        return _Alone(up, down, Picks.of([up.count - 1] if up.count else []), [])
    if isinstance(mapping, SpecificPartitions):
        indexes = {value: up.find(value) for value in mapping.values}
        known = [index for index in indexes.values() if index is not None]
        absent = [parse_scalar(value) for value, index in indexes.items() if index is None]
        return _Alone(up, down, Picks.of(known), absent)
    if isinstance(mapping, StaticMap):
        return _Listed(up, down, mapping.pairs)
    if isinstance(mapping, TimeWindow):
        return _Windows(up, down, mapping)
    times = isinstance(up, TimeAxis) and isinstance(down, TimeAxis)
    if times and not _alike(cast(TimeAxis, up).dimension, cast(TimeAxis, down).dimension):
        return _Windows(up, down, TimeWindow())
    return _Same(up, down)


def _alike(a: TimeDimension, b: TimeDimension) -> bool:
    """The same windows, wherever both have them."""
    return (a.grain, a.cron, a.timezone) == (b.grain, b.cron, b.timezone)


# ---------------------------------------------------------------- connections


class Needs(NamedTuple):
    """What a downstream partition needs. `keys` is None where the upstream has no partitions;
    `absent` names partitions it would need that do not exist (the first ABSENT_LIMIT)."""

    keys: PartitionSet | None
    absent: tuple[PartitionKey, ...] = ()


class Connection:
    """A mapping bound to the partitions of both sides as they are at one moment."""

    def __init__(
        self,
        up: PartitionSet | None,
        down: PartitionSet | None,
        links: Mapping[str, tuple[str | None, _Rule]],
    ) -> None:
        self._up = up
        self._down = down
        self._links = links
        self.same_keys = (
            up is not None
            and down is not None
            and up.names == down.names
            and all(
                name == follows and isinstance(rule, _Same) and rule.up is rule.down
                for name, (follows, rule) in links.items()
            )
        )
        """Every downstream key needs exactly the upstream key of the same spelling."""
        self.follows = any(follows is not None for follows, _ in links.values())
        """Different downstream keys need different upstream keys."""
        self.whole = tuple(name for name, (_, rule) in links.items() if isinstance(rule, _Whole))
        """The upstream dimensions of which every key is needed."""

    def upstream(self, key: PartitionKey | None) -> Needs:
        """What the downstream partition `key` (None: the asset has none) needs."""
        if self._up is None:
            return Needs(None)
        at = self._indexes(self._down, key, "downstream")
        found = []
        for name in self._up.names:
            follows, rule = self._links[name]
            found.append(rule.upstream(at[follows] if follows is not None else 0))
        keys = PartitionSet(self._up.names, self._up.axes, tuple(f.picks for f in found))
        return Needs(keys, self._absent(found) if any(f.absent for f in found) else ())

    def _absent(self, found: list[Found]) -> tuple[PartitionKey, ...]:
        assert self._up is not None
        choices: list[Iterable[tuple[Scalar, bool]]] = []
        for axis, (picks, absent) in zip(self._up.axes, found, strict=True):
            here = ((axis.value(i), False) for i in itertools.islice(picks, ABSENT_LIMIT))
            choices.append([*((value, True) for value in absent[:ABSENT_LIMIT]), *here])
        missing = (
            PartitionKey(dict(zip(self._up.names, (v for v, _ in combo), strict=True)))
            for combo in itertools.product(*choices)
            if any(gone for _, gone in combo)
        )
        return tuple(itertools.islice(missing, ABSENT_LIMIT))

    def downstream(self, key: PartitionKey | None) -> PartitionSet | None:
        """Which downstream partitions the upstream partition `key` touches; None where the
        downstream asset has no partitions (it is touched as a whole)."""
        if self._down is None:
            return None
        if self._up is None:
            return self._down
        at = self._indexes(self._up, key, "upstream")
        picks = dict(
            zip(self._down.names, (Picks.all(a.count) for a in self._down.axes), strict=True)
        )
        for name, (follows, rule) in self._links.items():
            touched = rule.downstream(at[name])
            if follows is not None:
                picks[follows] = picks[follows] & touched
            elif not touched.count:
                picks = {each: Picks(()) for each in picks}
        return PartitionSet(self._down.names, self._down.axes, tuple(picks.values()))

    @staticmethod
    def _indexes(of: PartitionSet | None, key: PartitionKey | None, side: str) -> dict[str, int]:
        if of is None:
            return {}
        if key is None or set(key) != set(of.names):
            raise Invalid(f"{key} is no {side} partition; its dimensions are {', '.join(of.names)}")
        indexes = {}
        for name, axis in zip(of.names, of.axes, strict=True):
            index = axis.find(spell_scalar(key[name]))
            if index is None:
                raise Invalid(f"the {side} partition {key} does not exist; check {name!r}")
            indexes[name] = index
        return indexes


def connect(
    mapping: PartitionMapping | None,
    up: PartitionSet | None,
    down: PartitionSet | None,
    upstream: Partitioning | None,
    downstream: Partitioning | None,
) -> Connection:
    """Bind a mapping to the partitions of an upstream and a downstream asset."""
    if up is None or upstream is None:
        return Connection(None, down, {})
    plan = _links(mapping, upstream, downstream)
    axes = dict(zip(down.names, down.axes, strict=True)) if down is not None else {}
    links: dict[str, tuple[str | None, _Rule]] = {}
    for name, axis in zip(up.names, up.axes, strict=True):
        follows, rule = plan[name]
        links[name] = follows, _rule(rule, axis, axes[follows] if follows is not None else None)
    return Connection(up, down, links)


def check_mapping(
    mapping: PartitionMapping | None, upstream: Partitioning | None, downstream: Partitioning | None
) -> None:
    """Raise Invalid if these partitionings cannot be connected, before any keys are known."""
    if upstream is None and not isinstance(mapping, None | AllPartitions | LatestPartition):
        raise Invalid(
            f"{type(mapping).__name__} is for partitions, and the upstream asset has none; remove it"
        )
    if upstream is not None:
        _links(mapping, upstream, downstream)


_Links = dict[str, tuple[str | None, OneDimension]]


def _links(
    mapping: PartitionMapping | None, upstream: Partitioning, downstream: Partitioning | None
) -> _Links:
    """The links that a mapping asks for, each of them possible."""
    links = _plan_links(mapping, upstream, downstream)
    ups = {d.name: d for d in upstream.dimensions}
    downs = {d.name: d for d in downstream.dimensions} if downstream is not None else {}
    for name, (follows, rule) in links.items():
        try:
            _check_link(rule, ups[name], downs[follows] if follows is not None else None)
        except Invalid as why:
            raise Invalid(f"{_cannot(upstream, downstream)}: dimension {name!r}: {why}") from None
    return links


def _check_link(mapping: OneDimension, up: Dimension, down: Dimension | None) -> None:
    if down is None and isinstance(mapping, Identity | TimeWindow | StaticMap):
        raise Invalid(f"{type(mapping).__name__} needs a downstream dimension to follow")
    if isinstance(mapping, TimeWindow):
        if not (isinstance(up, TimeDimension) and isinstance(down, TimeDimension)):
            raise Invalid("TimeWindow needs a time dimension on both sides")
    if isinstance(mapping, StaticMap):
        # Only lists are known now: keys of other kinds come and go.
        for at, (side, dimension) in enumerate((("upstream", up), ("downstream", down))):
            if isinstance(dimension, StaticDimension):
                for pair in mapping.pairs:
                    if pair[at] not in dimension.values:
                        raise Invalid(f"the static map names {pair[at]!r}, which is no {side} key")


def _plan_links(
    mapping: PartitionMapping | None, upstream: Partitioning, downstream: Partitioning | None
) -> _Links:
    """For each upstream dimension: the downstream dimension it follows, if any, and how."""
    if isinstance(mapping, Dimensions):
        return _named_links(mapping, upstream, downstream)
    if isinstance(mapping, AllPartitions | SpecificPartitions) or downstream is None:
        if isinstance(mapping, Identity | TimeWindow | StaticMap):
            raise Invalid(
                f"{_cannot(upstream, downstream)}: {type(mapping).__name__} needs partitions on"
                " both sides; use AllPartitions() or LatestPartition()"
            )
        alone = mapping or AllPartitions()
        if isinstance(alone, AllPartitions) or len(upstream.dimensions) == 1:
            return {d.name: (None, alone) for d in upstream.dimensions}
        if isinstance(alone, LatestPartition):
            return {
                d.name: (None, alone if isinstance(d, TimeDimension) else AllPartitions())
                for d in upstream.dimensions
            }
        raise Invalid(
            f"{_cannot(upstream, downstream)}: {type(alone).__name__} is for one dimension;"
            " say which with Dimensions"
        )
    pairs = _pair(upstream, downstream)
    links: _Links = {}
    for dimension in upstream.dimensions:
        follows = pairs.get(dimension.name)
        links[dimension.name] = (follows, Identity() if follows else AllPartitions())
    if mapping is None or isinstance(mapping, Identity):
        if not pairs:
            raise Invalid(
                f"{_cannot(upstream, downstream)}: they have no dimension in common; say which"
                " partitions are meant with AllPartitions(), LatestPartition() or Dimensions"
            )
        if isinstance(mapping, Identity) and len(pairs) < len(upstream.dimensions):
            raise Invalid(
                f"{_cannot(upstream, downstream)} by identity: some upstream dimensions have no"
                " counterpart; leave the mapping out to need all of them"
            )
        return links
    # A mapping for one dimension among several goes to the one it can be meant for.
    candidates = [d.name for d in upstream.dimensions]
    if isinstance(mapping, TimeWindow | LatestPartition):
        times = [d.name for d in upstream.dimensions if isinstance(d, TimeDimension)]
        candidates = times or candidates
    if len(candidates) != 1:
        raise Invalid(
            f"{_cannot(upstream, downstream)}: {type(mapping).__name__} is for one dimension, and"
            " it is not clear which; say it with Dimensions"
        )
    name = candidates[0]
    if isinstance(mapping, LatestPartition):
        links[name] = (None, mapping)
    else:
        follows = pairs.get(name) or _only(downstream, isinstance(mapping, TimeWindow))
        if follows is None:
            raise Invalid(
                f"{_cannot(upstream, downstream)}: {type(mapping).__name__} finds no downstream"
                " dimension to follow; say which with Dimensions"
            )
        links[name] = (follows, mapping)
    return links


def _named_links(
    mapping: Dimensions, upstream: Partitioning, downstream: Partitioning | None
) -> _Links:
    ups = {d.name for d in upstream.dimensions}
    downs = {d.name for d in downstream.dimensions} if downstream is not None else set[str]()
    links: _Links = {name: (None, AllPartitions()) for name in ups}
    for name, follow in mapping.follow.items():
        if name not in ups:
            raise Invalid(
                f"{_cannot(upstream, downstream)}: Dimensions names {name!r}, which is no"
                " upstream dimension"
            )
        target = follow.downstream or (name if name in downs else None)
        if target is not None and target not in downs:
            raise Invalid(
                f"{_cannot(upstream, downstream)}: Dimensions follows {target!r}, which is no"
                " downstream dimension"
            )
        links[name] = (target, follow.mapping)
    return links


def _pair(upstream: Partitioning, downstream: Partitioning) -> dict[str, str]:
    """Upstream dimension → the downstream one it corresponds to."""
    ups = {d.name: d for d in upstream.dimensions}
    downs = {d.name: d for d in downstream.dimensions}
    pairs = {name: name for name in ups if name in downs and type(ups[name]) is type(downs[name])}
    for name, dimension in ups.items():
        if name in pairs:
            continue
        free = [d for d in downs.values() if d.name not in pairs.values()]
        alike = [d.name for d in free if _correspond(dimension, d)]
        if len(alike) > 1:
            raise Invalid(
                f"{_cannot(upstream, downstream)}: upstream dimension {name!r} could follow"
                f" {' or '.join(alike)}; say which with Dimensions"
            )
        if alike:
            pairs[name] = alike[0]
    return pairs


def _correspond(a: Dimension, b: Dimension) -> bool:
    """Dimensions of different names that mean the same: dynamic ones never do, because their keys
    are known by name only."""
    if isinstance(a, StaticDimension) and isinstance(b, StaticDimension):
        return a.values == b.values
    return type(a) is type(b) and isinstance(a, TimeDimension | TenantDimension)


def _only(partitioning: Partitioning, time: bool) -> str | None:
    fits = [d.name for d in partitioning.dimensions if not time or isinstance(d, TimeDimension)]
    return fits[0] if len(fits) == 1 else None


def _cannot(upstream: Partitioning, downstream: Partitioning | None) -> str:
    below = downstream.describe() if downstream is not None else "no partitions"
    return f"partitions [{upstream.describe()}] cannot be mapped to [{below}]"
