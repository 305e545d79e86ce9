"""The graph of assets: who needs whom, and in which order that makes sense.

Vocabulary. An *upstream* of an asset is what it reads directly; a *downstream* reads it directly.
*Ancestors* and *descendants* are the same over any number of steps. A *stage* is a set of assets
that do not need each other: stage 0 has no upstreams, and an asset is one stage after the latest of
its upstreams (the longest path from a root).

Invariants, held by tests/property/test_graph_properties.py:

* A `Graph` that exists is sound: every upstream is in it, and there is no cycle.
* Nothing depends on the order in which assets or upstreams were given, nor on the hash seed. In
  `order`, of the assets that could come next the smallest canonical key does; every other tuple is
  sorted by canonical key. Of several mistakes, the one about the smallest key is reported.
* Depth is not bounded by Python's stack, and building costs O((V + E) log V).

What it is not: it knows nothing of partitions, policies or state. That is the plan's.
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Self

from servo.core.keys import AssetKey
from servo.errors import Invalid, did_you_mean

_canonical = attrgetter("canonical")


class Graph:
    """Assets and their upstreams; immutable. Iterating goes through `order`."""

    __slots__ = ("_downstreams", "_upstreams", "order", "stages")

    order: tuple[AssetKey, ...]
    """Every asset after all its upstreams; of those that could come next, the smallest key."""

    stages: tuple[tuple[AssetKey, ...], ...]
    """The assets by length of the longest path from a root; within a stage by key."""

    def __init__(self, upstreams: Mapping[AssetKey, Iterable[AssetKey]]) -> None:
        # Ranks stand in for keys below: comparing integers is what makes 10,000 assets cheap.
        keys = sorted(upstreams, key=_canonical)
        rank = {key: i for i, key in enumerate(keys)}
        above = [_ranks(key, upstreams[key], rank) for key in keys]
        below: list[list[int]] = [[] for _ in keys]
        for i, ranks in enumerate(above):
            for upstream in ranks:
                below[upstream].append(i)

        waiting = [len(ranks) for ranks in above]
        stage = [0] * len(keys)
        ready = [i for i, count in enumerate(waiting) if count == 0]  # sorted, hence a heap
        order: list[int] = []
        while ready:
            i = heapq.heappop(ready)
            order.append(i)
            for downstream in below[i]:
                stage[downstream] = max(stage[downstream], stage[i] + 1)
                waiting[downstream] -= 1
                if waiting[downstream] == 0:
                    heapq.heappush(ready, downstream)
        if len(order) < len(keys):
            path = " → ".join(str(keys[i]) for i in _cycle(above, below, waiting))
            raise Invalid(
                f"assets need each other in a cycle: {path} (each feeds the next);"
                " remove one of these dependencies"
            )

        stages: list[list[AssetKey]] = [[] for _ in range(max(stage, default=-1) + 1)]
        for key, number in zip(keys, stage, strict=True):
            stages[number].append(key)
        self.order = tuple(keys[i] for i in order)
        self.stages = tuple(map(tuple, stages))
        self._upstreams = {keys[i]: tuple(keys[u] for u in above[i]) for i in order}
        self._downstreams = {keys[i]: tuple(keys[d] for d in below[i]) for i in order}

    @classmethod
    def of(cls, pairs: Iterable[tuple[AssetKey, Iterable[AssetKey]]]) -> Self:
        """From definitions as they were found, where one key may occur twice: that is refused."""
        found = list(pairs)
        times = Counter(key for key, _ in found)
        if len(times) < len(found):
            twice = min(key for key, count in times.items() if count > 1)
            raise Invalid(
                f"asset '{twice}' is defined {times[twice]} times;"
                " rename or remove all definitions but one"
            )
        return cls(dict(found))

    def upstreams(self, key: AssetKey) -> tuple[AssetKey, ...]:
        """What `key` reads directly, by key."""
        return self._upstreams[self._known(key)]

    def downstreams(self, key: AssetKey) -> tuple[AssetKey, ...]:
        """What reads `key` directly, by key."""
        return self._downstreams[self._known(key)]

    def ancestors(self, keys: Iterable[AssetKey], depth: int | None = None) -> frozenset[AssetKey]:
        """What at least one of `keys` needs, over at most `depth` steps (None: any number).

        A key is no ancestor of itself, so one of `keys` is in the answer only if another needs it.
        """
        return self._reach(self._upstreams, keys, depth)

    def descendants(
        self, keys: Iterable[AssetKey], depth: int | None = None
    ) -> frozenset[AssetKey]:
        """What needs at least one of `keys`, over at most `depth` steps: `ancestors`, inverted."""
        return self._reach(self._downstreams, keys, depth)

    def __contains__(self, key: object) -> bool:
        return key in self._upstreams

    def __iter__(self) -> Iterator[AssetKey]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)

    def __repr__(self) -> str:
        return f"<Graph of {len(self)} assets in {len(self.stages)} stages>"

    def _reach(
        self,
        steps: Mapping[AssetKey, tuple[AssetKey, ...]],
        keys: Iterable[AssetKey],
        depth: int | None,
    ) -> frozenset[AssetKey]:
        if depth is not None and depth < 0:
            raise Invalid(f"depth {depth} is negative; use 0 or more, or None for no limit")
        reached: set[AssetKey] = set()
        frontier = {self._known(key) for key in keys}
        while frontier and depth != 0:
            frontier = {there for here in frontier for there in steps[here]} - reached
            reached |= frontier
            depth = None if depth is None else depth - 1
        return frozenset(reached)

    def _known(self, key: AssetKey) -> AssetKey:
        if key not in self._upstreams:
            hint = did_you_mean(str(key), map(str, self.order)) or "; check the spelling"
            raise Invalid(f"there is no asset '{key}'{hint}")
        return key


def _ranks(
    asset: AssetKey, upstreams: Iterable[AssetKey], rank: Mapping[AssetKey, int]
) -> list[int]:
    """The upstreams of one asset as sorted ranks, each once; or what is wrong with them."""
    given = tuple(upstreams)
    try:
        ranks = {rank[key] for key in given}
    except KeyError:
        missing = min(key for key in given if key not in rank)
    else:
        if rank[asset] in ranks:
            raise Invalid(f"asset '{asset}' depends on itself; remove it from its own upstreams")
        return sorted(ranks)
    hint = (
        did_you_mean(str(missing), (str(key) for key in rank if key != asset))
        or "; define that asset, or remove it from the upstreams"
    )
    raise Invalid(f"asset '{asset}' depends on '{missing}', which does not exist{hint}")


def _cycle(above: list[list[int]], below: list[list[int]], waiting: list[int]) -> list[int]:
    """One cycle, from its smallest key along the data back to it; `waiting` is non-zero for what
    could not be ordered: the assets on cycles and those that need them."""
    # Whatever is stuck has a stuck upstream, so walking up must come back to where it has been.
    walk: dict[int, None] = {}
    here = next(i for i, count in enumerate(waiting) if count)
    while here not in walk:
        walk[here] = None
        here = next(i for i in above[here] if waiting[i])
    visited = list(walk)
    smallest = min(visited[visited.index(here) :])

    # That walk may have gone a long way round: show a shortest one that starts at its smallest key.
    came_from: dict[int, int] = {}
    queue = deque([smallest])
    while smallest not in came_from:
        here = queue.popleft()
        for there in below[here]:
            if there >= smallest and there not in came_from:
                came_from[there] = here
                queue.append(there)
    path = [smallest]
    while len(path) == 1 or path[-1] != smallest:
        path.append(came_from[path[-1]])
    return path[::-1]
