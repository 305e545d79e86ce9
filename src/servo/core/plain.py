"""Structs as plain data, and back.

Plain data is what canonical JSON takes: keys become their canonical strings, a user's floats become
`{"$float": "0.8"}`. Reading back checks every type and says in one sentence where it is wrong.
Unknown fields are ignored, so that an older Servo reads what a newer one wrote.
"""

from typing import Any, TypeVar

import msgspec

from servo.core import canonical
from servo.core.keys import AssetKey, PartitionKey, TaskKey
from servo.errors import Invalid

T = TypeVar("T")

_KEYS = (AssetKey, PartitionKey, TaskKey)


def to_plain(value: Any) -> Any:
    """Plain data of a struct, a key, or containers of them."""
    return _carry(msgspec.to_builtins(value, enc_hook=_encode, str_keys=True))


def from_plain(data: Any, kind: type[T], what: str) -> T:
    """The inverse of `to_plain`; `what` names the thing in messages."""
    try:
        return msgspec.convert(_release(data), kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        # A check of the struct's own reaches us wrapped, with the path where it was.
        raise Invalid(f"{what} cannot be read: {error}") from None


def load_json(text: bytes, kind: type[T], what: str) -> T:
    """`from_plain` of a JSON text."""
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"{what} is not JSON: {error}; was the file cut short?") from None
    return from_plain(data, kind, what)


def _encode(value: Any) -> Any:
    if isinstance(value, _KEYS):
        return value.canonical
    raise NotImplementedError(f"{type(value)} has no plain form")


def _decode(kind: type, value: Any) -> Any:
    if issubclass(kind, _KEYS) and isinstance(value, str):
        return kind.parse(value)
    raise NotImplementedError(f"{kind} cannot be read from {value!r}")


def _carry(value: Any) -> Any:
    if isinstance(value, float):
        return canonical.carry_float(value)
    if isinstance(value, dict):
        return {key: _carry(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_carry(item) for item in value]
    return value


def _release(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(text := value.get("$float"), str):
            try:
                return float(text)
            except ValueError:
                raise Invalid(f"{{'$float': {text!r}}} is not a number") from None
        return {key: _release(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_release(item) for item in value]
    return value
