"""Plans as values: files, fingerprints, differences."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from servo.core import canonical
from servo.core import plan as plans
from servo.core.definitions import AssetDefinition, CheckDefinition, Dependency
from servo.core.keys import AssetKey
from servo.core.partitions import Partitioning
from servo.core.plan import Plan, PlanInput, PlannedAsset, PlannedTask
from servo.core.planner import PlanningState, Version
from servo.core.policies import GatingPolicy, Resources, RetryPolicy
from servo.errors import Invalid
from servo.sdk.partitions import DailyPartition, StaticPartition
from tests.unit.test_planner import DAYS, NOW, asset, plan

CHAIN = (asset("a", by=DAYS), asset("b", ["a"], by=DAYS))


def changed(definition: AssetDefinition, **fields: object) -> AssetDefinition:
    return msgspec.structs.replace(definition, **fields)


def test_a_plan_reads_back_as_it_was_written() -> None:
    made = plan(*CHAIN)
    assert plans.load(plans.dump(made)) == made


def test_a_plan_file_is_canonical_json() -> None:
    written = plans.dump(plan(*CHAIN))
    assert canonical.dumps(json.loads(written)) == written


def test_a_plan_changed_by_hand_is_refused() -> None:
    written = plans.dump(plan(*CHAIN)).replace(b"t/a[", b"t/z[")
    with pytest.raises(Invalid, match="were changed after it was written"):
        plans.load(written)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"partition":"date=d:2024-03-09"', b'"partition":"date=d:2024-03-08"'),
        (b'"stage":1', b'"stage":2'),
        (b'"asset":"t/b"', b'"asset":"t/a"'),
    ],
)
def test_what_follows_from_the_fingerprint_cannot_be_changed_either(old: bytes, new: bytes) -> None:
    written = plans.dump(plan(*CHAIN))
    assert old in written
    with pytest.raises(Invalid, match="were changed after it was written"):
        plans.load(written.replace(old, new))


def test_a_plan_of_a_newer_format_is_refused() -> None:
    written = plans.dump(msgspec.structs.replace(plan(*CHAIN), format=99))
    with pytest.raises(Invalid, match=r"format 99.*upgrade"):
        plans.load(written)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b"\xff", b'{"format": "x"}', b"[" * 9999]
)
def test_what_is_no_plan_is_refused_with_one_sentence(text: bytes) -> None:
    with pytest.raises(Invalid, match="not a plan that Servo wrote"):
        plans.load(text)


def test_a_plan_with_unknown_fields_of_a_later_servo_is_read() -> None:
    made = plan(*CHAIN)
    data = json.loads(plans.dump(made))
    data["later"] = {"more": 1}
    assert plans.load(json.dumps(data).encode()) == made


def test_the_fingerprint_says_its_version_and_hash() -> None:
    assert plan(*CHAIN).fingerprint.startswith("v1:sha256:")


def test_the_fingerprint_does_not_depend_on_the_time_of_planning() -> None:
    later = PlanningState(NOW.replace(hour=13))
    assert plan(*CHAIN).fingerprint == plan(*CHAIN, state=later).fingerprint


@pytest.mark.parametrize(
    "fields",
    [
        {"code_version": "v2"},
        {"retry": RetryPolicy(max_attempts=9)},
        {"resources": Resources(memory_bytes=1024)},
        {"priority": 5},
        {"config": {"limit": 3}},
        {"checks": (CheckDefinition(name="c", kind="python", code_version="v2"),)},
        {"dependencies": (Dependency(upstream=AssetKey("t", "a"), parameter="other"),)},
        {"dependencies": (Dependency(upstream=AssetKey("t", "a"), require_quality=False),)},
        {"partitions": Partitioning((DailyPartition("date", start="2024-01-01", hour=6),))},
    ],
)
def test_the_fingerprint_depends_on_what_decides_the_outcome(fields: dict[str, object]) -> None:
    other = (CHAIN[0], changed(CHAIN[1], **fields))
    assert plan(*CHAIN).fingerprint != plan(*other).fingerprint


@pytest.mark.parametrize(
    "fields",
    [
        {"description": "new words"},
        {"owners": ("me",)},
        {"tags": {"a": "b"}},
        {"gating": GatingPolicy(name="mine")},
    ],
)
def test_the_fingerprint_does_not_depend_on_words_for_people(fields: dict[str, object]) -> None:
    other = (CHAIN[0], changed(CHAIN[1], **fields))
    assert plan(*CHAIN).fingerprint == plan(*other).fingerprint


def test_the_fingerprint_depends_on_the_version_of_a_pinned_input() -> None:
    def pinned(version: str) -> Plan:
        at = ("t/a", "date=d:2024-03-09")
        state = PlanningState(NOW, versions={at: Version(version, "v1", "", {})})
        return plan(*CHAIN, select="b", state=state)

    assert pinned("01A").fingerprint != pinned("01B").fingerprint


class TestDiff:
    def test_equal_plans_differ_in_nothing(self) -> None:
        assert not plans.diff(plan(*CHAIN), plan(*CHAIN))

    def test_added_and_removed_tasks_are_listed(self) -> None:
        difference = plans.diff(plan(CHAIN[0]), plan(CHAIN[0], date="2024-01-05"))
        assert difference.added == ("t/a[date=d:2024-01-05]:materialize",)
        assert difference.removed == ("t/a[date=d:2024-03-09]:materialize",)

    def why(self, old: Plan, new: Plan) -> tuple[str, ...]:
        (change,) = plans.diff(old, new).changed
        return change.why

    def test_changed_code_is_the_reason(self) -> None:
        new = plan(CHAIN[0], changed(CHAIN[1], code_version="v2"))
        assert self.why(plan(*CHAIN), new) == ("its code changed",)

    def test_a_changed_policy_shows_both_values(self) -> None:
        new = plan(CHAIN[0], changed(CHAIN[1], retry=RetryPolicy(max_attempts=5, multiplier=1.5)))
        assert self.why(plan(*CHAIN), new) == (
            "retry.max_attempts: 3 → 5",
            "retry.multiplier: 2.0 → 1.5",
        )

    def test_values_that_python_holds_equal_are_told_apart(self) -> None:
        def configured(**config: object) -> Plan:
            return plan(changed(CHAIN[0], config=config))

        assert self.why(configured(x=1), configured(x=True)) == ("config.x: 1 → true",)
        assert self.why(configured(x=None), configured()) == ("config.x: null → not set",)

    def test_a_lost_edge_is_the_reason(self) -> None:
        new = plan(CHAIN[0], asset("b", [], by=DAYS))
        why = self.why(plan(*CHAIN), new)
        assert "no longer waits for t/a[date=d:2024-03-09]:materialize" in why

    def test_a_new_input_version_shows_both(self) -> None:
        def pinned(version: str | None) -> Plan:
            versions: dict[tuple[str, str | None], Version] = {}
            if version:
                versions["t/a", "date=d:2024-03-09"] = Version(version, "v1", "", {})
            return plan(*CHAIN, select="b", state=PlanningState(NOW, versions=versions))

        assert self.why(pinned(None), pinned("01B")) == (
            "input t/a[date=d:2024-03-09]: no version yet → 01B",
        )

    def test_running_only_if_changed_is_the_reason(self) -> None:
        old = plan(*CHAIN, select="+b", state=PlanningState(NOW))
        new = plan(*CHAIN, select="*", state=PlanningState(NOW))
        assert self.why(old, new) == ("now runs only if changed",)


def test_the_plan_knows_how_many_stages_it_has() -> None:
    assert plan(*CHAIN).stages() == 2


def test_a_partitioning_is_part_of_no_fingerprint_but_its_keys_are() -> None:
    longer = Partitioning((msgspec.structs.replace(DAYS, start="2023-01-01T00:00:00"),))
    other = tuple(changed(each, partitions=longer) for each in CHAIN)
    assert plan(*CHAIN).fingerprint == plan(*other).fingerprint


VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "plan_fingerprints.json").read_text())


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: str(case["name"]))
def test_the_fingerprint_is_that_of_the_golden_vectors(case: dict[str, Any]) -> None:
    spec = case["spec"]
    assets = {name: msgspec.convert(asset, PlannedAsset) for name, asset in spec["assets"].items()}
    tasks = [
        PlannedTask(
            key=key,
            asset=key.partition("[")[0].partition(":")[0],
            upstreams=tuple(upstreams),
            inputs=tuple(PlanInput(a, p or None, v, n) for a, p, v, n in inputs),
            rerun=rerun,
        )
        for key, upstreams, inputs, rerun in spec["tasks"]
    ]
    assert plans.fingerprint(assets, tasks) == case["fingerprint"]


def test_defaults_enter_the_fingerprint_as_the_golden_vectors_spell_them() -> None:
    (case,) = [case for case in VECTORS["cases"] if case["name"] == "one task"]
    made = plan(changed(asset("orders", code="sha256:aa"), key=AssetKey("raw", "orders")))
    assert made.fingerprint == case["fingerprint"]


def test_the_fingerprint_of_many_tasks_is_that_of_their_canonical_json_in_one_piece() -> None:
    made = plan(asset("a", by=StaticPartition("n", range(1201))))
    spec = {
        "assets": {name: msgspec.structs.asdict(each) for name, each in made.assets.items()},
        "tasks": [[task.key, [], [], True] for task in made.tasks],
        "version": 1,
    }
    assert made.fingerprint == "v1:" + canonical.fingerprint(spec)
