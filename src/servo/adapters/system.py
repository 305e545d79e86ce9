"""The machine's clock, randomness and environment: the only place that asks for them.

tests/house/test_purity.py holds it, so that everything else can be run again with the same answers.
"""

import os
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from servo.core.ids import UlidSource


def now() -> datetime:
    return datetime.now(UTC)


def ulid_source() -> UlidSource:
    """A source of ULIDs; a process needs one, which then never repeats itself or goes back."""
    return UlidSource(lambda: time.time_ns() // 1_000_000, secrets.randbits)


def environment() -> Mapping[str, str]:
    return os.environ
