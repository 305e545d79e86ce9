"""The envelope: what every fact carries beside itself, and how it becomes a line of the ledger.

    fact      the payload: a frozen struct of one domain's module (`TaskFinished`)
    event     a fact in its envelope: who, when, where from, under which id
    placed    an event and its place in the ledger, which is what orders it
    intent    an event that a controller wrote (its source is `engine`). Only the leader of the current
              epoch may write one, and it is void in a segment of anybody else

A line is the envelope as JSON with the fact as `payload`. Times are RFC 3339 in UTC. What a reader
does not know it keeps: an event of an unknown type, or of a version whose shape is unknown, is an
event with an `Unknown` payload; unknown fields stay in the line, which nobody ever writes anew.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec

from servo.core.segments import Place
from servo.errors import Corrupt

ENGINE = "engine"
"""The source of intents."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Base of all payloads. The name of the class is the event's type."""

    domain: ClassVar[str]
    version: ClassVar[int] = 1

    def key(self) -> str:
        """The idempotency key: equal for two reports of one thing."""
        raise NotImplementedError


class Unknown(msgspec.Struct, frozen=True):
    """A payload of a type or version that this Servo does not know, as it was written."""

    payload: msgspec.Raw


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    event_id: str
    event_type: str
    event_version: int
    timestamp: datetime
    source: str
    tenant_id: str
    workspace_id: str
    domain: str
    idempotency_key: str
    correlation_id: str | None = None
    causation_id: str | None = None
    actor: str | None = None
    payload: Any
    """A `Fact`, or `Unknown` where it was read and is not known."""

    @property
    def is_intent(self) -> bool:
        return self.source == ENGINE


class Placed(NamedTuple):
    """An event where it stands. `at` is its timestamp in microseconds: for people and deadlines."""

    position: int
    index: int  # type: ignore[assignment]  # as in Place
    at: int
    event: Event

    @property
    def place(self) -> Place:
        return Place(self.position, self.index)


class _Wire(msgspec.Struct, frozen=True, kw_only=True):
    event_id: str
    event_type: str
    event_version: int
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)]
    source: str
    tenant_id: str
    workspace_id: str
    domain: str
    idempotency_key: str
    correlation_id: str | None = None
    causation_id: str | None = None
    actor: str | None = None
    payload: msgspec.Raw


_encoder = msgspec.json.Encoder()
_wire = msgspec.json.Decoder(_Wire)


def moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def microseconds(moment: datetime) -> int:
    since = moment - _EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


def place(events: Iterable[Event], position: int) -> list[Placed]:
    """The events of one segment, where they will stand."""
    return [Placed(position, i, microseconds(e.timestamp), e) for i, e in enumerate(events)]


def encode(event: Event) -> bytes:
    return _encoder.encode(event)


Upcast = Callable[[dict[str, Any]], dict[str, Any]]


class Vocabulary:
    """Which facts this Servo knows, and how older versions of them are read."""

    def __init__(
        self, facts: Iterable[type[Fact]], upcasts: Mapping[tuple[str, int], Upcast] = {}
    ) -> None:
        self._facts = {fact.__name__: fact for fact in facts}
        self._decoders = {name: msgspec.json.Decoder(fact) for name, fact in self._facts.items()}
        self._upcasts = dict(upcasts)
        self._checkers = {
            fact: msgspec.json.Decoder(msgspec.defstruct("_Line", [("payload", fact)]))
            for fact in self._facts.values()
        }

    def __iter__(self) -> Any:
        return iter(self._facts.values())

    def spell(self, event: Event) -> bytes:
        """The line of an event of ours; `Corrupt` if nobody could read it back as what it is."""
        try:
            line = encode(event)
            self._checkers[type(event.payload)].decode(line)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, KeyError) as error:
            raise Corrupt(f"{event.event_type} cannot be written down: {error}") from None
        return line

    def decode(self, line: bytes) -> Event:
        """The event in a line; what is older is brought up to date, what is unknown is kept."""
        try:
            wire = _wire.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Corrupt(f"a line of the ledger is no event ({error})") from None
        return Event(
            event_id=wire.event_id,
            event_type=wire.event_type,
            event_version=wire.event_version,
            timestamp=wire.timestamp,
            source=wire.source,
            tenant_id=wire.tenant_id,
            workspace_id=wire.workspace_id,
            domain=wire.domain,
            idempotency_key=wire.idempotency_key,
            correlation_id=wire.correlation_id,
            causation_id=wire.causation_id,
            actor=wire.actor,
            payload=self._payload(wire),
        )

    def _payload(self, wire: _Wire) -> Fact | Unknown:
        fact = self._facts.get(wire.event_type)
        if fact is None:
            return Unknown(wire.payload)
        try:
            if wire.event_version >= fact.version:
                # A newer version is read if its shape still fits; a shape that does not is unknown.
                return self._decoders[wire.event_type].decode(wire.payload)
            data = msgspec.json.decode(wire.payload)
            for version in range(wire.event_version, fact.version):
                data = self._upcasts[wire.event_type, version](data)
            return msgspec.convert(data, fact)
        except (
            msgspec.DecodeError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ):
            # The last three: an upcast met a payload that is no object.
            if wire.event_version > fact.version:
                return Unknown(wire.payload)
            raise Corrupt(
                f"the {wire.event_type} event {wire.event_id} (version {wire.event_version}) does"
                " not have the shape of its type"
            ) from None
