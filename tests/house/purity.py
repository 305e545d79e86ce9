"""Where the world may be touched.

Time, randomness, ids and environment variables come from one module, `servo.adapters.system`, and are
handed to everything else as values. The pure rooms (`core`, `events`, `fold`) do no input or output
at all. The rules read the syntax tree and follow names through imports and aliases, so that another
spelling of the same call is found too. They are a fence for honest people, not a sandbox: a name put
together at run time gets through.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.house.source import Module

SYSTEM = "servo.adapters.system"
PURE_ROOMS = {"core", "events", "fold"}

# A whole module stands for everything in it.
WORLD = {
    "time": "clock",
    "random": "randomness",
    "secrets": "randomness",
    "uuid": "randomness",
    "numpy.random": "randomness",
    "os.urandom": "randomness",
    "os.getrandom": "randomness",
    "ssl.RAND_bytes": "randomness",
    "datetime.datetime.now": "clock",
    "datetime.datetime.utcnow": "clock",
    "datetime.datetime.today": "clock",
    "datetime.date.today": "clock",
    "os.times": "clock",
    "servo.core.ids.UlidSource": "ids",
    "servo.core.ids.make_ulid": "ids",
    "os.environ": "environment",
    "os.environb": "environment",
    "os.getenv": "environment",
    "os.getenvb": "environment",
    "os.putenv": "environment",
    "os.unsetenv": "environment",
    "os.path.expandvars": "environment",
    "os.path.expanduser": "environment",
    "posix": "environment",
}

IO_MODULES = {
    *("os", "io", "pathlib", "socket", "subprocess", "asyncio", "logging", "shutil", "tempfile"),
    *("glob", "fileinput", "mmap", "multiprocessing", "concurrent", "sqlite3", "ssl", "select"),
    *("signal", "http", "urllib.request", "ftplib", "smtplib", "codecs.open", "nt", "posix"),
    *("sys.stdin", "sys.stdout", "sys.stderr", "sys.argv"),
    *("pkgutil", "importlib.resources", "importlib.metadata", "zoneinfo", "linecache"),
}
# Time zones are data that comes with a pinned package: read once, the same on every machine, and
# needed by partitions to know their own names.
IO_EXCEPTIONS = {"servo.core.zones": "pkgutil"}
IO_BUILTINS = {"open", "print", "input", "breakpoint", "exec", "eval", "__import__"}


def world_uses(module: Module) -> list[str]:
    """Clocks, randomness and environment outside their one place."""
    if module.name == SYSTEM:
        return []
    return [
        f"{module.path}:{line}: {name} ({kind}) is used; take it from {SYSTEM} as a value"
        for line, name, kind in sorted(_world_uses(module))
    ]


def _world_uses(module: Module) -> Iterator[tuple[int, str, str]]:
    for line, name in _names_used(module.tree):
        listed = _listed(name, WORLD)
        if listed:
            yield line, name, WORLD[listed]
    for node in ast.walk(module.tree):
        # `t.astimezone()` without a zone asks the machine for its own.
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "astimezone"
            and not node.args
            and not node.keywords
        ):
            yield node.lineno, "astimezone()", "environment"


def io_uses(module: Module) -> list[str]:
    """Input and output, and ways of reaching it by name, in the pure rooms."""
    if module.room not in PURE_ROOMS:
        return []
    rules = dict.fromkeys(IO_MODULES - {IO_EXCEPTIONS.get(module.name)})
    found = {(line, name) for line, name in _names_used(module.tree) if _listed(name, rules)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and node.id in IO_BUILTINS and isinstance(node.ctx, ast.Load):
            found.add((node.lineno, node.id))
        if isinstance(node, ast.Call) and _last_part(node.func) in ("import_module", "__import__"):
            found.add((node.lineno, "an import by name"))
    found |= {
        (line, name)
        for line, name in _names_used(module.tree)
        if name.startswith("builtins.") and name.removeprefix("builtins.") in IO_BUILTINS
    }
    return [
        f"{module.path}:{line}: {name} is used; {module.room} is pure"
        for line, name in sorted(found)
    ]


def sleeps(module: Module) -> list[str]:
    """Waiting on the real clock, in tests."""
    return [
        f"{module.path}:{line}: time.sleep is used; wait for the thing itself, or use a manual clock"
        for line, name in sorted(_names_used(module.tree))
        if name == "time.sleep"
    ]


def _listed(name: str, rules: Mapping[str, object]) -> str | None:
    """The rule that `name` falls under: itself or one of its parents."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        if ".".join(parts[:length]) in rules:
            return ".".join(parts[:length])
    return None


def _names_used(tree: ast.Module) -> set[tuple[int, str]]:
    """Every imported thing the code names, by its full name, with the line.

    Bindings are gathered from the whole file without regard to scope: a function that shadows
    `time` with a local of that name is told to choose another, which is no loss.
    """
    bound: dict[str, str] = {}
    used: set[tuple[int, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                used.add((node.lineno, alias.name))
                top = alias.name.split(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                full = node.module if alias.name == "*" else f"{node.module}.{alias.name}"
                used.add((node.lineno, full))
                bound[alias.asname or alias.name] = full

    # Then plain assignments (`clock = datetime.now`, `Moment = datetime`), until nothing new turns up.
    assignments = [
        (target.id, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    settled = False
    while not settled:
        settled = True
        for name, value in assignments:
            full_name = _full_name(value, bound)
            if full_name and name not in bound:
                bound[name] = full_name
                settled = False

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name | ast.Call):
            full_name = _full_name(node, bound)
            if full_name:
                used.add((node.lineno, full_name))
    return used


def _full_name(node: ast.expr, bound: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return bound.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _full_name(node.value, bound)
        return f"{owner}.{node.attr}" if owner else None
    if isinstance(node, ast.Call):
        texts = [
            a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
        ]
        called = _last_part(node.func)
        if called == "getattr" and len(node.args) >= 2 and len(texts) >= 1:
            owner = _full_name(node.args[0], bound)
            return f"{owner}.{texts[0]}" if owner else None
        if called in ("import_module", "__import__") and texts:
            return texts[0]
    return None


def _last_part(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None
