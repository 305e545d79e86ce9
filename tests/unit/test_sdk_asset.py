"""`@asset`: what is kept of a declaration, and what is said about a wrong one."""

import enum
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import servo
from servo import AssetKey, asset
from servo.core.definitions import AssetDefinition
from servo.core.mappings import AllPartitions, TimeWindow
from servo.core.partitions import Partitioning
from servo.errors import Invalid
from servo.sdk.asset import Asset, declarations
from servo.types import DailyPartition, LastN, StaticPartition

days = DailyPartition("date", start="2024-01-01")
regions = StaticPartition("region", ["eu", "us"])

untyped: Any = asset
"""The same, for what a type checker would refuse first."""


def defined(declared: Asset[..., Any], namespace: str = "shop") -> AssetDefinition:
    return declared.define(namespace, "sha256:0", "shop.py")


def refusal(**arguments: Any) -> str:
    """What is said about an asset declared with these arguments."""
    with pytest.raises(Invalid) as caught:

        @untyped(**arguments)  # type: ignore[untyped-decorator]  # wrong on purpose
        def orders() -> None: ...

    return str(caught.value)


# What a declaration keeps


def test_a_bare_decorator_takes_the_name_of_the_function() -> None:
    @asset
    def orders() -> None: ...

    assert defined(orders).key == AssetKey("shop", "orders")


def test_a_decorator_with_empty_brackets_is_the_bare_one() -> None:
    @asset()
    def orders() -> None: ...

    assert defined(orders).key == AssetKey("shop", "orders")


def test_a_given_name_wins_over_that_of_the_function() -> None:
    @asset(name="orders")
    def make() -> None: ...

    assert defined(orders := make).key.name == orders.name == "orders"


def test_a_given_namespace_wins_over_that_of_the_project() -> None:
    @asset(namespace="raw")
    def orders() -> None: ...

    assert defined(orders).key == AssetKey("raw", "orders")


def test_an_asset_is_called_as_its_function() -> None:
    @asset
    def double(x: int, *, by: int = 2) -> int:
        return x * by

    assert double(4, by=3) == 12


def test_an_asset_looks_like_its_function_to_tools() -> None:
    @asset(name="other")
    def double(x: int) -> int:
        """Twice as much."""
        return 2 * x

    assert (double.__name__, double.__doc__, double.__module__) == (
        "double",
        "Twice as much.",
        __name__,
    )
    assert list(inspect.signature(double).parameters) == ["x"]


def test_an_asset_shows_its_name() -> None:
    @asset(namespace="raw")
    def orders() -> None: ...

    @asset
    def revenue() -> None: ...

    assert (repr(orders), repr(revenue)) == ("<asset raw.orders>", "<asset revenue>")


def test_an_asset_without_options_has_none() -> None:
    @asset
    def orders() -> None: ...

    found = defined(orders)
    assert (found.partitions, found.dependencies, found.owners, found.tags, found.group) == (
        None,
        (),
        (),
        {},
        None,
    )
    assert found.description == ""


def test_dependencies_may_be_names_assets_and_keys_in_any_order() -> None:
    @asset
    def clean() -> None: ...

    @asset(deps=[clean, AssetKey("raw", "orders"), "customers", "raw.items", "raw/refunds"])
    def revenue() -> None: ...

    assert [str(d.upstream) for d in defined(revenue).dependencies] == [
        "raw.items",
        "raw.orders",
        "raw.refunds",
        "shop.clean",
        "shop.customers",
    ]


def test_an_asset_given_as_dependency_keeps_its_own_namespace() -> None:
    @asset(namespace="raw")
    def orders() -> None: ...

    @asset(deps=[orders])
    def revenue() -> None: ...

    assert defined(revenue).dependencies[0].upstream == AssetKey("raw", "orders")


def test_dependencies_are_mapped_by_name_unless_told() -> None:
    @asset(deps=["orders"])
    def revenue() -> None: ...

    assert defined(revenue).dependencies[0].mapping is None


def test_a_mapping_of_dependencies_says_how_partitions_are_mapped() -> None:
    @asset
    def clean() -> None: ...

    @asset(deps={clean: LastN(7), "customers": None, AssetKey("raw", "items"): AllPartitions()})
    def revenue() -> None: ...

    assert {str(d.upstream): d.mapping for d in defined(revenue).dependencies} == {
        "raw.items": AllPartitions(),
        "shop.clean": TimeWindow(-6, 0),
        "shop.customers": None,
    }


@pytest.mark.parametrize("make", [list, tuple, set, frozenset, iter, dict.fromkeys])
def test_dependencies_may_come_in_any_container(make: Callable[[Any], Any]) -> None:
    @asset(deps=make(["a", "b"]))
    def orders() -> None: ...

    assert [d.upstream.name for d in defined(orders).dependencies] == ["a", "b"]


def test_one_partition_dimension_needs_no_list() -> None:
    @asset(partitions=days)
    def orders() -> None: ...

    assert defined(orders).partitions == Partitioning((days,))


def test_several_partition_dimensions_are_listed() -> None:
    @asset(partitions=[regions, days])
    def orders() -> None: ...

    assert defined(orders).partitions == Partitioning((days, regions))


def test_the_description_is_the_first_paragraph_of_the_docstring() -> None:
    @asset
    def orders() -> None:
        """Orders as exported,
        one file a day.
        \t
        Not for reports.
        """

    assert defined(orders).description == "Orders as exported, one file a day."


def test_a_given_description_wins_over_the_docstring() -> None:
    @asset(description="Given.")
    def orders() -> None:
        """Written."""

    assert defined(orders).description == "Given."


def test_an_empty_description_hides_the_docstring() -> None:
    @asset(description="")
    def orders() -> None:
        """For readers of the code only."""

    assert defined(orders).description == ""


def test_owners_tags_and_group_are_kept() -> None:
    @asset(owners=["a@example.com", "team"], tags={"tier": "gold", "pii": ""}, group="sales")
    def orders() -> None: ...

    found = defined(orders)
    assert found.owners == ("a@example.com", "team")
    assert found.tags == {"tier": "gold", "pii": ""}
    assert found.group == "sales"


def test_members_of_an_enum_of_strings_are_taken_as_their_strings() -> None:
    class Word(str, enum.Enum):  # noqa: UP042  # a StrEnum prints as its value, this does not
        ORDERS = "orders"

    @asset(name=Word.ORDERS, deps=[Word.ORDERS], owners=[Word.ORDERS], namespace="raw")
    def make() -> None: ...

    found = defined(make)
    assert found.key.canonical == "raw/orders"
    assert found.dependencies[0].upstream.canonical == "shop/orders"
    assert [type(owner) for owner in found.owners] == [str]


def test_what_was_declared_does_not_change_with_the_dictionary_it_came_from() -> None:
    tags = {"tier": "gold"}
    deps: dict[str, None] = {"raw.orders": None}

    @asset(tags=tags, deps=deps)
    def orders() -> None: ...

    tags["tier"] = "lead"
    deps["raw.other"] = None
    assert defined(orders).tags == {"tier": "gold"}
    assert len(defined(orders).dependencies) == 1


def test_the_code_location_is_that_of_the_function() -> None:
    @asset
    def orders() -> None: ...

    code = defined(orders).code
    assert code is not None
    assert (code.module, code.file) == (__name__, "shop.py")
    assert code.function.endswith("orders")
    assert code.line == orders.function.__code__.co_firstlineno


def test_the_code_location_looks_through_other_decorators() -> None:
    @asset
    @functools.cache
    def orders() -> None: ...

    code = defined(orders).code
    assert code is not None and code.module == __name__


def test_a_method_of_an_object_can_be_an_asset() -> None:
    class Loader:
        def load(self) -> int:
            return 3

    declared = asset(name="orders")(Loader().load)
    assert declared() == 3
    assert defined(declared).code is not None


def test_a_lambda_with_a_name_can_be_an_asset() -> None:
    assert asset(name="three")(lambda: 3)() == 3


def test_the_facade_and_the_sdk_give_the_same_decorator() -> None:
    from servo.sdk.asset import asset as inner

    assert servo.asset is inner


def test_declarations_are_collected_with_the_module_that_makes_them() -> None:
    code = "from servo import asset\nfor n in 'ab':\n    @asset(name=n)\n    def f(): ...\n"
    with declarations() as found:
        exec(compile(code, "m.py", "exec"), {"__name__": "m"})  # noqa: S102  # a module's code
    assert [(module, declared.name) for module, declared in found] == [("m", "a"), ("m", "b")]


def test_nothing_is_collected_after_the_collection_ended() -> None:
    with declarations() as found:
        pass

    @asset
    def orders() -> None: ...

    assert found == []


# What is said about a wrong one


def test_a_mistake_names_the_file_the_line_and_the_asset() -> None:
    with pytest.raises(Invalid) as caught:

        @untyped(tags="gold")  # type: ignore[untyped-decorator]  # wrong on purpose
        def orders() -> None: ...

    line = inspect.currentframe().f_lineno - 3  # type: ignore[union-attr]  # CPython has frames
    assert str(caught.value) == (
        f"asset 'orders' ({__file__}:{line}): tags is 'gold'; give a dict, like"
        " tags={'tier': 'gold'}"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "Orders"}, "asset name 'Orders' is not allowed: use lower-case letters"),
        ({"name": ""}, "asset name '' is not allowed"),
        ({"name": 3}, "name is 3; give a string"),
        ({"name": "raw.orders"}, "asset name 'raw.orders' is not allowed"),
        ({"namespace": "Raw"}, "asset namespace 'Raw' is not allowed"),
        ({"namespace": ""}, "asset namespace '' is not allowed"),
        ({"namespace": ["raw"]}, "namespace is ['raw']; give a string"),
        ({"deps": "orders"}, "deps is 'orders'; give a list, like deps=['orders']"),
        ({"deps": b"orders"}, "deps is b'orders'; give a list"),
        ({"deps": AssetKey("raw", "orders")}, "; give a list, like deps=['orders']"),
        ({"deps": None}, "deps is None; give a list"),
        ({"deps": 3}, "deps is 3; give a list"),
        ({"deps": [3]}, "deps holds 3; give names of assets or assets"),
        ({"deps": [["orders"]]}, "deps holds ['orders']; give names of assets or assets"),
        ({"deps": {3: None}}, "deps holds 3; give names of assets or assets"),
        ({"deps": ["Raw.orders"]}, "deps: asset namespace 'Raw' is not allowed"),
        ({"deps": ["a.b.c"]}, "deps: asset key 'a.b.c' is not of the form namespace.name"),
        ({"deps": ["a", "a"]}, "deps names 'a' twice; remove one"),
        ({"deps": {"a": 7}}, "deps: the mapping for 'a' is 7; use one from servo.types, such as"),
        ({"deps": {"a": LastN}}, "use one from servo.types, such as LastN(7)"),
        ({"partitions": "daily"}, "partitions is 'daily'; use one from servo.types, such as"),
        ({"partitions": 3}, "partitions is 3; use one from servo.types, such as"),
        ({"partitions": [days, 3]}, "partitions holds 3; use one from servo.types, such as"),
        ({"partitions": [days, days]}, "two partition dimensions are named 'date'; rename one"),
        ({"partitions": []}, "a partitioning needs at least one dimension; leave it out"),
        ({"description": 3}, "description is 3; give a string"),
        ({"description": "\ud800"}, "description '\\ud800' holds a lone surrogate; replace it"),
        ({"owners": "me"}, "owners is 'me'; give a list of strings"),
        ({"owners": None}, "owners is None; give a list of strings"),
        ({"owners": [3]}, "one of owners is 3; give a string"),
        ({"owners": ["a", " "]}, "one of owners is ' ', which says nothing; fill it in"),
        ({"tags": ["a"]}, "tags is ['a']; give a dict, like tags={'tier': 'gold'}"),
        ({"tags": {"a": 3}}, "tag 'a' is 3; give a string"),
        ({"tags": {3: "a"}}, "a tag's name is 3; give a string"),
        ({"tags": {"": "a"}}, "a tag's name is '', which says nothing"),
        ({"group": 3}, "group is 3; give a string"),
        ({"group": ""}, "group is '', which says nothing; fill it in or leave it out"),
    ],
)
def test_a_wrong_argument_is_reported_at_once(arguments: dict[str, Any], said: str) -> None:
    message = refusal(**arguments)
    assert said in message
    assert f"({__file__}:" in message


def test_the_same_upstream_in_two_spellings_is_found_when_namespaces_are_known() -> None:
    @asset(deps=["orders", "shop.orders"])
    def revenue() -> None: ...

    assert len(defined(revenue, "other").dependencies) == 2
    with pytest.raises(
        Invalid, match=re.escape(f"({__file__}:") + r"\d+\): deps names shop.orders"
    ):
        defined(revenue, "shop")


class _Callable:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "thing",
    [functools.partial(int, "3"), _Callable(), _Callable, print, 3, None, [], "orders"],
    ids=lambda thing: type(thing).__name__,
)
def test_what_is_not_a_function_is_refused(thing: Any) -> None:
    with pytest.raises(Invalid, match=r"^@asset goes on a function, not on .*; (write|for)"):
        untyped()(thing)


def test_a_name_in_place_of_the_function_is_told_where_names_go() -> None:
    with pytest.raises(Invalid, match=re.escape("write @asset(name='orders')")):
        untyped("orders")


def test_an_asset_of_an_asset_is_refused() -> None:
    @asset
    def orders() -> None: ...

    with pytest.raises(Invalid, match="<asset orders> is an asset; remove one @asset"):
        asset(orders)


def test_a_lambda_without_a_name_is_refused() -> None:
    with pytest.raises(Invalid, match="asset name '<lambda>' is not allowed"):
        asset(lambda: 3)


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(refusal(tags="x" * 100_000)) < 400


class _Hostile:
    """An object that answers every question with an error."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]  # hostile

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attributes")


@pytest.mark.parametrize(
    "argument",
    ["name", "namespace", "deps", "partitions", "description", "owners", "tags", "group"],
)
def test_an_object_that_cannot_even_be_shown_is_reported(argument: str) -> None:
    assert "a _Hostile" in refusal(**{argument: _Hostile()})


def test_an_object_that_cannot_even_be_shown_is_no_function() -> None:
    with pytest.raises(Invalid, match="@asset goes on a function, not on a _Hostile"):
        untyped(_Hostile())


@asset
def upstream() -> None: ...


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters()),
    st.binary(max_size=5),
    st.sampled_from(["orders", "raw.orders", "date", "a/b", "", "Ä", "\ud800"]),
    st.sampled_from(
        [upstream, AssetKey("raw", "orders"), days, regions, LastN(3), AllPartitions()]
    ),
    st.sampled_from([int, len, print, object(), lambda: 0, Ellipsis, NotImplemented]),
)
junk = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(iter),
        st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3),
    ),
    max_leaves=5,
)


@pytest.mark.parametrize(
    "argument",
    ["name", "namespace", "deps", "partitions", "description", "owners", "tags", "group"],
)
@given(data=st.data())
def test_junk_in_an_argument_works_or_is_invalid(argument: str, data: st.DataObject) -> None:
    value = data.draw(junk)

    def function() -> None: ...

    try:
        made = untyped(**{argument: value})(function)
    except Invalid as why:
        assert str(why).startswith("asset ")
        assert f"({__file__}:" in str(why)
    else:
        assert defined(made).key.namespace


@given(thing=junk)
def test_junk_in_place_of_the_function_works_or_is_invalid(thing: Any) -> None:
    try:
        untyped(name="orders")(thing)
    except Invalid as why:
        assert "goes on a function" in str(why)
