"""What commands that only read have in common: where the state is, and the newest snapshot of it."""

from pathlib import Path

from servo import wiring
from servo.cli.output import say
from servo.fold.tables import TABLES
from servo.ledger.snapshot import Snapshot
from servo.ports.store import Store
from servo.wiring.stores import FOLDER, open_store

NOTHING = "Nothing has run here yet: 'servo run' starts a run."


def find_store(project: str) -> Store:
    """The store of a project, whose code is not loaded."""
    return open_store(wiring.find_project(Path(project)) / FOLDER)


async def newest(store: Store) -> Snapshot:
    return await Snapshot.open(store.objects, TABLES)


def say_as_of(snapshot: Snapshot) -> None:
    """Which moment the answer is of."""
    if not snapshot.revision:
        say(NOTHING, error=True)
        return
    published = snapshot.manifest.published_at[:19].replace("T", " ")
    say(
        f"as of revision {snapshot.revision:,}, published {published} UTC,"
        f" ledger position {snapshot.position:,}",
        error=True,
    )
