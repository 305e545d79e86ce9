"""Every fault of the collection has a test that holds its invariant, or a reason why it has none."""

import ast
from pathlib import Path

import msgspec
import pytest

from tests.house.source import ROOT

CARDS = ROOT.parent / "shared" / "vectors" / "faults.jsonl"

_LEDGER = "tests/sim/test_cards_ledger.py::"
_WORK = "tests/sim/test_cards_work.py::"
_WORLD = "tests/sim/test_world.py::"

TESTS = {
    "cas-lost-ack": _LEDGER + "test_a_publisher_that_is_told_taken_of_its_own_manifest_knows_it",
    "cas-429-is-lost-race": _LEDGER + "test_a_store_that_limits_writes_of_one_object_stops_nobody",
    "cas-blind-increment": _LEDGER + "test_after_a_lost_race_a_writer_looks_where_the_end_is",
    "concurrent-create": _LEDGER
    + "test_five_who_deploy_the_same_definitions_at_once_make_one_deployment",
    "concurrent-append-5x3": _LEDGER
    + "test_five_writers_of_three_facts_take_the_positions_1_to_15",
    "iceberg-conflict-0": _WORK + "test_two_runs_that_make_the_same_asset_at_once_both_commit",
    "delta-conflict-3": "tests/unit/test_snapshot.py::test_each_revision_stays_as_it_was",
    "delta-conflict-7": "tests/unit/test_fold.py::"
    "test_the_first_run_owns_its_key_and_another_is_void",
    "delta-conflict-8": _WORK + "test_two_runs_that_make_the_same_asset_at_once_both_commit",
    "delta-conflict-9": _WORK + "test_two_runs_that_make_the_same_asset_at_once_both_commit",
    "zombie-writer": _LEDGER
    + "test_a_leader_that_slept_while_another_took_over_writes_nothing_any_more",
    "bank": _LEDGER + "test_no_reader_sees_a_debit_without_its_credit",
    "determinism": _WORLD + "test_the_same_seed_gives_the_same_trace",
    "list-append": _LEDGER + "test_every_read_of_the_ledger_is_the_beginning_of_every_later_one",
    "linearizable-register": "tests/sim/test_storage.py::"
    "test_histories_of_racing_clients_are_linearizable",
    "long-fork": _LEDGER + "test_no_two_readers_disagree_about_the_order_of_writes",
    "kafka-style-queue": _WORLD + "test_nothing_that_must_never_happen_does",
    "torn-list": _LEDGER + "test_nobody_lists_to_find_out_what_there_is",
    "throttle-503": _LEDGER + "test_a_burst_of_refusals_loses_nothing_and_is_over_when_it_is_over",
    "backfill-cancel-50k": _WORK
    + "test_a_run_of_fifty_thousand_tasks_is_told_to_stop_within_a_second",
    "self-dependent-backfill": _WORK
    + "test_a_chain_takes_as_long_as_its_tasks_and_not_as_many_looks",
    "materialise-12k": _WORK + "test_twelve_thousand_versions_of_one_run_take_seconds",
    "thundering-herd-limit": _WORK + "test_ten_tasks_that_ask_for_four_slots_never_hold_more",
    "submit-3700": _WORK + "test_thousands_of_tasks_are_taken_at_once_and_all_run",
    "dst-day-rollup": "tests/unit/test_mappings.py::test_a_day_needs_as_many_hours_as_it_has",
    "half-hour-dst": "tests/unit/test_partitions.py::test_half_an_hour_twice_makes_one_longer_hour",
}

_NO_DELETE = (
    "A version is a whole folder that nobody changes: no commit deletes rows or files of another one, so"
    " that there is nothing for it to be stale against."
)
_NO_READ_SET = (
    "A commit does not claim that what it read is still the newest: it names the versions it read, and"
    " a newer one makes what was built from it stale instead of wrong."
)
_NO_SCHEMA = (
    "Nothing is committed that changes a table's schema or layout: tables of state have schemas by"
    " version of Servo (an older one is refused), and data has the columns of each version."
)

REASONS = {
    "cas-409-s3": "S3 comes with the next issue; the port has two answers, created or taken, and its"
    " adapter has to turn a 409 into one of them by asking again.",
    "cas-412-vs-404": "There is no put on condition of what is there: the port only creates what is not"
    " there, and whatever is overwritten (the lease, the hint) is overwritten whoever wrote it.",
    "iceberg-conflict-1": _NO_DELETE,
    "iceberg-conflict-2": _NO_DELETE,
    "iceberg-conflict-3": _NO_DELETE,
    "iceberg-conflict-4": _NO_DELETE,
    "iceberg-conflict-5": _NO_SCHEMA,
    "iceberg-conflict-6": _NO_SCHEMA,
    "iceberg-conflict-7": "Nobody creates a table of data: a partition has versions from its first one"
    " on, and two first versions are two versions.",
    "delta-conflict-0": _NO_READ_SET,
    "delta-conflict-1": _NO_DELETE,
    "delta-conflict-2": _NO_DELETE,
    "delta-conflict-4": _NO_DELETE,
    "delta-conflict-5": _NO_SCHEMA,
    "delta-conflict-6": _NO_SCHEMA,
}


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.skipif(not CARDS.exists(), reason=f"{CARDS} is not on this machine")
def test_every_card_has_a_test_or_a_reason() -> None:
    cards = [msgspec.json.decode(line)["id"] for line in CARDS.read_text().splitlines()]
    assert len(cards) == len(set(cards)) >= 41
    assert set(cards) == TESTS.keys() | REASONS.keys()


def test_no_card_has_both() -> None:
    assert not TESTS.keys() & REASONS.keys()


def test_every_reason_is_a_sentence() -> None:
    assert all(reason.endswith(".") and len(reason) > 60 for reason in REASONS.values())


@pytest.mark.parametrize("card", TESTS)
def test_the_test_of_a_card_exists(card: str) -> None:
    path, _, name = TESTS[card].partition("::")
    assert name in names_in(ROOT / path)
