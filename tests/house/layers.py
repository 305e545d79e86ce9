"""Who may know whom. Imports point down; the table below is the map, from the ground up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.house.source import FACADE, Import, Module, imports_of, room_of

_PURE = {"core", "errors"}
_FACTS = {"fold", "events", *_PURE}
_BELOW_RUNTIME = {
    *("worker", "catalog", "control", "ledger", "ports", "sdk", "types", "check"),
    *_FACTS,
}
_BELOW_FACES = {"wiring", "runtime", *_BELOW_RUNTIME}

# Room -> the other rooms it may import. Every room of the design is here, built or not, so that the
# first file of a new room is held from its first line.
MAY_IMPORT: Mapping[str, set[str]] = {
    "errors": set(),
    "core": {"errors"},
    "events": {"core", "errors"},
    "fold": {"events", "core", "errors"},
    # What users import stays independent of everything that moves.
    "sdk": {"core", "errors"},
    "types": {"sdk", "core", "errors"},
    "check": {"sdk", "core", "errors"},
    "ports": {*_FACTS},
    # Siblings of one shape: they implement ports and know nothing of who calls them.
    "adapters": {"ports", *_PURE},
    "ledger": {"ports", *_FACTS},
    # Controllers go from a view to intents and touch no store.
    "control": {"ports", *_FACTS},
    # A worker never needs the control prefix: it reports facts and leaves the log to the engine.
    "worker": {"ports", "sdk", "types", "check", "events", *_PURE},
    "catalog": {"ledger", "ports", *_FACTS},
    "runtime": {*_BELOW_RUNTIME},
    # The one place that knows adapters.
    "wiring": {"adapters", "runtime", *_BELOW_RUNTIME},
    "testing": {"wiring", "runtime", *_BELOW_RUNTIME},
    # Faces may ask the facade (its version), and the command line may start the others.
    "ui": {FACADE, *_BELOW_FACES},
    "mcp": {FACADE, *_BELOW_FACES},
    "api": {FACADE, "ui", *_BELOW_FACES},
    "cli": {FACADE, "api", "mcp", "ui", *_BELOW_FACES},
    "__main__": {"cli"},
    FACADE: {"sdk", "types", "check", "runtime", *_PURE},
}

# An import inside a function is for start-up time, and start-up time is the business of these two.
MAY_IMPORT_LATE = {"cli", FACADE}


def climbing_imports(modules: Mapping[str, Module]) -> list[str]:
    """Imports that the table does not allow, and rooms that are not in it."""
    problems = []
    for module in modules.values():
        if module.room not in MAY_IMPORT:
            problems.append(
                f"{module.path}: the room {module.room!r} is not on the map; "
                "give it a floor in tests/house/layers.py"
            )
            continue
        allowed = MAY_IMPORT[module.room] | {module.room}
        problems += [
            f"{found} ({module.room} may know {', '.join(sorted(allowed - {module.room})) or 'nothing'})"
            for found in imports_of(module, modules)
            if room_of(found.target) not in allowed
        ]
    return problems


def late_imports(modules: Mapping[str, Module]) -> list[str]:
    """Imports of servo inside functions, where nobody starts up: usually a dodged cycle."""
    return [
        f"{found} inside a function; a cycle says that a value belongs lower"
        for module in modules.values()
        if module.room not in MAY_IMPORT_LATE
        for found in imports_of(module, modules)
        if found.in_function
    ]


def unknown_imports(modules: Mapping[str, Module]) -> list[str]:
    """Imports of modules of servo that do not exist (a late one fails only when it is reached)."""
    return [
        f"{found}, which does not exist"
        for module in modules.values()
        for found in imports_of(module, modules)
        if found.target not in modules
    ]


def import_cycles(modules: Mapping[str, Module]) -> list[str]:
    """Groups of modules that need each other, each group once, by Tarjan's algorithm.

    The facade's lazy names are left out: every module below it may be named there, and none may
    name the facade (the table holds that).
    """
    edges = {
        module.name: sorted(_targets(imports_of(module, modules), module.name))
        for module in modules.values()
        if module.room != FACADE
    }
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[str] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for target in edges.get(name, ()):
            if target not in number:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], number[target])
        if low[name] == number[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                cycles.append("these modules import each other: " + ", ".join(sorted(group)))

    for name in sorted(edges):
        if name not in number:
            visit(name)
    return cycles


def _targets(imports: Iterable[Import], own_name: str) -> set[str]:
    return {found.target for found in imports} - {own_name}
