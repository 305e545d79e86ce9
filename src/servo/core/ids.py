"""Generated ids (ULIDs) and ids derived by hashing.

A generated id is a ULID: 26 characters of Crockford's base 32, 48 bits of milliseconds and 80 bits
of randomness. Ids never decide an order (places in the ledger do); they sort by time only as a
convenience for people. A derived id (`queue_id`) says what it is derived from and is the same
wherever it is computed.

Nothing here reads a clock or a random source: `UlidSource` is handed both.
"""

import hashlib
import re
import threading
from collections.abc import Callable

from servo.errors import Invalid

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUE = {c: i for i, c in enumerate(_ALPHABET)} | {
    c.lower(): i for i, c in enumerate(_ALPHABET) if c.isalpha()
}
ULID_LENGTH = 26
_TIME_LENGTH = 10
_MAX_TIME = 2**48 - 1
_MAX_RANDOM = 2**80 - 1
# Two characters at a time: half the steps, in a table of 1,024.
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_KIND = re.compile(r"[a-z]\Z")


def base32_encode(value: int, length: int) -> str:
    """`value` in exactly `length` characters of Crockford's base 32."""
    if not 0 <= value < 32**length:
        raise Invalid(f"{_shown(value)} does not fit into {length} base-32 characters")
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(5 * (length - 1), -1, -5))


def base32_decode(text: str) -> int:
    value = 0
    for index, char in enumerate(text):
        digit = _VALUE.get(char)
        if digit is None:
            raise Invalid(
                f"{text!r} is not base 32: character {char!r} is not in {_ALPHABET}", position=index
            )
        value = value << 5 | digit
    return value


def base32_increment(text: str) -> str:
    """The next text of the same length; the last one has none."""
    return base32_encode(base32_decode(text) + 1, len(text))


def encode_time(milliseconds: int) -> str:
    """The time part of a ULID."""
    if not 0 <= milliseconds <= _MAX_TIME:
        raise Invalid(
            f"{_shown(milliseconds)} ms is outside the times a ULID can hold (0 to {_MAX_TIME})"
        )
    pairs, high, low = _PAIRS, milliseconds >> 30, milliseconds & 0x3FFF_FFFF
    return (
        f"{pairs[high >> 10]}{pairs[high & 1023]}"
        f"{pairs[low >> 20]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


def make_ulid(milliseconds: int, randomness: int) -> str:
    return encode_time(milliseconds) + _encode_random(randomness)


def _encode_random(value: int) -> str:
    if not 0 <= value <= _MAX_RANDOM:
        raise Invalid(f"{_shown(value)} does not fit into 16 base-32 characters")
    # Two halves, so that most of the shifting is done on small numbers.
    pairs, high, low = _PAIRS, value >> 40, value & 0xFF_FFFF_FFFF
    return (
        f"{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}"
        f"{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


def parse_ulid(text: str) -> str:
    """The canonical (upper-case) spelling of a ULID; anything else is refused, also the look-alike
    letters I, L, O and U."""
    if not isinstance(text, str):
        raise Invalid(f"a ULID is a string of 26 characters, not {type(text).__name__}")
    if len(text) != ULID_LENGTH:
        raise Invalid(f"{text!r} is not a ULID: it has {len(text)} characters instead of 26")
    if base32_decode(text) >= 2**128:
        raise Invalid(f"{text!r} is not a ULID: it is larger than 7ZZZZZZZZZZZZZZZZZZZZZZZZZ")
    return text.upper()


def ulid_milliseconds(ulid: str) -> int:
    return base32_decode(parse_ulid(ulid)[:_TIME_LENGTH])


def ulid_bytes(ulid: str) -> bytes:
    """The 16 bytes a ULID stands for (what a UUID column holds)."""
    return base32_decode(parse_ulid(ulid)).to_bytes(16, "big")


def increment_ulid(ulid: str) -> str:
    """The next ULID of the same millisecond; refused when its randomness is used up."""
    parsed = parse_ulid(ulid)
    return parsed[:_TIME_LENGTH] + base32_increment(parsed[_TIME_LENGTH:])


class UlidSource:
    """Makes ULIDs that only grow within a process, whatever the clock does.

    Within one millisecond, or when the clock goes back, the last id is incremented. When the
    80 random bits of a millisecond are used up, the next millisecond is taken instead.
    """

    def __init__(self, milliseconds: Callable[[], int], random_bits: Callable[[int], int]) -> None:
        self._milliseconds = milliseconds
        self._random_bits = random_bits
        self._lock = threading.Lock()
        self._time = -1
        self._random = 0
        self._beginning = ""

    def __call__(self) -> str:
        with self._lock:
            now = self._milliseconds()
            if now > self._time:
                time, random = now, self._random_bits(80)
            elif self._random < _MAX_RANDOM:
                time, random = self._time, self._random + 1
                if self._beginning and random & 1023:
                    # Only the last two characters differ: the common case in a busy process.
                    self._random = random
                    return self._beginning + _PAIRS[random & 1023]
            else:
                time, random = self._time + 1, self._random_bits(80)
            # Kept only once it is known to be an id: a clock that is wrong for a moment, beyond what
            # a ULID can hold, must not spoil every later one.
            ulid = make_ulid(time, random)
            self._time, self._random, self._beginning = time, random, ulid[:-2]
            return ulid


def queue_id(kind: str, internal_id: str) -> str:
    """An id that any queue accepts as a name, derived from a readable internal one.

    `kind` is one letter: `d` dispatch, `t` timer, `a` attempt, `p` partition folder,
    `v` deployment.
    """
    if not _KIND.match(kind):
        raise Invalid(f"queue id: the kind {kind!r} is not one lower-case letter, such as 'd'")
    try:
        digest = hashlib.sha256(internal_id.encode()).digest()
    except UnicodeEncodeError:
        raise Invalid(
            f"queue id: {internal_id!r} holds a lone surrogate; replace the broken character"
        ) from None
    # The first 26 characters of the digest in RFC 4648's base 32, in lower case: 13 pairs.
    bits = int.from_bytes(digest[:17], "big") >> 6
    return f"{kind}_" + "".join([_QUEUE_PAIRS[bits >> shift & 1023] for shift in _SHIFTS])


_RFC4648 = "abcdefghijklmnopqrstuvwxyz234567"
_QUEUE_PAIRS = [a + b for a in _RFC4648 for b in _RFC4648]
_SHIFTS = range(120, -1, -10)


def _shown(value: int) -> str:
    """A number for a message; Python refuses to print very long ones."""
    return str(value) if value.bit_length() <= 128 else f"a number of {value.bit_length()} bits"
