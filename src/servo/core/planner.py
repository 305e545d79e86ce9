"""The planner: request + definitions + state → plan. Pure and deterministic.

Everything it depends on is an argument: `now`, the dynamic keys and the versions that inputs are
pinned to are part of the state. The same arguments give the same bytes on every machine.

Which partitions of which assets are planned is decided by servo.core.scope; here they become tasks.
An upstream task of the same plan gives an edge; any other input is pinned to the latest good version
that the state knows, or left open where there is none.
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
from servo.core.keys import AssetKey, PartitionKey, TaskKey, normal_scalar, spell_scalar
from servo.core.mappings import Connection
from servo.core.partitions import DynamicKeys
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
    scope = Scope(request, manifest, state.now, state.dynamic)
    tasks = sorted(_Planner(scope, request, state).tasks(), key=lambda task: task.key)
    busy = {task.asset for task in tasks}
    selected = sorted(scope.selected)
    assets = _planned_assets(scope.definitions[k] for k in selected if k.canonical in busy)
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
    def __init__(self, scope: Scope, request: PlanRequest, state: PlanningState) -> None:
        self._scope = scope
        self._request = request
        self._state = state

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
        readers = [
            _Reader(
                dependency,
                scope.connection(key, dependency),
                planned.get(dependency.upstream, {}),
                self._state.versions,
                scope.definitions[dependency.upstream].kind is AssetKind.SOURCE,
            )
            for dependency in sorted(
                definition.dependencies, key=lambda d: (d.upstream, d.parameter or "")
            )
        ]
        reasons: dict[tuple[str, ...], tuple[str, ...]] = {}  # many tasks share theirs
        tasks: dict[Partition, PlannedTask] = {}
        for partition, partition_key in scope.partitions[key].items():
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
