"""`@asset`: a function that makes a data asset.

The decorator gives back an `Asset`, which is still callable as the function it was made from. It
keeps what was declared and checks it at once, so that a mistake is reported where it is written;
names are resolved later, when the project's default namespace and all its assets are known.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType, MethodType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from servo.core.definitions import AssetDefinition, CodeLocation, Dependency
from servo.core.dimensions import Dimension
from servo.core.keys import AssetKey
from servo.core.mappings import PartitionMapping
from servo.core.partitions import Partitioning
from servo.errors import Invalid

P = ParamSpec("P")
R = TypeVar("R")

Partitions = Dimension | Iterable[Dimension]


class Asset(Generic[P, R]):
    """A declared asset. Call it as the function it is made from."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str,
        namespace: str | None,
        deps: Mapping[Any, PartitionMapping | None],
        partitions: Partitioning | None,
        declared: Mapping[str, Any],
    ) -> None:
        self.function = function
        self.name = name
        self.namespace = namespace
        self.deps = deps
        self.partitions = partitions
        self._declared = declared
        self.__name__: str
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<asset {self.name if self.namespace is None else f'{self.namespace}.{self.name}'}>"

    def key(self, default_namespace: str) -> AssetKey:
        return AssetKey(self.namespace or default_namespace, self.name)

    @property
    def place(self) -> str:
        """Where the function is, as `file:line`."""
        return _place(self.function)

    def define(
        self, default_namespace: str, code_version: str, file: str | None = None
    ) -> AssetDefinition:
        """The definition, once the namespace of unqualified names is known; `file` as it is seen
        from the project, so that a definition is the same on every machine."""
        key = self.key(default_namespace)
        dependencies: dict[AssetKey, Dependency] = {}
        for dep, mapping in self.deps.items():
            upstream = _upstream(dep, default_namespace)
            if upstream in dependencies:
                raise Invalid(
                    f"asset {self.name!r} ({self.place}): deps names {upstream} twice; remove one"
                )
            dependencies[upstream] = Dependency(upstream=upstream, mapping=mapping)
        written = _written(self.function)
        return AssetDefinition(
            key=key,
            partitions=self.partitions,
            dependencies=tuple(dependencies[upstream] for upstream in sorted(dependencies)),
            code=CodeLocation(
                module=written.__module__,
                function=written.__qualname__,
                file=file,
                line=written.__code__.co_firstlineno,
            ),
            code_version=code_version,
            **self._declared,
        )


_collected: ContextVar[list[tuple[str, Asset[..., Any]]] | None] = ContextVar(
    "servo.declarations", default=None
)


@contextmanager
def declarations() -> Iterator[list[tuple[str, Asset[..., Any]]]]:
    """Every asset declared meanwhile, with the name of the module whose import declares it.

    A module does not hold all that it declares: a loop binds the same name again and again, and so
    does a second function of the same name.
    """
    found: list[tuple[str, Asset[..., Any]]] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def _declaring_module() -> str:
    """The module whose top-level code is running: with a factory, the one that calls it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


@overload
def asset(function: Callable[P, R], /) -> Asset[P, R]: ...
@overload
def asset(
    *,
    name: str | None = None,
    namespace: str | None = None,
    deps: Iterable[Any] | Mapping[Any, PartitionMapping | None] = (),
    partitions: Partitions | None = None,
    description: str | None = None,
    owners: Iterable[str] = (),
    tags: Mapping[str, str] | None = None,
    group: str | None = None,
) -> Callable[[Callable[P, R]], Asset[P, R]]: ...
def asset(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    namespace: str | None = None,
    deps: Iterable[Any] | Mapping[Any, PartitionMapping | None] = (),
    partitions: Partitions | None = None,
    description: str | None = None,
    owners: Iterable[str] = (),
    tags: Mapping[str, str] | None = None,
    group: str | None = None,
) -> Asset[P, R] | Callable[[Callable[P, R]], Asset[P, R]]:
    """Declare that a function makes a data asset.

    `name` is the function's, unless given; `namespace` the project's. `deps` are upstream assets:
    names (`"orders"`, `"raw.orders"`), assets, or a mapping from these to how their partitions are
    mapped (None: by name). `partitions` is one dimension or several.
    """

    def declare(function: Callable[P, R]) -> Asset[P, R]:
        return _declare(
            function, name, namespace, deps, partitions, description, owners, tags, group
        )

    return declare if function is None else declare(function)


def _declare(
    function: Callable[P, R],
    name: str | None,
    namespace: str | None,
    deps: Iterable[Any] | Mapping[Any, PartitionMapping | None],
    partitions: Partitions | None,
    description: str | None,
    owners: Iterable[str],
    tags: Mapping[str, str] | None,
    group: str | None,
) -> Asset[P, R]:
    _check_function(function)
    chosen = function.__name__ if name is None else name
    try:
        # The namespace may come later; the name is checked now, where it is written.
        key = AssetKey(
            "default" if namespace is None else _text("namespace", namespace),
            _text("name", chosen),
        )
        made = Asset(
            function,
            name=key.name,
            namespace=None if namespace is None else key.namespace,
            deps=_deps(deps),
            partitions=_partitioning(partitions),
            declared={
                "description": _summary(function)
                if description is None
                else _text("description", description),
                "owners": _texts("owners", owners),
                "tags": _tags(tags),
                "group": None if group is None else _word("group", group),
            },
        )
    except Invalid as why:
        raise Invalid(f"asset {_shown(chosen)} ({_place(function)}): {why}") from None
    collected = _collected.get()
    if collected is not None:
        collected.append((_declaring_module(), made))
    return made


def _check_function(function: object) -> None:
    if isinstance(function, Asset):
        raise Invalid(f"@asset goes on a function, and {function!r} is an asset; remove one @asset")
    if isinstance(function, str):
        raise Invalid(
            f"@asset goes on a function, not on {_shown(function)};"
            f" for the asset's name, write @asset(name={_shown(function)})"
        )
    try:
        fits = callable(function) and isinstance(_written(function), FunctionType)
    except Exception:  # noqa: BLE001  # an object may answer such questions with any error
        fits = False
    if not fits or not isinstance(getattr(function, "__name__", None), str):
        # A class, a partial or a built-in: their source is not what happens when they are called.
        raise Invalid(
            f"@asset goes on a function, not on {_shown(function)};"
            " write a function (def …) that calls it"
        )


def _written(function: Callable[..., Any]) -> FunctionType:
    """The function the user wrote, beneath what other decorators made of it."""
    written: Any = function
    for _ in range(100):  # as inspect.unwrap does, whose import would double that of Servo
        written = getattr(written, "__wrapped__", written)
    if isinstance(written, MethodType):
        written = written.__func__
    return written  # type: ignore[no-any-return]  # _check_function has looked


def _place(function: Callable[..., Any]) -> str:
    code = _written(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def _upstream(dep: object, default_namespace: str) -> AssetKey:
    if isinstance(dep, Asset):
        return dep.key(default_namespace)
    if isinstance(dep, AssetKey):
        return dep
    if isinstance(dep, str):
        return AssetKey.parse(_text("deps", dep), default_namespace)
    if isinstance(dep, FunctionType):
        raise Invalid(
            f"deps holds the function {dep.__name__!r}, which is no asset; put @asset on it"
        )
    raise Invalid(f"deps holds {_shown(dep)}; give names of assets or assets")


def _deps(deps: object) -> dict[Any, PartitionMapping | None]:
    if isinstance(deps, str | bytes | AssetKey | Asset) or not isinstance(deps, Iterable):
        raise Invalid(f"deps is {_shown(deps)}; give a list, like deps=['orders']")
    pairs = deps.items() if isinstance(deps, Mapping) else ((dep, None) for dep in deps)
    given: dict[Any, PartitionMapping | None] = {}
    for dep, mapping in pairs:
        try:
            _upstream(dep, "default")
        except Invalid as why:
            raise Invalid(f"deps: {why}" if isinstance(dep, str) else str(why)) from None
        if mapping is not None and not isinstance(mapping, PartitionMapping):
            raise Invalid(
                f"deps: the mapping for {_shown(dep)} is {_shown(mapping)}; use one from"
                " servo.types, such as LastN(7) or AllPartitions()"
            )
        if dep in given:
            raise Invalid(f"deps names {_shown(dep)} twice; remove one")
        given[dep] = mapping
    return given


def _partitioning(partitions: object) -> Partitioning | None:
    if partitions is None:
        return None
    several = [partitions] if isinstance(partitions, Dimension) else partitions
    if isinstance(several, str | bytes) or not isinstance(several, Iterable):
        raise Invalid(
            f"partitions is {_shown(partitions)}; use one from servo.types, such as"
            ' DailyPartition("date", start="2024-01-01")'
        )
    dimensions: list[Dimension] = []
    for dimension in several:
        if not isinstance(dimension, Dimension):
            raise Invalid(
                f"partitions holds {_shown(dimension)}; use one from servo.types, such as"
                ' DailyPartition("date", start="2024-01-01")'
            )
        dimensions.append(dimension)
    return Partitioning(tuple(dimensions))


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise Invalid(f"{what} is {_shown(value)}; give a string")
    try:
        return value.encode().decode()  # a plain one, also of a member of an enum of strings
    except UnicodeEncodeError:
        raise Invalid(f"{what} {_shown(value)} holds a lone surrogate; replace it") from None


def _word(what: str, value: object) -> str:
    text = _text(what, value)
    if not text.strip():
        raise Invalid(f"{what} is {_shown(value)}, which says nothing; fill it in or leave it out")
    return text


def _texts(what: str, values: object) -> tuple[str, ...]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise Invalid(f"{what} is {_shown(values)}; give a list of strings")
    return tuple(_word(f"one of {what}", value) for value in values)


def _tags(tags: object) -> dict[str, str]:
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise Invalid(f"tags is {_shown(tags)}; give a dict, like tags={{'tier': 'gold'}}")
    return {
        _word("a tag's name", key): _text(f"tag {_shown(key)}", value)
        for key, value in tags.items()
    }


def _summary(function: Callable[..., Any]) -> str:
    """The first paragraph of the docstring."""
    lines = (function.__doc__ or "").strip().splitlines()
    first = []
    for line in lines:
        if not line.strip():
            break
        first.append(line.strip())
    return " ".join(first)


def _shown(value: object) -> str:
    """A value of the user's in a message: short, and whatever its own `repr` does."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # a broken repr must not hide the mistake
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"
