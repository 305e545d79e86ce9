"""What a writer was told is in a folder is still there after a power cut."""

from itertools import product

from servo.adapters.local_objects import LocalObjects
from servo.errors import Uncertain
from servo.ledger.objects import create
from servo.testing import Chance, Machine, Process, Trouble, VirtualLoop, Weather


class Folder:
    """A folder on a machine, and processes that die."""

    def __init__(self, seed: int) -> None:
        self.chance = Chance(seed)
        self.loop = VirtualLoop(self.chance)
        self.weather = Weather(Trouble())
        self.machine = Machine(self.loop, "m", self.chance, self.weather)

    def objects(self, name: str) -> tuple[LocalObjects, Process]:
        process = Process(self.loop, name, self.chance)
        return LocalObjects(self.machine.disk(process), "/servo", process.new_id), process


def test_what_was_created_despite_a_failed_sync_of_its_folder_survives_a_power_cut() -> None:
    kept = told = 0
    for seed in range(60):
        folder = Folder(seed)
        folder.weather.trouble = Trouble(sync_error=0.4)
        objects, _ = folder.objects("writer")

        async def main(objects: LocalObjects = objects, folder: Folder = folder) -> bool | None:
            try:
                await create(objects, "tables/a", b"rows")
            except Exception:  # noqa: BLE001 - refused or unknown: nobody was told that it is there
                return None
            folder.weather.off()
            folder.machine.power_cut()
            reader, _ = folder.objects("reader")
            return await reader.get("tables/a") == b"rows"

        found = folder.loop.run(main())
        told += found is not None
        kept += found is True
    assert told > 10
    assert kept == told


def test_what_another_created_and_died_over_survives_a_power_cut_once_somebody_built_on_it() -> (
    None
):
    kept = told = 0
    for call, seed in product(range(1, 12), range(6)):
        folder = Folder(seed)
        first, dying = folder.objects("first")

        async def main(
            first: LocalObjects = first,
            dying: Process = dying,
            folder: Folder = folder,
            call: int = call,
        ) -> bool | None:
            dying.kill_at_call(call)
            await dying.ended(dying.spawn(create(first, "objects/plan", b"plan")))
            second, _ = folder.objects("second")
            try:
                await create(second, "objects/plan", b"plan")
            except Uncertain:
                return None
            folder.machine.power_cut()
            reader, _ = folder.objects("reader")
            return await reader.get("objects/plan") == b"plan"

        found = folder.loop.run(main())
        told += found is not None
        kept += found is True
    assert told > 10
    assert kept == told
