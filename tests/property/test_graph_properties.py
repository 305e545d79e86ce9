"""Laws of the graph, on random graphs."""

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from servo.core.graph import Graph
from servo.core.keys import AssetKey
from servo.errors import Invalid

Upstreams = dict[AssetKey, list[AssetKey]]

KEYS = [AssetKey(namespace, name) for namespace in ("a", "b") for name in "pqrst"]


@st.composite
def acyclic(draw: st.DrawFn) -> Upstreams:
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True))
    return {
        key: draw(st.lists(st.sampled_from(keys[:i]), unique=True)) if i else []
        for i, key in enumerate(keys)
    }


@st.composite
def anything(draw: st.DrawFn) -> Upstreams:
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True))
    return {k: draw(st.lists(st.sampled_from([o for o in keys if o != k] or KEYS))) for k in keys}


def shuffled(upstreams: Upstreams, seed: int) -> Upstreams:
    rng = random.Random(seed)  # seeded, so that Hypothesis can replay it
    keys = rng.sample(list(upstreams), len(upstreams))
    return {key: rng.sample(upstreams[key], len(upstreams[key])) for key in keys}


def paths(upstreams: Upstreams) -> dict[tuple[AssetKey, AssetKey], set[int]]:
    """(asset, what it needs) -> the lengths of the ways there, found the slow and sure way."""
    found: dict[tuple[AssetKey, AssetKey], set[int]] = {}
    reached = [(key, key) for key in upstreams]
    for length in range(1, len(upstreams) + 1):
        reached = list({(start, up) for start, here in reached for up in upstreams[here]})
        for pair in reached:
            found.setdefault(pair, set()).add(length)
    return found


@given(acyclic())
def test_every_asset_comes_after_its_upstreams(upstreams: Upstreams) -> None:
    order = Graph(upstreams).order
    assert sorted(order) == sorted(upstreams)
    place = {key: i for i, key in enumerate(order)}
    assert all(place[up] < place[key] for key, ups in upstreams.items() for up in ups)


@given(acyclic())
def test_no_smaller_key_could_have_come_earlier(upstreams: Upstreams) -> None:
    order = Graph(upstreams).order
    for i, key in enumerate(order):
        ready = [k for k in order[i:] if set(upstreams[k]) <= set(order[:i])]
        assert key == min(ready)


@given(acyclic(), st.integers())
def test_insertion_order_does_not_matter(upstreams: Upstreams, seed: int) -> None:
    one, other = Graph(upstreams), Graph(shuffled(upstreams, seed))
    assert one.order == other.order
    assert one.stages == other.stages
    for key in upstreams:
        assert one.upstreams(key) == other.upstreams(key)
        assert one.downstreams(key) == other.downstreams(key)


@given(anything(), st.integers())
def test_the_same_mistake_is_reported_in_any_insertion_order(
    upstreams: Upstreams, seed: int
) -> None:
    def outcome(given: Upstreams) -> str:
        try:
            return repr(Graph(given).order)
        except Invalid as why:
            return str(why)

    assert outcome(upstreams) == outcome(shuffled(upstreams, seed))


@given(anything())
def test_a_graph_is_refused_exactly_if_an_asset_needs_itself(upstreams: Upstreams) -> None:
    known = all(up in upstreams for ups in upstreams.values() for up in ups)
    cyclic = known and any(a == b for a, b in paths(upstreams))
    try:
        Graph(upstreams)
    except Invalid:
        assert cyclic or not known
    else:
        assert known
        assert not cyclic


@given(anything())
def test_a_reported_cycle_is_a_real_one_from_its_smallest_key(upstreams: Upstreams) -> None:
    try:
        Graph(upstreams)
    except Invalid as why:
        if "cycle: " not in str(why):
            return
        text = str(why).partition("cycle: ")[2].partition(" (")[0]
        path = [AssetKey.parse(part) for part in text.split(" → ")]
        assert path[0] == path[-1] == min(path)
        assert len(set(path)) == len(path) - 1
        assert all(a in upstreams[b] for a, b in itertools.pairwise(path))


@given(acyclic())
def test_a_stage_is_one_after_the_latest_upstream(upstreams: Upstreams) -> None:
    g = Graph(upstreams)
    number = {key: i for i, stage in enumerate(g.stages) for key in stage}
    assert sorted(number) == sorted(upstreams)
    for key, ups in upstreams.items():
        assert number[key] == max((number[up] + 1 for up in ups), default=0)
    assert all(stage == tuple(sorted(stage)) and stage for stage in g.stages)


@given(acyclic())
def test_upstreams_and_downstreams_are_inverse(upstreams: Upstreams) -> None:
    g = Graph(upstreams)
    for a, b in itertools.product(g, repeat=2):
        assert (a in g.upstreams(b)) == (b in g.downstreams(a)) == (a in upstreams[b])


@given(acyclic(), st.none() | st.integers(0, 12))
def test_ancestors_and_descendants_are_inverse(upstreams: Upstreams, depth: int | None) -> None:
    g = Graph(upstreams)
    for a, b in itertools.product(g, repeat=2):
        assert (a in g.ancestors([b], depth)) == (b in g.descendants([a], depth))


@given(acyclic(), st.none() | st.integers(0, 12))
def test_ancestors_are_what_some_path_of_that_length_reaches(
    upstreams: Upstreams, depth: int | None
) -> None:
    g = Graph(upstreams)
    lengths = paths(upstreams)
    for key in g:
        expected = {
            up
            for (start, up), found in lengths.items()
            if start == key and (depth is None or min(found) <= depth)
        }
        assert g.ancestors([key], depth) == expected


@given(acyclic(), st.data())
def test_ancestors_of_many_are_the_union_of_those_of_each(
    upstreams: Upstreams, data: st.DataObject
) -> None:
    g = Graph(upstreams)
    some = data.draw(st.lists(st.sampled_from(g.order))) if upstreams else []
    depth = data.draw(st.none() | st.integers(0, 12))
    each = [g.ancestors([key], depth) for key in some]
    assert g.ancestors(some, depth) == frozenset().union(*each)
