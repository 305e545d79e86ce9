"""Laws of selections: the algebra of sets, reach, and spelling."""

import re

from hypothesis import given
from hypothesis import strategies as st

from servo.core.graph import Graph
from servo.core.keys import AssetKey
from servo.core.selection import (
    And,
    Attribute,
    Named,
    NameLike,
    Not,
    Or,
    Reach,
    Selection,
    SelectionAttributes,
    Tag,
    Value,
    parse,
    select,
)
from servo.errors import Invalid

KEYS = [AssetKey(namespace, name) for namespace in ("a", "b") for name in ("or", "p", "q", "r")]
TIERS = ("gold", "silver")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    order = draw(st.permutations(KEYS))
    return Graph(
        {
            key: draw(st.sets(st.sampled_from(order[:i]), max_size=3)) if i else ()
            for i, key in enumerate(order)
        }
    )


attributes = st.fixed_dictionaries(
    {
        key: st.builds(
            SelectionAttributes,
            tags=st.dictionaries(st.just("tier"), st.sampled_from(TIERS)),
            owners=st.lists(st.sampled_from(["me@x.org", "you@x.org"])).map(tuple),
            group=st.sampled_from([None, "g"]),
            kind=st.sampled_from(["python", "sql"]),
        )
        for key in KEYS
    }
)
Attributes = dict[AssetKey, SelectionAttributes]

depths = st.none() | st.integers(0, 9)
known_terms = st.sampled_from(KEYS).map(
    lambda key: Named(key.namespace, key.name)
) | st.sampled_from(
    [parse(t) for t in ("*", "a.*", "*r", "tag:tier=gold", "owner:me*", "group:g", "kind:sql")]
)


def reach(of: Selection, up: int | None, down: int | None) -> Selection:
    return of if up == 0 and down == 0 else Reach(of, up, down)


def conjunction(parts: list[Selection]) -> Selection:
    flat = [p for part in parts for p in (part.parts if isinstance(part, And) else [part])]
    return And(tuple(flat))


def disjunction(parts: list[Selection]) -> Selection:
    flat = [p for part in parts for p in (part.parts if isinstance(part, Or) else [part])]
    return Or(tuple(flat))


def trees(terms: st.SearchStrategy[Selection]) -> st.SearchStrategy[Selection]:
    """Trees in the normal form that `parse` gives."""

    def larger(smaller: st.SearchStrategy[Selection]) -> st.SearchStrategy[Selection]:
        several = st.lists(smaller, min_size=2, max_size=3)
        return st.one_of(
            smaller.map(Not),
            several.map(conjunction),
            several.map(disjunction),
            st.builds(reach, smaller, depths, depths),
        )

    return st.recursive(terms, larger, max_leaves=8)


selections = trees(known_terms).map(str)


@given(graphs(), attributes, selections, selections)
def test_and_or_not_are_those_of_sets(g: Graph, having: Attributes, a: str, b: str) -> None:
    def pick(text: str) -> set[AssetKey]:
        return set(select(text, g, having))

    assert pick(f"({a}) and ({b})") == pick(a) & pick(b)
    assert pick(f"({a}) or ({b})") == pick(a) | pick(b)
    assert pick(f"not ({a})") == set(g) - pick(a)


@given(graphs(), attributes, selections, selections, selections)
def test_and_and_or_commute_and_associate(
    g: Graph, having: Attributes, a: str, b: str, c: str
) -> None:
    def pick(text: str) -> tuple[AssetKey, ...]:
        return select(text, g, having)

    for word in ("and", "or"):
        assert pick(f"({a}) {word} ({b})") == pick(f"({b}) {word} ({a})")
        assert (
            pick(f"(({a}) {word} ({b})) {word} ({c})")
            == pick(f"({a}) {word} (({b}) {word} ({c}))")
            == pick(f"({a}) {word} ({b}) {word} ({c})")
        )


@given(graphs(), attributes, selections, selections, selections)
def test_and_distributes_over_or(g: Graph, having: Attributes, a: str, b: str, c: str) -> None:
    assert select(f"({a}) and (({b}) or ({c}))", g, having) == select(
        f"({a}) and ({b}) or ({a}) and ({c})", g, having
    )


@given(graphs(), attributes, selections, selections)
def test_de_morgan(g: Graph, having: Attributes, a: str, b: str) -> None:
    assert select(f"not (({a}) and ({b}))", g, having) == select(
        f"not ({a}) or not ({b})", g, having
    )
    assert select(f"not (({a}) or ({b}))", g, having) == select(
        f"not ({a}) and not ({b})", g, having
    )


@given(graphs(), attributes, selections)
def test_double_negation_and_repetition_change_nothing(
    g: Graph, having: Attributes, a: str
) -> None:
    chosen = select(a, g, having)
    assert select(f"not not ({a})", g, having) == chosen
    assert select(f"({a}) and ({a})", g, having) == chosen
    assert select(f"({a}) or ({a})", g, having) == chosen


@given(graphs(), attributes, selections)
def test_star_is_the_identity_of_and_and_absorbs_in_or(
    g: Graph, having: Attributes, a: str
) -> None:
    assert select(f"({a}) and *", g, having) == select(a, g, having)
    assert select(f"({a}) or *", g, having) == g.order
    assert select(f"({a}) and not *", g, having) == ()
    assert select(f"({a}) or not ({a})", g, having) == g.order


@given(graphs(), attributes, selections)
def test_the_result_is_in_graph_order_without_repetition(
    g: Graph, having: Attributes, a: str
) -> None:
    chosen = select(a, g, having)
    assert chosen == tuple(key for key in g.order if key in set(chosen))


@given(graphs(), attributes, selections)
def test_plus_is_the_union_of_all_its_depths(g: Graph, having: Attributes, a: str) -> None:
    def union(shape: str) -> set[AssetKey]:
        return {
            key
            for depth in range(len(g) + 1)
            for key in select(shape.format(a=f"({a})", n=depth), g, having)
        }

    assert set(select(f"+({a})", g, having)) == union("{n}+{a}")
    assert set(select(f"({a})+", g, having)) == union("{a}+{n}")
    assert select(f"0+({a})+0", g, having) == select(a, g, having)


@given(graphs(), attributes, selections, st.integers(0, 9), st.integers(0, 9))
def test_steps_add_up(g: Graph, having: Attributes, a: str, m: int, n: int) -> None:
    assert select(f"{m}+({n}+({a}))", g, having) == select(f"{m + n}+({a})", g, having)
    assert select(f"(({a})+{m})+{n}", g, having) == select(f"({a})+{m + n}", g, having)


@given(graphs(), attributes, selections)
def test_plus_includes_the_selection_and_is_idempotent(
    g: Graph, having: Attributes, a: str
) -> None:
    up = select(f"+({a})", g, having)
    assert set(up) >= set(select(a, g, having))
    assert select(f"+(+({a}))", g, having) == up
    down = select(f"({a})+", g, having)
    assert set(down) >= set(select(a, g, having))
    assert select(f"(({a})+)+", g, having) == down


@given(graphs(), depths)
def test_upstream_and_downstream_are_inverse(g: Graph, depth: int | None) -> None:
    n = "" if depth is None else str(depth)
    down = {x: select(f"{x}+{n}", g, {}) for x in KEYS}
    for y in KEYS:
        assert select(f"{n}+{y}", g, {}) == tuple(x for x in g if y in down[x])


@given(graphs(), attributes, selections, depths, depths)
def test_both_sides_are_the_union_of_each(
    g: Graph, having: Attributes, a: str, up: int | None, down: int | None
) -> None:
    before = "+" if up is None else f"{up}+"
    after = "+" if down is None else f"+{down}"
    assert select(f"{before}({a}){after}", g, having) == select(
        f"{before}({a}) or ({a}){after}", g, having
    )


@given(graphs(), st.text("pqor*", min_size=1))
def test_a_pattern_matches_as_a_regular_expression_would(g: Graph, name: str) -> None:
    pattern = re.compile(name.replace("*", ".*"))
    expected = tuple(key for key in g if pattern.fullmatch(key.name))
    assert select(f"{name} or not *" if "*" in name else f"*.{name}", g, {}) == expected


# Spelling

part_texts = st.text("abz09_-", min_size=1, max_size=5) | st.sampled_from(["and", "OR", "Not", "7"])
odd_texts = st.text(min_size=1, max_size=5).filter(lambda text: not {".", "/"} & set(text))
pattern_texts = st.tuples(st.text("ab9_-*", max_size=4), st.text("ab9_-*", max_size=4)).map(
    "*".join
)
values = (
    st.builds(Value, st.text(max_size=6) | st.text('ab "\\*+=():@', max_size=6))
    | pattern_texts.map(lambda text: Value(text, pattern=True))
    | st.text("*é:@/.", min_size=1).filter(lambda t: "*" in t).map(lambda t: Value(t, pattern=True))
)
any_terms: st.SearchStrategy[Selection] = st.one_of(
    st.builds(Named, st.none() | part_texts | odd_texts, part_texts | odd_texts),
    st.builds(NameLike, st.none() | part_texts | pattern_texts, pattern_texts),
    st.builds(Tag, values, st.none() | values),
    st.builds(Attribute, st.sampled_from(["owner", "group", "namespace", "kind"]), values),
)


@given(trees(any_terms))
def test_the_spelling_of_a_tree_parses_back_to_it(tree: Selection) -> None:
    assert parse(str(tree)) == tree


@given(graphs(), attributes, trees(known_terms))
def test_the_spelling_of_a_tree_selects_the_same_with_redundant_brackets(
    g: Graph, having: Attributes, tree: Selection
) -> None:
    assert parse(f"(({tree}))") == tree
    assert select(f"({tree})", g, having) == select(str(tree), g, having)


pieces = st.sampled_from(
    "( ) + * p a. / 2 = @ , ' : - OR tag: tg: owner: é 日".split()
    + ["not ", " and ", " ", "\n", '"', "\\", "\ud800", "0" * 5_000]
)
garbage = (
    st.text()
    | st.lists(pieces, max_size=30).map("".join)
    | st.text("()+ pq*", max_size=40)
    | st.tuples(selections, st.lists(pieces, max_size=2).map("".join), selections).map("".join)
)


@given(garbage, st.sampled_from([None, "a", "nowhere"]))
def test_any_text_gives_a_result_or_invalid(text: str, namespace: str | None) -> None:
    g = Graph(dict.fromkeys(KEYS, ()))
    try:
        chosen = select(text, g, {}, default_namespace=namespace)
    except Invalid as why:
        assert why.position is not None
        assert 0 <= why.position <= len(text)
        assert len(str(why).split("\n")) == (3 if text.strip() else 1)
        str(why).encode()
    else:
        assert set(chosen) <= set(KEYS)


@given(garbage)
def test_whatever_parses_has_a_canonical_spelling(text: str) -> None:
    try:
        tree = parse(text)
    except Invalid:
        return
    assert parse(str(tree)) == tree
    assert str(parse(str(tree))) == str(tree)
