"""Plans do not depend on the order in which anything was declared."""

import random
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from servo.core import plan as plans
from servo.core.definitions import AssetDefinition, Dependency, Manifest
from servo.core.dimensions import Dimension
from servo.core.keys import AssetKey
from servo.core.mappings import AllPartitions, PartitionMapping
from servo.core.partitions import Partitioning
from servo.core.plan import PlanRequest
from servo.core.planner import PlanningState, Version, make_plan
from servo.sdk.mappings import LastN
from servo.sdk.partitions import (
    DailyPartition,
    DynamicPartition,
    HourlyPartition,
    StaticPartition,
    WeeklyPartition,
)

NOW = datetime(2024, 1, 17, 9, tzinfo=UTC)
DAYS = DailyPartition("date", start="2024-01-01")
PARTITIONINGS: list[tuple[Dimension, ...]] = [
    (),
    (DAYS,),
    (DAYS, StaticPartition("region", ["eu", "us"])),
    (WeeklyPartition("week", start="2024-01-01"),),
    (HourlyPartition("hour", start="2024-01-15"),),
    (DAYS, DynamicPartition("customer")),
]
CONFIG: st.SearchStrategy[object] = st.sampled_from([None, 0, 1, True, False, "", 0.5, [], [1], {}])
DYNAMIC = {"customer": ["ann", "bob"]}


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Up to eight assets, each below some of those before it."""
    assets: list[AssetDefinition] = []
    for number in range(draw(st.integers(1, 8))):
        dimensions = draw(st.sampled_from(PARTITIONINGS))
        places = draw(st.sets(st.integers(0, len(assets) - 1), max_size=3)) if assets else set()
        above = [assets[place] for place in places]
        dependencies = []
        for up in sorted(above, key=lambda a: a.key):
            mapping: PartitionMapping | None = None
            if up.partitions is not None and dimensions:
                timed = {d.name for d in dimensions} & {"date", "week", "hour"}
                up_timed = {d.name for d in up.partitions.dimensions} & {"date", "week", "hour"}
                mapping = draw(st.sampled_from([None, LastN(2)] if timed and up_timed else [None]))
                if not (timed and up_timed):
                    mapping = AllPartitions()
            parameter = draw(st.sampled_from([None, up.key.name]))
            dependencies.append(Dependency(upstream=up.key, parameter=parameter, mapping=mapping))
        assets.append(
            AssetDefinition(
                key=AssetKey(draw(st.sampled_from(["raw", "mart"])), f"a{number}"),
                partitions=Partitioning(dimensions) if dimensions else None,
                dependencies=tuple(dependencies),
                tags=draw(
                    st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), max_size=2)
                ),
                code_version=f"v{number}",
                config=draw(st.dictionaries(st.sampled_from("xy"), CONFIG, max_size=1)),
            )
        )
    return Manifest(assets=tuple(assets))


def shuffled(manifest: Manifest, seed: int) -> Manifest:
    """The same declarations in another order."""
    order = random.Random(seed)
    assets = []
    for asset in manifest.assets:
        dependencies, tags = list(asset.dependencies), list(asset.tags.items())
        order.shuffle(dependencies)
        order.shuffle(tags)
        dimensions = list(asset.partitions.dimensions) if asset.partitions else []
        order.shuffle(dimensions)
        assets.append(
            msgspec.structs.replace(
                asset,
                dependencies=tuple(dependencies),
                tags=dict(tags),
                partitions=Partitioning(tuple(dimensions)) if dimensions else None,
            )
        )
    order.shuffle(assets)
    return msgspec.structs.replace(manifest, assets=tuple(assets))


@given(manifests(), st.integers(0, 10**6))
def test_the_order_of_declarations_does_not_change_a_byte(manifest: Manifest, seed: int) -> None:
    request = PlanRequest()
    one = make_plan(request, manifest, PlanningState(NOW, DYNAMIC))
    keys = {"customer": list(reversed(DYNAMIC["customer"]))}
    two = make_plan(request, shuffled(manifest, seed), PlanningState(NOW, keys))
    assert plans.dump(one) == plans.dump(two)


@given(manifests())
def test_every_edge_leads_to_an_earlier_stage_of_the_same_plan(manifest: Manifest) -> None:
    plan = make_plan(PlanRequest(), manifest, PlanningState(NOW, DYNAMIC))
    stages = {task.key: task.stage for task in plan.tasks}
    for task in plan.tasks:
        expected = max((stages[up] + 1 for up in task.upstreams), default=0)
        assert task.stage == expected


@given(manifests())
def test_a_plan_survives_its_file(manifest: Manifest) -> None:
    plan = make_plan(PlanRequest(), manifest, PlanningState(NOW, DYNAMIC))
    assert plans.load(plans.dump(plan)) == plan


@given(manifests(), manifests())
def test_plans_differ_exactly_if_their_fingerprints_do(old: Manifest, new: Manifest) -> None:
    before = make_plan(PlanRequest(), old, PlanningState(NOW, DYNAMIC))
    after = make_plan(PlanRequest(), new, PlanningState(NOW, DYNAMIC))
    assert bool(plans.diff(before, after)) == (before.fingerprint != after.fingerprint)


@given(manifests())
def test_once_everything_is_made_nothing_is_stale(manifest: Manifest) -> None:
    first = make_plan(PlanRequest(), manifest, PlanningState(NOW, DYNAMIC))
    codes = {asset.key.canonical: asset.code_version for asset in manifest.assets}
    ids = {(t.asset, t.partition): f"m{i}" for i, t in enumerate(first.tasks)}
    versions = {
        (t.asset, t.partition): Version(
            ids[t.asset, t.partition],
            codes[t.asset],
            first.assets[t.asset].settings,
            {(i.asset, i.partition): ids.get((i.asset, i.partition), "") for i in t.inputs},
        )
        for t in first.tasks
    }
    # What was not planned has no version: give it one, so that its readers have read something.
    for task in first.tasks:
        for read in task.inputs:
            versions.setdefault((read.asset, read.partition), Version("", "", "", {}))
    for task in make_plan(PlanRequest(), manifest, PlanningState(NOW, DYNAMIC, versions)).tasks:
        own = [r for r in task.reasons if r.startswith("stale") and "made again" not in r]
        assert own == []
