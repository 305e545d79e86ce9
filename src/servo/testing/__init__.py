"""A simulated world for Servo, from one seed: virtual time, processes that die, storage that fails.

For Servo's own tests and for those of its users. Names are loaded when they are first used.

    loop = VirtualLoop(chance)          asyncio on a virtual clock
    Process, Clock                      what runs in it: killed, paused, with a clock that is wrong
    Machine                             a disk whose power can be cut
    FaultyObjects, FaultyLog, Weather   stores at the end of a wire, and the trouble there is now
    History, is_linearizable            what clients saw, and whether one register could be all of it
    Trace                               what happened; the same seed gives the same digest
    simulate, Scenario, Violation       a whole world of engines, workers and faults, and its auditor
"""

TYPE_CHECKING = False  # as in servo/__init__.py: typing costs start-up time
if TYPE_CHECKING:
    from servo.testing.auditor import Violation
    from servo.testing.chance import Chance
    from servo.testing.linearizable import is_linearizable
    from servo.testing.loop import Stuck, VirtualLoop
    from servo.testing.processes import Clock, Process
    from servo.testing.storage import (
        CALM,
        ROUGH,
        STORM,
        FaultyLog,
        FaultyObjects,
        History,
        Machine,
        Trouble,
        Weather,
    )
    from servo.testing.trace import Trace
    from servo.testing.world import Outcomes, Scenario, simulate

__all__ = (
    "CALM",
    "ROUGH",
    "STORM",
    "Chance",
    "Clock",
    "FaultyLog",
    "FaultyObjects",
    "History",
    "Machine",
    "Outcomes",
    "Process",
    "Scenario",
    "Stuck",
    "Trace",
    "Trouble",
    "Violation",
    "VirtualLoop",
    "Weather",
    "is_linearizable",
    "simulate",
)

_HOMES = {
    "CALM": "servo.testing.storage",
    "ROUGH": "servo.testing.storage",
    "STORM": "servo.testing.storage",
    "Chance": "servo.testing.chance",
    "Clock": "servo.testing.processes",
    "FaultyLog": "servo.testing.storage",
    "FaultyObjects": "servo.testing.storage",
    "History": "servo.testing.storage",
    "Machine": "servo.testing.storage",
    "Outcomes": "servo.testing.world",
    "Process": "servo.testing.processes",
    "Scenario": "servo.testing.world",
    "Stuck": "servo.testing.loop",
    "Trace": "servo.testing.trace",
    "Trouble": "servo.testing.storage",
    "Violation": "servo.testing.auditor",
    "VirtualLoop": "servo.testing.loop",
    "Weather": "servo.testing.storage",
    "is_linearizable": "servo.testing.linearizable",
    "simulate": "servo.testing.world",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'servo.testing' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
