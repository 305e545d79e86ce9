"""assets: which id each asset key has, and the deployments that named it."""

from collections.abc import Iterable
from typing import Any

import msgspec

from servo.events.catalog import DeploymentCreated
from servo.events.envelope import Event
from servo.fold.projection import Memory, Projection, mark_columns, read_mark
from servo.fold.records import Asset, Mark
from servo.fold.table import Column, Key, Kind, Row, table


class Assets(Projection[Asset]):
    """Records are kept by asset key, because the first deployment that names one gives the id."""

    table = table(
        "assets",
        "Assets that are or were defined: one row per asset.",
        ("asset_id",),
        Column("asset_id", Kind.TEXT, "id of the asset; survives renaming"),
        Column("asset_key", Kind.TEXT, "namespace/name"),
        Column("deployment_id", Kind.TEXT, "the deployment that named it first"),
        Column("latest_deployment_id", Kind.TEXT, "the deployment that named it last"),
        *mark_columns("created", "it was named first", nullable=False),
        *mark_columns("deployed", "it was named last", nullable=False),
    )
    memory = Memory.ALL
    facts = (DeploymentCreated,)

    def keys(self, fact: Any, mark: Mark) -> Iterable[Key]:
        return [(key,) for key in fact.asset_ids]

    def join(self, key: Key, known: Asset | None, fact: Any, mark: Mark, event: Event) -> Asset:
        asset_key = str(key[0])
        given = fact.asset_ids[asset_key]
        if known is None:
            return Asset(mark, asset_key, given, fact.deployment_id, mark, fact.deployment_id)
        if mark < known.mark:
            known = msgspec.structs.replace(
                known, mark=mark, asset_id=given, deployment_id=fact.deployment_id
            )
        if mark > known.latest:
            known = msgspec.structs.replace(
                known, latest=mark, latest_deployment_id=fact.deployment_id
            )
        return known

    def row(self, key: Key, record: Asset) -> Row:
        return (
            record.asset_id,
            record.asset_key,
            record.deployment_id,
            record.latest_deployment_id,
            *record.mark,
            *record.latest,
            record.latest[0],
            record.latest[1],
        )

    def load(self, row: Row) -> tuple[Key, Asset]:
        asset_id, asset_key, deployment_id, latest_id, *marks = row
        values: tuple[Any, ...] = tuple(marks)
        created, deployed = read_mark(values[:3]), read_mark(values[3:6])
        assert created is not None and deployed is not None
        record = Asset(
            created, str(asset_key), str(asset_id), str(deployment_id), deployed, str(latest_id)
        )
        return (record.asset_key,), record
