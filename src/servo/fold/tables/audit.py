"""audit: who did what. One row per fact that a person or a program asked for."""

from collections.abc import Iterable
from typing import Any

import msgspec

from servo.events.audit import AuditRecorded
from servo.events.catalog import DeploymentCreated
from servo.events.envelope import Event
from servo.events.orchestration import LeaderClaimed, RunCancelRequested, RunTriggered
from servo.fold.projection import Memory, Projection, text
from servo.fold.records import Mark
from servo.fold.table import Column, Key, Kind, Row, table


class Entry(msgspec.Struct, frozen=True):
    mark: Mark
    event_id: str
    action: str
    subject: str
    details: str
    source: str
    actor: str | None


class Audit(Projection[Entry]):
    table = table(
        "audit",
        "Who did what: every request, claim and recorded action, one row each.",
        ("position", "index"),
        Column("position", Kind.INTEGER, "position of the fact"),
        Column("index", Kind.INTEGER, "index of the fact in its segment"),
        Column("at", Kind.MOMENT, "when it was written, by the writer's clock"),
        Column("event_id", Kind.TEXT, "id of the event"),
        Column("action", Kind.TEXT, "what was done, such as run_triggered"),
        Column("subject", Kind.TEXT, "what it was done to"),
        Column("details", Kind.JSON, "what else is worth knowing"),
        Column("source", Kind.TEXT, "the part of Servo that wrote it"),
        Column("actor", Kind.TEXT, "opaque id of who asked for it", nullable=True),
    )
    memory = Memory.NEW
    facts = (AuditRecorded, DeploymentCreated, LeaderClaimed, RunCancelRequested, RunTriggered)

    def keys(self, fact: Any, mark: Mark) -> Iterable[Key]:
        return ((mark[0], mark[1]),)

    def join(self, key: Key, known: Entry | None, fact: Any, mark: Mark, event: Event) -> Entry:
        if known is not None:
            return known
        action, subject, details = _told(fact)
        return Entry(
            mark, event.event_id, action, subject, text(details), event.source, event.actor
        )

    def row(self, key: Key, record: Entry) -> Row:
        position, index, at = record.mark
        return (
            position,
            index,
            at,
            record.event_id,
            record.action,
            record.subject,
            record.details,
            record.source,
            record.actor,
            position,
            index,
        )

    def load(self, row: Row) -> tuple[Key, Entry]:
        values: tuple[Any, ...] = row
        return self.table.row_key(row), Entry(values[:3], *values[3:9])


def _told(fact: Any) -> tuple[str, str, dict[str, Any]]:
    match fact:
        case RunTriggered():
            return "run_triggered", fact.run_id, {"run_key": fact.run_key} if fact.run_key else {}
        case RunCancelRequested():
            return (
                "run_cancel_requested",
                fact.run_id,
                {"by": fact.by.value, "message": fact.message},
            )
        case DeploymentCreated():
            return "deployment_created", fact.deployment_id, {"assets": len(fact.asset_ids)}
        case LeaderClaimed():
            return "leader_claimed", fact.writer_id, {"epoch": fact.epoch}
    return fact.action, fact.subject, dict(fact.details)
