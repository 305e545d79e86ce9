"""The scope of a request: which partitions of which assets it means, and why each is there.

Vocabulary. An asset is *meant* if the selection matches it without reaching (`x` in `+x+`), reached
*up* if something meant is below it, and reached *down* otherwise.

 1. A meant asset, and one reached down, has the partitions that the request names. If it has none of
    the named dimensions, it has what the assets above it touch. Where none of these assets has one:
    its latest window. Of other dimensions, all keys.
 2. An asset reached up has what the selected assets below it need, whatever is named.
 3. A meant asset has what is needed below it, too, unless the request names its dimensions: naming
    limits what is meant.

Where a mapping needs all of a dimension (an unpartitioned summary of every day), "need" does not ask
for a backfill: of that dimension, rule 1 counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from servo.core.definitions import AssetKind, Dependency, Manifest
from servo.core.dimensions import DynamicKeys
from servo.core.graph import Graph
from servo.core.keys import AssetKey, PartitionKey
from servo.core.keysets import PartitionSet
from servo.core.mappings import Connection, connect
from servo.core.partitions import Partitioning
from servo.core.plan import PlanRequest
from servo.core.selection import meant, named, select
from servo.errors import Invalid, did_you_mean

MAX_TASKS = 1_000_000
"""More is nearly always a mistake, and a run of that size is better split by partitions."""

Partition = str | None
"""A canonical partition key, or None for an asset without partitions."""
Partitions = Mapping[Partition, PartitionKey | None]
"""Partitions in order. Shared between assets, so nobody changes one that was made."""

_NONE: Partitions = {None: None}


class _Below(NamedTuple):
    asset: AssetKey
    connection: Connection


class Scope:
    """Made once for a plan; everything is decided when it is made."""

    def __init__(
        self, request: PlanRequest, manifest: Manifest, now: datetime, dynamic: DynamicKeys
    ) -> None:
        self._request = request
        self._now = now
        self._dynamic = dynamic
        self._graph: Graph = manifest.graph
        self.definitions = {asset.key: asset for asset in manifest.assets}
        attributes = {asset.key: asset.attributes for asset in manifest.assets}
        text, namespace = request.selection, manifest.namespace
        everything = select(text, self._graph, attributes, default_namespace=namespace)
        if not everything:
            raise Invalid(f"no asset matches the selection {text!r}; 'servo plan' shows them all")
        if all(self.definitions[key].kind is AssetKind.SOURCE for key in everything):
            raise Invalid(
                f"{everything[0]} is a source: Servo reads it and does not make it; select what is"
                f" built from it with '{everything[0]}+'"
            )
        self.named = named(text, self._graph, attributes, default_namespace=namespace)
        """The assets that the selection names one by one."""
        self._meant = frozenset(everything)
        if "+" in text:
            self._meant = meant(text, self._graph, attributes, default_namespace=namespace)
        self.selected = tuple(
            key for key in everything if self.definitions[key].kind is not AssetKind.SOURCE
        )
        """The assets to make, upstream first."""
        # Many assets are partitioned alike: what depends on the partitioning only is found once.
        # Each has a number, because hashing a partitioning takes longer than all the rest.
        numbers: dict[Partitioning | None, int] = {}
        self._alike = {
            asset.key: numbers.setdefault(asset.partitions, len(numbers))
            for asset in manifest.assets
        }
        self._spaces: dict[int, PartitionSet | None] = {}
        self._requests: dict[int, Partitions] = {}
        self._connections: dict[tuple[str | None, int, int], Connection] = {}
        self._spelled: dict[str, PartitionKey] = {}
        self._reasons: dict[AssetKey, str] = {}
        self._needed_by: dict[AssetKey, dict[Partition, str]] = {}
        self.partitions: dict[AssetKey, Partitions] = {}
        """For each selected asset, what to make of it."""
        self._decide()

    def why(self, key: AssetKey, partition: Partition) -> str:
        """Why a partition is in the scope."""
        return self._needed_by.get(key, {}).get(partition) or self._reasons[key]

    def connection(self, key: AssetKey, dependency: Dependency) -> Connection:
        """How the partitions of an asset depend on those of one above it."""
        upstream, mapping = dependency.upstream, dependency.mapping
        # A mapping may hold a dict, which has no hash.
        spelled = None if mapping is None else repr(mapping)
        at = spelled, self._alike[upstream], self._alike[key]
        if at not in self._connections:
            above, below = self.definitions[upstream].partitions, self.definitions[key].partitions
            up, down = self._space(upstream), self._space(key)
            try:
                self._connections[at] = connect(mapping, up, down, above, below)
            except Invalid as why:
                raise Invalid(f"{upstream} → {key}: {why}") from None
        return self._connections[at]

    def _space(self, key: AssetKey) -> PartitionSet | None:
        alike = self._alike[key]
        if alike not in self._spaces:
            partitions = self.definitions[key].partitions
            self._spaces[alike] = (
                None if partitions is None else partitions.keys(self._now, self._dynamic)
            )
        return self._spaces[alike]

    # -- deciding

    def _decide(self) -> None:
        self._check_dimensions()
        below: dict[AssetKey, list[_Below]] = {key: [] for key in self.selected}
        above: dict[AssetKey, AssetKey] = {}
        for key in sorted(self.selected, key=lambda key: key.canonical):
            for dependency in self.definitions[key].dependencies:
                upstream = dependency.upstream
                if upstream in below:
                    below[upstream].append(_Below(key, self.connection(key, dependency)))
                    if key not in above or upstream < above[key]:
                        above[key] = upstream
        leading_up = self._graph.ancestors(self._meant)
        up = {k for k in self.selected if k not in self._meant and k in leading_up and below[k]}
        self._limited = any(
            self._names(space)
            for key in self.selected
            if key not in up and (space := self._space(key)) is not None
        )
        for key in self.selected:
            if key in up:
                self._reasons[key] = f"upstream of {below[key][0].asset}"
            elif key in self._meant or key not in above:
                self._reasons[key] = "selected"
            else:
                self._reasons[key] = f"downstream of {above[key]}"
            own = None if key in up else self._own(key)
            if own is not None:
                self.partitions[key] = own
        for key in reversed(self.selected):
            space = self._space(key)
            if space is None:
                self.partitions[key] = _NONE
            elif key in up or not self._names(space):
                self._add_needed(key, below[key])

    def _names(self, space: PartitionSet) -> list[str]:
        """The dimensions of these partitions that the request names."""
        return [name for name in space.names if name in self._request.partitions]

    def _own(self, key: AssetKey) -> Partitions | None:
        """What rule 1 gives an asset; None where it has to wait for what is needed below it."""
        space = self._space(key)
        if space is None:
            return _NONE
        if self._names(space) or not self._limited:
            return self._requested(key, space)
        return self._touched(key)

    def _check_dimensions(self) -> None:
        """Whatever is named must exist for at least one selected asset."""
        spaces = {key: space for key in self.selected if (space := self._space(key)) is not None}
        known = {name for space in spaces.values() for name in space.names}
        for name, choices in self._request.partitions.items():
            having = {key: space for key, space in spaces.items() if name in space.names}
            for choice in choices if having else ():
                if not any(_has(space, name, choice) for space in _distinct(having.values())):
                    key, space = next(iter(having.items()))
                    try:
                        space.where(**{name: choice})
                    except Invalid as why:
                        raise Invalid(f"{key}: {why}") from None
            if name not in known:
                listed = f"; they have: {', '.join(sorted(known))}" if known else ""
                raise Invalid(
                    f"none of the selected assets has a partition dimension {name!r}"
                    f"{did_you_mean(name, known) or listed or '; they have no partitions'}"
                )

    def _requested(self, key: AssetKey, space: PartitionSet) -> Partitions:
        """The named partitions of an asset, or its latest; none if it does not have those named."""
        alike = self._alike[key]
        if alike not in self._requests:
            self._requests[alike] = self._spell(key, self._narrowed(space, space.names))
        return self._requests[alike]

    def _narrowed(self, keys: PartitionSet, names: tuple[str, ...]) -> PartitionSet:
        """Rule 1 for some dimensions: what the request names, or the latest window."""
        wanted = {n: c for n, c in self._request.partitions.items() if n in names}
        rest = [name for name in names if name not in wanted]
        for name, choices in wanted.items():
            # Assets may begin on different days: each takes of what is named what it has.
            keys = keys.where(**{name: [c for c in choices if _has(keys, name, c)]})
        return keys.latest(rest)

    def _touched(self, key: AssetKey) -> Partitions | None:
        """What the chosen partitions above an asset touch; None if no asset above decides it."""
        touched: dict[Partition, PartitionKey | None] | None = None
        for dependency in self.definitions[key].dependencies:
            connection = self.connection(key, dependency)
            if connection.follows and dependency.upstream in self.partitions:
                touched = touched or {}
                for partition in self.partitions[dependency.upstream].values():
                    found = connection.downstream(partition)
                    if found is not None:
                        touched.update(self._spell(key, found))
        return touched

    def _add_needed(self, key: AssetKey, below: list[_Below]) -> None:
        own = self.partitions.get(key, {})
        needed: dict[Partition, PartitionKey | None] = {}
        reasons = self._needed_by.setdefault(key, {})
        for asset, connection in below:
            for partitions in self._needs(key, asset, connection):
                needed.update(partitions)
                for partition in partitions:
                    if partition not in own:
                        reasons.setdefault(partition, f"upstream of {asset}")
        self.partitions[key] = {**own, **needed} if needed else own

    def _needs(
        self, key: AssetKey, asset: AssetKey, connection: Connection
    ) -> Iterator[Partitions]:
        """What the partitions of `asset` need of `key`, which is above it."""
        chosen = self.partitions.get(asset, {})
        if connection.same_keys:
            yield chosen
            return
        for partition in chosen.values():
            found = connection.upstream(partition).keys
            if found is None:
                return
            yield self._spell(key, self._narrowed(found, connection.whole))
            if not connection.follows:
                return  # the same for all of them

    def _spell(self, key: AssetKey, keys: PartitionSet) -> Partitions:
        if keys.size > MAX_TASKS:
            raise Invalid(
                f"{key}: {keys.size:,} partitions are more than a plan can hold ({MAX_TASKS:,});"
                " choose fewer with -p"
            )
        # Assets with the same partitions share their keys: one object for each.
        spelled = self._spelled
        return {each.canonical: spelled.setdefault(each.canonical, each) for each in keys}


def _has(keys: PartitionSet, name: str, choice: str) -> bool:
    try:
        keys.where(**{name: choice})
    except Invalid:
        return False
    return True


def _distinct(spaces: Iterable[PartitionSet]) -> list[PartitionSet]:
    return list({id(space): space for space in spaces}.values())
