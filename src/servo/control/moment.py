"""The moment: what a controller is told beside the tables."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

MAX_LAG_US = 5_000_000
"""How old the view may be for a decision that the clock makes."""


class Moment(NamedTuple):
    """All times in microseconds, by the engine's own clock."""

    now: int
    as_of: int
    """When the view was last known to be all there is."""
    worker: str
    """Where attempts that are asked for now will run."""
    slots: int
    """How many more attempts the executor would take."""
    loads: Callable[[str], bool]
    """Whether the code that a `code_ref` names can be loaded here."""
    takes: Callable[[str], bool] = lambda _: True
    """Whether this engine is there for a run, by its id; others wait for one that is."""
    listening_since: int = 0
    """Since when signs of life would have been heard: a takeover or a jump of the clock."""
    heard: Mapping[str, int] = {}
    """Attempt id to the last sign of life that is not in the ledger."""
    alone: bool = False
    """No other engine can be alive: the operating system's lock says so."""

    @property
    def fresh(self) -> bool:
        return self.now - self.as_of <= MAX_LAG_US
