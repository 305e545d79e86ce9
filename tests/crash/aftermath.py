"""What must hold in a folder after any number of deaths, once a last life has come to its end."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from servo.core import plan as plans
from servo.core import segments
from servo.core.segments import Place
from servo.core.states import RunState, TaskState, is_terminal
from servo.events.orchestration import LeaderClaimed, RunTriggered
from servo.fold.shape import Shape
from servo.fold.state import State, admit
from servo.fold.table import Table
from servo.fold.tables import TABLES
from servo.ledger.objects import get_value
from servo.ledger.snapshot import Snapshot
from servo.ledger.verify import verify
from servo.ports.store import Store
from servo.testing.auditor import Auditor
from tests.crash.child import Ack, store_in


class Outcome(NamedTuple):
    """What does not depend on who died when. Runs go by their keys: ids are minted."""

    runs: dict[str, str]
    tasks: dict[tuple[str, str], str]
    versions: Counter[tuple[str, str, str]]
    """(run, asset, partition) to how many versions of it count."""
    partitions: dict[tuple[str, str], int]
    """(asset, partition) to the rows of its latest version."""


class Found(NamedTuple):
    outcome: Outcome
    leaders: int
    acknowledged: int


def lines(folder: Path, name: str) -> list[str]:
    """What lives wrote down; the last line may be half of one, as they died."""
    path = folder / name
    return path.read_text().split("\n")[:-1] if path.exists() else []


def examine(folder: Path) -> Found:
    return asyncio.run(_examine(folder))


async def _examine(folder: Path) -> Found:
    store = store_in(str(folder))
    report = await verify(store.objects)
    assert not report.findings, "\n".join(report.findings)
    assert report.torn == 0, "the last life left a torn end"
    assert report.covered == report.position, "the last life published everything"

    # The order of the ledger, the rights of its writers, every revision and the load law.
    auditor = Auditor(store.log, store.objects)
    auditor.look()
    await auditor.check_tables()

    state, ledger, leaders = await _fold(store)
    rebuilt = _tables(state)
    snapshot = await Snapshot.open(store.objects, TABLES)
    tables = {table.name: await _rows(snapshot, table) for table in TABLES}
    for name, rows in tables.items():
        assert rows == rebuilt.get(name, []), f"{name} is not what the ledger says"

    acks = [msgspec.json.decode(line, type=Ack) for line in lines(folder, "acks")]
    owners = {row["run_key"]: row["run_id"] for row in tables["runs"]}
    assert len(owners) == len(tables["runs"]), "a run key stands for one run"
    for ack in acks:
        if ack.key:
            there = ledger.get(Place(ack.position, ack.index))
            assert there == ack.key, "an acknowledged fact is not where it was said to be"
        elif ack.run_key:
            assert owners[ack.run_key] == ack.run_id, "who was promised a run has it"
        assert ack.published <= snapshot.position, "what was published is not"
    subjects = Counter(row["subject"] for row in tables["audit"] if row["action"] == "lived")
    told = {ack.key.rpartition(":")[2] for ack in acks if ack.key.startswith("audit:")}
    assert told <= set(subjects), "an acknowledged fact is lost"
    assert set(subjects.values()) <= {1}, "a fact is there twice"

    asked = {row["attempt_id"] for row in tables["attempts"] if row["dispatched_at"]}
    began = Counter(lines(folder, "began"))
    assert set(began) <= asked, "work began that nobody had durably asked for"
    assert set(began.values()) <= {1}, "an attempt began twice"
    for row in tables["attempts"]:
        assert row["outcome"] is not None, "an attempt has no end"
        assert row["conflicts"] is None, "an attempt ended in two ways"
        if row["outcome"] == "succeeded":
            assert row["attempt_id"] in began, "a success that never ran"
    states: list[RunState | TaskState] = [RunState(row["state"]) for row in tables["runs"]]
    states += [TaskState(row["state"]) for row in tables["tasks"]]
    assert all(map(is_terminal, states)), "something has not ended"
    return Found(_outcome(tables), leaders, len(acks))


async def _rows(snapshot: Snapshot, table: Table) -> list[dict[str, Any]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in await snapshot.rows(table)]


async def _fold(store: Store) -> tuple[State, dict[Place, str], int]:
    """The ledger from its first segment, folded in one go; the idempotency key of each event; and
    how often the workspace was claimed."""
    state, ledger, leaders = State(), dict[Place, str](), 0
    ids = set()
    while found := await store.log.read(state.position + 1):
        for data in found:
            segment = segments.parse(data, state.position + 1)
            placed = admit(state, segment)
            for event in placed:
                fact = event.event.payload
                ledger[event.place] = event.event.idempotency_key
                assert event.event.event_id not in ids, "an event is there twice"
                ids.add(event.event.event_id)
                leaders += type(fact) is LeaderClaimed
                if type(fact) is RunTriggered:
                    plan = plans.load(await get_value(store.objects, fact.plan_object))
                    state.learn(fact.plan_object, Shape(plan))
            state.fold(placed)
            state.advance(segment.header.position, segment.header.hash)
            state.keep()
    return state, ledger, leaders


def _tables(state: State) -> dict[str, list[dict[str, Any]]]:
    tables = {}
    for table, rows in state.take().rows().items():
        names = [column.name for column in table.columns]
        ordered = sorted(rows, key=table.row_key)
        tables[table.name] = [dict(zip(names, row, strict=True)) for row in ordered]
    return tables


def _outcome(tables: dict[str, list[dict[str, Any]]]) -> Outcome:
    run_keys = {row["run_id"]: row["run_key"] for row in tables["runs"]}
    return Outcome(
        {row["run_key"]: row["state"] for row in tables["runs"]},
        {(run_keys[row["run_id"]], row["task_key"]): row["state"] for row in tables["tasks"]},
        Counter(
            (run_keys[row["run_id"]], row["asset_key"], row["partition_key"])
            for row in tables["materializations"]
            if row["counts"]
        ),
        {
            (row["asset_key"], row["partition_key"]): row["row_count"]
            for row in tables["partitions"]
        },
    )
