"""Chance from a seed: every choice that a simulation makes, made again by the same seed.

A generator is a stream (SplitMix64). `fork(name)` is another stream that depends on the seed and the
names on the way to it, never on how much was drawn: code that draws once more shifts its own stream
and no other, so that a seed keeps its meaning when something else changes.

Not for secrets, and not for statistics that matter beyond "anything may happen".
"""

import hashlib
from collections.abc import MutableSequence, Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = 2**64 - 1


class Chance:
    def __init__(self, seed: int, path: str = "") -> None:
        self.seed = seed
        self.path = path
        root = hashlib.sha256(f"{seed}{path}".encode()).digest()
        self._state = int.from_bytes(root[:8], "big")

    def __repr__(self) -> str:
        return f"Chance({self.seed}{self.path})"

    def fork(self, name: str) -> "Chance":
        return Chance(self.seed, f"{self.path}/{name}")

    def _next(self) -> int:
        self._state = state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        return state ^ state >> 31

    def bits(self, count: int) -> int:
        """A number of `count` random bits."""
        value = 0
        for _ in range(0, count, 64):
            value = value << 64 | self._next()
        return value >> -count % 64

    def below(self, limit: int) -> int:
        """A whole number from 0 up to, and without, `limit`."""
        if limit < 1:
            raise ValueError(f"nothing is below {limit}")
        return self._next() * limit >> 64

    def chance(self, probability: float) -> bool:
        # What cannot happen draws nothing: a fault that is switched off costs no time.
        return probability > 0 and self._next() < probability * 2**64

    def choose(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def delay(self, low: int, high: int) -> float:
        """Seconds for a timer: a whole number of microseconds from `low` to `high`."""
        return (low + self.below(high - low + 1)) / 1_000_000
