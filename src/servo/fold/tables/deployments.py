"""deployments: which definitions became known, and when."""

from collections.abc import Iterable
from typing import Any

from servo.events.catalog import DeploymentCreated
from servo.events.envelope import Event
from servo.fold.projection import Memory, Projection, mark_columns, read_mark
from servo.fold.records import Deployment, Mark
from servo.fold.table import Column, Key, Kind, Row, table


class Deployments(Projection[Deployment]):
    table = table(
        "deployments",
        "Definitions that became known: one row per deployment.",
        ("deployment_id",),
        Column("deployment_id", Kind.TEXT, "id of the deployment"),
        Column("manifest_object", Kind.TEXT, "hash of the object that holds the definitions"),
        Column("code_version", Kind.TEXT, "fingerprint of the code that was deployed"),
        Column("assets", Kind.INTEGER, "how many assets it defines"),
        Column("actor", Kind.TEXT, "opaque id of who deployed it", nullable=True),
        *mark_columns("created", "the deployment was recorded", nullable=False),
    )
    memory = Memory.ALL
    facts = (DeploymentCreated,)

    def keys(self, fact: Any, mark: Mark) -> Iterable[Key]:
        return ((fact.deployment_id,),)

    def join(
        self, key: Key, known: Deployment | None, fact: Any, mark: Mark, event: Event
    ) -> Deployment:
        if known is not None and known.mark <= mark:
            return known
        return Deployment(
            mark,
            fact.deployment_id,
            fact.manifest_object,
            fact.code_version,
            len(fact.asset_ids),
            event.actor,
        )

    def row(self, key: Key, record: Deployment) -> Row:
        return (
            record.deployment_id,
            record.manifest_object,
            record.code_version,
            record.assets,
            record.actor,
            *record.mark,
            record.mark[0],
            record.mark[1],
        )

    def load(self, row: Row) -> tuple[Key, Deployment]:
        values: tuple[Any, ...] = row
        mark = read_mark(values[5:8])
        assert mark is not None
        return (values[0],), Deployment(mark, *values[:5])
