"""What a graph refuses, and the exact answers it gives; the laws are in tests/property."""

import pytest

from servo.core.graph import Graph
from servo.core.keys import AssetKey
from servo.errors import Invalid


def key(text: str) -> AssetKey:
    return AssetKey.parse(text, default_namespace="n")


def graph(**upstreams: str) -> Graph:
    return Graph({key(name): [key(u) for u in ups.split()] for name, ups in upstreams.items()})


def spelled(keys: tuple[AssetKey, ...] | frozenset[AssetKey]) -> str:
    return " ".join(k.name for k in (sorted(keys) if isinstance(keys, frozenset) else keys))


DIAMOND = {"d": "b c", "c": "a", "b": "a", "a": "", "e": ""}


def test_order_puts_the_smallest_ready_key_first() -> None:
    assert spelled(graph(**DIAMOND).order) == "a b c d e"
    assert spelled(graph(a="z", z="", m="").order) == "m z a"


def test_ties_go_by_the_canonical_key_not_by_the_spelling_for_people() -> None:
    keys = [AssetKey("a0", "x"), AssetKey("a", "x")]
    assert Graph(dict.fromkeys(keys, ())).order == tuple(sorted(keys))


def test_stages_follow_the_longest_path() -> None:
    stages = graph(**DIAMOND, f="a d").stages
    assert [spelled(stage) for stage in stages] == ["a e", "b c", "d", "f"]


def test_iteration_length_and_membership_go_by_order() -> None:
    g = graph(**DIAMOND)
    assert tuple(g) == g.order
    assert len(g) == 5
    assert key("a") in g
    assert key("x") not in g
    assert "n/a" not in g


def test_an_empty_graph_has_no_order_and_no_stages() -> None:
    g = Graph({})
    assert (g.order, g.stages, len(g)) == ((), (), 0)


def test_neighbours_are_sorted_by_key() -> None:
    g = graph(**DIAMOND)
    assert spelled(g.upstreams(key("d"))) == "b c"
    assert spelled(g.downstreams(key("a"))) == "b c"


def test_an_upstream_given_twice_counts_once() -> None:
    g = graph(a="", b="a a")
    assert spelled(g.upstreams(key("b"))) == "a"
    assert spelled(g.downstreams(key("a"))) == "b"


def test_upstreams_may_come_from_an_iterator() -> None:
    g = Graph({key("b"): iter([key("a")]), key("a"): iter([])})
    assert spelled(g.order) == "a b"


def test_ancestors_stop_at_the_given_depth() -> None:
    g = graph(a="", b="a", c="b", d="c")
    assert spelled(g.ancestors([key("d")])) == "a b c"
    assert spelled(g.ancestors([key("d")], depth=2)) == "b c"
    assert g.ancestors([key("d")], depth=0) == frozenset()


def test_descendants_stop_at_the_given_depth() -> None:
    g = graph(a="", b="a", c="b", d="c")
    assert spelled(g.descendants([key("a")])) == "b c d"
    assert spelled(g.descendants([key("a")], depth=1)) == "b"


def test_one_of_several_keys_is_an_ancestor_only_if_another_needs_it() -> None:
    g = graph(a="", b="a", c="")
    assert spelled(g.ancestors([key("a"), key("b"), key("c")])) == "a"


def test_a_negative_depth_is_refused() -> None:
    with pytest.raises(Invalid, match="depth -1 is negative"):
        graph(a="").ancestors([key("a")], depth=-1)


def test_an_unknown_upstream_is_named_with_what_was_probably_meant() -> None:
    with pytest.raises(Invalid) as caught:
        graph(orders="custmers", customers="")
    assert str(caught.value) == (
        "asset 'n.orders' depends on 'n.custmers', which does not exist;"
        " did you mean 'n.customers'?"
    )


def test_an_asset_is_never_suggested_as_its_own_upstream() -> None:
    with pytest.raises(Invalid, match=r"'n\.orderz', which does not exist; define that asset"):
        graph(orders="orderz")


def test_the_smallest_of_several_unknown_upstreams_is_reported() -> None:
    with pytest.raises(Invalid, match=r"'n\.a' depends on 'n\.qqq'"):
        graph(b="aaaa", a="zzz qqq www")


def test_a_self_dependency_is_refused() -> None:
    with pytest.raises(Invalid, match=r"asset 'n\.a' depends on itself; remove it"):
        graph(a="a")


def test_a_cycle_is_reported_as_the_full_path_along_the_data() -> None:
    with pytest.raises(Invalid) as caught:
        graph(b="a", c="b", a="c")
    assert str(caught.value) == (
        "assets need each other in a cycle: n.a → n.b → n.c → n.a (each feeds the next);"
        " remove one of these dependencies"
    )


def test_a_cycle_leaves_out_what_only_leads_into_it_or_out_of_it() -> None:
    with pytest.raises(Invalid, match=r": n\.m → n\.n → n\.m \("):
        graph(z="", m="n z", n="m", a="m")


def test_a_cycle_takes_the_short_way_round() -> None:
    # Walking up from a finds a ← b ← c ← d ← a; the way a → d → a is shorter.
    with pytest.raises(Invalid, match=r": n\.a → n\.d → n\.a \("):
        graph(a="b d", b="c", c="d", d="a")


def test_a_cycle_starts_at_its_smallest_key() -> None:
    with pytest.raises(Invalid, match=r": n\.x → n\.z → n\.y → n\.x \("):
        graph(z="x", y="z", x="y", a="z")


def test_a_cycle_starts_at_its_smallest_key_though_a_shorter_way_has_a_smaller_one() -> None:
    # Through a it would be c → a → z → d → c.
    with pytest.raises(Invalid, match=r": n\.c → n\.g → n\.f → n\.e → n\.d → n\.c \("):
        graph(a="c", c="d", d="e z", e="f", f="g", g="c", z="a")


def test_a_duplicate_key_is_reported_with_how_often_it_occurs() -> None:
    pairs = [(key(name), [key("a")] if name == "b" else []) for name in "cbabcb"]
    with pytest.raises(Invalid, match=r"asset 'n\.b' is defined 3 times; rename or remove"):
        Graph.of(pairs)


def test_pairs_without_duplicates_make_the_same_graph() -> None:
    g = Graph.of([(key("b"), [key("a")]), (key("a"), [])])
    assert spelled(g.order) == "a b"


@pytest.mark.parametrize("ask", ["upstreams", "downstreams"])
def test_asking_about_an_unknown_asset_suggests_a_known_one(ask: str) -> None:
    with pytest.raises(Invalid, match=r"there is no asset 'n\.ordrs'; did you mean 'n\.orders'"):
        getattr(graph(orders=""), ask)(key("ordrs"))


def test_reaching_from_an_unknown_asset_is_refused() -> None:
    with pytest.raises(Invalid, match=r"there is no asset 'n\.qq'; check the spelling"):
        graph(a="").descendants([key("qq")])


def test_a_chain_of_fifty_thousand_assets_does_not_meet_the_recursion_limit() -> None:
    keys = [AssetKey("n", f"a{i:05}") for i in range(50_000)]
    g = Graph({k: keys[i - 1 : i] for i, k in enumerate(keys)})
    assert g.order == tuple(keys)
    assert len(g.stages) == 50_000
    assert len(g.ancestors([keys[-1]])) == 49_999


def test_a_cycle_of_fifty_thousand_assets_does_not_meet_the_recursion_limit() -> None:
    keys = [AssetKey("n", f"a{i:05}") for i in range(50_000)]
    with pytest.raises(Invalid) as caught:
        Graph({k: [keys[i - 1]] for i, k in enumerate(keys)})
    assert str(caught.value).count("→") == 50_000
