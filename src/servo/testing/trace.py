"""A trace: what happened in a simulated world, in order, and one hash over all of it.

"The same seed gives the same trace" is one comparison of two digests; where they differ,
`first_difference` says where two runs went apart.
"""

import hashlib
from collections.abc import Callable
from itertools import zip_longest
from typing import NamedTuple

from servo.core import canonical


class Happening(NamedTuple):
    at: int
    """Virtual microseconds since the world began."""
    process: str
    what: str
    details: str

    def __str__(self) -> str:
        return f"{self.at / 1_000_000:14.6f}  {self.process:12}  {self.what}  {self.details}"


class Trace:
    def __init__(self, microseconds: Callable[[], int]) -> None:
        self._microseconds = microseconds
        self._hash = hashlib.sha256()
        self.happenings: list[Happening] = []

    def note(self, process: str, what: str, **details: object) -> None:
        """`details` is plain data, as canonical JSON has it: nothing whose text differs by run."""
        text = canonical.dumps(details).decode()
        happening = Happening(self._microseconds(), process, what, text)
        self.happenings.append(happening)
        self._hash.update(canonical.dumps(list(happening)) + b"\n")

    def digest(self) -> str:
        return "sha256:" + self._hash.hexdigest()

    def first_difference(self, other: "Trace") -> str | None:
        """The first place where the two are not the same, for a person; None if there is none."""
        pairs = zip_longest(self.happenings, other.happenings)
        for number, (ours, theirs) in enumerate(pairs):
            if ours != theirs:
                return f"happening {number}:\n  {ours}\n  {theirs}"
        return None

    def __str__(self) -> str:
        return "\n".join(map(str, self.happenings))
