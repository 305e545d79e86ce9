"""Tables: their columns, their rows, and that a row holds all that its record says."""

from typing import Any

import pytest

from servo.core.failures import FailureCode
from servo.events.audit import AuditRecorded
from servo.events.catalog import DeploymentCreated
from servo.events.envelope import Fact
from servo.events.execution import File, MaterializationCompleted, Outcome
from servo.events.orchestration import LeaderClaimed, Stop
from servo.fold.table import Kind, Row, Table, table
from servo.fold.tables import PROJECTIONS, TABLES, attempts, runs, tasks
from tests.unit.facts import (
    HERE,
    SECOND,
    Story,
    Tables,
    alive,
    asked,
    began,
    failed,
    finished,
    key,
    made,
    plan_of,
    reused,
    stopped,
    tables_of,
    triggered,
)

BY_NAME = {each.name: each for each in TABLES}


def told(*facts: Fact) -> Tables:
    """The tables after these facts, each in a segment of its own, a second apart."""
    story = Story(P=plan_of({"a": [], "b": ["a"]}))
    for second, fact in enumerate(facts):
        story.tell(fact, at=second * SECOND)
    return tables_of(story.state)


def named(name: str, row: Row) -> dict[str, Any]:
    columns = [column.name for column in BY_NAME[name].columns]
    return dict(zip(columns, row, strict=True))


EVERYTHING: tuple[Fact, ...] = (
    LeaderClaimed(epoch=1, writer_id="w"),
    DeploymentCreated(
        deployment_id="D", manifest_object="o", code_version="c", asset_ids={"n/a": "id-a"}
    ),
    AuditRecorded(action="looked", subject="at it", details={"why": "ä"}),
    triggered(run_key="K"),
    triggered("R2", run_key="K", request_hash="other"),
    asked("a"),
    began("a"),
    alive("a"),
    finished("a", 1, Outcome.FAILED, code=FailureCode.NETWORK_ERROR, details={"exit_code": 3}),
    finished("a"),
    asked("a", 2),
    made("a", 2, version="m2", partition="date=d:2025-01-15"),
    finished("a", 2),
    reused("b"),
    stopped(by=Stop.TIMEOUT),
)


def test_every_table_has_a_row_after_everything_happened() -> None:
    assert [name for name, rows in told(*EVERYTHING).items() if not rows] == []


def test_every_row_is_what_its_columns_say() -> None:
    kinds: dict[Kind, type] = {
        Kind.TEXT: str,
        Kind.JSON: str,
        Kind.INTEGER: int,
        Kind.MOMENT: int,
        Kind.BOOLEAN: bool,
    }
    for name, rows in told(*EVERYTHING).items():
        for row in rows.values():
            assert len(row) == len(BY_NAME[name].columns)
            for column, value in zip(BY_NAME[name].columns, row, strict=True):
                assert column.nullable if value is None else type(value) is kinds[column.kind], (
                    f"{name}.{column.name} is {value!r}"
                )


def test_a_row_of_a_projection_holds_all_that_its_record_says() -> None:
    for projection in PROJECTIONS:
        name = projection.table.name
        for row in told(*EVERYTHING)[name].values():
            loaded_key, record = projection.load(row)
            assert projection.row(loaded_key, record) == row


def test_files_of_a_version_are_kept() -> None:
    fact = made("a", version="m1")
    assert isinstance(fact, MaterializationCompleted)
    files = (File(path="data/x.parquet", sha256="s", bytes=3, rows=1),)
    rows = told(triggered(), type(fact)(**{**_fields(fact), "files": files, "row_count": 1}))
    projection = next(p for p in PROJECTIONS if p.table.name == "materializations")
    _, record = projection.load(rows["materializations"][("m1",)])
    assert record.fact.files == files
    assert record.fact.row_count == 1


def _fields(fact: Fact) -> dict[str, Any]:
    return {name: getattr(fact, name) for name in fact.__struct_fields__}


def test_a_row_of_an_attempt_holds_all_results() -> None:
    row = told(*EVERYTHING)["attempts"][("R", key("a"), 1)]
    attempt = attempts.load(row)
    assert [result.outcome for result in attempt.results] == ["failed", "succeeded"]
    error = attempt.results[0].error
    assert error is not None and error.details == {"exit_code": 3}
    assert attempt.heartbeat == (8, 0, 7 * SECOND)
    shown = named("attempts", row)
    assert (shown["outcome"], shown["error_code"]) == ("failed", "NETWORK_ERROR")
    assert shown["worker"] == HERE and shown["worker_id"] == "w"


def test_a_row_of_a_run_counts_its_tasks_and_keeps_its_trigger_and_its_stop() -> None:
    row = told(*EVERYTHING)["runs"][("R",)]
    shown = named("runs", row)
    assert (shown["tasks"], shown["tasks_succeeded"], shown["tasks_reused"]) == (2, 1, 1)
    assert (shown["state"], shown["stopped_by"]) == ("SUCCEEDED", "timeout")
    loaded = runs.load(row)
    assert loaded.trigger is not None and loaded.trigger.run_key == "K"
    assert loaded.stop is not None and loaded.stop.mark == (15, 0, 14 * SECOND)
    assert loaded.last == (15, 0, 14 * SECOND)
    summary = runs.summary(row)
    assert summary.counts == {"SUCCEEDED": 1, "REUSED": 1}


def test_a_row_of_a_task_says_where_it_stands_and_why() -> None:
    rows = told(triggered(), asked("a"), failed("a", again=True))["tasks"]
    shown = named("tasks", rows["R", key("a")])
    assert (shown["state"], shown["reason"]) == ("RETRY_WAIT", "execution_failed")
    assert (shown["attempt"], shown["tries"], shown["retry_at"]) == (1, 1, 3 * SECOND)
    waits = named("tasks", rows["R", key("b")])
    assert (waits["state"], waits["deps_total"], waits["deps_met"]) == ("PENDING", 1, 0)
    assert waits["stage"] == 1


def test_a_row_of_a_task_holds_its_reuse_and_its_outputs() -> None:
    rows = told(*EVERYTHING)["tasks"]
    assert tasks.load(rows["R", key("a")]).outputs[0].materialization_id == "m2"
    loaded = tasks.load(rows["R", key("b")])
    assert loaded.reused is not None and loaded.reused.materialization_id == "old"


def test_an_edge_is_resolved_by_the_end_of_its_upstream_task() -> None:
    edge = ("R", key("a"), key("b"))
    open_edge = named("edges", told(triggered(), asked("a"))["edges"][edge])
    assert (open_edge["resolution"], open_edge["attempt"]) == (None, None)
    closed = named("edges", told(triggered(), asked("a"), failed("a"))["edges"][edge])
    assert (closed["resolution"], closed["attempt"]) == ("FAILED", 1)
    assert (closed["row_position"], closed["resolved_at"]) == (3, 2 * SECOND)


def test_a_run_key_keeps_who_asked_for_it_later() -> None:
    shown = named("run_keys", told(*EVERYTHING)["run_keys"][("K",)])
    assert (shown["run_id"], shown["conflicts"]) == ("R", 1)
    same = named(
        "run_keys", told(triggered(run_key="K"), triggered("R2", run_key="K"))["run_keys"][("K",)]
    )
    assert same["conflicts"] == 0  # it asked for the same


def test_the_audit_tells_what_was_done_to_what() -> None:
    rows = [named("audit", row) for row in told(*EVERYTHING)["audit"].values()]
    assert [(row["action"], row["subject"]) for row in rows] == [
        ("leader_claimed", "w"),
        ("deployment_created", "D"),
        ("looked", "at it"),
        ("run_triggered", "R"),
        ("run_triggered", "R2"),
        ("run_cancel_requested", "R"),
    ]
    assert rows[2]["details"] == '{"why":"ä"}'
    assert rows[5]["details"] == '{"by":"timeout","message":""}'


def test_facts_about_a_task_that_the_plan_does_not_have_are_seen_as_attempts_only() -> None:
    rows = told(triggered(), asked("zzz"), finished("zzz"))
    assert list(rows["attempts"]) == [("R", key("zzz"), 1)]
    assert ("R", key("zzz")) not in rows["tasks"]
    assert named("runs", rows["runs"][("R",)])["state"] == "PENDING"


@pytest.mark.parametrize("each", TABLES, ids=lambda each: each.name)
def test_every_table_begins_with_its_key_and_ends_with_its_place(each: Table) -> None:
    names = [column.name for column in each.columns]
    assert tuple(names[: len(each.key)]) == each.key
    assert names[-2:] == ["row_position", "row_index"]
    assert len(set(names)) == len(names)
    assert not any(column.nullable for column in each.columns[: len(each.key)])
    assert all(column.about for column in each.columns)


def test_a_table_whose_key_is_not_first_is_refused() -> None:
    with pytest.raises(AssertionError):
        table("t", "about", ("missing",))
