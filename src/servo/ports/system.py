"""The clocks and the source of ids that one process has."""

from typing import Protocol


class System(Protocol):
    def now(self) -> int:
        """Microseconds since 1970 in UTC, by this machine's clock; it may be wrong, and may jump."""
        ...

    def monotonic(self) -> int:
        """Microseconds since some moment; never goes back. Stands still or not while a laptop sleeps."""
        ...

    def new_id(self) -> str:
        """A ULID that nobody else has."""
        ...
