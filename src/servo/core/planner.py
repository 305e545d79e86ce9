"""The planner: request + definitions + state → plan. Pure and deterministic.

Everything it depends on is an argument: `now`, the dynamic keys and the versions that inputs are
pinned to are part of the state. The same arguments give the same bytes on every machine.

Which partitions. A dimension named in the request has the named keys; an asset that does not have them
is left out, unless none has them. Otherwise:
 1. an asset that has none of the named dimensions takes what the selected assets above it touch;
 2. an asset that was selected for itself takes its latest window (all keys of other dimensions);
 3. an asset above selected ones takes, beside that, what they need, as far as its partitions follow
    theirs one by one (not "all of them": an unpartitioned summary does not ask for a backfill).

Which inputs. An upstream task of the same plan gives an edge; anything else is pinned to the latest
good version that the state knows, or left open where there is none.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from servo.core.definitions import (
    AssetDefinition,
    AssetKind,
    CheckDefinition,
    Dependency,
    Manifest,
)
from servo.core.graph import Graph
from servo.core.keys import AssetKey, PartitionKey, TaskKey, normal_scalar, spell_scalar
from servo.core.mappings import Connection, connect
from servo.core.partitions import DynamicKeys, Partitioning, PartitionSet
from servo.core.plain import to_plain
from servo.core.plan import (
    Plan,
    PlanInput,
    PlannedAsset,
    PlannedTask,
    PlanRequest,
    fingerprint,
)
from servo.core.selection import named, select
from servo.errors import Invalid, did_you_mean

NEVER_MADE = "stale because it was never made"
UP_TO_DATE = "up to date: reused unless an input changes"

MAX_TASKS = 1_000_000
"""More is nearly always a mistake, and a run of that size is better split by partitions."""

Partition = str | None
"""A canonical partition key, or None for an asset without partitions."""
Partitions = Mapping[Partition, PartitionKey | None]
"""Partitions in order. Shared between assets, so nobody changes one that was made."""


class Version(NamedTuple):
    """The latest good version of a partition, as far as a plan needs it."""

    materialization_id: str
    code_version: str
    inputs: Mapping[tuple[str, Partition], str]
    """(asset, partition) → the version that was read."""


class PlanningState(NamedTuple):
    """What the world is like when planning."""

    now: datetime
    dynamic: DynamicKeys = MappingProxyType({})
    versions: Mapping[tuple[str, Partition], Version] = MappingProxyType({})
    """(asset, partition), canonical → latest good version."""


def make_plan(request: PlanRequest, manifest: Manifest, state: PlanningState) -> Plan:
    """The plan for a request; Invalid if it cannot be met."""
    if state.now.tzinfo is None:
        raise Invalid(f"the time to plan for, {state.now}, has no time zone; give one")
    planner = _Planner(request, manifest, state)
    tasks = sorted(planner.tasks(), key=lambda task: task.key)
    busy = {task.asset for task in tasks}
    selected = sorted(planner.selected)
    assets = _planned_assets(planner.definitions[k] for k in selected if k.canonical in busy)
    return Plan(
        fingerprint=fingerprint(assets, tasks),
        request=request,
        now=state.now.astimezone(UTC).isoformat(),
        dynamic={
            name: tuple(sorted({spell_scalar(normal_scalar(v, name)) for v in values}))
            for name, values in sorted(state.dynamic.items())
        },
        assets=assets,
        tasks=tuple(tasks),
        idle=tuple(key.canonical for key in selected if key.canonical not in busy),
    )


def _planned_assets(definitions: Iterable[AssetDefinition]) -> dict[str, PlannedAsset]:
    # Most assets share their policies: each is spelled out once.
    known: dict[msgspec.Struct, Any] = {}

    def plain(policy: msgspec.Struct) -> Any:
        if policy not in known:
            known[policy] = to_plain(policy)
        return known[policy]

    return {
        each.key.canonical: PlannedAsset(
            code_version=each.code_version,
            kind=each.kind.value,
            resources=plain(each.resources),
            retry=plain(each.retry),
            timeouts=plain(each.timeouts),
            gating=plain(each.gating),
            checks=tuple(_planned_check(check) for check in each.checks),
            config=to_plain(each.config),
            priority=each.priority,
        )
        for each in definitions
    }


def _planned_check(check: CheckDefinition) -> dict[str, Any]:
    """Where a check's code stands is for people, and no part of what it does."""
    return {name: value for name, value in to_plain(check).items() if name != "code"}


class _Planner:
    def __init__(self, request: PlanRequest, manifest: Manifest, state: PlanningState) -> None:
        self._request = request
        self._state = state
        self._graph: Graph = manifest.graph()
        self.definitions = {asset.key: asset for asset in manifest.assets}
        attributes = {asset.key: asset.attributes for asset in manifest.assets}
        everything = select(
            request.selection, self._graph, attributes, default_namespace=manifest.namespace
        )
        self._named = named(
            request.selection, self._graph, attributes, default_namespace=manifest.namespace
        ).intersection(everything)
        if len(everything) == 1 and self.definitions[everything[0]].kind is AssetKind.SOURCE:
            raise Invalid(
                f"{everything[0]} is a source: Servo reads it and does not make it; select what is"
                f" built from it with '{everything[0]}+'"
            )
        self.selected = tuple(
            key for key in everything if self.definitions[key].kind is not AssetKind.SOURCE
        )
        # Many assets are partitioned alike: what depends on the partitioning only is found once.
        self._spaces: dict[Partitioning, PartitionSet] = {}
        self._requests: dict[Partitioning, Partitions] = {}
        self._refused: list[str] = []
        self._connections: dict[tuple[str, Partitioning | None, Partitioning | None], Connection]
        self._connections = {}
        self._spelled: dict[str, PartitionKey] = {}
        self._why = self._why_selected()
        self._chosen = self._choose()

    # -- which partitions

    def _space(self, key: AssetKey) -> PartitionSet | None:
        partitions = self.definitions[key].partitions
        if partitions is None:
            return None
        if partitions not in self._spaces:
            self._spaces[partitions] = partitions.keys(self._state.now, self._state.dynamic)
        return self._spaces[partitions]

    def _connection(self, key: AssetKey, dependency: Dependency) -> Connection:
        above = self.definitions[dependency.upstream].partitions
        below = self.definitions[key].partitions
        at = repr(dependency.mapping), above, below  # a mapping may hold a dict, which has no hash
        if at not in self._connections:
            up, down = self._space(dependency.upstream), self._space(key)
            try:
                self._connections[at] = connect(dependency.mapping, up, down, above, below)
            except Invalid as why:
                raise Invalid(f"{dependency.upstream} → {key}: {why}") from None
        return self._connections[at]

    def _choose(self) -> dict[AssetKey, Partitions]:
        """For each selected asset, the partitions to make, in order."""
        self._check_dimensions()
        chosen: dict[AssetKey, Partitions] = {}
        selected = set(self.selected)
        below: dict[AssetKey, list[tuple[AssetKey, Dependency]]] = {key: [] for key in selected}
        for key in self.selected:
            for dependency in self.definitions[key].dependencies:
                if dependency.upstream in selected:
                    below[dependency.upstream].append((key, dependency))
        for key in self.selected:
            space = self._space(key)
            if space is None:
                chosen[key] = {None: None}
            elif any(name in self._request.partitions for name in space.names):
                chosen[key] = self._requested(key, space)
            elif self._request.partitions:
                touched = self._touched(key, chosen)
                if touched is not None:
                    chosen[key] = touched
        # Assets may begin on different days: one that lacks what was named is left out, unless all do.
        if self._refused and not any(self._requests.values()):
            raise Invalid(self._refused[0])
        for key in reversed(self.selected):
            space = self._space(key)
            if key in chosen or space is None:
                continue
            needed = self._needed(below[key], chosen)
            if not needed or (not self._request.partitions and self._for_itself(key)):
                needed = {**self._spell(space.latest()), **needed}
            chosen[key] = needed
        return chosen

    def _check_dimensions(self) -> None:
        spaces = [space for key in self.selected if (space := self._space(key)) is not None]
        known = {name for space in spaces for name in space.names}
        for name in self._request.partitions:
            if name not in known:
                listed = f"; they have: {', '.join(sorted(known))}" if known else ""
                raise Invalid(
                    f"none of the selected assets has a partition dimension {name!r}"
                    f"{did_you_mean(name, known) or listed or '; they have no partitions'}"
                )

    def _requested(self, key: AssetKey, space: PartitionSet) -> Partitions:
        """The named partitions of an asset; none if it does not have them."""
        partitions = self.definitions[key].partitions
        assert partitions is not None  # it has a space
        if partitions not in self._requests:
            wanted = {n: c for n, c in self._request.partitions.items() if n in space.names}
            try:
                found = space.where(**wanted)
            except Invalid as why:
                self._refused.append(f"{key}: {why}")
                self._requests[partitions] = {}
            else:
                unnamed = [name for name in space.names if name not in wanted]
                self._requests[partitions] = self._spell(found.latest(unnamed))
        return self._requests[partitions]

    def _touched(self, key: AssetKey, chosen: Mapping[AssetKey, Partitions]) -> Partitions | None:
        """What the chosen partitions above an asset touch; None if no asset above decides it."""
        touched: dict[Partition, PartitionKey | None] | None = None
        for dependency in self.definitions[key].dependencies:
            connection = self._connection(key, dependency)
            if connection.follows and dependency.upstream in chosen:
                touched = touched or {}
                for partition in chosen[dependency.upstream].values():
                    found = connection.downstream(partition)
                    if found is not None:
                        touched.update(self._spell(found))
        return touched

    def _needed(
        self,
        below: Iterable[tuple[AssetKey, Dependency]],
        chosen: Mapping[AssetKey, Partitions],
    ) -> Partitions:
        needed: dict[Partition, PartitionKey | None] = {}
        for key, dependency in below:
            connection = self._connection(key, dependency)
            if connection.same_keys:
                needed |= chosen.get(key, {})
            elif connection.follows:
                for partition in chosen.get(key, {}).values():
                    found = connection.upstream(partition).keys
                    if found is not None:
                        needed |= self._spell(found)
        return needed

    def _spell(self, keys: PartitionSet) -> Partitions:
        if len(keys) > MAX_TASKS:
            raise Invalid(
                f"this would be a plan of more than {MAX_TASKS} tasks ({len(keys)} partitions);"
                " choose fewer partitions"
            )
        # Assets with the same partitions share their keys: one object for each.
        spelled = self._spelled
        return {key.canonical: spelled.setdefault(key.canonical, key) for key in keys}

    # -- why

    def _for_itself(self, key: AssetKey) -> bool:
        """Whether an asset was selected other than by reaching up from another."""
        return not self._why[key].startswith("upstream of")

    def _why_selected(self) -> dict[AssetKey, str]:
        """Of assets that were reached from several named ones, the smallest is told."""
        graph, names = self._graph, self._named
        below: dict[AssetKey, AssetKey | None] = {}
        for key in reversed(graph.order):
            found = [d if d in names else below[d] for d in graph.downstreams(key)]
            below[key] = min((d for d in found if d is not None), default=None)
        above: dict[AssetKey, AssetKey | None] = {}
        for key in graph.order:
            found = [u if u in names else above[u] for u in graph.upstreams(key)]
            above[key] = min((u for u in found if u is not None), default=None)

        def why(key: AssetKey) -> str:
            if key in names:
                return "selected"
            if below[key] is not None:
                return f"upstream of {below[key]}"
            return "selected" if above[key] is None else f"downstream of {above[key]}"

        return {key: why(key) for key in self.selected}

    def _reruns(self, key: AssetKey) -> bool:
        """Targets named in the request and assets without data inputs run in any case."""
        definition = self.definitions[key]
        reads = any(d.parameter is not None for d in definition.dependencies)
        return self._request.force or key in self._named or not reads

    # -- tasks

    def tasks(self) -> list[PlannedTask]:
        total = sum(len(partitions) for partitions in self._chosen.values())
        if total > MAX_TASKS:
            raise Invalid(
                f"this would be a plan of {total} tasks, more than {MAX_TASKS};"
                " choose fewer assets or partitions"
            )
        planned: dict[AssetKey, dict[Partition, PlannedTask]] = {}
        stale: set[str] = set()
        for key in self.selected:
            planned[key] = self._asset_tasks(key, planned, stale)
        return [task for tasks in planned.values() for task in tasks.values()]

    def _asset_tasks(
        self,
        key: AssetKey,
        planned: Mapping[AssetKey, Mapping[Partition, PlannedTask]],
        stale: set[str],
    ) -> dict[Partition, PlannedTask]:
        """The tasks of one asset; those above it are planned. Adds those that will be made anew."""
        definition = self.definitions[key]
        asset = key.canonical
        selected = self._why[key]
        why = (selected, "forced") if self._request.force else (selected,)
        rerun = self._reruns(key)
        readers = [
            _Reader(
                dependency,
                self._connection(key, dependency),
                planned.get(dependency.upstream, {}),
                self._state.versions,
                self.definitions[dependency.upstream].kind is AssetKind.SOURCE,
            )
            for dependency in sorted(
                definition.dependencies, key=lambda d: (d.upstream, d.parameter or "")
            )
        ]
        reasons: dict[tuple[str, ...], tuple[str, ...]] = {}
        tasks: dict[Partition, PlannedTask] = {}
        for partition, partition_key in self._chosen[key].items():
            inputs: list[PlanInput] = []
            above: dict[str, PlannedTask] = {}
            for reader in readers:
                reader.read(partition, partition_key, above, inputs)
            task_key = TaskKey.spell(asset, partition)
            changed = self._staleness((asset, partition), definition, inputs, above, stale)
            if changed or rerun:
                stale.add(task_key)
            else:
                changed = (UP_TO_DATE,)
            tasks[partition] = PlannedTask(
                key=task_key,
                asset=asset,
                partition=partition,
                stage=max((task.stage + 1 for task in above.values()), default=0),
                upstreams=tuple(sorted(above)),
                inputs=tuple(inputs),
                rerun=rerun,
                reasons=reasons.setdefault(changed, (*why, *changed)),
            )
        return tasks

    def _staleness(
        self,
        at: tuple[str, Partition],
        definition: AssetDefinition,
        inputs: Iterable[PlanInput],
        above: Mapping[str, PlannedTask],
        stale: AbstractSet[str],
    ) -> tuple[str, ...]:
        version = self._state.versions.get(at)
        if version is None:
            return (NEVER_MADE,)
        why = []
        if version.code_version != definition.code_version:
            why.append("stale because its code changed")
        for given in inputs:
            made = TaskKey.spell(given.asset, given.partition)
            if made in above:
                if made in stale:
                    why.append(f"stale because {_shown(given)} will be made again")
            elif given.version != version.inputs.get((given.asset, given.partition)):
                why.append(f"stale because {_shown(given)} changed")
        return tuple(why)


def _shown(given: PlanInput) -> str:
    name = given.asset.replace("/", ".")
    return name if given.partition is None else f"{name}[{given.partition}]"


class _Reader:
    """One dependency of one asset, for all of its tasks."""

    def __init__(
        self,
        dependency: Dependency,
        connection: Connection,
        planned: Mapping[Partition, PlannedTask],
        versions: Mapping[tuple[str, Partition], Version],
        is_source: bool,
    ) -> None:
        self._asset = dependency.upstream.canonical
        self._parameter = dependency.parameter
        self._connection = connection
        self._planned = planned
        self._versions = versions
        self._is_source = is_source

    def read(
        self,
        partition: Partition,
        key: PartitionKey | None,
        above: dict[str, PlannedTask],
        inputs: list[PlanInput],
    ) -> None:
        """Add the tasks that a task waits for, and what it reads."""
        for needed in self._needed(partition, key):
            task = self._planned.get(needed)
            version = None
            if task is not None:
                above[task.key] = task
            elif known := self._versions.get((self._asset, needed)):
                version = known.materialization_id
            elif self._is_source:
                continue  # read as it is: its version is found when the task runs
            if self._parameter is not None:
                inputs.append(PlanInput(self._asset, needed, version, self._parameter))

    def _needed(self, partition: Partition, key: PartitionKey | None) -> Iterable[Partition]:
        if self._connection.same_keys:
            return (partition,)
        needs = self._connection.upstream(key).keys
        return (None,) if needs is None else (each.canonical for each in needs)
