"""Where one workspace lives."""

from typing import NamedTuple

from servo.ports.lock import Lock
from servo.ports.log import Log
from servo.ports.objects import Objects


class Store(NamedTuple):
    """Handles bound to `{tenant}/{workspace}/`. `lock`: None where the store has none."""

    tenant: str
    workspace: str
    log: Log
    objects: Objects
    lock: Lock | None = None
