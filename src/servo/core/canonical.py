"""The one canonical JSON, and fingerprints over it.

Whatever is fingerprinted, signed or compared across machines and languages goes through `dumps`:
keys sorted by code point, no spaces, raw UTF-8, integers only. Floats are refused, even whole
ones, because languages disagree on how to spell them; a user's float travels as
`{"$float": "0.8"}` (see `carry_float`). Golden vectors: tests/vectors/canonical.json.
"""

import hashlib
import math
from typing import Any

import msgspec

from servo.errors import Invalid

INT_MIN = -(2**63)
INT_MAX = 2**64 - 1

_encode = msgspec.json.Encoder(order="sorted").encode
_SCALARS = frozenset({str, bool, type(None)})


def dumps(value: Any) -> bytes:
    """The canonical JSON of plain data: dict, list, tuple, str, int, bool and None, nothing else."""
    try:
        _check(value)
    except _NotPlain as found:
        raise Invalid(found.message()) from None
    except RecursionError:
        raise Invalid(
            "canonical JSON: the value is nested too deeply or contains itself; flatten it"
        ) from None
    try:
        return _encode(value)
    except UnicodeEncodeError:
        # The encoder does not say where: look for the string only now that one is known to exist.
        path = _find_surrogate(value, "$")
        raise Invalid(
            f"canonical JSON: {path} holds a lone surrogate, which UTF-8 cannot carry; "
            "replace the broken character"
        ) from None


def fingerprint(value: Any) -> str:
    """`sha256:` and the hex digest of the canonical JSON of `value`."""
    return "sha256:" + hashlib.sha256(dumps(value)).hexdigest()


def carry_float(value: float) -> dict[str, str]:
    """How a user's float enters canonical JSON: its shortest decimal spelling, marked as such."""
    if not math.isfinite(value):
        raise Invalid(f"{value!r} cannot be stored: use a finite number, or None for 'no value'")
    return {"$float": repr(value)}


class _NotPlain(Exception):
    """Found something that is not plain data. The path is built on the way out, so that checking
    good values costs nothing for it."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[str] = []

    def message(self) -> str:
        return f"canonical JSON: ${''.join(reversed(self.steps))} {self.problem}"


def _check(value: Any) -> None:
    kind = type(value)
    if kind in _SCALARS:
        return
    if kind is int:
        if not INT_MIN <= value <= INT_MAX:
            raise _NotPlain(
                f"is the integer {_short(value)}, outside [-2^63, 2^64-1]; carry it as a string"
            )
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise _NotPlain(f"has the key {_short(key)}; keys must be strings")
            if type(item) not in _SCALARS:
                try:
                    _check(item)
                except _NotPlain as found:
                    found.steps.append(f".{key}" if key.isidentifier() else f"[{key!r}]")
                    raise
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            if type(item) not in _SCALARS:
                try:
                    _check(item)
                except _NotPlain as found:
                    found.steps.append(f"[{index}]")
                    raise
    elif kind is float:
        raise _NotPlain(
            f"is the float {value!r}; use an integer in a smaller unit, or canonical.carry_float"
        )
    else:
        raise _NotPlain(
            f"is a {kind.__module__}.{kind.__qualname__}; only dict, list, str, int, bool and None"
            " are plain data"
        )


def _find_surrogate(value: Any, path: str) -> str:
    if isinstance(value, str):
        return path if any("\ud800" <= c <= "\udfff" for c in value) else ""
    if isinstance(value, dict):
        for key, item in value.items():
            if _find_surrogate(key, path):
                return f"a key of {path}"
            if found := _find_surrogate(item, f"{path}.{key}"):
                return found
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if found := _find_surrogate(item, f"{path}[{index}]"):
                return found
    return ""


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        return "of very many digits"
    return text if len(text) <= 40 else text[:37] + "..."
