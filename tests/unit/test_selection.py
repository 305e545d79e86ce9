"""The selection language by example; its laws are in tests/property."""

import pytest

from servo.core.graph import Graph
from servo.core.keys import AssetKey
from servo.core.selection import (
    MAX_NESTING,
    And,
    Attribute,
    Named,
    NameLike,
    Not,
    Or,
    Reach,
    SelectionAttributes,
    Tag,
    Value,
    parse,
    select,
)
from servo.errors import Invalid


def key(text: str) -> AssetKey:
    return AssetKey.parse(text)


#   raw.orders ──▶ stg.orders ──▶ mart.revenue ──▶ mart.forecast
#   raw.users ───▶ stg.and ──────────▲
GRAPH = Graph(
    {
        key("raw.orders"): [],
        key("raw.users"): [],
        key("stg.orders"): [key("raw.orders")],
        key("stg.and"): [key("raw.users")],
        key("mart.revenue"): [key("stg.orders"), key("stg.and")],
        key("mart.forecast"): [key("mart.revenue")],
    }
)
ATTRIBUTES = {
    key("raw.orders"): SelectionAttributes({"tier": "gold"}, ("me@example.com",), "ingest", "sql"),
    key("raw.users"): SelectionAttributes({"tier": "silver", "pii": ""}, ("team:data",), "ingest"),
    key("mart.revenue"): SelectionAttributes(
        {"tier": "gold star", "a+b": "c=d"}, ("me@example.com", "you@example.com")
    ),
}


def chosen(text: str, default_namespace: str | None = None) -> str:
    keys = select(text, GRAPH, ATTRIBUTES, default_namespace=default_namespace)
    return " ".join(map(str, keys))


def refusal(text: str, default_namespace: str | None = None) -> Invalid:
    with pytest.raises(Invalid) as caught:
        chosen(text, default_namespace)
    return caught.value


def complaint(text: str, default_namespace: str | None = None) -> str:
    """The sentence without the picture."""
    return str(refusal(text, default_namespace)).partition("\n")[0]


ALL = "raw.orders raw.users stg.and stg.orders mart.revenue mart.forecast"


# What is selected


@pytest.mark.parametrize("text", ["stg.orders", "stg/orders", '"stg.orders"', " stg.orders\n"])
def test_an_asset_is_selected_by_either_spelling_of_its_key(text: str) -> None:
    assert chosen(text) == "stg.orders"


def test_a_bare_name_is_found_in_any_namespace_if_it_is_unique() -> None:
    assert chosen("revenue") == "mart.revenue"


def test_a_bare_name_is_found_in_the_default_namespace() -> None:
    assert chosen("orders", default_namespace="stg") == "stg.orders"


def test_a_bare_name_is_not_found_outside_the_default_namespace() -> None:
    assert complaint("revenue", default_namespace="stg") == (
        "there is no asset 'stg.revenue'; did you mean 'mart.revenue'?"
    )


def test_an_ambiguous_bare_name_lists_the_candidates() -> None:
    assert complaint("orders") == (
        "asset 'orders' is in several namespaces; write one of 'raw.orders' or 'stg.orders'"
    )


def test_a_long_list_of_candidates_is_cut() -> None:
    many = Graph({AssetKey(f"n{i:02}", "x"): [] for i in range(13)})
    with pytest.raises(Invalid, match=r"'n00\.x' or .* or 'n09\.x' \(3 more\)"):
        select("x", many, {})


def test_the_result_is_in_the_order_of_the_graph() -> None:
    assert chosen("forecast or raw.users or revenue") == "raw.users mart.revenue mart.forecast"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+revenue", "raw.orders raw.users stg.and stg.orders mart.revenue"),
        ("raw.users+", "raw.users stg.and mart.revenue mart.forecast"),
        ("1+revenue", "stg.and stg.orders mart.revenue"),
        ("raw.users+1", "raw.users stg.and"),
        ("2+stg.orders+1", "raw.orders stg.orders mart.revenue"),
        ("+stg.orders+", "raw.orders stg.orders mart.revenue mart.forecast"),
        ("0+revenue+0", "mart.revenue"),
        ("1 + revenue", "stg.and stg.orders mart.revenue"),
    ],
)
def test_plus_adds_what_is_upstream_and_downstream(text: str, expected: str) -> None:
    assert chosen(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1+(revenue or stg.orders)", "raw.orders stg.and stg.orders mart.revenue"),
        ("(raw.*)+1", "raw.orders raw.users stg.and stg.orders"),
        ("+(revenue+)", ALL),
        ("tag:tier=gold+1", "raw.orders stg.orders"),
        ('1+tag:tier="gold star"', "stg.and stg.orders mart.revenue"),
        ('"and"+1', "stg.and mart.revenue"),
        ("stg.*+1", "stg.and stg.orders mart.revenue"),
    ],
)
def test_plus_works_on_brackets_attributes_quotes_and_patterns(text: str, expected: str) -> None:
    assert chosen(text) == expected


def test_a_star_is_everything() -> None:
    assert chosen("*") == ALL


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raw.*", "raw.orders raw.users"),
        ("*.orders", "raw.orders stg.orders"),
        ("*a*.*e", "mart.revenue"),
        ("*.*re*", "mart.revenue mart.forecast"),
        ("or*rs", "raw.orders stg.orders"),
        ("revenue*", "mart.revenue"),
        ("rev*venue", ""),
        ("nothing_*", ""),
    ],
)
def test_a_pattern_selects_what_matches_and_may_be_empty(text: str, expected: str) -> None:
    assert chosen(text) == expected


def test_a_pattern_without_namespace_looks_in_all_of_them_despite_a_default() -> None:
    assert chosen("ord*", default_namespace="raw") == "raw.orders stg.orders"


def test_a_pattern_with_many_stars_does_not_take_forever() -> None:
    long = Graph({AssetKey("n", "a" * 5_000): []})
    assert select("*a" * 40 + "*b", long, {}) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tag:tier=gold", "raw.orders"),
        ("tag:tier=gold*", "raw.orders mart.revenue"),
        ('tag:tier="gold star"', "mart.revenue"),
        ('tag:tier="gold*"', ""),
        ('tag:"a+b"="c=d"', "mart.revenue"),
        ("tag:tier", "raw.orders raw.users mart.revenue"),
        ("tag:pii", "raw.users"),
        ('tag:pii=""', "raw.users"),
        ("tag:gold", ""),
        ("owner:me@example.com", "raw.orders mart.revenue"),
        ("owner:*@example.com", "raw.orders mart.revenue"),
        ("owner:team:data", "raw.users"),
        ("group:ingest", "raw.orders raw.users"),
        ("not group:*", "stg.and stg.orders mart.revenue mart.forecast"),
        ("namespace:stg", "stg.and stg.orders"),
        ("namespace:*a*", "raw.orders raw.users mart.revenue mart.forecast"),
        ("kind:sql", "raw.orders"),
        ("kind:python", "raw.users mart.revenue"),
    ],
)
def test_attributes_select_what_has_them(text: str, expected: str) -> None:
    assert chosen(text) == expected


def test_keywords_are_values_after_a_colon() -> None:
    assert chosen("group:and or tag:not or kind:or") == ""


def test_not_binds_before_and_and_before_or() -> None:
    assert parse("not a and b or c") == Or(
        (And((Not(Named(None, "a")), Named(None, "b"))), Named(None, "c"))
    )
    assert parse("a or b and c") == Or(
        (Named(None, "a"), And((Named(None, "b"), Named(None, "c"))))
    )


def test_plus_binds_before_not() -> None:
    assert parse("not +a") == Not(Reach(Named(None, "a"), None, 0))


def test_brackets_change_the_binding() -> None:
    assert chosen("not (raw.* or mart.*)") == "stg.and stg.orders"
    assert chosen("(raw.* or stg.*) and *.orders") == "raw.orders stg.orders"


def test_keywords_may_be_in_any_case() -> None:
    assert chosen("raw.users oR stg.* AND Not stg.orders") == "raw.users stg.and"


@pytest.mark.parametrize("text", ['"and"', "stg.and", "stg/and", '"stg.and"'])
def test_an_asset_named_like_a_keyword_is_selected_by_quotes_or_namespace(text: str) -> None:
    assert chosen(text) == "stg.and"


def test_a_name_must_exist_even_where_it_could_not_matter() -> None:
    assert "there is no asset 'nothing'" in complaint("nope_* and nothing")


def test_an_asset_without_attributes_matches_none() -> None:
    assert select("kind:*", GRAPH, {}) == ()


# The tree and its spelling


@pytest.mark.parametrize(
    ("text", "tree", "canonical"),
    [
        ("raw/orders", Named("raw", "orders"), "raw.orders"),
        ('"raw/orders"', Named("raw", "orders"), "raw.orders"),
        ('"AND"', Named(None, "AND"), '"AND"'),
        ('"12"', Named(None, "12"), '"12"'),
        ('"a*"', Named(None, "a*"), '"a*"'),
        ("*", NameLike(None, "*"), "*"),
        ("raw/*", NameLike("raw", "*"), "raw.*"),
        ('tag:"k"="v w"', Tag(Value("k"), Value("v w")), 'tag:k="v w"'),
        ('tag:k="v*"', Tag(Value("k"), Value("v*")), 'tag:k="v*"'),
        ("tag:k=v*", Tag(Value("k"), Value("v*", pattern=True)), "tag:k=v*"),
        (r'owner:"a\"b\\c"', Attribute("owner", Value('a"b\\c')), r'owner:"a\"b\\c"'),
        ("0+x", Named(None, "x"), "x"),
        ("x+007", Reach(Named(None, "x"), 0, 7), "x+7"),
        ("((+ (x) +))", Reach(Named(None, "x"), None, None), "+x+"),
        ("+(x+)", Reach(Reach(Named(None, "x"), 0, None), None, 0), "+(x+)"),
        ("NOT (not x)", Not(Not(Named(None, "x"))), "not not x"),
        ("+(not x)", Reach(Not(Named(None, "x")), None, 0), "+(not x)"),
        (
            "a or (b or c)",
            Or((Named(None, "a"), Named(None, "b"), Named(None, "c"))),
            "a or b or c",
        ),
        (
            "(a and b) and c",
            And((Named(None, "a"), Named(None, "b"), Named(None, "c"))),
            "a and b and c",
        ),
    ],
)
def test_text_becomes_a_tree_with_one_spelling(text: str, tree: object, canonical: str) -> None:
    assert parse(text) == tree
    assert str(parse(text)) == f"{parse(text)}" == canonical
    assert parse(canonical) == tree


# What is refused


def test_an_error_shows_the_text_with_a_caret_under_the_character() -> None:
    why = refusal("+revenue and ordrs")
    assert str(why) == (
        "there is no asset 'ordrs'; did you mean 'orders'?\n"
        "    +revenue and ordrs\n"
        "                 ^"
    )
    assert why.position == 13


def test_the_text_is_shown_on_one_line_whatever_it_holds() -> None:
    lines = str(refusal("revenue or\n\traw.users \x00 \ud800")).split("\n")
    assert lines[1:] == ["    revenue or  raw.users ? ?", " " * 26 + "^"]


def test_the_caret_stands_right_after_wide_characters() -> None:
    lines = str(refusal("tag:日本 x")).split("\n")
    assert lines[1:] == ["    tag:日本 x", " " * 13 + "^"]


def test_of_a_long_text_only_what_is_around_the_character_is_shown() -> None:
    text = "revenue or " * 100 + "? " + "or revenue" * 100
    _, shown, caret = str(refusal(text)).split("\n")
    assert len(shown) < 80
    assert shown[4] == shown[-1] == "…"
    assert shown[len(caret) - 1] == "?"


@pytest.mark.parametrize(
    ("text", "position", "complaint_part"),
    [
        ("", 0, "the selection is empty; name an asset, or write * for all"),
        (" \n ", 0, "the selection is empty"),
        ("a b", 2, "expected 'and', 'or' or the end before 'b'; write 'or' between"),
        ("a (b)", 2, "expected 'and', 'or' or the end before '('"),
        ("(a tag:b)", 3, "expected 'and', 'or' or the end before 'tag:b'"),
        ('a "b"', 2, "before '\"b\"'"),
        ("a +b", 3, "expected 'and', 'or' or the end before 'b'"),
        ("a 2+b", 2, "expected 'and', 'or' or the end before '2'"),
        ("a not b", 2, "expected 'and' or 'or' before this 'not'; write 'and not'"),
        ("a,b", 1, "a comma means 'and' in some tools and 'or' in others; write"),
        ("a | b", 2, "| is not used here; write 'and', 'or' or 'not'"),
        ("a && b", 2, "& is not used here"),
        ("!a", 0, "! is not used here"),
        ("@a", 0, "for what dbt selects by @x write +(x+)"),
        ("a = b", 2, "= belongs into a tag, as in tag:tier=gold"),
        ("'a'", 0, 'quotes are double here; write "…"'),
        ("a or ö", 5, "'ö' cannot stand here; expected an asset"),
        ("++a", 1, "before this second +; write 2+x for two steps upstream"),
        ("a++", 2, "write x+2 for two steps downstream"),
        ("(a", 0, "this ( is never closed; add a )"),
        ("(a or (b)", 0, "this ( is never closed"),
        ("a)", 1, "this ) closes nothing; remove it"),
        ("()", 1, "expected an asset, an attribute such as tag:tier=gold, or a (…), but found ')'"),
        ("+not a", 1, "'not' cannot follow +; write +(not …)"),
        ("a or", 4, "or a (…) at the end; add one"),
        ("a and or b", 6, "before 'or'; an asset of that name is written \"or\""),
        ("2 or a", 0, "2 is not an asset; a number of steps is followed by +, as in 2+orders"),
        ("a+1234567890", 2, "this number of steps is too large; write + alone"),
        ("9" * 5_000 + "+a", 0, "this number of steps is too large"),
        ("a.b.c", 0, "'a.b.c' is not the name of an asset; write it as name, namespace.name"),
        ("a or b.", 5, "'b.' is not the name of an asset"),
        ('""', 0, "'' is not the name of an asset"),
        ("tag:", 4, "expected a value right after tag:; put it in double quotes"),
        ("tag:k=", 6, "expected a value right after =;"),
        ("owner: me", 6, "expected a value right after owner:;"),
        ("owner:a=b", 7, "= belongs into a tag"),
        ('a or "b', 5, 'this " is never closed'),
        (r'"a\n"', 2, r"write \\ for one of them"),
        ('"a\\', 2, r"write \\ for one of them"),
        ("x or tg:a", 5, "there is no attribute 'tg:'; did you mean 'tag:'?"),
        ("Owner:a", 0, "there is no attribute 'Owner:'; did you mean 'owner:'?"),
        ("xyz:a", 0, "the attributes are tag:, owner:, group:, namespace:, kind:, and an asset"),
        ("revenue or mart.revenu", 11, "'mart.revenu'; did you mean 'mart.revenue'?"),
        ("REVENUE", 0, "there is no asset 'REVENUE'; did you mean 'revenue'?"),
        ("raw.revenue", 0, "there is no asset 'raw.revenue'; did you mean 'mart.revenue'?"),
        ("qqqq", 0, "there is no asset 'qqqq'; check the spelling, or use *"),
        ('"ord*"', 0, "there is no asset 'ord*'"),
    ],
)
def test_a_mistake_is_explained_where_it_is(text: str, position: int, complaint_part: str) -> None:
    assert complaint_part in complaint(text)
    assert refusal(text).position == position


def test_an_unknown_name_is_shown_where_it_stands_first() -> None:
    assert refusal("revenue or (qqqq and not qqqq)").position == 12


def test_a_very_long_name_is_cut_in_the_sentence() -> None:
    assert len(complaint("x" * 10_000)) < 200


@pytest.mark.parametrize("opening", ["(", "not ", "not(", "+("])
def test_deep_nesting_is_refused_before_the_stack_ends(opening: str) -> None:
    assert f"nested more than {MAX_NESTING} deep" in complaint(opening * 10_000)


def test_nesting_is_allowed_up_to_the_limit() -> None:
    assert chosen("(" * MAX_NESTING + "revenue" + ")" * MAX_NESTING) == "mart.revenue"
    assert chosen("not " * MAX_NESTING + "revenue") == "mart.revenue"


def test_nesting_counts_depth_not_brackets() -> None:
    assert chosen(" or ".join(["(not not revenue)"] * 1_000)) == "mart.revenue"


def test_a_long_chain_is_not_deep() -> None:
    assert chosen(" or ".join(["revenue", "stg.and"] * 5_000)) == "stg.and mart.revenue"
