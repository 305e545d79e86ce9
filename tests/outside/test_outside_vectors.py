"""The facts of other projects' test suites, put to Servo through the adapters beside this file.

The suites stay outside the repository (../shared/vectors); where that folder is absent, these tests
are skipped. Each is judged by its own scorer. Where Servo differs on purpose, the case is named
below with the reason, and the test fails when such a case begins to pass: nothing here is silent.
A larger file of the same suite may hold cases that are not named; they must pass too, or (partitions)
carry a tag that says that projects differ there.
"""

import functools
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.outside import adapters

VECTORS = Path(__file__).parents[2].parent / "shared" / "vectors"
pytestmark = pytest.mark.skipif(
    not VECTORS.is_dir(), reason=f"the outside vectors are not here: {VECTORS}"
)

Case = dict[str, Any]


def cases(name: str) -> Iterator[Case]:
    with (VECTORS / name).open() as lines:
        for line in lines:
            yield json.loads(line)


def scorer(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, VECTORS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(missed: set[str], known: dict[str, str], seen: set[str]) -> None:
    """Known misses are misses; all misses are known."""
    assert missed - set(known) == set(), "these cases fail and are not named above"
    assert (set(known) & seen) - missed == set(), "these cases pass now: take them off the list"


# ---------------------------------------------------------------- ULIDs


def test_ulids_agree_with_every_outside_case() -> None:
    wrong = [case for case in cases("ulid.jsonl") if not adapters.ulid(case)]
    assert wrong == []


# ---------------------------------------------------------------- cron

_TWICE = "fires at the second of two equal times; Debian fires at the first"
_YEARS = "has a year as a seventh field, which croniter and Quartz place differently: refused"
CRON = {
    "croner/4": "moves a time in a gap by the length of the gap; Debian fires at the gap's end",
    "croniter/test_year#1": _YEARS,
    "croniter/test_year#2": _YEARS,
    "croniter/test_year_get_prev#2": _YEARS,
    "croniter/test_year_with_other_field#1": _YEARS,
    "croniter/test_year_with_other_field#2": _YEARS,
    "dagster/DST_PARAMS#2r": _TWICE,
    "dagster/DST_PARAMS#9": _TWICE,
    "dagster/DST_PARAMS#13": _TWICE,
    "dagster/DST_PARAMS#13r": _TWICE,
    "dagster/DAY_OF_WEEK_FILTER_PARAMS#9": _TWICE,
    "dagster/DAY_OF_WEEK_FILTER_PARAMS#9r": _TWICE,
    "dagster/DAY_OF_WEEK_FILTER_PARAMS#14": _TWICE,
    "dagster/valid 0 0 31 2 3": "refused by Dagster because 31 February never comes; by Debian's rule"
    " it fires on Wednesdays, as the same suite asks for in croniter's '0 0 31 2 0'",
    "robfig/TestNext#14": "takes */5 for a restriction, so that either day matches; Debian's rule"
    " goes by the first character, so that both must",
    "robfig/TestNext#33": _TWICE,
    "robfig/TestNext#38": _TWICE,
    "robfig/TestNext#48": _TWICE,
}  # fmt: skip
OTHER_POLICIES = {"dst-dagster", "dst-robfig", "dst-croner", "dst-croniter"}


def test_cron_agrees_with_the_outside_cases() -> None:
    check = scorer("check_cron")
    missed, seen = set(), set()
    for case in cases("cron.jsonl"):
        seen.add(case["id"])
        agrees, _ = check.judge(adapters.fires, case)
        if not agrees:
            missed.add(case["id"])
    compare(missed, CRON, seen)


def test_cron_differs_from_no_case_of_debian_and_none_that_all_agree_on() -> None:
    check = scorer("check_cron")
    for case in cases("cron.jsonl"):
        if check.group(case) in {"core", "dst-debian", "accept"}:
            assert check.judge(adapters.fires, case)[0], case["id"]


def test_over_changes_of_clocks_cron_differs_only_where_the_policy_is_not_debians() -> None:
    check = scorer("check_cron")
    for case in cases("cron.jsonl"):
        if case["id"] in CRON and case["dst"] != "none":
            assert check.group(case) in OTHER_POLICIES, case["id"]


# ---------------------------------------------------------------- partitions

_RECORDED = "its `now` is when the suite was recorded, not the frozen time that the answer is for"
PARTITIONS = {
    "dagster/test_last_partition_mapping_get_downstream_partitions#1": _RECORDED,
    "dagster/test_get_downstream_with_current_time#4": _RECORDED,
    "dagster/test_get_upstream_with_current_time#2": _RECORDED,
    "dagster/test_get_upstream_with_current_time#5": _RECORDED,
    "dagster/test_daily_upstream_of_yearly#1": _RECORDED,
    "dagster/test_mar_2024_dst_transition_with_hourly_partitions#1": "its `now` is written as UTC,"
    " but the answer is for that time in Los Angeles",
}
ACCEPTABLE = {"contested", "fold_convention", "ambiguous_key_naming"}
"""Tags of cases on which projects differ. Ours: after a change by half an hour (Lord Howe) hours
still begin at minute 0, as the cron expression says, where Dagster drifts to minute 30."""


def verdict(check: ModuleType, case: Case) -> str:
    """As the scorer judges a case."""
    try:
        answer = adapters.partitions(case)
    except Exception:  # noqa: BLE001  # as the scorer does
        return "agrees" if case.get("error") else "differs"
    if answer is NotImplemented:
        return "unanswered"
    return "agrees" if not case.get("error") and check.eq(case, answer) else "differs"


@functools.cache
def verdicts() -> list[tuple[Case, str]]:
    check = scorer("check_partitions")
    return [(case, verdict(check, case)) for case in cases("partitions.jsonl")]


def test_partitions_agree_with_the_outside_cases() -> None:
    missed = {
        case["id"]
        for case, judged in verdicts()
        if judged != "agrees" and not ACCEPTABLE & set(case["tags"])
    }
    compare(missed, PARTITIONS, {case["id"] for case, _ in verdicts()})


def test_every_operation_of_the_outside_cases_is_answered() -> None:
    assert [case["id"] for case, judged in verdicts() if judged == "unanswered"] == []


# Times at which all keys of the question exist and the answer is what was recorded.
FROZEN = {
    "dagster/test_last_partition_mapping_get_downstream_partitions#1": "2023-10-05T00:00:00+00:00",
    "dagster/test_get_downstream_with_current_time#4": "2021-05-06T12:00:00+00:00",
    "dagster/test_get_upstream_with_current_time#2": "2021-05-06T03:00:00+00:00",
    "dagster/test_get_upstream_with_current_time#5": "2021-05-06T04:00:00+00:00",
    "dagster/test_daily_upstream_of_yearly#1": "2023-01-05T00:00:00+00:00",
    "dagster/test_mar_2024_dst_transition_with_hourly_partitions#1": "2024-03-20T00:00:00-07:00",
}


def test_cases_recorded_at_the_wrong_time_agree_at_the_right_one() -> None:
    check = scorer("check_partitions")
    for case in cases("partitions.jsonl"):
        if case["id"] in FROZEN:
            assert verdict(check, {**case, "now": FROZEN[case["id"]]}) == "agrees", case["id"]


def test_the_contested_cases_that_differ_are_those_after_half_an_hour() -> None:
    for case, judged in verdicts():
        if ACCEPTABLE & set(case["tags"]) and judged == "differs":
            definition = case.get("definition") or case["upstream"]
            assert "contested" in case["tags"], case["id"]
            assert definition["timezone"] == "Australia/Lord_Howe", case["id"]
