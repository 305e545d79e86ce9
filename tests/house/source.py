"""The source as the rules see it: modules, what each imports, and where."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"

FACADE = "__init__"
_DOTTED = re.compile(r"servo(\.[A-Za-z_]\w*)+")


@dataclass(frozen=True)
class Module:
    name: str  # "servo.core.keys"; a package is named without its __init__
    path: str  # relative to the repository, for messages
    is_package: bool
    tree: ast.Module

    @property
    def room(self) -> str:
        """The folder or file directly under `servo`; the facade is `__init__`."""
        return room_of(self.name)


@dataclass(frozen=True)
class Import:
    importer: Module
    target: str  # the full name of a module of servo
    line: int
    in_function: bool

    def __str__(self) -> str:
        return f"{self.importer.path}:{self.line}: imports {self.target}"


def room_of(name: str) -> str:
    return name.split(".")[1] if "." in name else FACADE


def parse(name: str, text: str, *, is_package: bool = False, path: str | None = None) -> Module:
    return Module(name, path or name, is_package, ast.parse(text))


def modules_under(src: Path = SRC) -> dict[str, Module]:
    """Every module of servo by its full name."""
    found = {}
    for path in sorted((src / "servo").rglob("*.py")):
        parts = list(path.relative_to(src).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = parse(
            name, path.read_text(), is_package=is_package, path=str(path.relative_to(src.parent))
        )
    return found


def imports_of(module: Module, known: Mapping[str, Module]) -> Iterator[Import]:
    """What `module` imports of servo, however it says so.

    Imports under `TYPE_CHECKING` count: a reader has to know the other module all the same. So do
    `import_module("servo.x")` and `__import__("servo.x")`, and in the facade every text that is the
    name of a module, because its table of lazy names is made of those.
    """
    inside = _nodes_inside_functions(module.tree)
    for node in ast.walk(module.tree):
        in_function = id(node) in inside
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            # `from servo.core import keys` means the module keys; `from servo.core import Key` does not.
            targets = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base
                for alias in node.names
            ]
        elif isinstance(node, ast.Call) and _is_dynamic_import(node):
            targets = [
                argument.value
                for argument in node.args[:1]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            ]
        elif (
            module.name == "servo"
            and isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _DOTTED.fullmatch(node.value)
        ):
            targets = [node.value]
        else:
            continue
        for target in sorted(set(targets)):
            if target == "servo" or target.startswith("servo."):
                yield Import(module, target, node.lineno, in_function)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    keep = len(parts) - node.level + (1 if module.is_package else 0)
    return ".".join(parts[:keep] + ([node.module] if node.module else []))


def _is_dynamic_import(node: ast.Call) -> bool:
    called = node.func
    return (isinstance(called, ast.Name) and called.id in ("__import__", "import_module")) or (
        isinstance(called, ast.Attribute) and called.attr in ("__import__", "import_module")
    )


def _nodes_inside_functions(tree: ast.Module) -> set[int]:
    return {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(outer)
        if inner is not outer
    }
