"""What a project declares: the content of a deployment.

A `Manifest` is everything one version of a project's code declares, as frozen values with a JSON
form that round-trips (`dump` and `load`). It holds no functions, no secrets and no data; who
deployed it and when are facts of the deployment, not of its content, so that the same code has the
same manifest everywhere.
"""

import enum
import functools
import operator
from collections.abc import Mapping
from typing import Any

import msgspec

from servo.core import canonical, cron
from servo.core.durations import MAX_MS
from servo.core.graph import Graph
from servo.core.keys import AssetKey
from servo.core.mappings import PartitionMapping, check_mapping
from servo.core.partitions import Partitioning
from servo.core.plain import from_plain, read_json, to_plain, user_data
from servo.core.policies import (
    DEFAULT_GATING,
    DEFAULT_SEVERITY,
    GatingPolicy,
    Resources,
    RetryPolicy,
    Severity,
    Timeouts,
)
from servo.core.selection import SelectionAttributes
from servo.core.selection import parse as parse_selection
from servo.core.zones import zone
from servo.errors import Invalid

SCHEMA_VERSION = 1


class CodeLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where the function is. File and line are for people; they are no part of the code version."""

    module: str
    function: str
    file: str | None = None
    line: int | None = None


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream asset. Without a `parameter` it is for order only: no data is passed."""

    upstream: AssetKey
    parameter: str | None = None
    mapping: PartitionMapping | None = None
    """None: by the names and kinds of the dimensions (see servo.core.mappings)."""
    require_quality: bool = True
    """Whether a version that a check has blocked or quarantined is refused as input."""


class CheckPhase(enum.StrEnum):
    """Before the function, on its inputs; or after it, on its output."""

    PRE = "pre"
    POST = "post"


class CheckDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A check as declared: `kind` names what is checked, `parameters` its bounds."""

    name: str
    kind: str
    severity: Severity = DEFAULT_SEVERITY
    phase: CheckPhase = CheckPhase.POST
    parameters: Mapping[str, Any] = {}
    timeout_ms: int = 300_000
    code: CodeLocation | None = None
    code_version: str = ""
    """As for an asset: the same text means the same behaviour."""

    def __post_init__(self) -> None:
        if not 1 <= self.timeout_ms <= MAX_MS:
            raise Invalid(
                f"check {self.name!r}: timeout_ms is {self.timeout_ms}; give 1 to {MAX_MS}"
            )
        _own_data(self, f"check {self.name!r}", "parameters")


class AssetKind(enum.StrEnum):
    PYTHON = "python"
    SQL = "sql"
    SOURCE = "source"
    """Data that Servo does not make: it is never a task."""


class AssetDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One asset: what it is, what it needs, how it runs."""

    key: AssetKey
    kind: AssetKind = AssetKind.PYTHON
    description: str = ""
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = {}
    group: str | None = None
    partitions: Partitioning | None = None
    dependencies: tuple[Dependency, ...] = ()
    code: CodeLocation | None = None
    code_version: str = ""
    """A fingerprint of what the function does; the same text means the same behaviour."""
    checks: tuple[CheckDefinition, ...] = ()
    gating: GatingPolicy = DEFAULT_GATING
    retry: RetryPolicy = RetryPolicy()
    timeouts: Timeouts = Timeouts()
    resources: Resources = Resources()
    priority: int = 0
    """Among tasks that are ready, the higher one goes first."""
    config: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}
    renamed_from: AssetKey | None = None

    def __post_init__(self) -> None:
        names = [check.name for check in self.checks]
        for name in names:
            if names.count(name) > 1:
                raise Invalid(f"asset {self.key}: two checks are named {name!r}; rename one")
        taken = [d.parameter for d in self.dependencies if d.parameter is not None]
        for parameter in taken:
            if taken.count(parameter) > 1:
                raise Invalid(f"asset {self.key}: two inputs are named {parameter!r}; rename one")
        if not -1_000_000 <= self.priority <= 1_000_000:
            raise Invalid(
                f"asset {self.key}: priority {self.priority} is not within ±1000000; give one that is"
            )
        _own_data(self, f"asset {self.key}", "tags", "config", "metadata")

    @property
    def attributes(self) -> SelectionAttributes:
        return SelectionAttributes(
            tags=self.tags, owners=self.owners, group=self.group, kind=self.kind.value
        )


class ScheduleDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """Run a selection at the fires of a cron expression."""

    name: str
    selection: str
    cron: str
    timezone: str = "UTC"
    partitions: Mapping[str, tuple[str, ...]] = {}
    """Choices per dimension; a time dimension that is not named: the latest partition."""
    enabled: bool = True

    def __post_init__(self) -> None:
        try:
            parse_selection(self.selection)
            cron.parse(self.cron)
            zone(self.timezone)
        except Invalid as why:
            raise Invalid(f"schedule {self.name!r}: {why}") from None


class SensorDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a function every so often whether a selection should run."""

    name: str
    selection: str
    code: CodeLocation
    interval_ms: int = 30_000
    enabled: bool = True

    def __post_init__(self) -> None:
        try:
            parse_selection(self.selection)
        except Invalid as why:
            raise Invalid(f"sensor {self.name!r}: {why}") from None
        if not 1_000 <= self.interval_ms <= MAX_MS:
            raise Invalid(
                f"sensor {self.name!r}: interval_ms is {self.interval_ms}; give 1000 to {MAX_MS}"
            )


class Manifest(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Everything a version of the code declares."""

    schema_version: int = SCHEMA_VERSION
    namespace: str = "default"
    """The namespace of assets that do not name one."""
    assets: tuple[AssetDefinition, ...] = ()
    schedules: tuple[ScheduleDefinition, ...] = ()
    sensors: tuple[SensorDefinition, ...] = ()

    def __post_init__(self) -> None:
        _check_version(self.schema_version)
        for what, named in (("schedule", self.schedules), ("sensor", self.sensors)):
            names = [each.name for each in named]
            for name in names:
                if names.count(name) > 1:
                    raise Invalid(f"two {what}s are named {name!r}; rename one")
        # One order, whatever the order in which modules were loaded.
        for field, key in (("assets", "key"), ("schedules", "name"), ("sensors", "name")):
            ordered = tuple(sorted(getattr(self, field), key=operator.attrgetter(key)))
            msgspec.structs.force_setattr(self, field, ordered)

    @functools.cached_property
    def graph(self) -> Graph:
        """The assets and what they depend on; refuses cycles, unknown upstreams and partitions
        that cannot be mapped. Worked out once: an engine plans often with one manifest."""
        graph = Graph.of((a.key, [d.upstream for d in a.dependencies]) for a in self.assets)
        partitions = {a.key: a.partitions for a in self.assets}
        fits = set()
        for asset in self.assets:
            for dependency in asset.dependencies:
                above = partitions[dependency.upstream]
                # A mapping may hold a dict, which has no hash.
                mapping = None if dependency.mapping is None else repr(dependency.mapping)
                pair = mapping, above, asset.partitions
                if pair in fits:
                    continue
                try:
                    check_mapping(dependency.mapping, above, asset.partitions)
                except Invalid as why:
                    raise Invalid(f"{dependency.upstream} → {asset.key}: {why}") from None
                fits.add(pair)
        return graph


def _own_data(struct: msgspec.Struct, what: str, *fields: str) -> None:
    """Keep a copy of what the user wrote, in the form in which it reads back."""
    for field in fields:
        given = getattr(struct, field)
        if not isinstance(given, Mapping):
            raise Invalid(f"{what}: {field} is {given!r}; give a dict, like {{'key': 'value'}}")
        data = user_data(given, f"{what}: {field}")
        msgspec.structs.force_setattr(struct, field, data)


def _check_version(version: int) -> None:
    if version > SCHEMA_VERSION:
        raise Invalid(
            f"this manifest has schema version {version}, and this Servo knows up to"
            f" {SCHEMA_VERSION}; upgrade Servo to read it"
        )
    if version < 1:
        raise Invalid(
            f"this manifest has schema version {version}, which there never was; write it again"
        )


class _Versioned(msgspec.Struct):
    schema_version: int


def dump(manifest: Manifest) -> bytes:
    """The manifest as canonical JSON."""
    return canonical.dumps(to_plain(manifest))


def load(text: bytes) -> Manifest:
    """The inverse of `dump`."""
    what = "the manifest"
    data = read_json(text, what)
    # The version goes first: in a newer one, fields may mean and hold what this Servo cannot know.
    head = {k: data[k] for k in data if k == "schema_version"} if isinstance(data, dict) else data
    _check_version(from_plain(head, _Versioned, what).schema_version)
    return from_plain(data, Manifest, what)
