"""Structs as plain data, and back.

Plain data is what canonical JSON takes: keys become their canonical strings, a user's floats become
`{"$float": "0.8"}`. Reading back checks every type and says in one sentence where it is wrong.
Unknown fields are ignored, so that an older Servo reads what a newer one wrote.

What users hand in as they like (config, metadata, bounds of checks) goes through `user_data` first:
what has no JSON form that reads back as the same thing is refused where it is declared.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from servo.core import canonical
from servo.core.keys import AssetKey, PartitionKey, TaskKey
from servo.errors import Invalid

T = TypeVar("T")

_KEYS = (AssetKey, PartitionKey, TaskKey)


def to_plain(value: Any) -> Any:
    """Plain data of a struct, a key, or containers of them."""
    try:
        # "deterministic": the order of a set would be another in every process.
        built = msgspec.to_builtins(value, enc_hook=_encode, str_keys=True, order="deterministic")
        return _carry(built)
    except RecursionError:
        raise Invalid(f"a {type(value).__name__} {_TOO_DEEP}") from None


def from_plain(data: Any, kind: type[T], what: str) -> T:
    """The inverse of `to_plain`; `what` names the thing in messages."""
    try:
        return msgspec.convert(_release(data), kind, dec_hook=_decode)
    except (msgspec.ValidationError, Invalid) as error:
        raise Invalid(f"{what} cannot be read: {error}") from None
    except RecursionError:
        raise Invalid(f"{what} {_TOO_DEEP}") from None


def read_json(text: bytes, what: str) -> Any:
    """The data of a JSON text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Invalid(f"{what} is not JSON: {error}; was the file cut short?") from None
    except RecursionError:
        raise Invalid(f"{what} {_TOO_DEEP}") from None


def user_data(value: Any, what: str) -> Any:
    """A user's own data, copied into dicts, lists and exact scalars (floats among them), so that it
    reads back as the same thing. Refuses anything else; `what` begins the path in messages."""
    return _copied(value, what, _MAX_DEPTH)


_TOO_DEEP = "is nested too deeply or contains itself; flatten it"
# The rest of what canonical JSON allows is for the structs around a user's data.
_MAX_DEPTH = canonical.MAX_DEPTH // 2


def _copied(value: Any, path: str, room: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    # Not `str(value)` and `int(value)`: members of an enum and NumPy's numbers spell themselves.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if not canonical.INT_MIN <= value <= canonical.INT_MAX:
            raise Invalid(f"{path} is an integer outside [-2^63, 2^64-1]; give it as a string")
        return int.__index__(value)
    if isinstance(value, float):
        exact = float(value)
        if not math.isfinite(exact):
            raise Invalid(f"{path} is {exact!r}; use a finite number, or None for 'no value'")
        return exact
    if isinstance(value, Mapping | list | tuple) and not isinstance(value, PartitionKey):
        if not room:
            raise Invalid(f"{path} {_TOO_DEEP}")
        if not isinstance(value, Mapping):
            return [_copied(item, f"{path}[{i}]", room - 1) for i, item in enumerate(value)]
        copy = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise Invalid(f"{path} has a key of type {_name(type(key))}; use a string")
            if key == "$float":
                raise Invalid(f"{path} has the key '$float', which marks floats; rename it")
            name = str.__str__(key)
            copy[name] = _copied(item, path + canonical.step(name), room - 1)
        return copy
    raise Invalid(
        f"{path} is of type {_name(type(value))}, which JSON cannot hold; use dicts, lists, strings,"
        " numbers, booleans or None"
    )


def _name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _encode(value: Any) -> Any:
    if isinstance(value, _KEYS):
        return value.canonical
    if isinstance(value, float):  # msgspec takes floats, and hands over what is a subclass of them
        return float(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise Invalid(
        f"the type {_name(type(value))} has no plain form; convert it to plain data first"
    )


def _decode(kind: type, value: Any) -> Any:
    if not issubclass(kind, _KEYS):
        raise NotImplementedError(f"{kind} has no plain form")
    return kind.parse(value)


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
            return canonical.read_float(text)
        return {key: _release(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_release(item) for item in value]
    return value
