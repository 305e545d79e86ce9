"""The planner: request + definitions + state → plan. Pure and deterministic.

Everything it depends on is an argument: `now`, the dynamic keys and the versions that inputs are
pinned to are part of the state. The same arguments give the same bytes on every machine.

Which partitions of which assets are planned is decided by servo.core.scope; here they become tasks.
An upstream task of the same plan gives an edge; any other input is pinned to the latest good version
that the state knows, or left open where there is none.
"""

import functools
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
from servo.core.dimensions import DynamicKeys, TimeDimension
from servo.core.keys import AssetKey, PartitionKey, TaskKey, normal_scalar, spell_scalar
from servo.core.keysets import PartitionSet
from servo.core.mappings import Connection
from servo.core.partitions import Partitioning
from servo.core.plain import to_plain
from servo.core.plan import (
    Plan,
    PlanInput,
    PlannedAsset,
    PlannedTask,
    PlanRequest,
    fingerprint,
)
from servo.core.scope import MAX_TASKS, Partition, Scope
from servo.errors import Invalid

NEVER_MADE = "stale because it was never made"
UP_TO_DATE = "up to date: reused unless an input changes"


MAX_INPUTS = 10_000_000
"""As many inputs as a plan lists; a task that reads every hour of a century has a million."""


class Version(NamedTuple):
    """The latest good version of a partition, as far as a plan needs it."""

    materialization_id: str
    code_version: str
    settings: str
    """PlannedAsset.settings when it was made."""
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
    scope = Scope(request, manifest, state.now, state.dynamic)
    selected = sorted(scope.selected, key=lambda key: key.canonical)
    assets = _planned_assets(scope.definitions[k] for k in selected if scope.partitions[k])
    tasks = sorted(_Planner(scope, request, state, assets).tasks(), key=lambda task: task.key)
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
        idle=tuple(key.canonical for key in selected if key.canonical not in assets),
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
            config=to_plain(each.config) if each.config else {},
            dependencies=tuple(_planned_dependency(d) for d in _in_order(each.dependencies)),
            windows=() if each.partitions is None else _windows(each.partitions),
            checks=tuple(_without(to_plain(c), "code") for c in _by_name(each.checks)),
            gating=_without(plain(each.gating), "name"),
            retry=plain(each.retry),
            timeouts=plain(each.timeouts),
            resources=plain(each.resources),
            priority=each.priority,
        )
        for each in definitions
    }


def _planned_dependency(dependency: Dependency) -> dict[str, Any]:
    mapping = dependency.mapping
    return {
        "upstream": dependency.upstream.canonical,
        "parameter": dependency.parameter,
        "mapping": None if mapping is None else to_plain(mapping),
        "require_quality": dependency.require_quality,
    }


def _in_order(dependencies: Iterable[Dependency]) -> list[Dependency]:
    return sorted(dependencies, key=lambda d: (d.upstream.canonical, d.parameter or ""))


def _by_name(checks: Iterable[CheckDefinition]) -> list[CheckDefinition]:
    return sorted(checks, key=lambda check: check.name)


def _without(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != name}


@functools.lru_cache(maxsize=1024)
def _windows(partitions: Partitioning) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {
            "name": dimension.name,
            "grain": dimension.grain,
            "cron": dimension.cron,
            "timezone": dimension.timezone,
            "exclude": sorted(dimension.exclude),
        }
        for dimension in partitions.dimensions
        if isinstance(dimension, TimeDimension)
    )


class _Planner:
    def __init__(
        self,
        scope: Scope,
        request: PlanRequest,
        state: PlanningState,
        assets: Mapping[str, PlannedAsset],
    ) -> None:
        self._scope = scope
        self._request = request
        self._state = state
        self._assets = assets
        self._room = MAX_INPUTS
        self._needs: _Needs = {}

    def _reruns(self, key: AssetKey) -> bool:
        """Targets named in the request and assets without data inputs run in any case."""
        definition = self._scope.definitions[key]
        reads = any(d.parameter is not None for d in definition.dependencies)
        return self._request.force or key in self._scope.named or not reads

    def tasks(self) -> list[PlannedTask]:
        total = sum(len(partitions) for partitions in self._scope.partitions.values())
        if total > MAX_TASKS:
            raise Invalid(
                f"{total:,} tasks are more than a plan can hold ({MAX_TASKS:,});"
                " choose fewer assets, or fewer partitions with -p"
            )
        planned: dict[AssetKey, dict[Partition, PlannedTask]] = {}
        stale: set[str] = set()
        for key in self._scope.selected:
            planned[key] = self._asset_tasks(key, planned, stale)
        return [task for tasks in planned.values() for task in tasks.values()]

    def _asset_tasks(
        self,
        key: AssetKey,
        planned: Mapping[AssetKey, Mapping[Partition, PlannedTask]],
        stale: set[str],
    ) -> dict[Partition, PlannedTask]:
        """The tasks of one asset; those above it are planned. Adds those that will be made anew."""
        scope = self._scope
        definition = scope.definitions[key]
        asset = key.canonical
        forced = ("forced",) if self._request.force else ()
        rerun = self._reruns(key)
        planned_asset = self._assets.get(asset)
        settings = planned_asset.settings if planned_asset and self._state.versions else ""
        readers = [
            _Reader(
                dependency,
                scope.connection(key, dependency),
                planned.get(dependency.upstream, {}),
                self._state.versions,
                scope.definitions[dependency.upstream].kind is AssetKind.SOURCE,
                self._needs,
            )
            for dependency in _in_order(definition.dependencies)
        ]
        reasons: dict[tuple[str, ...], tuple[str, ...]] = {}  # many tasks share theirs
        tasks: dict[Partition, PlannedTask] = {}
        for partition, partition_key in scope.partitions[key].items():
            inputs: list[PlanInput] = []
            above: dict[str, PlannedTask] = {}
            for reader in readers:
                reader.read(partition, partition_key, above, inputs, self._room)
            self._room -= len(inputs)
            task_key = TaskKey.spell(asset, partition)
            changed = self._staleness((asset, partition), settings, inputs, above, stale)
            if changed or rerun:
                stale.add(task_key)
            else:
                changed = (UP_TO_DATE,)
            why = (scope.why(key, partition), *forced, *changed)
            tasks[partition] = PlannedTask(
                key=task_key,
                asset=asset,
                partition=partition,
                stage=max((task.stage + 1 for task in above.values()), default=0),
                upstreams=tuple(sorted(above)),
                inputs=tuple(inputs),
                rerun=rerun,
                reasons=reasons.setdefault(why, why),
            )
        return tasks

    def _staleness(
        self,
        at: tuple[str, Partition],
        settings: str,
        inputs: Iterable[PlanInput],
        above: Mapping[str, PlannedTask],
        stale: AbstractSet[str],
    ) -> tuple[str, ...]:
        version = self._state.versions.get(at)
        if version is None:
            return (NEVER_MADE,)
        why = []
        if version.code_version != self._assets[at[0]].code_version:
            why.append("stale because its code changed")
        if version.settings != settings:
            why.append("stale because its config or its windows changed")
        read = set()
        for given in inputs:
            source = given.asset, given.partition
            if source in read:
                continue
            read.add(source)
            made = TaskKey.spell(*source)
            if source not in version.inputs:
                why.append(f"stale because it now reads {_shown(*source)}")
            elif made in above:
                if made in stale:
                    why.append(f"stale because {_shown(*source)} will be made again")
            elif given.version != version.inputs[source]:
                why.append(f"stale because {_shown(*source)} changed")
        gone = sorted(version.inputs.keys() - read, key=lambda k: (k[0], k[1] or ""))
        why += [f"stale because it no longer reads {_shown(*source)}" for source in gone]
        return tuple(why)


def _shown(asset: str, partition: Partition) -> str:
    name = asset.replace("/", ".")
    return name if partition is None else f"{name}[{partition}]"


_Needs = dict[tuple[Connection, Partition], tuple[Partition, ...]]
"""What a partition needs through a connection, which assets that are partitioned alike share."""


class _Reader:
    """One dependency of one asset, for all of its tasks."""

    def __init__(
        self,
        dependency: Dependency,
        connection: Connection,
        planned: Mapping[Partition, PlannedTask],
        versions: Mapping[tuple[str, Partition], Version],
        is_source: bool,
        needs: "_Needs",
    ) -> None:
        self._needs = needs
        self._upstream = dependency.upstream
        self._asset = dependency.upstream.canonical
        self._parameter = dependency.parameter
        self._connection = connection
        self._planned = planned
        self._versions = versions
        self._is_source = is_source
        self._same_for_all: tuple[list[PlannedTask], list[PlanInput]] | None = None

    def read(
        self,
        partition: Partition,
        key: PartitionKey | None,
        above: dict[str, PlannedTask],
        inputs: list[PlanInput],
        room: int,
    ) -> None:
        """Add the tasks that a task waits for, and what it reads."""
        found = self._same_for_all
        if found is None:
            found = self._read(partition, key, room)
            if not self._connection.follows:
                self._same_for_all = found
        tasks, read = found
        for task in tasks:
            above[task.key] = task
        inputs += read

    def _read(
        self, partition: Partition, key: PartitionKey | None, room: int
    ) -> tuple[list[PlannedTask], list[PlanInput]]:
        if self._connection.same_keys:
            return self._each((partition,))
        known = self._needs.get((self._connection, partition))
        if known is None:
            needs = self._connection.upstream(key)
            if needs.keys is None:
                return self._each((None,))
            if self._parameter is None and needs.keys.size > len(self._planned):
                return self._among(needs.keys), []
            if needs.keys.size > room:
                raise Invalid(
                    f"a task reads {needs.keys.size:,} partitions of {self._upstream}, more than a"
                    f" plan can list ({MAX_INPUTS:,} in all); map fewer, or plan fewer tasks"
                )
            # What should be there and does not exist is listed too: it is missed when the task runs.
            known = tuple(each.canonical for each in (*needs.keys, *needs.absent))
            self._needs[self._connection, partition] = known
        return self._each(known)

    def _among(self, needed: PartitionSet) -> list[PlannedTask]:
        """The planned tasks among partitions too many to go through."""
        return [
            task
            for partition, task in self._planned.items()
            if partition is not None and PartitionKey.parse(partition) in needed
        ]

    def _each(self, needed: Iterable[Partition]) -> tuple[list[PlannedTask], list[PlanInput]]:
        tasks, inputs = [], []
        for partition in needed:
            task = self._planned.get(partition)
            version = None
            if task is not None:
                tasks.append(task)
            elif known := self._versions.get((self._asset, partition)):
                version = known.materialization_id
            elif self._is_source:
                continue  # read as it is: its version is found when the task runs
            if self._parameter is not None:
                inputs.append(PlanInput(self._asset, partition, version, self._parameter))
        return tasks, inputs
