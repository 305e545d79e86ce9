"""Identity: which asset, which partition, which task.

Each key has one canonical spelling; `parse` accepts that spelling and nothing else, so two
different strings never mean the same thing. Equality, hashing and order go by it.

    AssetKey       analytics/user_metrics          (for people: analytics.user_metrics)
    PartitionKey   date=d:2025-01-15,region=s:us-east
    TaskKey        analytics/user_metrics[date=d:2025-01-15]:materialize

Values of a partition key are typed by a tag: `s` string (percent-encoded UTF-8), `i` 64-bit
integer, `b` true/false, `d` date, `t` UTC timestamp with six fraction digits, `n` null. Floats are
refused. How a partition is *displayed* never enters its identity.
Golden vectors: tests/vectors/partition_keys.json.
"""

import enum
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, NewType, Self

from servo.core.ids import queue_id
from servo.errors import Invalid

Scalar = str | int | bool | date | datetime | None

ASSET_PART = re.compile(r"[a-z][a-z0-9_]*\Z")
DIMENSION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_STRING = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})*\Z")
_INT = re.compile(r"(?:0|-?[1-9][0-9]*)\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
# Hours are spelled out: newer Pythons read 24:00 as the next midnight, which would be a second spelling.
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{6}Z\Z"
)

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class _Key:
    """Something that is its canonical string."""

    __slots__ = ("_hash", "canonical")
    canonical: str

    def _become(self, canonical: str) -> None:
        object.__setattr__(self, "canonical", canonical)
        object.__setattr__(self, "_hash", hash(canonical))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.canonical == self.canonical

    def __lt__(self, other: Self) -> bool:
        return self.canonical < other.canonical if type(other) is type(self) else NotImplemented

    def __le__(self, other: Self) -> bool:
        return self.canonical <= other.canonical if type(other) is type(self) else NotImplemented

    def __gt__(self, other: Self) -> bool:
        return self.canonical > other.canonical if type(other) is type(self) else NotImplemented

    def __ge__(self, other: Self) -> bool:
        return self.canonical >= other.canonical if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined,no-any-return]  # set by _become

    def __str__(self) -> str:
        return self.canonical

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> Any:
        return type(self).parse, (self.canonical,)  # type: ignore[attr-defined]  # every key parses


class AssetKey(_Key):
    """`namespace.name` for people, `namespace/name` in canonical strings."""

    __slots__ = ("name", "namespace")
    namespace: str
    name: str

    def __init__(self, namespace: str, name: str) -> None:
        for what, part in (("namespace", namespace), ("name", name)):
            if not isinstance(part, str) or not ASSET_PART.match(part):
                raise Invalid(
                    f"asset {what} {part!r} is not allowed: use lower-case letters, digits and _,"
                    " beginning with a letter"
                )
        namespace, name = str.__str__(namespace), str.__str__(name)
        object.__setattr__(self, "namespace", namespace)
        object.__setattr__(self, "name", name)
        self._become(f"{namespace}/{name}")

    @classmethod
    def parse(cls, text: str, default_namespace: str | None = None) -> Self:
        """From `namespace/name` or `namespace.name`; a bare name needs a default namespace."""
        text = _text(text, "an asset key", "analytics.orders")
        parts = re.split(r"[./]", text)
        if len(parts) == 1 and default_namespace is not None:
            parts = [default_namespace, text]
        if len(parts) != 2:
            raise Invalid(f"asset key {text!r} is not of the form namespace.name")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


class PartitionKey(_Key, Mapping[str, Scalar]):
    """A typed value for each of one or more named dimensions: an immutable mapping."""

    __slots__ = ("_values",)
    _values: dict[str, Scalar]

    def __init__(self, values: Mapping[str, Scalar] | None = None, /, **dimensions: Scalar) -> None:
        if values is not None and not isinstance(values, Mapping):
            raise Invalid(
                "a partition key is made from a mapping of dimension names to values, not from"
                f" {type(values).__name__}; to read a spelled key use PartitionKey.parse"
            )
        given = {**(values or {}), **dimensions}
        if values and len(given) < len(values) + len(dimensions):
            twice = next(name for name in dimensions if name in values)
            raise Invalid(f"partition key: dimension {twice!r} is given twice; remove one")
        if not given:
            raise Invalid("a partition key needs at least one dimension, such as date=…")
        for name in given:
            if not isinstance(name, str) or not DIMENSION_NAME.match(name):
                raise Invalid(
                    f"dimension name {name!r} is not allowed: use letters, digits and _,"
                    " not beginning with a digit"
                )
        normal = {str.__str__(name): normal_scalar(given[name], name) for name in sorted(given)}
        object.__setattr__(self, "_values", normal)
        self._become(",".join(f"{name}={spell_scalar(v)}" for name, v in normal.items()))

    @classmethod
    def _trusted(cls, values: dict[str, Scalar], canonical: str) -> Self:
        """For code that has just made both parts by the rules above (keys by the million)."""
        key = object.__new__(cls)
        object.__setattr__(key, "_values", values)
        key._become(canonical)
        return key

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str()`; refuses every spelling that is not canonical."""
        text = _text(text, "a partition key", "date=d:2025-01-15")
        values: dict[str, Scalar] = {}
        last = ""
        for part in text.split(","):
            name, equals, spelled = part.partition("=")
            if not equals or not DIMENSION_NAME.match(name):
                raise Invalid(f"partition key {text!r}: {part!r} is not of the form name=tag:value")
            if name <= last:
                raise Invalid(
                    f"partition key {text!r}: dimension names must be sorted and unique,"
                    f" but {name!r} follows {last!r}"
                )
            last = name
            try:
                values[name] = parse_scalar(spelled)
            except Invalid as why:
                raise Invalid(f"partition key {text!r}: dimension {name!r}: {why}") from None
        return cls._trusted(values, text)

    def __getitem__(self, name: str) -> Scalar:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    # Mapping compares by items, where True == 1; keys compare by spelling, where they differ.
    __eq__ = _Key.__eq__
    __hash__ = _Key.__hash__


def _text(text: object, what: str, example: str) -> str:
    """What a parser is handed, as exactly a string."""
    if not isinstance(text, str):
        raise Invalid(f"{what} is a string like {example!r}, not {type(text).__name__}")
    return str.__str__(text)


def normal_scalar(value: Scalar, name: str) -> Scalar:
    """The value as the key keeps it (timestamps in UTC), or a sentence about why it cannot be.

    Subclasses become what they are made of: `str()` of a member of `class Region(str, Enum)` would
    be `Region.EU`, and a library's own date may spell itself in its own way.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise Invalid(f"dimension {name!r}: the string holds a lone surrogate; replace it")
        return str.__str__(value)
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise Invalid(
                f"dimension {name!r}: the integer does not fit into 64 bits; use a string"
            )
        return int.__index__(value)
    if isinstance(value, datetime):
        # A zone may have no answer: such a time is naive too, and would be read in the machine's.
        if value.tzinfo is None or value.utcoffset() is None:
            raise Invalid(
                f"dimension {name!r}: the timestamp {value.isoformat()} has no time zone; add one"
            )
        if getattr(value, "nanosecond", 0):
            raise Invalid(
                f"dimension {name!r}: {value.isoformat()} is finer than a microsecond; round it"
            )
        try:
            utc = value.astimezone(UTC)
        except OverflowError:
            raise Invalid(
                f"dimension {name!r}: {value.isoformat()} is outside the years 1 to 9999 in UTC;"
                " use a time within them"
            ) from None
        day = utc.year, utc.month, utc.day
        return datetime(*day, utc.hour, utc.minute, utc.second, utc.microsecond, UTC)
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    if isinstance(value, float):
        raise Invalid(
            f"dimension {name!r}: the float {value!r} cannot identify a partition;"
            " use a string or an integer"
        )
    raise Invalid(
        f"dimension {name!r}: a {type(value).__name__} cannot identify a partition;"
        " use a string, integer, boolean, date, timestamp or None"
    )


_SPELLED = [
    chr(byte) if re.match(r"[A-Za-z0-9._~-]", chr(byte)) else f"%{byte:02X}" for byte in range(256)
]


def percent_encode(text: str) -> str:
    """UTF-8 with every byte outside A-Z a-z 0-9 . _ ~ - as % and two upper-case hex digits."""
    return "".join(map(_SPELLED.__getitem__, text.encode()))


def _percent_decode(text: str) -> str:
    first, *rest = text.split("%")
    return b"".join(
        [first.encode(), *(bytes.fromhex(part[:2]) + part[2:].encode() for part in rest)]
    ).decode()


def spell_scalar(value: Scalar) -> str:
    """Tag and canonical spelling of a normal scalar."""
    if value is None:
        return "n:null"
    if isinstance(value, bool):
        return "b:true" if value else "b:false"
    if isinstance(value, str):
        return "s:" + percent_encode(value)
    if isinstance(value, int):
        return f"i:{value}"
    if isinstance(value, datetime):
        return f"t:{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    return f"d:{value.isoformat()}"


def parse_scalar(spelled: str) -> Scalar:
    """The inverse of `spell_scalar`."""
    spelled = _text(spelled, "a spelled value", "s:eu")
    parse = _PARSERS.get(spelled[:2])
    if parse is None:
        raise Invalid(f"{spelled!r} has no known tag; begin it with s:, i:, b:, d:, t: or n:")
    return parse(spelled, spelled[2:])


def _parse_string(spelled: str, body: str) -> str:
    if body.isalnum() and body.isascii():
        return body
    if _STRING.match(body):
        try:
            value = _percent_decode(body)
        except UnicodeDecodeError:
            raise Invalid(f"{spelled!r} is not UTF-8 when decoded") from None
        # An encoded letter or digit decodes too, but is not how it is spelled.
        if percent_encode(value) == body:
            return value
    raise Invalid(
        f"{spelled!r} is not a canonical string: percent-encode, with upper-case hex,"
        " exactly the bytes outside A-Z a-z 0-9 . _ ~ -"
    )


def _parse_int(spelled: str, body: str) -> int:
    if _INT.match(body) and len(body) <= 20 and INT64_MIN <= int(body) <= INT64_MAX:
        return int(body)
    raise Invalid(f"{spelled!r} is not a 64-bit integer without leading zeros")


def _parse_bool(spelled: str, body: str) -> bool:
    if body in ("true", "false"):
        return body == "true"
    raise Invalid(f"{spelled!r} is neither b:true nor b:false")


def _parse_date(spelled: str, body: str) -> date:
    if _DATE.match(body):
        try:
            return date.fromisoformat(body)
        except ValueError:
            pass
    raise Invalid(f"{spelled!r} is not a real date spelled YYYY-MM-DD")


def _parse_timestamp(spelled: str, body: str) -> datetime:
    if _TIMESTAMP.match(body):
        try:
            return datetime.fromisoformat(body)
        except ValueError:
            pass
    raise Invalid(f"{spelled!r} is not a real UTC timestamp spelled YYYY-MM-DDTHH:MM:SS.ffffffZ")


def _parse_null(spelled: str, body: str) -> None:
    if body != "null":
        raise Invalid(f"{spelled!r} is not n:null")


_PARSERS: dict[str, Callable[[str, str], Scalar]] = {
    "s:": _parse_string,
    "i:": _parse_int,
    "b:": _parse_bool,
    "d:": _parse_date,
    "t:": _parse_timestamp,
    "n:": _parse_null,
}


class Operation(enum.StrEnum):
    """What a task does to its asset."""

    MATERIALIZE = "materialize"
    CHECK = "check"
    BACKFILL = "backfill"


class TaskKey(_Key):
    """What a task is, independent of any generated id: asset, partition and operation."""

    __slots__ = ("asset", "operation", "partition")
    asset: AssetKey
    partition: PartitionKey | None
    operation: Operation

    def __init__(
        self,
        asset: AssetKey,
        partition: PartitionKey | None = None,
        operation: Operation = Operation.MATERIALIZE,
    ) -> None:
        for part, kind in ((asset, AssetKey), (partition, PartitionKey), (operation, Operation)):
            if not isinstance(part, kind) and not (part is None and kind is PartitionKey):
                raise Invalid(
                    f"a task key is made of an asset key, a partition key and an operation, but"
                    f" {part!r} is no {kind.__name__}; to read a spelled one use TaskKey.parse"
                )
        object.__setattr__(self, "asset", asset)
        object.__setattr__(self, "partition", partition)
        object.__setattr__(self, "operation", operation)
        inside = None if partition is None else partition.canonical
        self._become(self.spell(asset.canonical, inside, operation))

    @staticmethod
    def spell(
        asset: str, partition: str | None, operation: Operation = Operation.MATERIALIZE
    ) -> str:
        """The canonical string from canonical parts (for plans, which hold many)."""
        inside = "" if partition is None else f"[{partition}]"
        return f"{asset}{inside}:{operation._value_}"

    @classmethod
    def parse(cls, text: str) -> Self:
        text = _text(text, "a task key", "analytics/orders:materialize")
        match = re.fullmatch(r"([^./\[\]:]+)/([^./\[\]:]+)(?:\[([^\[\]]+)\])?:([a-z]+)", text)
        if not match:
            raise Invalid(
                f"task key {text!r} is not of the form namespace/name[partition]:operation"
            )
        namespace, name, partition, operation = match.groups()
        if operation not in Operation.__members__.values():
            raise Invalid(
                f"task key {text!r}: operation {operation!r} is not one of " + ", ".join(Operation)
            )
        return cls(
            AssetKey(namespace, name),
            PartitionKey.parse(partition) if partition is not None else None,
            Operation(operation),
        )


PartitionId = NewType("PartitionId", str)
"""The folder of a partition: opaque, so that no reader mistakes it for a `date=…` column."""


def partition_id(key: PartitionKey | None) -> PartitionId:
    return PartitionId("all" if key is None else queue_id("p", key.canonical))
