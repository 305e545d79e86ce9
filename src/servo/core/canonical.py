"""The one canonical JSON, and fingerprints over it.

Whatever is fingerprinted, signed or compared across machines and languages goes through `dumps`:
keys sorted by code point, no spaces, raw UTF-8, integers only. Floats are refused, even whole
ones, because languages disagree on how to spell them; a user's float travels as
`{"$float": "0.8"}` (see `carry_float`). Nesting has a fixed limit, because what fits must not depend
on the stack of the machine that asks. Golden vectors: tests/vectors/canonical.json.
"""

import hashlib
import math
from typing import Any

import msgspec

from servo.errors import Invalid

INT_MIN = -(2**63)
INT_MAX = 2**64 - 1
MAX_DEPTH = 128
"""How many lists and dicts may lie within each other; `[]` is one."""

_encode = msgspec.json.Encoder(order="sorted").encode
_SCALARS = frozenset({str, bool, type(None)})


def dumps(value: Any) -> bytes:
    """The canonical JSON of plain data: dict, list, tuple, str, int, bool and None, nothing else."""
    try:
        _check(value, MAX_DEPTH)
    except _NotPlain as found:
        raise Invalid(found.message()) from None
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
    # A subclass (NumPy's) may print itself differently, and an integer is a float to type checkers.
    try:
        exact = float(value)
    except OverflowError:
        exact = math.inf
    if not math.isfinite(exact):
        raise Invalid(f"{exact!r} cannot be stored: use a finite number, or None for 'no value'")
    return {"$float": repr(exact)}


def read_float(text: str) -> float:
    """The inverse of `carry_float`; refuses every other spelling, so that reading and writing again
    gives the same bytes."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or repr(value) != text:
        raise Invalid(
            f"{{'$float': {_short(text)}}} is not a float in its shortest spelling, such as '0.8'"
        )
    return value


def step(key: str) -> str:
    """How a key is written in a path: `.name`, or `['a b']`."""
    return f".{key}" if key.isidentifier() else f"[{_short(key)}]"


class _NotPlain(Exception):
    """Found something that is not plain data. The path is built on the way out, so that checking
    good values costs nothing for it."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[str] = []

    def message(self) -> str:
        steps = self.steps[::-1]
        if len(steps) > 40:
            steps = [*steps[:20], "…", *steps[-20:]]
        return f"canonical JSON: ${''.join(steps)} {self.problem}"


def _check(value: Any, room: int) -> None:
    kind = type(value)
    if kind in _SCALARS:
        return
    if kind is int:
        if not INT_MIN <= value <= INT_MAX:
            raise _NotPlain(
                f"is the integer {_short(value)}, outside [-2^63, 2^64-1]; carry it as a string"
            )
    elif kind is dict:
        if not room:
            raise _NotPlain(_TOO_DEEP)
        for key, item in value.items():
            if type(key) is not str:
                raise _NotPlain(f"has {_key(key)}; keys must be plain strings")
            kind = type(item)
            if kind in _SCALARS or (kind is int and INT_MIN <= item <= INT_MAX):
                continue
            try:
                _check(item, room - 1)
            except _NotPlain as found:
                found.steps.append(step(key))
                raise
    elif kind is list or kind is tuple:
        if not room:
            raise _NotPlain(_TOO_DEEP)
        for index, item in enumerate(value):
            kind = type(item)
            if kind in _SCALARS or (kind is int and INT_MIN <= item <= INT_MAX):
                continue
            try:
                _check(item, room - 1)
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
            " are plain data, so convert it to one of them"
        )


_TOO_DEEP = f"is nested deeper than {MAX_DEPTH} levels, or contains itself; flatten it"


def _find_surrogate(value: Any, path: str) -> str:
    if isinstance(value, str):
        return path if any("\ud800" <= c <= "\udfff" for c in value) else ""
    if isinstance(value, dict):
        for key, item in value.items():
            if _find_surrogate(key, path):
                return f"a key of {path}"
            if found := _find_surrogate(item, path + step(key)):
                return found
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if found := _find_surrogate(item, f"{path}[{index}]"):
                return found
    return ""


def _key(key: object) -> str:
    # Only what prints itself safely is shown; anything else may run a user's code.
    if type(key) in (int, float, bool, bytes, type(None)):
        return f"the key {_short(key)}"
    return f"a key of type {type(key).__module__}.{type(key).__qualname__}"


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        return "of very many digits"
    return text if len(text) <= 40 else text[:37] + "..."
