"""Facts about people and programs that used Servo."""

from collections.abc import Mapping
from typing import ClassVar

from servo.events.envelope import Fact


class AuditRecorded(Fact, frozen=True, kw_only=True):
    """Somebody did something worth knowing later. The envelope's `actor` says who."""

    domain: ClassVar[str] = "audit"

    action: str
    subject: str
    details: Mapping[str, str] = {}

    def key(self) -> str:
        return f"audit:{self.action}:{self.subject}"


FACTS: tuple[type[Fact], ...] = (AuditRecorded,)
