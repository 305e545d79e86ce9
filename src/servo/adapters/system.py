"""The machine's clock, randomness and environment: the only place that asks for them.

tests/house/test_purity.py holds it, so that everything else can be run again with the same answers.
"""

import functools
import os
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from servo.core.ids import UlidSource


def now() -> datetime:
    return datetime.now(UTC)


@functools.cache
def ulid_source() -> UlidSource:
    """The process's source of ULIDs: one, because two would go back behind each other."""
    return UlidSource(lambda: time.time_ns() // 1_000_000, secrets.randbits)


def environment() -> Mapping[str, str]:
    return os.environ


class RealSystem:
    """The clocks and ids of this process: `servo.ports.system.System`."""

    def __init__(self) -> None:
        self.new_id = ulid_source()

    def now(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> int:
        return time.monotonic_ns() // 1_000
