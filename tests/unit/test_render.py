"""Plans as text: what is said once, what is said for each, and what is left out."""

from collections.abc import Callable
from datetime import UTC, datetime

import click
from msgspec.structs import replace

from servo.cli.render import EACH, number, show_diff, show_plan
from servo.core.definitions import Manifest
from servo.core.plan import Plan, PlanDiff, PlannedTask, PlanRequest, TaskChange
from servo.core.planner import PlanningState, make_plan
from servo.sdk.asset import asset
from servo.types import DailyPartition

NOW = datetime(2024, 3, 1, tzinfo=UTC)


@asset(partitions=DailyPartition("date", start="2024-01-01"))
def orders() -> None: ...


@asset(deps=["orders"], partitions=DailyPartition("date", start="2024-01-01"))
def revenue() -> None: ...


MANIFEST = Manifest(
    assets=(orders.define("shop", "1"), revenue.define("shop", "1")), namespace="shop"
)


def plan(
    dates: str, selection: str = "orders", reason: Callable[[int], str] = lambda n: "selected"
) -> Plan:
    """A plan whose n-th task has the n-th reason."""
    request = PlanRequest(selection=selection, partitions={"date": (dates,)})
    made = make_plan(request, MANIFEST, PlanningState(NOW))
    tasks = [replace(task, reasons=(reason(n),)) for n, task in enumerate(made.tasks)]
    return replace(made, tasks=tuple(tasks))


def shown(made: Plan) -> list[str]:
    """Without colours, title and fingerprint."""
    text = click.unstyle(show_plan(made, MANIFEST, NOW))
    assert not any(line != line.rstrip() for line in text.splitlines())
    return text.splitlines()[2:]


def test_a_reason_of_all_tasks_is_said_once() -> None:
    lines = shown(plan("2024-01-01..2024-01-02"))
    assert lines == [
        "each: selected",
        "",
        "stage 1",
        "  shop.orders  date=2024-01-01",
        "               date=2024-01-02",
    ]


def test_reasons_that_differ_stand_below_several_tasks_and_beside_one() -> None:
    lines = shown(plan("2024-01-01..2024-01-03", reason=lambda n: "old" if n < 2 else "new"))
    assert lines[2:] == [
        "  shop.orders  date=2024-01-01",
        "               date=2024-01-02",
        "               old",
        "               date=2024-01-03  new",
    ]


def test_a_long_plan_has_one_line_for_each_reason_of_an_asset() -> None:
    lines = shown(plan("2024-01-01..2024-02-10", reason=lambda n: "old" if n < 40 else "new"))
    assert lines[2:] == [
        "  shop.orders  40 partitions, date=2024-01-01 … date=2024-02-09  old",
        "               date=2024-02-10  new",
    ]


def test_a_long_plan_with_a_reason_for_each_task_is_cut_to_one() -> None:
    lines = shown(plan("2024-01-01..2024-02-10", reason=lambda n: f"reason {n}"))
    assert lines[2:] == [
        "  shop.orders  41 partitions, date=2024-01-01 … date=2024-02-10",
        "               reason 0; or one of 40 other reasons",
    ]


def test_the_longest_plan_that_is_shown_task_by_task() -> None:
    assert len(shown(plan("2024-01-01..2024-01-30"))) == EACH + 3
    assert len(shown(plan("2024-01-01..2024-01-31"))) == 4


def test_an_asset_names_those_it_waits_for() -> None:
    assert shown(plan("2024-01-01", "*"))[-1] == "                after shop.orders"


def test_no_tasks_are_no_stages() -> None:
    made = replace(plan("2024-01-01"), tasks=(), idle=("shop/orders",))
    text = click.unstyle(show_plan(made, MANIFEST, NOW))
    assert text.startswith("No tasks, planned for 2024-03-01 00:00 UTC\n")
    assert text.endswith("\nno partitions to make: shop.orders")


def test_an_input_that_nobody_makes_is_told_with_what_to_select() -> None:
    made = make_plan(PlanRequest(selection="revenue"), READS, PlanningState(NOW))
    text = click.unstyle(show_plan(made, READS, NOW))
    assert text.splitlines()[-1] == (
        "1 input will be missing: shop.revenue needs shop.orders [date=2024-02-29], which has no"
        " version and is not planned; select it too: '+shop.revenue'"
    )


_reader = revenue.define("shop", "1")
READS = replace(
    MANIFEST,
    assets=(
        orders.define("shop", "1"),
        replace(_reader, dependencies=(replace(_reader.dependencies[0], parameter="orders"),)),
    ),
)


def test_equal_plans_have_no_difference_to_show() -> None:
    assert show_diff(PlanDiff(), "old.json") == "The same work as old.json."


def test_a_difference_shows_what_came_what_went_and_why() -> None:
    diff = PlanDiff(
        added=("shop/a:materialize",),
        removed=("shop/b:materialize",),
        changed=(TaskChange("shop/c:materialize", ("its code changed", "priority: 0 → 1")),),
    )
    assert click.unstyle(show_diff(diff, "old.json")).splitlines() == [
        "+ shop/a:materialize",
        "- shop/b:materialize",
        "~ shop/c:materialize",
        "    its code changed",
        "    priority: 0 → 1",
        "1 added, 1 removed, 1 changed since old.json.",
    ]


def test_things_are_counted_in_words() -> None:
    assert [number(n, "task") for n in (0, 1, 2, 1234567)] == [
        "0 tasks",
        "1 task",
        "2 tasks",
        "1,234,567 tasks",
    ]


def test_a_plan_of_many_tasks_is_shown_without_spelling_them_all() -> None:
    one: PlannedTask = plan("2024-01-01").tasks[0]
    many = tuple(replace(one, key=f"{n}") for n in range(100_000))
    assert len(shown(replace(plan("2024-01-01"), tasks=many))) == 4


def test_a_long_plan_says_where_its_partitions_have_gaps() -> None:
    lines = shown(plan("2024-01"))
    assert lines[3] == "  shop.orders  31 partitions, date=2024-01-01 … date=2024-01-31"
    some = plan("2024-01-01..2024-02-10")
    holed = replace(some, tasks=tuple(t for t in some.tasks if t.partition != "date=d:2024-01-20"))
    assert shown(holed)[3] == (
        "  shop.orders  40 partitions, date=2024-01-01 … date=2024-02-10, with gaps"
    )
