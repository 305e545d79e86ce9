"""Loading: from the newest manifest to a state in memory, and what a batch of facts needs besides.

The law: folding the tail onto what was loaded gives what folding everything would. A state is loaded
from one revision and goes on from that revision's position.
"""

from collections.abc import Iterable

from servo.core import plan as plans
from servo.core.states import RunState, is_terminal
from servo.errors import Invalid
from servo.events.envelope import Event
from servo.fold.projection import Memory
from servo.fold.shape import Shape
from servo.fold.state import State
from servo.fold.table import Key, Row
from servo.fold.tables import PROJECTIONS, TABLES, attempts, runs, tasks
from servo.ledger.objects import get_value
from servo.ledger.snapshot import Snapshot
from servo.ports.objects import Objects

_TABLES = {table.name: table for table in TABLES}
_PLAN = [column.name for column in runs.TABLE.columns].index("plan_object")
_STATE = [column.name for column in runs.TABLE.columns].index("state")


async def load_state(snapshot: Snapshot, objects: Objects) -> State:
    """Everything that is active as of a revision."""
    state = State()
    state.position = snapshot.position
    state.epoch = snapshot.epoch
    if snapshot.position:
        state.hash = snapshot.ledger_hash
    for projection in PROJECTIONS:
        if projection.memory is Memory.ALL:
            state.load_rows(projection.table.name, await snapshot.rows(projection.table))
    active = [
        row
        for row in await snapshot.rows(runs.TABLE)
        if not is_terminal(RunState(str(row[_STATE])))
    ]
    await _load_runs(state, snapshot, objects, {str(row[0]): row for row in active})
    return state


async def load_needs(
    state: State, events: Iterable[Event], snapshot: Snapshot, objects: Objects
) -> None:
    """Bring into memory what these events touch."""
    asked: set[tuple[str, Key]] = set()
    events = list(events)
    while True:
        needs = state.needs(events)
        rows = {
            name: {key for key in keys if (name, key) not in asked}
            for name, keys in needs.rows.items()
        }
        if not needs.plans and not needs.runs and not any(rows.values()):
            return
        for ref in sorted(needs.plans):
            await _learn(state, objects, ref)
        if needs.runs:
            wanted = sorted(needs.runs)
            found = await snapshot.find(runs.TABLE, [(run_id,) for run_id in wanted])
            known: dict[str, Row | None] = dict.fromkeys(wanted)
            known.update((str(row[0]), row) for row in found)
            await _load_runs(state, snapshot, objects, known)
        for name in sorted(rows):
            if rows[name]:
                asked.update((name, key) for key in rows[name])
                state.load_rows(name, await snapshot.find(_TABLES[name], sorted(rows[name])))


async def _load_runs(
    state: State, snapshot: Snapshot, objects: Objects, wanted: dict[str, Row | None]
) -> None:
    """Runs with their tasks and attempts; None where the tables do not have the run."""
    prefixes: list[Key] = [(run_id,) for run_id in sorted(wanted)]
    by_run: dict[str, tuple[list[Row], list[Row]]] = {run_id: ([], []) for run_id in wanted}
    for row in await snapshot.find(tasks.TABLE, prefixes):
        by_run[str(row[0])][0].append(row)
    for row in await snapshot.find(attempts.TABLE, prefixes):
        by_run[str(row[0])][1].append(row)
    for run_id, run_row in wanted.items():
        if run_row is not None and str(run_row[_PLAN]) not in state.plans:
            await _learn(state, objects, str(run_row[_PLAN]))
        state.load_run(run_id, run_row, *by_run[run_id])


async def _learn(state: State, objects: Objects, ref: str) -> None:
    try:
        state.learn(ref, Shape(plans.load(await get_value(objects, ref))))
    except Invalid as error:
        raise Invalid(f"the plan {ref} of a run cannot be used: {error}") from None
