"""What commands that only read have in common: where the state is, and the newest snapshot of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from servo import wiring
from servo.cli.output import printable, say, short_ids
from servo.cli.render import number
from servo.errors import Corrupt, Invalid, Unavailable
from servo.fold.tables import TABLES
from servo.ledger.snapshot import Snapshot
from servo.ports.store import Store
from servo.wiring.stores import FOLDER, is_led, open_store

NOTHING = "Nothing has run here yet: 'servo run' starts a run."


def find_folder(project: str) -> Path:
    """Where the state of a project is, whose code is not loaded."""
    return wiring.find_project(Path(project)) / FOLDER


def find_store(project: str) -> Store:
    return open_store(find_folder(project))


async def newest(store: Store) -> Snapshot:
    return await Snapshot.open(store.objects, TABLES)


class Look(NamedTuple):
    """The newest snapshot, and what it does not show."""

    snapshot: Snapshot
    folder: Path
    head: int
    """Of the ledger, when somebody looked after the snapshot was opened."""
    problem: str
    """Why the head is not known."""

    @property
    def newer(self) -> int:
        """Segments that are not in the tables yet."""
        return max(0, self.head - self.snapshot.position)

    def is_led(self) -> bool:
        return is_led(self.folder)


async def look(project: str) -> Look:
    folder = find_folder(project)
    store = open_store(folder)
    snapshot = await newest(store)
    try:
        return Look(snapshot, folder, await store.log.head(), "")
    except (Corrupt, Unavailable) as error:
        # Tables can be read without the ledger.
        return Look(snapshot, folder, snapshot.position, str(error))


def say_as_of(seen: Look) -> None:
    """Which moment the answer is of."""
    snapshot = seen.snapshot
    if snapshot.revision:
        published = snapshot.manifest.published_at[:19].replace("T", " ")
        say(
            f"as of revision {snapshot.revision:,}, published {published} UTC,"
            f" ledger position {snapshot.position:,}",
            error=True,
        )
    elif not seen.head and not seen.problem:
        say(NOTHING, error=True)
    say_newer(seen)


def say_newer(seen: Look) -> None:
    """What the tables do not show."""
    if seen.problem:
        say(f"whether the ledger has more is not known: {seen.problem}", error=True)
    elif seen.head < seen.snapshot.position:
        say(
            f"the ledger ends at segment {seen.head:,}, before these tables do:"
            " 'servo ledger verify' says what is wrong",
            error=True,
        )
    elif seen.newer:
        one = seen.newer == 1
        when = (
            f"{'it' if one else 'they'} will be within a second"
            if seen.is_led()
            else f"the next 'servo run' or 'servo run --resume' puts {'it' if one else 'them'} there"
        )
        verb = "is" if one else "are"
        say(
            f"{number(seen.newer, 'newer segment')} of the ledger {verb} not in the tables yet: {when}",
            error=True,
        )


def find_run(run_ids: Iterable[str], text: str) -> str:
    """The run whose id is, or begins with, what was typed."""
    matching = sorted(each for each in run_ids if text and each.startswith(text.upper()))
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise Invalid(f"there is no run {printable(text)!r}; 'servo status' lists runs")
    listed = ", ".join(short_ids(matching)[each] for each in matching[:5])
    raise Invalid(
        f"{number(len(matching), 'run')} begin with {printable(text)!r} ({listed}"
        f"{', …' if len(matching) > 5 else ''}); write more of the id"
    )
