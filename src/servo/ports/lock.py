"""A lock that the operating system lets go of when its holder dies.

Only a local folder has one. It makes a takeover immediate and tells that the last holder is gone;
what keeps two leaders apart is the claim in the ledger, with or without this lock.
"""

from typing import Protocol


class Lock(Protocol):
    def acquire(self) -> bool:
        """Take it if it is free, without waiting. True too for who holds it already."""
        ...

    def release(self) -> None:
        """Also by who does not hold it."""
        ...
