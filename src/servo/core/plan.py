"""Plans: what would run, in which order, on which inputs, and why.

A plan is a value. It holds what decides the outcome (tasks, edges, pinned inputs, policies) and what
explains it (reasons, stages, the request, `now`). Its fingerprint covers the first kind only, so two
plans with the same fingerprint do the same work. Ids are not part of a plan; they are minted when it
runs.

The fingerprint is `v1:` and the fingerprint of this canonical JSON, with tasks sorted by key:

    {"assets": {asset: {"code_version", "resources", "retry", …}},
     "tasks": [[task key, [upstream task keys, sorted],
                [[asset, partition, version, parameter], …], rerun]],
     "version": 1}

where the inputs listed are those whose version exists already, each once and sorted, with "" for no
partition. Golden vectors: tests/vectors/plan_fingerprints.json.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from servo.core import canonical
from servo.core.keys import TaskKey
from servo.errors import Invalid

FORMAT = 1
T = TypeVar("T")


class PlanInput(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One upstream partition that a task reads as `parameter`. `version` is None if this plan makes
    it, or if it does not exist."""

    asset: str
    partition: str | None = None
    version: str | None = None
    parameter: str | None = None


class PlannedTask(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One task. Keys are canonical strings; `upstreams` are tasks of the same plan."""

    key: str
    asset: str
    partition: str | None = None
    stage: int = 0
    upstreams: tuple[str, ...] = ()
    inputs: tuple[PlanInput, ...] = ()
    rerun: bool = False
    """Runs even if nothing has changed; otherwise an unchanged task ends REUSED."""
    reasons: tuple[str, ...] = ()


class PlannedAsset(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of an asset share; plain data, so that it enters fingerprints as it is.

    It holds what decides the outcome of a task and is not in the task itself, and nothing else: no
    words for people, no name of a policy, no bounds of the partitions (which tasks there are says it).
    """

    code_version: str
    kind: str
    config: Mapping[str, Any]
    dependencies: tuple[Mapping[str, Any], ...]
    """Upstream, parameter, mapping and require_quality; sorted."""
    windows: tuple[Mapping[str, Any], ...]
    """Name, grain, cron, timezone and exclude of each time dimension: what a key stands for."""
    checks: tuple[Mapping[str, Any], ...]
    """Sorted by name, without the place of their code."""
    gating: Mapping[str, Any]
    retry: Mapping[str, Any]
    timeouts: Mapping[str, Any]
    resources: Mapping[str, Any]
    priority: int

    @property
    def settings(self) -> str:
        """A fingerprint of what a version depends on beside its code and its inputs."""
        return canonical.fingerprint({"config": self.config, "windows": self.windows})


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. `partitions`: for each dimension, values, labels or ranges `a..b`."""

    selection: str = "*"
    partitions: Mapping[str, tuple[str, ...]] = {}
    force: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks in order of their keys, and everything they were decided from."""

    format: int = FORMAT
    fingerprint: str
    request: PlanRequest
    now: str
    """The moment it was planned for, as ISO 8601 in UTC."""
    dynamic: Mapping[str, tuple[str, ...]] = {}
    """The dynamic partition keys it was planned with, spelled with their tags."""
    assets: Mapping[str, PlannedAsset]
    tasks: tuple[PlannedTask, ...]
    idle: tuple[str, ...] = ()
    """Selected assets without a task: no partition of theirs exists yet, or was named."""

    def stages(self) -> int:
        return max((task.stage for task in self.tasks), default=-1) + 1

    def unmet(self) -> Iterable[tuple[PlannedTask, PlanInput]]:
        """Inputs that nobody makes: not in the plan, and without a version. Such a task would fail;
        source assets are read as they are and are not counted."""
        made = {(task.asset, task.partition) for task in self.tasks}
        for task in self.tasks:
            for given in task.inputs:
                if given.version is None and (given.asset, given.partition) not in made:
                    yield task, given


def fingerprint(assets: Mapping[str, PlannedAsset], tasks: Iterable[PlannedTask]) -> str:
    """See the module's docstring. Independent of the order of the arguments."""
    known: dict[int, bytes] = {}
    specs = b",".join(
        canonical.dumps(name) + b":" + _spec(asset, known) for name, asset in sorted(assets.items())
    )
    ordered = sorted(tasks, key=lambda task: task.key)
    # The same bytes as canonical.dumps of the whole, which would hold all of it in memory at once.
    digest = hashlib.sha256(b'{"assets":{' + specs + b'},"tasks":[')
    for at in range(0, len(ordered), _CHUNK):
        rows = [_row(task) for task in ordered[at : at + _CHUNK]]
        digest.update(b"," * (at > 0) + canonical.dumps(rows)[1:-1])
    digest.update(b'],"version":1}')
    return f"v1:sha256:{digest.hexdigest()}"


_CHUNK = 500


_FIELDS = [(name, f'"{name}":'.encode()) for name in sorted(PlannedAsset.__struct_fields__)]


def _spec(asset: PlannedAsset, known: dict[int, bytes]) -> bytes:
    """The canonical JSON of an asset. Assets share most of their policies: each is spelled once."""
    fields = []
    for name, spelled_name in _FIELDS:
        value = getattr(asset, name)
        spelled = known.get(id(value))
        if spelled is None:
            spelled = known[id(value)] = canonical.dumps(value)
        fields.append(spelled_name + spelled)
    return b"{" + b",".join(fields) + b"}"


def _row(task: PlannedTask) -> tuple[Any, ...]:
    pinned = {
        (i.asset, i.partition or "", i.version, i.parameter or "") for i in task.inputs if i.version
    }
    return task.key, tuple(sorted(task.upstreams)), tuple(sorted(pinned)), task.rerun


_encoder = msgspec.json.Encoder(order="sorted")


def dump(plan: Plan) -> bytes:
    """The plan as canonical JSON (it holds no floats: assets are plain data already)."""
    return _encoder.encode(plan)


class _Head(msgspec.Struct):
    format: int
    fingerprint: str


def is_plan(text: bytes) -> bool:
    """Whether a text looks like a plan, of whatever format."""
    try:
        _decoded(text, _Head)
    except Invalid:
        return False
    return True


def load(text: bytes) -> Plan:
    """The inverse of `dump`. Refuses a plan whose content is not what its fingerprint says."""
    # The format goes first: in a newer one, fields may hold what this Servo cannot know.
    found = _decoded(text, _Head).format
    if found != FORMAT:
        newer = "upgrade Servo" if found > FORMAT else _AGAIN
        raise Invalid(f"this plan has format {found}, and this Servo reads {FORMAT}; {newer}")
    plan = _decoded(text, Plan)
    if not _consistent(plan) or fingerprint(plan.assets, plan.tasks) != plan.fingerprint:
        raise Invalid(
            "the tasks or assets of this plan were changed after it was written: they do not match"
            f" its fingerprint; {_AGAIN}"
        )
    return plan


def _consistent(plan: Plan) -> bool:
    """Whether what the fingerprint does not cover follows from what it does."""
    stages: dict[str, int] = {}
    for task in sorted(plan.tasks, key=lambda task: task.stage):
        above = [stages.get(key, task.stage) for key in task.upstreams]
        if (
            task.asset not in plan.assets
            or task.key != TaskKey.spell(task.asset, task.partition)
            or task.stage != max(above, default=-1) + 1
        ):
            return False
        stages[task.key] = task.stage
    return True


def _decoded(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Invalid(f"this is not a plan that Servo wrote ({error}); {_AGAIN}") from None


_AGAIN = "write a new one with 'servo plan --out'"


class TaskChange(msgspec.Struct, frozen=True):
    """A task that both plans have, and what differs."""

    key: str
    why: tuple[str, ...]


class PlanDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What happened between two plans."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[TaskChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def dump_diff(difference: PlanDiff) -> bytes:
    return _encoder.encode(difference)


def diff(old: Plan, new: Plan) -> PlanDiff:
    """Added, removed and changed tasks. Empty exactly if the fingerprints are equal."""
    before = {task.key: task for task in old.tasks}
    after = {task.key: task for task in new.tasks}
    assets = {
        name: _asset_changes(old.assets[name], new.assets[name])
        for name in old.assets.keys() & new.assets.keys()
    }
    changed = []
    for key in sorted(before.keys() & after.keys()):
        why = (*assets[after[key].asset], *_task_changes(before[key], after[key]))
        if why:
            changed.append(TaskChange(key, why))
    return PlanDiff(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(changed),
    )


def _asset_changes(old: PlannedAsset, new: PlannedAsset) -> tuple[str, ...]:
    why = []
    for field in PlannedAsset.__struct_fields__:
        before, after = getattr(old, field), getattr(new, field)
        # By their spelling: 1 == True in Python, and not in a fingerprint.
        if canonical.dumps(before) == canonical.dumps(after):
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            for key in sorted({*before, *after}):
                one, two = _shown(before, key), _shown(after, key)
                if one != two:
                    why.append(f"{field}.{key}: {one} → {two}")
        elif isinstance(before, int):
            why.append(f"{field}: {before} → {after}")
        else:
            why.append("its code changed" if field == "code_version" else f"its {field} changed")
    return tuple(why)


def _shown(data: Mapping[str, Any], key: str) -> str:
    if key not in data:
        return "not set"
    value = data[key]
    if isinstance(value, dict) and value.keys() == {"$float"}:
        return str(value["$float"])
    return canonical.dumps(value).decode()


def _task_changes(old: PlannedTask, new: PlannedTask) -> tuple[str, ...]:
    why = [f"now waits for {key}" for key in sorted(set(new.upstreams) - set(old.upstreams))]
    why += [f"no longer waits for {key}" for key in sorted(set(old.upstreams) - set(new.upstreams))]
    before = {(i.asset, i.partition or "", i.parameter or ""): i.version for i in old.inputs}
    after = {(i.asset, i.partition or "", i.parameter or ""): i.version for i in new.inputs}
    for at in sorted(before.keys() | after.keys()):
        # What has no version yet is in no fingerprint: an edge says it, or nothing can.
        if before.get(at) != after.get(at):
            name = f"{at[0]}[{at[1]}]" if at[1] else at[0]
            why.append(f"input {name}: {_version(before, at)} → {_version(after, at)}")
    if old.rerun != new.rerun:
        why.append("now runs even if unchanged" if new.rerun else "now runs only if changed")
    return tuple(why)


def _version(inputs: Mapping[Any, str | None], at: Any) -> str:
    if at not in inputs:
        return "not read"
    return inputs[at] or "no version yet"
