r"""Selections: a short text that names some assets of a graph.

    +raw.orders and not tag:tier=gold        "what orders needs, itself included, but no gold"

Vocabulary. A *term* picks assets by name or attribute. A *reach* adds what lies upstream (`+`
before a term) or downstream (`+` after it), all of it or up to a number of steps. `not` means every
other asset of the graph.

    selection = all { "or" all } ;
    all       = one { "and" one } ;                      not binds before and, and before or
    one       = "not" one | reach ;
    reach     = [ [ depth ] "+" ] term [ "+" [ depth ] ] ;
    term      = "(" selection ")" | asset | attribute ;
    asset     = [ part ( "." | "/" ) ] part              orders   raw.orders   raw/orders
              | quoted ;                                 "and"    "raw.orders"
    attribute = "tag:" value [ "=" value ]               tag:pii  tag:tier=gold
              | ( "owner:" | "group:" | "namespace:" | "kind:" ) value ;
    part      = one or more of  A-Z a-z 0-9 _ - *
    value     = one or more characters other than space ( ) + , = " ' & | !
              | quoted ;
    quoted    = '"' { character | '\"' | '\\' } '"' ;
    depth     = digits ;

Spaces separate words and mean nothing else; none may stand inside a name or an attribute. `and`,
`or` and `not` are keywords in any case: an asset of such a name is `"and"` or `namespace.and`.

What is decided here, where the tools that people come from disagree or leave it open:

* `*` in an unquoted name or value matches any run of characters (also none); `*` alone is
  everything. A quoted `*` is itself. In Dagster's old syntax `*x` meant `+x`: here it is a pattern.
* A name without a namespace is looked for in the default namespace if there is one, and otherwise
  in all of them, where it must be unique. A pattern without a namespace looks in all of them.
* An exact name that does not exist is an error, because it is a typing mistake. A pattern or an
  attribute that nothing matches selects nothing, as in dbt and Dagster: it describes a set, which
  may be empty today. Whoever runs a selection decides whether nothing is worth a warning.
* `a b` and `a,b` are refused: dbt reads the comma as "and", Dagster's old syntax as "or".
* `++x` is refused: it was two steps in Dagster's old syntax, which is `2+x` here.
* An asset without a group matches no `group:`, so `not group:*` finds it.

`parse` gives a tree in normal form: chains of `and` and of `or` are flat, and what has no effect
(`0+x`, brackets around one term) is gone. `str()` of a tree is its canonical spelling, which parses
back to an equal tree. Every text gives a result or `Invalid`, never anything else
(tests/property/test_selection_properties.py).
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, NoReturn, TypeAlias, assert_never

from msgspec import Struct

from servo.core.graph import Graph
from servo.core.keys import AssetKey
from servo.errors import Invalid, did_you_mean

ATTRIBUTES: Final = ("tag", "owner", "group", "namespace", "kind")
MAX_NESTING: Final = 50
"""Brackets and nots inside each other. More is a mistake, and would end in Python's stack limit."""


class SelectionAttributes(Struct, frozen=True):
    """What a selection may ask about an asset, beside its key."""

    tags: Mapping[str, str] = {}
    owners: tuple[str, ...] = ()
    group: str | None = None
    kind: str = "python"


class _Node(Struct, frozen=True):
    def __str__(self) -> str:
        return _spell(self)  # type: ignore[arg-type]  # every node is one of the union below


class Named(_Node, frozen=True):
    """One asset, by its exact name."""

    namespace: str | None
    name: str


class NameLike(_Node, frozen=True):
    """The assets whose name, and namespace if given, match patterns with `*`."""

    namespace: str | None
    name: str


class Value(Struct, frozen=True):
    """What an attribute is compared with: a text, or a pattern with `*`."""

    text: str
    pattern: bool = False


class Tag(_Node, frozen=True):
    """The assets with a tag, of any value (None) or of a certain one."""

    key: Value
    value: Value | None = None


class Attribute(_Node, frozen=True):
    """The assets with a certain owner, group, namespace or kind."""

    name: str
    value: Value


class Reach(_Node, frozen=True):
    """Assets and what lies so many steps upstream and downstream of them (None: any number)."""

    of: "Selection"
    up: int | None
    down: int | None


class Not(_Node, frozen=True):
    """Every asset of the graph but these."""

    of: "Selection"


class And(_Node, frozen=True):
    """The assets that are in each of two or more selections, none of which is an `And`."""

    parts: tuple["Selection", ...]


class Or(_Node, frozen=True):
    """The assets that are in any of two or more selections, none of which is an `Or`."""

    parts: tuple["Selection", ...]


Selection: TypeAlias = Named | NameLike | Tag | Attribute | Reach | Not | And | Or


def parse(text: str) -> Selection:
    """The tree of a selection; or what is wrong with the text, and at which character."""
    return _Parser(text).selection()


def select(
    text: str,
    graph: Graph,
    attributes: Mapping[AssetKey, SelectionAttributes],
    *,
    default_namespace: str | None = None,
) -> tuple[AssetKey, ...]:
    """The selected assets in the order of the graph; `attributes` may leave assets out."""
    parser = _Parser(text)
    selection = parser.selection()
    choice = _Choice(graph, attributes, default_namespace)
    try:
        chosen = choice.pick(selection)
    except _NotFound as found:
        raise parser.error(found.problem, parser.named_at[found.named]) from None
    return tuple(key for key in graph if key in chosen)


def named(
    text: str,
    graph: Graph,
    attributes: Mapping[AssetKey, SelectionAttributes],
    *,
    default_namespace: str | None = None,
) -> frozenset[AssetKey]:
    """The assets that a text names one by one in order to have them, not by reach, pattern or
    attribute; for a text that `select` has accepted, which may still leave some of them out."""
    choice = _Choice(graph, attributes, default_namespace)
    return frozenset(choice.find(name) for name in _names(parse(text)))


def meant(
    text: str,
    graph: Graph,
    attributes: Mapping[AssetKey, SelectionAttributes],
    *,
    default_namespace: str | None = None,
) -> frozenset[AssetKey]:
    """The assets that a text selects without reaching up or down: `x` of `+x+1`."""
    return _Choice(graph, attributes, default_namespace).pick(_unreached(parse(text)))


def _unreached(node: Selection) -> Selection:
    if isinstance(node, Reach):
        return _unreached(node.of)
    if isinstance(node, Not):
        return Not(_unreached(node.of))
    if isinstance(node, And | Or):
        return type(node)(tuple(_unreached(part) for part in node.parts))
    return node


def _names(node: Selection) -> Iterator[Named]:
    if isinstance(node, Named):
        yield node
    elif isinstance(node, Reach):
        yield from _names(node.of)
    elif isinstance(node, And | Or):
        for part in node.parts:
            yield from _names(part)
    # What stands behind `not` is named in order to be left out.


# Choosing


class _NotFound(Exception):
    """A name does not lead to one asset. Only the parser knows where in the text it stands."""

    def __init__(self, named: Named, problem: str) -> None:
        super().__init__(problem)
        self.named = named
        self.problem = problem


class _Choice:
    """What each node of a tree picks from one graph."""

    def __init__(
        self,
        graph: Graph,
        attributes: Mapping[AssetKey, SelectionAttributes],
        default_namespace: str | None,
    ) -> None:
        self.graph = graph
        self.attributes = attributes
        self.default_namespace = default_namespace
        self.everything = frozenset(graph)
        self.by_name: dict[str, list[AssetKey]] = {}
        for key in graph:
            self.by_name.setdefault(key.name, []).append(key)

    def pick(self, node: Selection) -> frozenset[AssetKey]:
        match node:
            case Named():
                return frozenset([self.find(node)])
            case NameLike(namespace, name):
                return self.where(
                    lambda key: (
                        _matches(name, key.name)
                        and (namespace is None or _matches(namespace, key.namespace))
                    )
                )
            case Attribute("namespace", value):
                return self.where(lambda key: _is(value, key.namespace))
            case Attribute(name, value):
                return self.where_attributes(lambda of: any(_is(value, v) for v in _ask(name, of)))
            case Tag(tag, wanted):
                return self.where_attributes(
                    lambda of: any(
                        _is(tag, key) and (wanted is None or _is(wanted, value))
                        for key, value in of.tags.items()
                    )
                )
            case Reach(of, up, down):
                start = self.pick(of)
                above = self.graph.ancestors(start, up)
                return start | above | self.graph.descendants(start, down)
            case Not(of):
                return self.everything - self.pick(of)
            case And(parts):
                # Each part is looked at, also when the first is empty: names must exist anywhere.
                return frozenset.intersection(*map(self.pick, parts))
            case Or(parts):
                return frozenset().union(*map(self.pick, parts))
        assert_never(node)

    def where(self, test: Callable[[AssetKey], bool]) -> frozenset[AssetKey]:
        return frozenset(filter(test, self.graph))

    def where_attributes(self, test: Callable[[SelectionAttributes], bool]) -> frozenset[AssetKey]:
        return self.where(lambda key: key in self.attributes and test(self.attributes[key]))

    def find(self, named: Named) -> AssetKey:
        namespace = named.namespace if named.namespace is not None else self.default_namespace
        same_name = self.by_name.get(named.name, [])
        fitting = [key for key in same_name if namespace in (None, key.namespace)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise _NotFound(
                named,
                f"asset {_quote(named.name)} is in several namespaces;"
                f" write one of {_listed(fitting)}",
            )
        asked = named.name if namespace is None else f"{namespace}.{named.name}"
        raise _NotFound(named, f"there is no asset {_quote(asked)}{self.hint(asked, same_name)}")

    def hint(self, asked: str, same_name: list[AssetKey]) -> str:
        if same_name:
            return f"; did you mean {_listed(same_name)}?"
        asked = asked.lower()
        return (
            ("." not in asked and did_you_mean(asked, self.by_name))
            or did_you_mean(asked, map(str, self.graph))
            or "; check the spelling, or use * in it to match a pattern"
        )


def _ask(name: str, of: SelectionAttributes) -> tuple[str, ...]:
    match name:
        case "owner":
            return of.owners
        case "group":
            return () if of.group is None else (of.group,)
        case _:
            return (of.kind,)


def _is(value: Value, found: str) -> bool:
    return _matches(value.text, found) if value.pattern else value.text == found


def _matches(pattern: str, text: str) -> bool:
    """Whether `*` in `pattern` can stand for what `text` has there."""
    # Not a regular expression: a*a*a*a*b would make it try every way to cut the text.
    first, *middle = pattern.split("*")
    if not middle:
        return text == pattern
    last = middle.pop()
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in middle:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return text.endswith(last) and len(text) - len(last) >= at


# Spelling

_KEYWORDS = ("and", "or", "not")
_WORD = re.compile(r"[A-Za-z0-9_\-./*]+")
_VALUE = re.compile(r"""[^\s()+,="'&|!]+""")


def _spell(node: Selection) -> str:
    match node:
        case Named(namespace, name):
            text = name if namespace is None else f"{namespace}.{name}"
            plain = _WORD.fullmatch(text) and "*" not in text and not text.isdigit()
            return text if plain and text.lower() not in _KEYWORDS else _quoted(text)
        case NameLike(namespace, name):
            return name if namespace is None else f"{namespace}.{name}"
        case Tag(key, wanted):
            equals = "" if wanted is None else f"={_spell_value(wanted)}"
            return f"tag:{_spell_value(key)}{equals}"
        case Attribute(name, value):
            return f"{name}:{_spell_value(value)}"
        case Reach(of, up, down):
            before = "" if up == 0 else "+" if up is None else f"{up}+"
            after = "" if down == 0 else "+" if down is None else f"+{down}"
            return before + _bracketed(of, Reach, Not, And, Or) + after
        case Not(of):
            return "not " + _bracketed(of, And, Or)
        case And(parts):
            return " and ".join(_bracketed(part, Or) for part in parts)
        case Or(parts):
            return " or ".join(map(_spell, parts))
    assert_never(node)


def _bracketed(node: Selection, *kinds: type[_Node]) -> str:
    return f"({_spell(node)})" if isinstance(node, kinds) else _spell(node)


def _spell_value(value: Value) -> str:
    plain = value.pattern or ("*" not in value.text and _VALUE.fullmatch(value.text))
    return value.text if plain else _quoted(value.text)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# Parsing


class _Token(NamedTuple):
    kind: str
    """`word`, `number`, `term` (already a node), `and`, `or`, `not`, `+`, `(`, `)` or `end`."""
    text: str
    start: int
    node: Selection | None = None


class _Parser:
    """Recursive descent with one token in hand; tokens are read only when they are needed, so that
    of two mistakes the first is reported."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.nesting = 0
        self.named_at: dict[Named, int] = {}
        """Where each name stands first, for errors that only the graph can find."""

    def selection(self) -> Selection:
        if not self.text.strip():
            raise Invalid("the selection is empty; name an asset, or write * for all", position=0)
        self.token = self.next_token()
        found = self.any_of()
        if self.token.kind != "end":
            self.unexpected()
        return found

    def any_of(self) -> Selection:
        parts = self.chain("or", self.all_of)
        flat = [p for part in parts for p in (part.parts if isinstance(part, Or) else (part,))]
        return flat[0] if len(flat) == 1 else Or(tuple(flat))

    def all_of(self) -> Selection:
        parts = self.chain("and", self.one)
        flat = [p for part in parts for p in (part.parts if isinstance(part, And) else (part,))]
        return flat[0] if len(flat) == 1 else And(tuple(flat))

    def chain(self, keyword: str, part: Callable[[], Selection]) -> list[Selection]:
        parts = [part()]
        while self.token.kind == keyword:
            self.advance()
            parts.append(part())
        return parts

    def one(self) -> Selection:
        if self.token.kind == "not":
            self.enter()
            self.advance()
            found = Not(self.one())
            self.nesting -= 1
            return found
        return self.reach()

    def reach(self) -> Selection:
        up: int | None = 0
        down: int | None = 0
        if self.token.kind == "number":
            number = self.token
            up = self.depth()
            if self.token.kind != "+":
                self.fail(
                    f"{number.text} is not an asset; a number of steps is followed by +,"
                    f" as in {number.text}+orders",
                    number.start,
                )
            self.advance()
        elif self.token.kind == "+":
            up = None
            self.advance()
        found = self.term()
        if self.token.kind == "+":
            self.advance()
            down = self.depth() if self.token.kind == "number" else None
        return found if up == 0 and down == 0 else Reach(found, up, down)

    def term(self) -> Selection:
        token = self.token
        if token.kind == "(":
            self.enter()
            self.advance()
            found = self.any_of()
            if self.token.kind == "end":
                self.fail("this ( is never closed; add a )", token.start)
            if self.token.kind != ")":
                self.unexpected()
            self.nesting -= 1
            self.advance()
            return found
        if token.node is not None:
            self.advance()
            return token.node
        return self.missing_term()

    def depth(self) -> int:
        digits, start = self.token.text, self.token.start
        if len(digits) > 9:  # Python refuses to read thousands of digits at all
            self.fail("this number of steps is too large; write + alone for all of them", start)
        self.advance()
        return int(digits)

    def enter(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.fail(
                f"brackets and nots are nested more than {MAX_NESTING} deep;"
                " simplify the selection",
                self.token.start,
            )

    # Tokens

    def advance(self) -> None:
        self.token = self.next_token()

    def next_token(self) -> _Token:
        text = self.text
        while self.at < len(text) and text[self.at].isspace():
            self.at += 1
        start = self.at
        if start == len(text):
            return _Token("end", "", start)
        if text[start] in "+()":
            self.at += 1
            return _Token(text[start], text[start], start)
        if text[start] == '"':
            return self.name_token(self.read_quoted(), start, quoted=True)
        if not (word := _WORD.match(text, start)):
            self.strange_character(start)
        self.at = word.end()
        if text[self.at : self.at + 1] == ":":
            node = self.attribute(word.group(), start)
            return _Token("term", text[start : self.at], start, node)
        if word.group().lower() in _KEYWORDS:
            return _Token(word.group().lower(), word.group(), start)
        if word.group().isdigit():
            return _Token("number", word.group(), start)
        return self.name_token(word.group(), start, quoted=False)

    def name_token(self, name: str, start: int, *, quoted: bool) -> _Token:
        parts = re.split(r"[./]", name)
        if len(parts) > 2 or not all(parts):
            self.fail(
                f"{_quote(name)} is not the name of an asset;"
                " write it as name, namespace.name or namespace/name",
                start,
            )
        namespace = parts[0] if len(parts) == 2 else None
        node: Named | NameLike
        if "*" in name and not quoted:
            node = NameLike(namespace, parts[-1])
        else:
            node = Named(namespace, parts[-1])
            self.named_at.setdefault(node, start)
        return _Token("term", self.text[start : self.at], start, node)

    def attribute(self, prefix: str, start: int) -> Tag | Attribute:
        if prefix not in ATTRIBUTES:
            known = ", ".join(f"{name}:" for name in ATTRIBUTES)
            hint = did_you_mean(f"{prefix.lower()}:", (f"{name}:" for name in ATTRIBUTES))
            self.fail(
                f"there is no attribute {_quote(prefix + ':')}"
                + (hint or f"; the attributes are {known}, and an asset is written namespace.name"),
                start,
            )
        self.at += 1
        value = self.read_value(f"{prefix}:")
        if prefix != "tag":
            return Attribute(prefix, value)
        if self.text[self.at : self.at + 1] != "=":
            return Tag(value)
        self.at += 1
        return Tag(value, self.read_value("="))

    def read_value(self, after: str) -> Value:
        if self.text[self.at : self.at + 1] == '"':
            return Value(self.read_quoted())
        if not (word := _VALUE.match(self.text, self.at)):
            self.fail(
                f"expected a value right after {after}; put it in double quotes if it holds spaces"
                " or signs",
                self.at,
            )
        self.at = word.end()
        return Value(word.group(), pattern="*" in word.group())

    def read_quoted(self) -> str:
        start = self.at
        read: list[str] = []
        at = start + 1
        while at < len(self.text) and self.text[at] != '"':
            if self.text[at] == "\\":
                at += 1
                if self.text[at : at + 1] not in ('"', "\\"):
                    self.fail(
                        'a \\ in quotes stands before " or another \\; write \\\\ for one of them',
                        at - 1,
                    )
            read.append(self.text[at])
            at += 1
        if at == len(self.text):
            self.fail('this " is never closed; add another one', start)
        self.at = at + 1
        return "".join(read)

    # What is wrong, and where

    def unexpected(self) -> NoReturn:
        """A complete selection is followed by something that does not continue it."""
        token = self.token
        if token.kind == ")":
            self.fail("this ) closes nothing; remove it, or add a ( before", token.start)
        if token.kind == "+":
            self.fail(
                "this + continues nothing; write x+2 for two steps downstream, and join selections"
                " with 'and' or 'or'",
                token.start,
            )
        if token.kind == "not":
            self.fail("expected 'and' or 'or' before this 'not'; write 'and not'", token.start)
        self.fail(
            f"expected 'and', 'or' or the end before {_quote(token.text)};"
            " write 'or' between selections to have both, 'and' to have what they share",
            token.start,
        )

    def missing_term(self) -> NoReturn:
        token = self.token
        expected = "expected an asset, an attribute such as tag:tier=gold, or a (…)"
        match token.kind:
            case "end":
                self.fail(f"{expected} at the end; add one", token.start)
            case "+":
                self.fail(
                    f"{expected} before this second +; write 2+x for two steps upstream",
                    token.start,
                )
            case "not":
                self.fail("'not' cannot follow +; write +(not …)", token.start)
            case "and" | "or":
                self.fail(
                    f"{expected} before {_quote(token.text)};"
                    f' an asset of that name is written "{token.kind}"',
                    token.start,
                )
            case _:
                self.fail(f"{expected}, but found {_quote(token.text)}", token.start)

    def strange_character(self, start: int) -> NoReturn:
        match self.text[start]:
            case ",":
                problem = (
                    "a comma means 'and' in some tools and 'or' in others;"
                    " write 'and' or 'or' instead"
                )
            case "&" | "|" | "!" as sign:
                problem = f"{sign} is not used here; write 'and', 'or' or 'not'"
            case "@":
                problem = "@ is not used here; for what dbt selects by @x write +(x+)"
            case "=":
                problem = "= belongs into a tag, as in tag:tier=gold; quote a value that holds one"
            case "'":
                problem = 'quotes are double here; write "…"'
            case other:
                problem = (
                    f"{other!r} cannot stand here; expected an asset, an attribute such as"
                    " tag:tier=gold, 'and', 'or', 'not', + or brackets"
                )
        self.fail(problem, start)

    def fail(self, problem: str, position: int) -> NoReturn:
        raise self.error(problem, position)

    def error(self, problem: str, position: int) -> Invalid:
        return Invalid(f"{problem}\n{_picture(self.text, position)}", position=position)


_PICTURE_WIDTH = 72


def _picture(text: str, position: int) -> str:
    """The text on one line with a caret under the character; of a long text, what is around it."""
    start = max(0, min(position - _PICTURE_WIDTH // 2, len(text) - _PICTURE_WIDTH))
    end = start + _PICTURE_WIDTH
    shown = [" " if c.isspace() else c if c.isprintable() else "?" for c in text[start:end]]
    before = "…" if start else ""
    after = "…" if end < len(text) else ""
    indent = len(before) + sum(map(_columns, shown[: position - start]))
    return f"    {before}{''.join(shown)}{after}\n    {' ' * indent}^"


def _columns(character: str) -> int:
    """How wide a terminal shows it."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _quote(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")


def _listed(keys: list[AssetKey]) -> str:
    shown = [f"'{key}'" for key in sorted(keys)]
    more = len(shown) - 10
    return " or ".join(shown) if more <= 0 else f"{' or '.join(shown[:10])} ({more} more)"
