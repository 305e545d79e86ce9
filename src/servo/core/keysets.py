"""Sets of partition keys that are never enumerated.

A `PartitionSet` is a product of index ranges (*picks*) on axes, minus a sorted list of holes; the last
dimension (by name) varies fastest. Counting, membership, n-th key, slices, ranges and "which are
missing" cost a few steps per axis (and per hole), whatever the size: a hundred years of hours in fifty
regions is no larger than its definition.
"""

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from servo.core.axes import Axis, Holes, TimeAxis, Window
from servo.core.dimensions import scalar_label
from servo.core.keys import PartitionKey, Scalar, normal_scalar, spell_scalar
from servo.errors import Invalid, did_you_mean

_NO_HOLES = Holes(())


class Picks:
    """Some indexes of an axis: sorted, disjoint, non-empty ranges."""

    __slots__ = ("_before", "_starts", "count", "ranges")

    def __init__(self, ranges: Iterable[range]) -> None:
        merged: list[range] = []
        for each in sorted((r for r in ranges if r), key=lambda r: r.start):
            if merged and each.start <= merged[-1].stop:
                merged[-1] = range(merged[-1].start, max(merged[-1].stop, each.stop))
            else:
                merged.append(each)
        self.ranges = merged
        self._starts = [r.start for r in merged]
        self._before = list(itertools.accumulate((len(r) for r in merged), initial=0))
        self.count = self._before[-1]

    @classmethod
    def all(cls, count: int) -> "Picks":
        return cls((range(count),))

    @classmethod
    def of(cls, indexes: Iterable[int]) -> "Picks":
        return cls(range(i, i + 1) for i in indexes)

    def index(self, position: int) -> int:
        at = bisect.bisect_right(self._before, position) - 1
        return self.ranges[at].start + position - self._before[at]

    def find(self, index: int) -> int | None:
        at = bisect.bisect_right(self._starts, index) - 1
        if at < 0 or index >= self.ranges[at].stop:
            return None
        return self._before[at] + index - self._starts[at]

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(self.ranges)

    def __and__(self, other: "Picks") -> "Picks":
        found, i, j = [], 0, 0
        while i < len(self.ranges) and j < len(other.ranges):
            a, b = self.ranges[i], other.ranges[j]
            found.append(range(max(a.start, b.start), min(a.stop, b.stop)))
            i, j = (i + 1, j) if a.stop < b.stop else (i, j + 1)
        return Picks(found)


class PartitionSet(Sequence[PartitionKey]):
    """Partition keys in order, as a product of picks on axes minus holes (numbers in the product).

    Behaves as a sequence; `len` may exceed any memory.
    """

    __slots__ = ("_holes", "_size", "axes", "names", "picks")

    def __init__(
        self,
        names: tuple[str, ...],
        axes: tuple[Axis, ...],
        picks: tuple[Picks, ...],
        holes: Holes = _NO_HOLES,
    ) -> None:
        self.names = names
        self.axes = axes
        self.picks = picks
        self._holes = holes
        self._size = 1
        for pick in picks:
            self._size *= pick.count

    @property
    def size(self) -> int:
        """How many keys there are; `len` is the same, and cannot say more than 2^63 - 1."""
        return self._size - len(self._holes.numbers)

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    @overload
    def __getitem__(self, at: int) -> PartitionKey: ...
    @overload
    def __getitem__(self, at: slice) -> "KeySlice": ...
    def __getitem__(self, at: int | slice) -> "PartitionKey | KeySlice":
        numbers = range(self.size)
        if isinstance(at, slice):
            return KeySlice(self, numbers[at])
        return self._key(self._holes.skip(numbers[at]))

    def _key(self, number: int) -> PartitionKey:
        values: list[Scalar] = []
        for axis, pick in zip(reversed(self.axes), reversed(self.picks), strict=True):
            number, position = divmod(number, pick.count)
            values.append(axis.value(pick.index(position)))
        return _make_key(self.names, values[::-1])

    def __contains__(self, key: object) -> bool:
        return self.find(key) is not None

    def find(self, key: object) -> int | None:
        """The number of a key in this set, or None."""
        if not isinstance(key, PartitionKey):
            return None
        numbers = self._numbers((key,))
        return self._holes.find(numbers[0]) if numbers else None

    def index(self, key: Any, start: int = 0, stop: int | None = None) -> int:
        found = self.find(key)
        if found is None or found not in range(self.size)[start:stop]:
            raise ValueError(f"{key} is not in this set of partitions")
        return found

    def count(self, key: object) -> int:
        return int(key in self)

    def _numbers(self, keys: Iterable[PartitionKey]) -> list[int]:
        """The numbers of those keys that are in the product. Many keys share their parts, so each
        part is looked up once, by its spelling; and all keys are cut into parts in one go, because
        a list for each would wake the garbage collector."""
        size = len(self.names)
        spelled = [text for key in keys if (text := key.canonical).count(",") == size - 1]
        if not spelled or not self._size:
            return []
        parts = ",".join(spelled).split(",")
        columns: list[Iterable[int]] = []
        stride, outside = 1, -self._size  # a sum with that in it is negative
        for at in range(size - 1, -1, -1):
            column = parts[at::size]
            prefix = f"{self.names[at]}="
            find, position = self.axes[at].find, self.picks[at].find
            steps = {}
            for part in dict.fromkeys(column):
                index = find(part[len(prefix) :]) if part.startswith(prefix) else None
                found = None if index is None else position(index)
                steps[part] = outside if found is None else found * stride
            columns.append(map(steps.__getitem__, column))
            stride *= self.picks[at].count
        return [number for number in map(sum, zip(*columns, strict=True)) if number >= 0]

    def __iter__(self) -> Iterator[PartitionKey]:
        holes = iter(self._holes.numbers)
        hole = next(holes, None)
        # What does not change with every key is spelled once.
        parts: list[list[tuple[str, Scalar]]] = []
        for name, axis, pick in zip(self.names[1:], self.axes[1:], self.picks[1:], strict=True):
            values = [axis.value(i) for i in pick]
            parts.append([(f"{name}={spell_scalar(v)}", v) for v in values])
        number = 0
        first, axis = self.names[0], self.axes[0]
        for i in self.picks[0]:
            value = axis.value(i)
            head = (f"{first}={spell_scalar(value)}", value)
            for rest in itertools.product(*parts):
                if number == hole:
                    hole = next(holes, None)
                else:
                    chosen = (head, *rest)
                    yield PartitionKey._trusted(
                        dict(zip(self.names, (v for _, v in chosen), strict=True)),
                        ",".join(text for text, _ in chosen),
                    )
                number += 1

    def missing(self, present: Iterable[PartitionKey]) -> "PartitionSet":
        """The keys of this set that are not among `present` (which may hold others too)."""
        numbers = {*self._numbers(present), *self._holes.numbers}
        return PartitionSet(self.names, self.axes, self.picks, Holes(sorted(numbers)))

    def where(self, /, **choices: "Choice | Iterable[Choice]") -> "PartitionSet":
        """The keys with these values on these dimensions: a value, a label, a range `"a..b"` (both
        ends included, either may be left out), or several of them."""
        picks = list(self.picks)
        for name, choice in choices.items():
            if name not in self.names:
                known = ", ".join(self.names)
                raise Invalid(
                    f"there is no partition dimension {name!r}{did_you_mean(name, self.names)};"
                    f" the dimensions are: {known}"
                )
            at = self.names.index(name)
            several = (
                choice if isinstance(choice, Iterable) and not isinstance(choice, str) else [choice]
            )
            chosen = Picks(_choose(self.axes[at], name, each) for each in several)
            picks[at] = picks[at] & chosen
        return self._rebuilt(picks)

    def between(self, first: PartitionKey, last: PartitionKey) -> "PartitionSet":
        """From one key to another, both included, on every dimension by itself."""
        picks = []
        for name, axis, pick in zip(self.names, self.axes, self.picks, strict=True):
            ends = []
            for key in (first, last):
                index = axis.find(spell_scalar(key[name])) if name in key else None
                if index is None:
                    raise Invalid(f"the partition {key} does not exist here; check {name!r}")
                ends.append(index)
            picks.append(pick & Picks([range(ends[0], ends[1] + 1)]))
        return self._rebuilt(picks)

    def _rebuilt(self, picks: Sequence[Picks]) -> "PartitionSet":
        smaller = PartitionSet(self.names, self.axes, tuple(picks))
        if not self._holes.numbers:
            return smaller
        # Holes are numbers of the old product: give each its number in the new one.
        return smaller.missing(self._key(number) for number in self._holes.numbers)

    def latest(self, names: Iterable[str] | None = None) -> "PartitionSet":
        """The last window of the named time dimensions (of all, if not given), with everything on
        the others."""
        wanted = self.names if names is None else set(names)
        picks = [
            Picks.of([pick.index(pick.count - 1)])
            if name in wanted and isinstance(axis, TimeAxis) and pick.count
            else pick
            for name, axis, pick in zip(self.names, self.axes, self.picks, strict=True)
        ]
        return self._rebuilt(picks)

    def window(self, key: PartitionKey) -> Window:
        """The window of a key with exactly one time dimension."""
        times = [
            (n, a) for n, a in zip(self.names, self.axes, strict=True) if isinstance(a, TimeAxis)
        ]
        if len(times) != 1:
            raise Invalid(f"a time window needs one time dimension; {key} has {len(times)}")
        name, axis = times[0]
        index = axis.find(spell_scalar(key[name])) if name in key else None
        if index is None:
            raise Invalid(f"the partition {key} does not exist")
        return axis.window(index)

    def label(self, key: PartitionKey) -> str:
        """A key as people read it: `date=2024-01-15, region=eu`."""
        shown = []
        for name, axis in zip(self.names, self.axes, strict=True):
            index = axis.find(spell_scalar(key[name]))
            shown.append(
                f"{name}={scalar_label(key[name]) if index is None else axis.label(index)}"
            )
        return ", ".join(shown)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionSet):
            return NotImplemented
        if (self.names, self.axes) == (other.names, other.axes):
            # The same axes, so the same picks and holes are the same keys: no need to look at them.
            mine = [pick.ranges for pick in self.picks], self._holes.numbers
            if mine == ([pick.ranges for pick in other.picks], other._holes.numbers):
                return True
        return self.size == other.size and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # compared by content, which may be endless to hash

    def __repr__(self) -> str:
        return f"<{self.size} partitions by {', '.join(self.names)}>"


class KeySlice(Sequence[PartitionKey]):
    """A slice of a set; made without making its keys."""

    __slots__ = ("_numbers", "_of")

    def __init__(self, of: PartitionSet, numbers: range) -> None:
        self._of = of
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> PartitionKey: ...
    @overload
    def __getitem__(self, at: slice) -> "KeySlice": ...
    def __getitem__(self, at: int | slice) -> "PartitionKey | KeySlice":
        if isinstance(at, slice):
            return KeySlice(self._of, self._numbers[at])
        return self._of[self._numbers[at]]

    def __contains__(self, key: object) -> bool:
        return self._of.find(key) in self._numbers

    def index(self, key: Any, start: int = 0, stop: int | None = None) -> int:
        found = self._of.find(key)
        if found is None or found not in self._numbers[start:stop]:
            raise ValueError(f"{key} is not in this slice of partitions")
        return self._numbers.index(found)

    def count(self, key: object) -> int:
        return int(key in self)


Choice = Scalar
"""A typed value, or a text: a label, a spelled value, or a range of either."""


def _choose(axis: Axis, name: str, choice: Choice) -> range:
    if isinstance(choice, str):
        # A listed value may itself contain two dots: it wins over the range.
        if ".." in choice and not _has(axis, choice):
            first, last = _ends(axis, choice)
            low = axis.bound(first, last=False) if first else 0
            high = axis.bound(last, last=True) if last else axis.count - 1
            if high < low and (first or last):
                raise Invalid(f"the range {name}={choice} {_empty(axis, first, last)}")
            return range(low, high + 1)
        return axis.stretch(choice)
    else:
        index = axis.locate(spell_scalar(normal_scalar(choice, name)))
    return range(index, index + 1)


def _empty(axis: Axis, first: str, last: str) -> str:
    """Why a range holds nothing."""
    if not axis.count:
        return "holds no key; no window of it has ended yet"
    if first and last and axis.bound(last, last=False) <= axis.bound(first, last=True):
        return "runs backwards; swap its ends"
    return f"holds no key; there are {axis.label(0)} to {axis.label(axis.count - 1)}"


def _ends(axis: Axis, choice: str) -> tuple[str, str]:
    """The two ends of a range, either of which may contain two dots, too."""
    cuts = [at for at in range(len(choice) - 1) if choice[at : at + 2] == ".."]
    ends = [(choice[:at], choice[at + 2 :]) for at in cuts]
    if len(ends) > 1:
        for first, last in ends:
            if (not first or _has(axis, first)) and (not last or _has(axis, last)):
                return first, last
    return ends[0]


def _has(axis: Axis, text: str) -> bool:
    try:
        axis.locate(text)
    except Invalid:
        return False
    return True


def _make_key(names: Sequence[str], values: Sequence[Scalar]) -> PartitionKey:
    return PartitionKey._trusted(
        dict(zip(names, values, strict=True)),
        ",".join(f"{n}={spell_scalar(v)}" for n, v in zip(names, values, strict=True)),
    )
