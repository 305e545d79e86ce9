"""Which tasks a request becomes: partitions, edges, inputs, reasons."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime

import msgspec
import pytest

from servo.core import canonical
from servo.core.definitions import AssetDefinition, AssetKind, Dependency, Manifest
from servo.core.dimensions import Dimension
from servo.core.keys import AssetKey
from servo.core.mappings import AllPartitions, PartitionMapping, TimeWindow
from servo.core.partitions import Partitioning
from servo.core.plan import Plan, PlannedTask, PlanRequest
from servo.core.planner import NEVER_MADE, UP_TO_DATE, PlanningState, Version, make_plan
from servo.core.scope import MAX_TASKS
from servo.errors import Invalid
from servo.sdk.mappings import LastN, SpecificPartitions
from servo.sdk.partitions import (
    DailyPartition,
    DynamicPartition,
    HourlyPartition,
    StaticPartition,
    WeeklyPartition,
)

NOW = datetime(2024, 3, 10, 12, tzinfo=UTC)  # a Sunday
DAYS = DailyPartition("date", start="2024-01-01")
WEEKS = WeeklyPartition("week", start="2024-01-01")
HOURS = HourlyPartition("hour", start="2024-01-01")
REGIONS = StaticPartition("region", ["eu", "us"])

PLAIN = canonical.fingerprint({"config": {}, "windows": []})
"""The settings of an asset without config and windows."""

Ups = Iterable[str] | Mapping[str, PartitionMapping | None]


def asset(
    name: str,
    ups: Ups = (),
    by: Dimension | Iterable[Dimension] | None = None,
    *,
    reads: bool = True,
    code: str = "v1",
    kind: AssetKind = AssetKind.PYTHON,
) -> AssetDefinition:
    mappings = dict(ups) if isinstance(ups, Mapping) else dict.fromkeys(ups)
    dimensions = () if by is None else (by,) if isinstance(by, Dimension) else tuple(by)
    return AssetDefinition(
        key=AssetKey("t", name),
        partitions=Partitioning(dimensions) if dimensions else None,
        dependencies=tuple(
            Dependency(upstream=AssetKey("t", up), parameter=up if reads else None, mapping=mapping)
            for up, mapping in mappings.items()
        ),
        code_version=code,
        kind=kind,
    )


def plan(
    *assets: AssetDefinition,
    select: str = "*",
    force: bool = False,
    state: PlanningState | None = None,
    **partitions: str,
) -> Plan:
    request = PlanRequest(
        selection=select, partitions={n: (c,) for n, c in partitions.items()}, force=force
    )
    return make_plan(request, Manifest(namespace="t", assets=assets), state or PlanningState(NOW))


def keys(of: Plan) -> list[str]:
    return [task.key.removeprefix("t/").removesuffix(":materialize") for task in of.tasks]


def only(of: Plan, name: str) -> PlannedTask:
    (task,) = [task for task in of.tasks if task.asset == f"t/{name}"]
    return task


def test_an_unpartitioned_chain_becomes_one_task_each_with_edges_and_stages() -> None:
    made = plan(asset("a"), asset("b", ["a"]), asset("c", ["b", "a"]))
    assert keys(made) == ["a", "b", "c"]
    assert only(made, "c").upstreams == ("t/a:materialize", "t/b:materialize")
    assert [task.stage for task in made.tasks] == [0, 1, 2]


def test_without_a_partition_the_latest_window_that_has_ended_is_planned() -> None:
    assert keys(plan(asset("a", by=DAYS))) == ["a[date=d:2024-03-09]"]


def test_other_dimensions_are_planned_entirely() -> None:
    made = plan(asset("a", by=[DAYS, REGIONS]))
    assert keys(made) == [
        "a[date=d:2024-03-09,region=s:eu]",
        "a[date=d:2024-03-09,region=s:us]",
    ]


def test_a_named_range_is_planned_with_both_ends() -> None:
    made = plan(asset("a", by=DAYS), date="2024-02-28..2024-03-01")
    assert keys(made) == ["a[date=d:2024-02-28]", "a[date=d:2024-02-29]", "a[date=d:2024-03-01]"]


def test_naming_one_dimension_takes_the_latest_window_of_the_other() -> None:
    made = plan(asset("a", by=[DAYS, REGIONS]), region="us")
    assert keys(made) == ["a[date=d:2024-03-09,region=s:us]"]


def test_reaching_up_plans_what_the_target_needs_and_nothing_else() -> None:
    made = plan(asset("day", by=DAYS), asset("week", ["day"], by=WEEKS), select="+week")
    assert keys(made) == [
        *(f"day[date=d:2024-02-{d}]" for d in (26, 27, 28, 29)),
        *(f"day[date=d:2024-03-0{d}]" for d in (1, 2, 3)),
        "week[week=d:2024-02-26]",
    ]


def test_an_asset_selected_for_itself_keeps_its_own_latest_window() -> None:
    made = plan(asset("day", by=DAYS), asset("week", ["day"], by=WEEKS))
    assert "day[date=d:2024-03-09]" in keys(made)
    assert "day[date=d:2024-02-26]" in keys(made)


def test_a_named_day_plans_the_week_it_touches() -> None:
    made = plan(asset("day", by=DAYS), asset("week", ["day"], by=WEEKS), date="2024-02-14")
    assert keys(made) == ["day[date=d:2024-02-14]", "week[week=d:2024-02-12]"]


def test_a_named_day_plans_the_hours_it_needs_and_not_the_latest_hour() -> None:
    made = plan(asset("hour", by=HOURS), asset("day", ["hour"], by=DAYS), date="2024-02-14")
    hours = [key for key in keys(made) if key.startswith("hour")]
    assert len(hours) == 24
    assert hours[0] == "hour[hour=t:2024-02-14T00:00:00.000000Z]"


def test_an_unpartitioned_summary_does_not_ask_for_a_backfill() -> None:
    made = plan(asset("day", by=DAYS), asset("total", ["day"]), select="+total")
    assert keys(made) == ["day[date=d:2024-03-09]", "total"]


def test_an_unpartitioned_summary_reads_every_partition() -> None:
    made = plan(asset("day", by=DAYS), asset("total", {"day": AllPartitions()}))
    assert len(only(made, "total").inputs) == 69  # 2024-01-01 to 2024-03-09
    assert only(made, "total").upstreams == ("t/day[date=d:2024-03-09]:materialize",)


def test_last_n_reads_the_windows_before() -> None:
    made = plan(asset("day", by=DAYS), asset("avg", {"day": LastN(3)}, by=DAYS), select="avg")
    assert [i.partition for i in only(made, "avg").inputs] == [
        "date=d:2024-03-07",
        "date=d:2024-03-08",
        "date=d:2024-03-09",
    ]


def test_dynamic_keys_are_those_the_state_knows() -> None:
    customers = asset("a", by=DynamicPartition("customer"))
    made = plan(customers, state=PlanningState(NOW, {"customer": ["zoe", "ann"]}))
    assert keys(made) == ["a[customer=s:ann]", "a[customer=s:zoe]"]
    assert made.dynamic == {"customer": ("s:ann", "s:zoe")}


def test_an_asset_without_the_named_day_is_left_out() -> None:
    late = asset("late", by=DailyPartition("date", start="2024-03-01"))
    made = plan(asset("early", by=DAYS), late, date="2024-02-01")
    assert keys(made) == ["early[date=d:2024-02-01]"]


def test_a_day_that_no_asset_has_is_refused_with_what_there_is() -> None:
    with pytest.raises(
        Invalid, match=r"t\.a: .*'2023-01-01'; it goes from 2024-01-01 to 2024-03-09"
    ):
        plan(asset("a", by=DAYS), date="2023-01-01")


def test_an_unknown_dimension_is_refused_with_a_suggestion() -> None:
    with pytest.raises(Invalid, match="'dat'; did you mean 'date'"):
        plan(asset("a", by=DAYS), dat="2024-01-01")


def test_a_dimension_named_for_assets_without_any_is_refused() -> None:
    with pytest.raises(Invalid, match="they have no partitions"):
        plan(asset("a"), date="2024-01-01")


def test_a_plan_of_too_many_tasks_is_refused_before_it_is_made() -> None:
    many = [StaticPartition(name, range(1100)) for name in ("x", "y")]
    with pytest.raises(
        Invalid, match=f"t.a: 1,210,000 partitions are more than a plan can hold .{MAX_TASKS:,}"
    ):
        plan(asset("a", by=many))


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(Invalid, match="has no time zone"):
        plan(asset("a"), state=PlanningState(datetime(2024, 1, 1)))


def test_partitions_that_cannot_be_mapped_are_refused_naming_both() -> None:
    with pytest.raises(Invalid, match=r"t\.a → t\.b: .*date \(daily.*region \(eu, us\)"):
        plan(asset("a", by=DAYS), asset("b", ["a"], by=REGIONS))


def test_an_input_outside_the_plan_is_pinned_to_its_latest_good_version() -> None:
    state = PlanningState(NOW, versions={("t/a", None): Version("01A", "v1", PLAIN, {})})
    made = plan(asset("a"), asset("b", ["a"]), select="b", state=state)
    (given,) = only(made, "b").inputs
    assert (given.asset, given.version, given.parameter) == ("t/a", "01A", "a")
    assert list(made.unmet()) == []


def test_an_input_that_nobody_makes_is_reported_as_unmet() -> None:
    made = plan(asset("a"), asset("b", ["a"]), select="b")
    assert [(task.asset, given.asset) for task, given in made.unmet()] == [("t/b", "t/a")]


def test_an_order_only_dependency_is_an_edge_and_not_an_input() -> None:
    made = plan(asset("a"), asset("b", ["a"], reads=False))
    assert only(made, "b").upstreams == ("t/a:materialize",)
    assert only(made, "b").inputs == ()


def test_a_source_is_never_a_task_and_never_unmet() -> None:
    made = plan(asset("src", kind=AssetKind.SOURCE), asset("b", ["src"]))
    assert keys(made) == ["b"]
    assert list(made.unmet()) == []


def test_selecting_only_a_source_says_what_to_select_instead() -> None:
    with pytest.raises(Invalid, match=r"t\.src is a source.*'t\.src\+'"):
        plan(asset("src", kind=AssetKind.SOURCE), asset("b", ["src"]), select="src")


class TestReasons:
    chain = (asset("a"), asset("b", ["a"]), asset("c", ["b"]))

    def test_named_assets_say_selected(self) -> None:
        assert only(plan(*self.chain, select="b"), "b").reasons[0] == "selected"

    def test_what_is_reached_upwards_says_of_what(self) -> None:
        assert only(plan(*self.chain, select="+c"), "a").reasons[0] == "upstream of t.b"

    def test_what_is_reached_downwards_says_of_what(self) -> None:
        assert only(plan(*self.chain, select="a+"), "c").reasons[0] == "downstream of t.b"

    def test_what_was_never_made_says_so(self) -> None:
        assert NEVER_MADE in only(plan(*self.chain), "a").reasons

    def made(self, **codes: str) -> PlanningState:
        versions: dict[tuple[str, str | None], Version] = {
            ("t/a", None): Version("01A", codes.get("a", "v1"), PLAIN, {}),
            ("t/b", None): Version("01B", codes.get("b", "v1"), PLAIN, {("t/a", None): "01A"}),
            ("t/c", None): Version("01C", codes.get("c", "v1"), PLAIN, {("t/b", None): "01B"}),
        }
        return PlanningState(NOW, versions=versions)

    def test_what_has_not_changed_is_up_to_date(self) -> None:
        task = only(plan(*self.chain, select="+c and not a", state=self.made()), "b")
        assert UP_TO_DATE in task.reasons
        assert not task.rerun

    def test_changed_code_makes_stale(self) -> None:
        task = only(plan(*self.chain, select="+c", state=self.made(b="v0")), "b")
        assert "stale because its code changed" in task.reasons

    def test_a_new_version_of_an_input_makes_stale(self) -> None:
        state = self.made()
        versions = {**state.versions, ("t/a", None): Version("01Z", "v1", PLAIN, {})}
        task = only(
            plan(*self.chain, select="b+", state=PlanningState(NOW, versions=versions)), "b"
        )
        assert "stale because t.a changed" in task.reasons

    def test_changed_config_makes_stale(self) -> None:
        changed = msgspec.structs.replace(self.chain[1], config={"limit": 5})
        made = plan(self.chain[0], changed, self.chain[2], select="+c", state=self.made())
        assert "stale because its config or its windows changed" in only(made, "b").reasons

    def test_reading_something_new_or_no_longer_makes_stale(self) -> None:
        other = plan(
            self.chain[0], asset("b"), asset("c", ["a"]), select="b+ or c", state=self.made()
        )
        assert "stale because it no longer reads t.a" in only(other, "b").reasons
        assert "stale because it now reads t.a" in only(other, "c").reasons
        assert "stale because it no longer reads t.b" in only(other, "c").reasons

    def test_staleness_goes_downstream(self) -> None:
        task = only(plan(*self.chain, select="+c", state=self.made(b="v0")), "c")
        assert "stale because t.b will be made again" in task.reasons

    def test_targets_by_name_and_assets_without_inputs_run_in_any_case(self) -> None:
        made = plan(*self.chain, select="+c", state=self.made())
        assert [task.rerun for task in made.tasks] == [True, False, True]

    def test_force_runs_everything_and_says_so(self) -> None:
        made = plan(*self.chain, state=self.made(), force=True)
        assert all(task.rerun and "forced" in task.reasons for task in made.tasks)


def test_the_same_upstream_read_twice_is_two_inputs_and_one_edge() -> None:
    both = AssetDefinition(
        key=AssetKey("t", "b"),
        dependencies=(
            Dependency(upstream=AssetKey("t", "a"), parameter="x"),
            Dependency(upstream=AssetKey("t", "a"), parameter="y"),
        ),
    )
    made = plan(asset("a"), both, select="+b")
    assert [i.parameter for i in only(made, "b").inputs] == ["x", "y"]
    assert only(made, "b").upstreams == ("t/a:materialize",)


def test_a_selected_asset_without_a_partition_yet_is_idle() -> None:
    future = asset("a", by=DailyPartition("date", start="2025-01-01"))
    made = plan(future, asset("b"))
    assert keys(made) == ["b"]
    assert made.idle == ("t/a",)


def test_a_named_day_whose_week_has_not_ended_leaves_the_week_idle() -> None:
    made = plan(asset("day", by=DAYS), asset("week", ["day"], by=WEEKS), date="2024-03-09")
    assert keys(made) == ["day[date=d:2024-03-09]"]
    assert made.idle == ("t/week",)


def test_a_range_takes_of_each_asset_what_it_has() -> None:
    late = asset("late", by=DailyPartition("date", start="2024-03-01"))
    made = plan(asset("early", by=DAYS), late, date="2024-02-29..2024-03-01")
    assert keys(made) == [
        "early[date=d:2024-02-29]",
        "early[date=d:2024-03-01]",
        "late[date=d:2024-03-01]",
    ]


DAY_AND_TREND = (asset("day", by=DAYS), asset("trend", {"day": LastN(3)}, by=DAYS))


def test_reaching_up_from_a_named_day_plans_the_days_it_needs() -> None:
    made = plan(*DAY_AND_TREND, select="+trend", date="2024-02-03")
    assert keys(made) == [
        "day[date=d:2024-02-01]",
        "day[date=d:2024-02-02]",
        "day[date=d:2024-02-03]",
        "trend[date=d:2024-02-03]",
    ]


def test_naming_the_latest_day_plans_the_same_as_naming_none() -> None:
    named = plan(*DAY_AND_TREND, select="+trend", date="2024-03-09")
    assert named.fingerprint == plan(*DAY_AND_TREND, select="+trend").fingerprint


def test_a_named_day_limits_every_asset_that_is_meant() -> None:
    made = plan(*DAY_AND_TREND, date="2024-02-03")
    assert keys(made) == ["day[date=d:2024-02-03]", "trend[date=d:2024-02-03]"]


def test_reaching_up_plans_nothing_that_nothing_needs() -> None:
    before = asset("b", {"day": TimeWindow(-1, -1)}, by=DAYS)
    made = plan(asset("day", by=DAYS), before, select="+b", date="2024-03-05")
    assert keys(made) == ["b[date=d:2024-03-05]", "day[date=d:2024-03-04]"]


def test_reaching_up_brings_in_specific_partitions() -> None:
    pinned = asset("b", {"day": SpecificPartitions(date(2024, 1, 7))}, by=DAYS)
    made = plan(asset("day", by=DAYS), pinned, select="+b")
    assert keys(made) == ["b[date=d:2024-03-09]", "day[date=d:2024-01-07]"]


def test_a_named_key_limits_what_is_needed_entirely() -> None:
    made = plan(
        asset("day", by=[DAYS, REGIONS]),
        asset("total", ["day"], by=DAYS),
        select="+total",
        region="eu",
    )
    assert keys(made) == ["day[date=d:2024-03-09,region=s:eu]", "total[date=d:2024-03-09]"]


def test_an_unrelated_asset_is_idle_when_partitions_of_others_are_named() -> None:
    made = plan(asset("day", by=DAYS), asset("week", by=WEEKS), date="2024-02-03")
    assert keys(made) == ["day[date=d:2024-02-03]"]
    assert made.idle == ("t/week",)


def test_each_partition_says_which_asset_needs_it() -> None:
    made = plan(
        asset("day", by=DAYS),
        asset("trend", ["day"], by=DAYS),
        asset("week", ["day"], by=WEEKS),
        select="+(trend or week)",
    )
    why = {task.partition: task.reasons[0] for task in made.tasks if task.asset == "t/day"}
    assert why["date=d:2024-02-26"] == "upstream of t.week"
    assert why["date=d:2024-03-09"] == "upstream of t.trend"


def test_what_is_only_there_because_it_is_needed_does_not_say_selected() -> None:
    made = plan(asset("day", by=DAYS), asset("week", ["day"], by=WEEKS))
    why = {task.partition: task.reasons[0] for task in made.tasks if task.asset == "t/day"}
    assert why["date=d:2024-03-09"] == "selected"
    assert why["date=d:2024-02-26"] == "upstream of t.week"


def test_what_a_pattern_matches_is_meant_even_above_what_is_named() -> None:
    made = plan(asset("day", by=DAYS), asset("week", ["day"], by=WEEKS), select="week or day*")
    assert "day[date=d:2024-03-09]" in keys(made)


def test_a_selection_of_nothing_is_refused() -> None:
    with pytest.raises(Invalid, match="no asset matches the selection 'tag:gold'"):
        plan(asset("a"), select="tag:gold")


CENTURY: list[Dimension] = [
    HourlyPartition("hour", start="2000-01-01"),
    StaticPartition("region", range(50)),
    StaticPartition("tenant", range(200)),
]
FAR = PlanningState(datetime(2100, 1, 1, tzinfo=UTC))


def test_waiting_for_all_of_a_huge_upstream_does_not_enumerate_it() -> None:
    made = plan(
        asset("big", by=CENTURY), asset("total", ["big"], reads=False), select="total", state=FAR
    )
    assert only(made, "total").upstreams == ()


def test_waiting_for_a_huge_upstream_finds_the_tasks_that_are_planned() -> None:
    made = plan(
        asset("big", by=CENTURY),
        asset("total", ["big"], reads=False),
        state=FAR,
        hour="2024-01-01T05:00",
        region="7",
        tenant="3",
    )
    assert len(only(made, "total").upstreams) == 1


def test_reading_more_than_a_plan_can_list_is_refused() -> None:
    with pytest.raises(
        Invalid, match=r"reads 8,766,000,000 partitions of t\.big, more than a plan"
    ):
        plan(asset("big", by=CENTURY), asset("total", ["big"]), select="total", state=FAR)


def test_an_upstream_partition_that_does_not_exist_is_unmet() -> None:
    late = asset("late", by=DailyPartition("date", start="2024-02-01"))
    made = plan(late, asset("b", ["late"], by=DAYS), select="b", date="2024-01-15")
    assert [given.partition for _, given in made.unmet()] == ["date=d:2024-01-15"]


def test_of_a_list_of_keys_each_asset_takes_what_it_has() -> None:
    late = asset("late", by=DailyPartition("date", start="2024-02-15"))
    request = PlanRequest(partitions={"date": ("2024-02-01", "2024-03-01")})
    manifest = Manifest(namespace="t", assets=(asset("early", by=DAYS), late))
    assert keys(make_plan(request, manifest, PlanningState(NOW))) == [
        "early[date=d:2024-02-01]",
        "early[date=d:2024-03-01]",
        "late[date=d:2024-03-01]",
    ]


def test_a_key_that_no_asset_has_is_refused_even_beside_others() -> None:
    with pytest.raises(Invalid, match="has no key 'mars'"):
        plan(asset("a", by=[DAYS, REGIONS]), asset("b", by=DAYS), date="2024-02-01", region="mars")


def test_a_set_too_large_to_count_is_refused_with_a_sentence() -> None:
    huge = [StaticPartition(f"d{i}", range(1000)) for i in range(7)]
    with pytest.raises(Invalid, match="partitions are more than a plan can hold"):
        plan(asset("a", by=huge))


def test_selecting_only_sources_says_what_to_select_instead() -> None:
    sources = [asset(name, kind=AssetKind.SOURCE) for name in ("x", "y")]
    with pytest.raises(Invalid, match=r"t\.x is a source"):
        plan(*sources, asset("z", ["x", "y"]), select="x or y")
