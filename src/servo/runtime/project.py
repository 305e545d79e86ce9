"""Projects: a folder with a `servo.toml`, and the assets that its modules declare.

    # servo.toml
    modules = ["shop.assets"]     # imported in this order; every asset they declare is found
    namespace = "shop"            # of assets that do not name one; optional

Loading imports the user's code. What goes wrong there is the user's to mend, so it is told with the
file and line of theirs and without the frames in between.
"""

import ast
import importlib
import inspect
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from servo.core import canonical
from servo.core.definitions import Manifest
from servo.core.keys import ASSET_PART, AssetKey
from servo.errors import Invalid, did_you_mean
from servo.sdk.asset import Asset, declarations
from servo.sdk.asset import asset as declare

FILE = "servo.toml"
DEFAULT_NAMESPACE = "default"

_SERVO = Path(__file__).parents[1]


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded project."""

    root: Path
    manifest: Manifest
    functions: Mapping[str, Callable[..., object]] = {}
    """What makes each asset, by its canonical key."""

    def check_runs(self, assets: Iterable[str]) -> None:
        """Refuse assets whose function cannot be called, since nothing is handed to one yet, or
        would do nothing when it is."""
        for asset in assets:
            function = self.functions[asset]
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise Invalid(
                    f"asset {AssetKey.parse(asset)} cannot run: its function has a yield, and calling"
                    " it would run none of its lines; do the work without yield"
                )
            required = [
                parameter.name
                for parameter in inspect.signature(function).parameters.values()
                if parameter.default is parameter.empty
                and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            ]
            if required:
                raise Invalid(
                    f"asset {AssetKey.parse(asset)} cannot run: its function wants"
                    f" {', '.join(required)}, and functions are called without arguments so far;"
                    " remove the parameter, or give it a default"
                )


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `servo.toml` says."""

    modules: tuple[str, ...]
    namespace: str = DEFAULT_NAMESPACE


def load(folder: Path) -> Project:
    """The project in a folder, with everything its modules declare.

    A process can load several projects, one after the other, and the same one again: each load
    imports the project's own modules anew. (Two projects often have a module of the same name, and
    Python would hand out the first one's for both.) What a project has imported keeps working.
    """
    root = _resolve(folder)
    settings = read_settings(root)
    with _importing_from(root), declarations() as declared:
        modules = [_import(name, root) for name in settings.modules]
    assets = find_assets(modules, declared, settings.namespace)
    if not assets:
        raise Invalid(
            f"{root / FILE}: its modules ({', '.join(settings.modules)}) declare no assets;"
            " put @asset on a function in one of them"
        )
    manifest = Manifest(
        namespace=settings.namespace,
        assets=tuple(
            asset.define(settings.namespace, code_version(asset), _file_of(asset, root))
            for asset in assets.values()
        ),
    )
    _ = manifest.graph  # refuses what cannot be planned
    functions = {key.canonical: asset.function for key, asset in assets.items()}
    return Project(root=root, manifest=manifest, functions=functions)


def find(folder: Path) -> Path:
    """Where a project is, without loading it: what reads its state does not need its code."""
    root = _resolve(folder)
    read_settings(root)
    return root


def _resolve(folder: Path) -> Path:
    try:
        root = folder.resolve()
        if not root.exists():
            raise Invalid(f"there is no folder {root}; name the project's folder with --project")
        if not root.is_dir():
            raise Invalid(f"{root} is not a folder; name the project's folder with --project")
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        why = error.strerror if isinstance(error, OSError) else error
        raise Invalid(f"the folder {str(folder)!r} cannot be found: {why}") from None
    return root


# What the latest load put into the interpreter, for the next to take out again.
_path_entries: list[str] = []
_project_modules: dict[str, ModuleType] = {}


@contextmanager
def _importing_from(root: Path) -> Iterator[None]:
    """Let imports find the project's modules first, and forget those of the last project."""
    for entry in _path_entries:
        if entry in sys.path:
            sys.path.remove(entry)
    for name, module in _project_modules.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    importlib.invalidate_caches()
    sys.path.insert(0, str(root))  # as a script's folder would be
    _path_entries[:] = [str(root)]
    before = set(sys.modules)
    try:
        yield
    finally:
        _project_modules.clear()
        _project_modules.update(
            (name, sys.modules[name])
            for name in sys.modules.keys() - before
            if _is_own(_origin(sys.modules[name]), root)
        )


def _origin(module: ModuleType) -> str | None:
    """The file of a module, or the folder of a package without one."""
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return getattr(module, "__file__", None)
    return (
        spec.origin
        if spec.has_location
        else next(iter(spec.submodule_search_locations or ()), None)
    )


def _is_own(file: str | None, root: Path) -> bool:
    """Whether a file is the project's own: in its folder, but not in an environment inside it."""
    if file is None:
        return False
    for path in (Path(file), Path(file).resolve()):  # it may be a link, or be reached by one
        if path.is_relative_to(root):
            inside = path.relative_to(root).parts
            return "site-packages" not in inside and "dist-packages" not in inside
    return False


def read_settings(root: Path) -> Settings:
    path = root / FILE
    try:
        # Some editors begin a file with a byte order mark.
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        above = next((folder for folder in root.parents if (folder / FILE).is_file()), None)
        if above is not None:
            raise Invalid(
                f"there is no {FILE} in {root}, but in {above}; go there, or use --project {above}"
            ) from None
        raise Invalid(
            f'there is no {FILE} in {root}; make one with the line modules = ["my_assets"],'
            " or name another folder with --project"
        ) from None
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except (ValueError, RecursionError) as error:  # TOML that is wrong, or beyond Python's limits
        raise Invalid(f"{path} is not TOML: {error}; correct it") from None
    return _settings(data, path)


def _settings(data: Mapping[str, Any], path: Path) -> Settings:
    known = Settings.__struct_fields__
    for name in data:
        if name == "servo" and isinstance(data[name], dict):
            raise Invalid(f"{path}: settings stand at the top of the file; remove the line [servo]")
        if name not in known:
            raise Invalid(
                f"{path}: {name!r} is no setting{did_you_mean(name, known)}"
                f" (settings: {', '.join(known)})"
            )
    modules = data.get("modules")
    if not isinstance(modules, list) or not modules:
        found = "is missing" if modules is None else f"is {_shown(modules)}"
        raise Invalid(f'{path}: modules {found}; list module names, like modules = ["shop.assets"]')
    for name in modules:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise Invalid(
                f"{path}: modules holds {_shown(name)}, which is not the name of a module; for the"
                ' file shop/assets.py write "shop.assets"'
            )
    namespace = data.get("namespace", DEFAULT_NAMESPACE)
    if not isinstance(namespace, str) or not ASSET_PART.match(namespace):
        raise Invalid(
            f"{path}: namespace {_shown(namespace)} is not allowed: use lower-case letters, digits"
            " and _, beginning with a letter"
        )
    return Settings(modules=tuple(modules), namespace=namespace)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _import(name: str, root: Path) -> ModuleType:
    try:
        module = importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # user code may raise anything
        raise Invalid(_import_problem(name, root, error)) from None
    expected = PathFinder.find_spec(name.partition(".")[0], [str(root)])
    if expected and expected.has_location and not _is_own(_origin(module), root):
        raise Invalid(
            f"{root / FILE} names the module {name!r}, but Python has another of that name:"
            f" {_origin(module) or 'a part of itself'}; rename yours"
        )
    return module


def _import_problem(name: str, root: Path, error: BaseException) -> str:
    where = _where(error, root)
    at = "" if where is None else f"{where}: "
    if isinstance(error, Invalid):
        # A declaration names its own file and line; other mistakes are where they were made.
        said = str(error)
        return f"module {name!r}: {said if where is None or _file(where) in said else at + said}"
    if isinstance(error, SystemExit):
        return (
            f"module {name!r} cannot be imported: {at}it ends the program; remove that, or put it"
            ' under if __name__ == "__main__":'
        )
    if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
        hint = did_you_mean(name, _module_names(root))
        return (
            f"{root / FILE} names the module {name!r}, which is not in {root} or installed"
            f"{hint or '; correct modules'}"
        )
    try:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # noqa: BLE001  # a broken __str__ must not hide where it happened
        said = ""
    said = f"{type(error).__name__}: {said}".removesuffix(": ")
    hint = "; install it, or correct the import" if isinstance(error, ModuleNotFoundError) else ""
    return f"module {name!r} cannot be imported: {at}{said}{hint}"


def _where(error: BaseException, root: Path) -> str | None:
    """The user's line that an error comes from, as `file:line`."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        # Neither the import system nor Servo, which are between the user's lines.
        if frame.filename[:1] != "<" and not Path(frame.filename).is_relative_to(_SERVO)
    ]
    own = [frame for frame in frames if _is_own(frame.filename, root)] or frames
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def _file(where: str) -> str:
    return where.rpartition(":")[0]


def _module_names(root: Path) -> list[str]:
    """The modules in a folder, for guessing which was meant."""
    files = [file.relative_to(root) for file in (*root.glob("*.py"), *root.glob("*/*.py"))]
    return [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]


def find_assets(
    modules: Iterable[ModuleType],
    declared: Iterable[tuple[str, Asset[..., Any]]],
    namespace: str,
) -> dict[AssetKey, Asset[..., Any]]:
    """Every asset that the modules declare or hold, by key. One that several hold is one asset."""
    names = {module.__name__ for module in modules}
    candidates = [asset for name, asset in declared if name in names]
    for module in modules:
        candidates += [value for value in vars(module).values() if isinstance(value, Asset)]
    found: dict[AssetKey, Asset[..., Any]] = {}
    for asset in candidates:
        key = asset.key(namespace)
        other = found.setdefault(key, asset)
        if other is asset:
            continue
        if other.place == asset.place:
            raise Invalid(
                f"asset {key} is declared several times at {asset.place}; give each its own name,"
                " like @asset(name=f'orders_{country}')"
            )
        raise Invalid(
            f"asset {key} is declared twice: at {other.place} and at {asset.place}; rename one"
        )
    return found


def _file_of(asset: Asset[..., Any], root: Path) -> str | None:
    """Where the function stands within the project; None for one that comes from elsewhere."""
    file = Path(_file(asset.place))
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else None


def code_version(asset: Asset[..., Any]) -> str:
    """A fingerprint of the function's source, wherever its file stands.

    It covers the function as written, with its decorators except `@asset`: what is declared there
    (an owner, a tag) does not change what the function does. Not covered is what the function
    refers to: helpers, constants, and the values that a factory closes over.
    """
    try:
        lines = inspect.getsource(asset.function).split("\n")
    except (OSError, TypeError):
        raise Invalid(
            f"asset {asset.name!r}: its source cannot be read; declare it in a file"
        ) from None
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    lines = [line.removeprefix(indent) for line in lines]
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError):
        tree = ast.Module(body=[], type_ignores=[])  # a lambda, cut out of a longer statement
    dropped = _asset_lines(tree, inspect.unwrap(asset.function))
    kept = _string_lines(tree)
    text = "\n".join(
        line if number in kept else line.rstrip()
        for number, line in enumerate(lines)
        if number not in dropped
    )
    return canonical.fingerprint(text.rstrip())


def _asset_lines(tree: ast.Module, function: Any) -> set[int]:
    """The lines of `@asset(…)`."""
    return {
        line
        for statement in tree.body[:1]
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in statement.decorator_list
        if _is_asset(decorator, function)
        for line in _lines(decorator)
    }


def _string_lines(tree: ast.Module) -> set[int]:
    """The lines that end inside a string, where trailing space means something."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.JoinedStr)
        for line in _lines(node)[:-1]
    }


def _lines(node: ast.expr) -> range:
    return range(node.lineno - 1, node.end_lineno or node.lineno)


def _is_asset(decorator: ast.expr, function: Any) -> bool:
    """Whether a decorator is `@asset`, under whichever name it was imported."""
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(named, ast.Attribute) and isinstance(named.value, ast.Name):
        return getattr(function.__globals__.get(named.value.id), named.attr, None) is declare
    return isinstance(named, ast.Name) and function.__globals__.get(named.id) is declare
