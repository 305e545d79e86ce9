"""The planner: request + definitions + state → plan. Pure and deterministic.

Everything it depends on is an argument: `now`, the dynamic keys and the versions that inputs are
pinned to are part of the state. The same arguments give the same bytes on every machine.

Which partitions. A dimension named in the request has the named keys. Otherwise:
 1. an asset that has none of the named dimensions takes what the selected assets above it touch;
 2. an asset that was selected for itself takes its latest window (all keys of other dimensions);
 3. an asset above selected ones takes, beside that, what they need, as far as its partitions follow
    theirs one by one (not "all of them": an unpartitioned summary does not ask for a backfill).

Which inputs. An upstream task of the same plan gives an edge; anything else is pinned to the latest
good version that the state knows, or left open where there is none.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from servo.core.definitions import AssetDefinition, AssetKind, Dependency, Manifest
from servo.core.graph import Graph
from servo.core.keys import AssetKey, Operation, PartitionKey, normal_scalar, spell_scalar
from servo.core.mappings import Connection, connect
from servo.core.partitions import DynamicKeys, PartitionSet, TimeAxis
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

MAX_TASKS = 1_000_000
"""More is nearly always a mistake, and a run of that size is better split by partitions."""

Partition = str | None
"""A canonical partition key, or None for an asset without partitions."""


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
    assets = {key.canonical: _planned_asset(planner.definitions[key]) for key in planner.selected}
    tasks = sorted(planner.tasks(), key=lambda task: task.key)
    return Plan(
        fingerprint=fingerprint(assets, tasks),
        request=request,
        now=state.now.astimezone(UTC).isoformat(),
        dynamic={
            name: tuple(sorted({spell_scalar(normal_scalar(v, name)) for v in values}))
            for name, values in sorted(state.dynamic.items())
        },
        code_version=manifest.code_version,
        assets=assets,
        tasks=tuple(tasks),
    )


def _planned_asset(definition: AssetDefinition) -> PlannedAsset:
    return PlannedAsset(
        code_version=definition.code_version,
        kind=definition.kind.value,
        resources=to_plain(definition.resources),
        retry=to_plain(definition.retry),
        timeouts=to_plain(definition.timeouts),
        gating=to_plain(definition.gating),
        checks=tuple(
            {k: v for k, v in to_plain(check).items() if k != "code"} for check in definition.checks
        ),
        config=to_plain(definition.config),
        priority=definition.priority,
    )


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
        )
        for key in sorted(self._named):
            if self.definitions[key].kind is AssetKind.SOURCE and key in everything:
                if len(everything) == 1:
                    raise Invalid(
                        f"{key} is a source: Servo reads it and does not make it; select what is"
                        f" built from it with '{key}+'"
                    )
        self.selected = tuple(
            key for key in everything if self.definitions[key].kind is not AssetKind.SOURCE
        )
        self._spaces: dict[AssetKey, PartitionSet | None] = {}
        self._connections: dict[tuple[AssetKey, Dependency], Connection] = {}
        self._spelled: dict[str, PartitionKey] = {}
        self._chosen = self._choose()

    # -- which partitions

    def _space(self, key: AssetKey) -> PartitionSet | None:
        if key not in self._spaces:
            partitions = self.definitions[key].partitions
            self._spaces[key] = (
                None
                if partitions is None
                else partitions.keys(self._state.now, self._state.dynamic)
            )
        return self._spaces[key]

    def _connection(self, key: AssetKey, dependency: Dependency) -> Connection:
        at = key, dependency
        if at not in self._connections:
            up = dependency.upstream
            try:
                self._connections[at] = connect(
                    dependency.mapping,
                    self._space(up),
                    self._space(key),
                    self.definitions[up].partitions,
                    self.definitions[key].partitions,
                )
            except Invalid as why:
                raise Invalid(f"{up} → {key}: {why}") from None
        return self._connections[at]

    def _choose(self) -> dict[AssetKey, dict[Partition, PartitionKey | None]]:
        """For each selected asset, the partitions to make, in order."""
        self._check_dimensions()
        chosen: dict[AssetKey, dict[Partition, PartitionKey | None]] = {}
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
                chosen[key] = self._spell(self._requested(key, space))
            elif self._request.partitions:
                touched = self._touched(key, chosen)
                if touched:
                    chosen[key] = touched
        for key in reversed(self.selected):
            space = self._space(key)
            if key in chosen or space is None:
                continue
            needed = self._needed(below[key], chosen)
            if not needed or self._for_itself(key):
                needed |= self._spell(space.latest())
            chosen[key] = needed
        return chosen

    def _check_dimensions(self) -> None:
        spaces = [space for key in self.selected if (space := self._space(key)) is not None]
        known = {name for space in spaces for name in space.names}
        for name in self._request.partitions:
            if name not in known:
                which = (
                    f"; their dimensions are: {', '.join(sorted(known))}"
                    if known
                    else "; they have no partitions"
                )
                raise Invalid(
                    f"none of the selected assets has a partition dimension {name!r}"
                    f"{did_you_mean(name, known)}{which}"
                )

    def _requested(self, key: AssetKey, space: PartitionSet) -> PartitionSet:
        wanted = {n: c for n, c in self._request.partitions.items() if n in space.names}
        try:
            found = space.where(**wanted)
        except Invalid as why:
            raise Invalid(f"{key}: {why}") from None
        unnamed = [
            name
            for name, axis in zip(space.names, space.axes, strict=True)
            if isinstance(axis, TimeAxis) and name not in wanted
        ]
        return found.latest(unnamed)

    def _touched(
        self, key: AssetKey, chosen: Mapping[AssetKey, Mapping[Partition, PartitionKey | None]]
    ) -> dict[Partition, PartitionKey | None]:
        touched: dict[Partition, PartitionKey | None] = {}
        for dependency in self.definitions[key].dependencies:
            connection = self._connection(key, dependency)
            if connection.follows:
                for partition in chosen.get(dependency.upstream, {}).values():
                    found = connection.downstream(partition)
                    if found is not None:
                        touched |= self._spell(found)
        return touched

    def _needed(
        self,
        below: Iterable[tuple[AssetKey, Dependency]],
        chosen: Mapping[AssetKey, Mapping[Partition, PartitionKey | None]],
    ) -> dict[Partition, PartitionKey | None]:
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

    def _spell(self, keys: PartitionSet) -> dict[Partition, PartitionKey | None]:
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
        return not self._why_selected(key).startswith("upstream of")

    def _why_selected(self, key: AssetKey) -> str:
        if key in self._named or not self._named:
            return "selected"
        for other in sorted(self._named):
            if key in self._graph.ancestors([other]):
                return f"upstream of {other}"
        for other in sorted(self._named):
            if key in self._graph.descendants([other]):
                return f"downstream of {other}"
        return "selected"

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
        tasks: list[PlannedTask] = []
        self._stage: dict[tuple[str, Partition], int] = {}
        self._stale: set[tuple[str, Partition]] = set()
        self._inputs: dict[tuple[str, Partition], PlanInput] = {}
        for key in self.selected:
            tasks += self._asset_tasks(key)
        return tasks

    def _asset_tasks(self, key: AssetKey) -> list[PlannedTask]:
        definition = self.definitions[key]
        asset = key.canonical
        rerun, selected = self._reruns(key), self._why_selected(key)
        readers = [_Reader(self, key, dependency) for dependency in definition.dependencies]
        suffix = f":{Operation.MATERIALIZE.value}"
        tasks = []
        for partition, partition_key in self._chosen[key].items():
            upstreams: list[str] = []
            inputs: list[PlanInput] = []
            stage = 0
            for reader in readers:
                stage = reader.read(partition, partition_key, upstreams, inputs, stage)
            at = asset, partition
            self._stage[at] = stage
            stale = self._staleness(at, definition.code_version, inputs)
            if stale or rerun:
                self._stale.add(at)
            tasks.append(
                PlannedTask(
                    key=f"{asset}{suffix}"
                    if partition is None
                    else f"{asset}[{partition}]{suffix}",
                    asset=asset,
                    partition=partition,
                    stage=stage,
                    upstreams=tuple(sorted(set(upstreams))),
                    inputs=tuple(inputs),
                    rerun=rerun,
                    reasons=(selected, *(("forced",) if self._request.force else ()), *stale)
                    if stale or rerun
                    else (selected, "up to date: reused unless an input changes"),
                )
            )
        return tasks

    def _staleness(
        self, at: tuple[str, Partition], code_version: str, inputs: list[PlanInput]
    ) -> tuple[str, ...]:
        version = self._state.versions.get(at)
        if version is None:
            return ("stale because it was never made",)
        why = []
        if version.code_version != code_version:
            why.append("stale because its code changed")
        for given in inputs:
            source = given.asset, given.partition
            if source in self._stage:
                if source in self._stale:
                    why.append(f"stale because {_shown(given)} will be made again")
            elif given.version != version.inputs.get(source):
                why.append(f"stale because {_shown(given)} changed")
        return tuple(why)


def _shown(given: PlanInput) -> str:
    name = given.asset.replace("/", ".")
    return name if given.partition is None else f"{name}[{given.partition}]"


class _Reader:
    """One dependency of one asset, for all of its tasks."""

    def __init__(self, planner: _Planner, key: AssetKey, dependency: Dependency) -> None:
        self._planner = planner
        self._upstream = dependency.upstream.canonical
        self._reads = dependency.parameter is not None
        self._connection = planner._connection(key, dependency)
        self._in_plan = planner._chosen.get(dependency.upstream, {})
        self._is_source = planner.definitions[dependency.upstream].kind is AssetKind.SOURCE
        self._suffix = f":{Operation.MATERIALIZE.value}"

    def read(
        self,
        partition: Partition,
        key: PartitionKey | None,
        upstreams: list[str],
        inputs: list[PlanInput],
        stage: int,
    ) -> int:
        """Add what a task reads and waits for; answers the stage it can be in at the earliest."""
        planner, asset = self._planner, self._upstream
        for needed in self._needed(partition, key):
            at = asset, needed
            if needed in self._in_plan:
                upstreams.append(
                    f"{asset}{self._suffix}"
                    if needed is None
                    else f"{asset}[{needed}]{self._suffix}"
                )
                stage = max(stage, planner._stage[at] + 1)
                version = None
            else:
                known = planner._state.versions.get(at)
                version = known.materialization_id if known is not None else None
            if self._reads and not (self._is_source and version is None):
                given = planner._inputs.get(at)
                if given is None:
                    given = planner._inputs[at] = PlanInput(asset, needed, version)
                inputs.append(given)
        return stage

    def _needed(self, partition: Partition, key: PartitionKey | None) -> Iterable[Partition]:
        if self._connection.same_keys:
            return (partition,)
        needs = self._connection.upstream(key).keys
        return (None,) if needs is None else (each.canonical for each in needs)
