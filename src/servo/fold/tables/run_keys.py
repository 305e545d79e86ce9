"""run_keys: which run a caller's key stands for.

The lowest place owns the key. A later trigger with the same request is the same run, with another
request it is a conflict; both are kept beside the owner, and neither makes a run.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from servo.events.envelope import Event
from servo.events.orchestration import RunTriggered
from servo.fold.projection import Projection, mark_columns, text
from servo.fold.records import Claim, Mark
from servo.fold.table import Column, Key, Kind, Row, table


class Claims(msgspec.Struct, frozen=True):
    """Every run that asked for the key, by place."""

    claims: tuple[Claim, ...]

    @property
    def owner(self) -> Claim:
        return self.claims[0]


class RunKeys(Projection[Claims]):
    table = table(
        "run_keys",
        "Which run a caller's key stands for, so that asking twice runs once.",
        ("run_key",),
        Column("run_key", Kind.TEXT, "the key that the caller chose"),
        Column("run_id", Kind.TEXT, "the run that it stands for"),
        Column("request_hash", Kind.TEXT, "fingerprint of what was asked for"),
        *mark_columns("claimed", "the run was triggered with it", nullable=False),
        Column(
            "others",
            Kind.JSON,
            "later triggers with this key: [run_id, request_hash, position, index, at]",
            nullable=True,
        ),
        Column("conflicts", Kind.INTEGER, "how many of them asked for something else"),
    )
    facts = (RunTriggered,)

    def keys(self, fact: Any, mark: Mark) -> Iterable[Key]:
        return ((fact.run_key,),) if fact.run_key is not None else ()

    def join(self, key: Key, known: Claims | None, fact: Any, mark: Mark, event: Event) -> Claims:
        claims = known.claims if known is not None else ()
        same = next((c for c in claims if c.run_id == fact.run_id), None)
        if known is not None and same is not None and same.mark <= mark:
            return known
        others = [c for c in claims if c is not same]
        claim = Claim(mark, fact.run_id, fact.request_hash)
        return Claims(tuple(sorted([*others, claim], key=lambda c: c.mark)))

    def row(self, key: Key, record: Claims) -> Row:
        owner, *others = record.claims
        last = record.claims[-1].mark
        return (
            key[0],
            owner.run_id,
            owner.request_hash,
            *owner.mark,
            text([[c.run_id, c.request_hash, *c.mark] for c in others]) if others else None,
            sum(1 for c in others if c.request_hash != owner.request_hash),
            last[0],
            last[1],
        )

    def load(self, row: Row) -> tuple[Key, Claims]:
        values: tuple[Any, ...] = row
        others = msgspec.json.decode(values[6]) if values[6] is not None else []
        claims = [Claim(values[3:6], values[1], values[2])]
        claims += [Claim((p, i, at), run_id, asked) for run_id, asked, p, i, at in others]
        return (values[0],), Claims(tuple(claims))
