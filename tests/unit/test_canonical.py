"""Canonical JSON: what it refuses, how it says so, and how floats are carried.

Exact bytes are in the golden vectors (test_golden_vectors.py), laws on random values in
tests/property/test_identity_properties.py.
"""

import enum
import sys
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from datetime import date
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import pytest

from servo.core import canonical
from servo.errors import Invalid


class Word(str):
    __slots__ = ()


class Number(int):
    pass


class Colour(enum.Enum):
    RED = "red"


class StringColour(enum.StrEnum):
    RED = "red"


class MixedColour(str, enum.Enum):  # noqa: UP042 - the older way, which prints itself differently
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Rude:
    """Whatever is asked of it fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")


class Float64(float):
    """Prints itself as NumPy's does."""

    def __repr__(self) -> str:
        return f"np.float64({float(self)!r})"

    __str__ = __repr__


Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - a plain one is what users have


def nested(depth: int, leaf: Any = None) -> Any:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


def refusal(value: Any) -> str:
    with pytest.raises(Invalid) as caught:
        canonical.dumps(value)
    message = str(caught.value)
    assert message.isprintable(), "one line that any terminal shows"
    return message


# ---------------------------------------------------------------- what is written


def test_tuple_is_written_as_a_list() -> None:
    assert canonical.dumps((1, (2, "x"))) == b'[1,[2,"x"]]'


def test_true_is_not_written_as_one() -> None:
    assert canonical.dumps([True, 1, False, 0]) == b"[true,1,false,0]"


def test_value_used_twice_is_written_twice() -> None:
    shared = {"a": [1]}
    assert canonical.dumps([shared, shared]) == b'[{"a":[1]},{"a":[1]}]'


def test_fingerprint_is_sha256_of_the_bytes() -> None:
    # sha256sum of the two bytes {}
    expected = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert canonical.fingerprint({}) == f"sha256:{expected}"


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (1.0, "$"),
        ([1.0], "$[0]"),
        ({"a": 1.0}, "$.a"),
        ({"a": [0, {"b_1": (True, 0.5)}]}, "$.a[1].b_1[1]"),
        ({"a b": {"": 0.5}}, "$['a b']['']"),
        ({"a\nb": 0.5}, "$['a\\nb']"),
        ({"é": {"1": 0.5}}, "$.é['1']"),
        ({"x": {"y": "fine", "z": 0.5}}, "$.x.z"),
    ],
)
def test_refusal_names_the_path(value: Any, path: str) -> None:
    assert refusal(value).startswith(f"canonical JSON: {path} is the float ")


@pytest.mark.parametrize("number", [1.0, -0.0, 1e300, float("nan"), float("inf"), float("-inf")])
def test_float_is_refused_and_shown(number: float) -> None:
    message = refusal({"x": number})
    assert repr(number) in message
    assert message.endswith("use an integer in a smaller unit, or canonical.carry_float")


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30, -(10**30)])
def test_integer_beyond_64_bits_is_refused(number: int) -> None:
    assert "$.n is the integer" in refusal({"n": number})


def test_integer_of_more_digits_than_python_prints_is_refused() -> None:
    assert "very many digits" in refusal([10**5000])


@pytest.mark.parametrize(
    "value",
    [
        Word("x"),
        Number(1),
        Colour.RED,
        StringColour.RED,
        MixedColour.RED,
        Level.LOW,
        Float64(0.5),
        OrderedDict(a=1),
        defaultdict(int),
        UserDict(),
        MappingProxyType({}),
        Pair(1, 2),
        {1, 2},
        frozenset(),
        b"x",
        bytearray(b"x"),
        range(3),
        date(2025, 1, 15),
        Decimal(1),
        Fraction(1),
        1j,
        object(),
        Ellipsis,
        int,
        len,
        iter([1]),
        Rude(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_exactly_plain_data_is_refused_by_its_type(value: Any) -> None:
    message = refusal({"x": [value]})
    assert message.startswith("canonical JSON: $.x[0] is a ")
    assert type(value).__qualname__ in message


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (1, "the key 1;"),
        (True, "the key True;"),
        (None, "the key None;"),
        (1.5, "the key 1.5;"),
        (b"a", "the key b'a';"),
        (10**5000, "the key of very many digits;"),
        ((1, 2), "a key of type builtins.tuple;"),
        (Word("a"), "Word;"),
        (StringColour.RED, "StringColour;"),
        (Rude(), "Rude;"),
    ],
    ids=["int", "bool", "None", "float", "bytes", "long int", "tuple", "str", "enum", "rude"],
)
def test_key_that_is_not_exactly_a_string_is_refused(key: Any, shown: str) -> None:
    message = refusal({"x": {key: 1}})
    assert message.startswith("canonical JSON: $.x has ")
    assert shown in message


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("\ud800", "$ holds"),
        (["a", "b\udfff"], "$[1] holds"),
        ({"a": {"b c": ["\udc00"]}}, "$.a['b c'][0] holds"),
        ({"x": {"\ud800": 1}}, "a key of $.x holds"),
        ({"x\n": "\ud83d"}, "$['x\\n'] holds"),
        (["\ude00\ud83d"], "$[0] holds"),
    ],
)
def test_lone_surrogate_is_refused_with_its_path(value: Any, path: str) -> None:
    assert refusal(value).startswith(f"canonical JSON: {path} a lone surrogate")


def test_pair_of_surrogates_that_python_joined_is_a_character() -> None:
    assert canonical.dumps("\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")) == (
        b'"\xf0\x9f\x98\x80"'
    )


# ---------------------------------------------------------------- depth


def test_nesting_has_the_same_limit_from_any_depth_of_the_stack() -> None:
    def deeper(frames: int) -> bytes:
        return canonical.dumps(nested(128)) if frames == 0 else deeper(frames - 1)

    assert deeper(sys.getrecursionlimit() // 2) == b"[" * 128 + b"null" + b"]" * 128


@pytest.mark.parametrize("depth", [129, 900, 1_000, 100_000])
def test_deeper_nesting_is_refused(depth: int) -> None:
    message = refusal(nested(depth))
    assert "nested deeper than 128 levels" in message
    assert len(message) < 300


def test_dicts_count_towards_the_depth() -> None:
    assert canonical.dumps({"a": nested(127)})
    assert "nested deeper" in refusal({"a": nested(128)})


def test_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append({"again": loop})
    assert "contains itself" in refusal(loop)


def test_lone_surrogate_in_the_deepest_place_is_found() -> None:
    assert "lone surrogate" in refusal(nested(128, "\ud800"))


def test_long_key_is_shortened_in_the_message() -> None:
    assert len(refusal({"k " * 10_000: 0.5})) < 300


# ---------------------------------------------------------------- floats


def test_float_of_a_subclass_is_carried_as_the_number_it_is() -> None:
    assert canonical.carry_float(Float64(0.8)) == {"$float": "0.8"}


def test_integer_given_as_a_float_is_carried_as_that_float() -> None:
    assert canonical.carry_float(1) == canonical.carry_float(1.0) == {"$float": "1.0"}


def test_integer_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(Invalid, match="use a finite number"):
        canonical.carry_float(10**400)


def test_refusal_of_a_long_float_text_is_short() -> None:
    with pytest.raises(Invalid) as caught:
        canonical.read_float("9" * 100_000)
    assert len(str(caught.value)) < 200
