"""`@asset`: a function that makes a data asset.

The decorator gives back an `Asset`, which is still callable as the function it was made from. It
keeps what was declared and checks it at once, so that a mistake is reported where it is written;
names are resolved later, when the project's default namespace and all its assets are known.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, overload

from servo.core.definitions import AssetDefinition, CodeLocation, Dependency
from servo.core.keys import AssetKey
from servo.core.mappings import PartitionMapping
from servo.core.partitions import Dimension, Partitioning
from servo.errors import Invalid

P = ParamSpec("P")
R = TypeVar("R")

Partitions = Dimension | Iterable[Dimension]
Upstream = "str | AssetKey | Asset[..., Any]"


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
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<asset {self.name if self.namespace is None else f'{self.namespace}.{self.name}'}>"

    def key(self, default_namespace: str) -> AssetKey:
        return AssetKey(self.namespace or default_namespace, self.name)

    def define(self, default_namespace: str, code_version: str) -> AssetDefinition:
        """The definition, once the namespace of unqualified names is known."""
        key = self.key(default_namespace)
        dependencies = []
        for dep, mapping in self.deps.items():
            try:
                upstream = (
                    dep.key(default_namespace)
                    if isinstance(dep, Asset)
                    else dep
                    if isinstance(dep, AssetKey)
                    else AssetKey.parse(dep, default_namespace)
                )
            except Invalid as why:
                raise Invalid(f"asset {key}: deps: {why}") from None
            dependencies.append(Dependency(upstream=upstream, mapping=mapping))
        code = self.function.__code__ if hasattr(self.function, "__code__") else None
        return AssetDefinition(
            key=key,
            partitions=self.partitions,
            dependencies=tuple(sorted(dependencies, key=lambda d: d.upstream)),
            code=CodeLocation(
                module=self.function.__module__,
                function=self.function.__qualname__,
                file=code.co_filename if code else None,
                line=code.co_firstlineno if code else None,
            ),
            code_version=code_version,
            **self._declared,
        )


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
    if not callable(function) or not hasattr(function, "__name__"):
        raise Invalid(f"@asset goes on a function, not on {function!r}")
    chosen = function.__name__ if name is None else name
    try:
        # The namespace may come later; the name is checked now, where it is written.
        AssetKey("default" if namespace is None else namespace, chosen)
        return Asset(
            function,
            name=chosen,
            namespace=namespace,
            deps=_deps(deps),
            partitions=_partitioning(partitions),
            declared={
                "description": _text("description", description) or _summary(function),
                "owners": _texts("owners", owners),
                "tags": _tags(tags),
                "group": _text("group", group),
            },
        )
    except Invalid as why:
        where = getattr(function, "__code__", None)
        at = f" ({where.co_filename}:{where.co_firstlineno})" if where else ""
        raise Invalid(f"asset {chosen!r}{at}: {why}") from None


def _deps(deps: object) -> dict[Any, PartitionMapping | None]:
    if isinstance(deps, Mapping):
        given = dict(deps)
        for dep, mapping in given.items():
            if mapping is not None and not isinstance(mapping, PartitionMapping):
                raise Invalid(
                    f"the mapping for {dep!r} is {mapping!r}; use one from servo.types, such as"
                    " LastN(7) or AllPartitions()"
                )
    elif isinstance(deps, str | AssetKey | Asset) or not isinstance(deps, Iterable):
        raise Invalid(f"deps is {deps!r}; give a list, like deps=['orders']")
    else:
        listed = list(deps)
        for dep in listed:
            if listed.count(dep) > 1:
                raise Invalid(f"deps names {dep!r} twice; remove one")
        given = dict.fromkeys(listed)
    for dep in given:
        if isinstance(dep, str):
            AssetKey.parse(dep, "default")
        elif not isinstance(dep, AssetKey | Asset):
            raise Invalid(f"deps holds {dep!r}; give names of assets or assets")
    return given


def _partitioning(partitions: object) -> Partitioning | None:
    if partitions is None:
        return None
    several = [partitions] if isinstance(partitions, Dimension) else partitions
    if isinstance(several, str) or not isinstance(several, Iterable):
        raise Invalid(
            f"partitions is {partitions!r}; use one from servo.types, such as"
            ' DailyPartition("date", start="2024-01-01")'
        )
    dimensions = tuple(several)
    for dimension in dimensions:
        if not isinstance(dimension, Dimension):
            raise Invalid(
                f"partitions holds {dimension!r}; use one from servo.types, such as"
                ' DailyPartition("date", start="2024-01-01")'
            )
    return Partitioning(dimensions)


def _text(what: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise Invalid(f"{what} is {value!r}; give a string")
    return value


def _texts(what: str, values: object) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise Invalid(f"{what} is {values!r}; give a list of strings")
    listed = tuple(values)
    for value in listed:
        _text(what, value)
    return listed


def _tags(tags: object) -> dict[str, str]:
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise Invalid(f"tags is {tags!r}; give a dict, like tags={{'tier': 'gold'}}")
    for key, value in tags.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise Invalid(f"tag {key!r}: {value!r} is not a pair of strings")
    return dict(tags)


def _summary(function: Callable[..., Any]) -> str:
    """The first paragraph of the docstring."""
    lines = (function.__doc__ or "").strip().split("\n\n")[0].splitlines()
    return " ".join(line.strip() for line in lines)
